//! One expression of a policy, compiled.

use std::fmt;

use fairgate_cel::{
    CelCompileError, CelEnvironment, CelErrorKind, CelProgram, CelType, PatternBudget, PatternLimit,
};

/// What expressions must evaluate to.
pub(crate) mod expression_types {
    use fairgate_cel::CelType;

    /// The types of conditions and validations.
    pub(crate) const CONDITION: &[CelType] = &[CelType::Bool];
    /// The types of messages.
    pub(crate) const MESSAGE: &[CelType] = &[CelType::String];
    /// The types of audit annotations.
    pub(crate) const ANNOTATION: &[CelType] = &[CelType::String, CelType::Null];
}

/// An expression, compiled, or why it does not compile.
pub(crate) struct PolicyExpression {
    pub(crate) source: String,
    pub(crate) program: Result<CelProgram, CompileProblem>,
}

/// Why an expression does not compile.
#[derive(Debug)]
pub(crate) struct CompileProblem {
    message: String,
    /// Whether it exceeds a limit that Kubernetes does not have: kube-apiserver may evaluate it.
    pub(crate) is_own_limit: bool,
}

impl CompileProblem {
    /// One that Kubernetes has, too.
    fn other(message: String) -> Self {
        Self {
            message,
            is_own_limit: false,
        }
    }
}

impl fmt::Display for CompileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl PolicyExpression {
    /// Compiles an expression, whose patterns take from `budget`.
    pub(crate) fn compile(
        environment: &CelEnvironment,
        source: &str,
        types: &[CelType],
        budget: &mut PatternBudget,
    ) -> Self {
        let compiled = budget.within(PatternLimit::EXPRESSION, |budget| {
            environment.compile_within(source, budget)
        });
        let program = match compiled {
            Ok(program) => of_type(program, types),
            Err(CelCompileError::Issues(issues)) => {
                let message = format!("compilation failed: {issues}");
                Err(CompileProblem::other(message))
            }
            Err(CelCompileError::Program(error)) => Err(CompileProblem {
                message: format!("program instantiation failed: {error}"),
                is_own_limit: error.kind() == CelErrorKind::OwnLimit,
            }),
        };
        Self {
            source: source.to_owned(),
            program,
        }
    }

    /// The static type of its value; `dyn` if it does not compile.
    pub(crate) fn result_type(&self) -> &CelType {
        match &self.program {
            Ok(program) => program.result_type(),
            Err(_) => &CelType::Dyn,
        }
    }

    /// Whether it uses the variable `name` of its environment.
    pub(crate) fn uses(&self, name: &str) -> bool {
        let program = self.program.as_ref();
        program.is_ok_and(|program| program.variables().any(|of| of == name))
    }
}

/// Refuses a program whose static type is none of `types`. If `types` is empty, every type is accepted.
fn of_type(program: CelProgram, types: &[CelType]) -> Result<CelProgram, CompileProblem> {
    let found = program.result_type();
    if types.is_empty() || types.contains(found) {
        return Ok(program);
    }
    let found = found.full_name();
    let expected: Vec<_> = types.iter().map(CelType::full_name).collect();
    let expected = match expected.as_slice() {
        [only] => (*only).clone(),
        all => format!("one of [{}]", all.join(" ")),
    };
    let message = format!("must evaluate to {expected} but got {found}");
    Err(CompileProblem::other(message))
}
