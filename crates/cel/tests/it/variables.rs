//! The variables of a policy, computed on demand as a host does.

use std::cell::{Cell, OnceCell};

use fairgate_cel::{
    CelBindings, CelCompileError, CelEnvironment, CelError, CelLazyObject, CelObjectType,
    CelProgram, CelResult, CelType, EvaluationLimits,
};

/// Compiled variables. Each can use those before it.
pub(crate) struct CompiledVariables {
    /// The environment of expressions that use all variables.
    pub(crate) environment: CelEnvironment,
    variables: Vec<(String, Result<CelProgram, String>)>,
}

impl CompiledVariables {
    pub(crate) fn new(environment: &CelEnvironment, variables: &[(String, String)]) -> Self {
        let mut object = CelObjectType::new("kubernetes.variables");
        let mut compiled = Self {
            environment: environment.clone(),
            variables: Vec::new(),
        };
        for (name, expr) in variables {
            let program = compiled.environment.compile(expr);
            let program = program.map_err(|error| compile_text(&error));
            let of = match &program {
                Ok(program) => field_type(program.result_type()),
                Err(_) => CelType::Dyn,
            };
            object = object.field(name, of);
            compiled.environment = environment.extend().object_type(object.clone()).build();
            compiled.variables.push((name.clone(), program));
        }
        compiled
    }
}

/// The original's message about an expression that does not compile.
pub(crate) fn compile_text(error: &CelCompileError) -> String {
    match error {
        CelCompileError::Issues(issues) => format!("compilation failed: {issues}"),
        CelCompileError::Program(error) => format!("program instantiation failed: {error}"),
    }
}

/// The type of a variable's field. As in the original, types other than simple types, lists and maps become `dyn`.
fn field_type(of: &CelType) -> CelType {
    let parameters: Vec<_> = of.parameters().iter().map(field_type).collect();
    match of {
        CelType::List(_) => CelType::list(parameters[0].clone()),
        CelType::Map(_) => CelType::map(parameters[0].clone(), parameters[1].clone()),
        CelType::Opaque(..) | CelType::Object(_) | CelType::Type(_) => CelType::Dyn,
        simple => simple.clone(),
    }
}

/// The values of variables in one evaluation, and their cost.
pub(crate) struct VariableValues<'c, 'e> {
    compiled: &'c CompiledVariables,
    bindings: &'e CelBindings<'c>,
    values: Vec<OnceCell<CelResult<'c>>>,
    pub(crate) cost: Cell<u64>,
}

impl<'c, 'e> VariableValues<'c, 'e> {
    pub(crate) fn new(compiled: &'c CompiledVariables, bindings: &'e CelBindings<'c>) -> Self {
        Self {
            compiled,
            bindings,
            values: vec![OnceCell::new(); compiled.variables.len()],
            cost: Cell::new(0),
        }
    }

    fn compute(&self, name: &str, program: &'c Result<CelProgram, String>) -> CelResult<'c> {
        let fails =
            |how, why: &str| format!("composited variable \"{name}\" fails to {how}: {why}");
        let program = program.as_ref();
        let program = program.map_err(|error| CelError::new(fails("compile", error)))?;
        let limits = EvaluationLimits::default();
        let evaluation = program.evaluate_lazy(self.bindings, self, &limits);
        self.cost.set(self.cost.get() + evaluation.cost);
        let failed = |error: CelError| CelError::new(fails("evaluate", error.message()));
        evaluation.result.map_err(failed)
    }
}

impl<'c> CelLazyObject<'c> for VariableValues<'c, '_> {
    fn field(&self, name: &str) -> Option<CelResult<'c>> {
        let mut all = self.compiled.variables.iter();
        let at = all.position(|(of, _)| of == name)?;
        let compute = || self.compute(name, &self.compiled.variables[at].1);
        Some(self.values[at].get_or_init(compute).clone())
    }

    fn names(&self) -> Vec<&'c str> {
        let names = self.compiled.variables.iter();
        names.map(|(name, _)| name.as_str()).collect()
    }
}
