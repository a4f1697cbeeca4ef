//! Compiled expressions.

mod absence;
mod attributes;
mod bindings;
mod compile;
mod constants;
mod cost;
mod eval;
mod folds;
mod height;
mod operators;
mod plan;
mod reads;
mod text_search;

use std::fmt;
use std::sync::Arc;

use crate::checker::Checked;
use crate::declarations::{CelDeclarations, CelFunction, CelFunctionDecl};
use crate::pattern_budget::PatternBudget;
use crate::syntax::Ast;
use crate::types::CelType;
use crate::value::{CelError, CelResult, DEFAULT_WORK_LIMIT};
use eval::Evaluator;
use plan::{AttributeRoot, Code, CodeId, QualifierKey};

pub use absence::{CelAbsence, CelPartialValue};
pub use bindings::{CelBindings, CelLazyObject, CelVariable};
pub use reads::{CelOrigins, CelReads, CelStep};

/// The default cost limit of one evaluation, in the original's cost units.
pub const DEFAULT_COST_LIMIT: u64 = 1_000_000;

/// The number of iterations, of all comprehensions together, between checks for an interrupt.
const INTERRUPT_CHECK_FREQUENCY: u32 = 100;

/// A compiled expression. It can be evaluated by several threads at once.
pub struct CelProgram {
    code: Vec<Code>,
    root: CodeId,
    /// For each variable of a comprehension, by number, the code of its initial value. `None` unless it is an
    /// accumulator.
    inits: Vec<Option<CodeId>>,
    result: CelType,
    /// Names of the variables, by number.
    variables: Arc<[Box<str>]>,
    /// The numbers of the variables that the expression uses.
    used: Box<[u32]>,
    height: u32,
}

impl CelProgram {
    /// Compiles a checked expression.
    ///
    /// # Errors
    ///
    /// If a function does not accept a constant, or patterns take more than `budget` allows.
    pub(crate) fn compile(
        ast: &Ast,
        checked: &Checked,
        declarations: &CelDeclarations,
        variables: Arc<[Box<str>]>,
        budget: &mut PatternBudget,
    ) -> Result<Self, CelError> {
        let compiled = compile::compile(ast, checked, declarations, budget)?;
        let height = height::height(&compiled.code, &compiled.inits, compiled.root);
        Ok(Self {
            height,
            code: compiled.code,
            root: compiled.root,
            inits: compiled.inits,
            result: checked.result.clone(),
            variables,
            used: compiled.used.into(),
        })
    }

    /// The static type of the result.
    pub fn result_type(&self) -> &CelType {
        &self.result
    }

    /// The variables that the expression uses, in no particular order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.used
            .iter()
            .map(|number| &*self.variables[*number as usize])
    }

    /// The fields of a variable that the expression reads, some perhaps more than once. `None` if it uses the variable as
    /// a whole, or computes the name of a field.
    pub fn fields_of(&self, variable: &str) -> Option<Vec<&str>> {
        let mut fields = Vec::new();
        for code in &self.code {
            let Code::Attribute(attribute) = code else {
                continue;
            };
            let AttributeRoot::Variable(number) = attribute.root else {
                continue;
            };
            if *self.variables[number as usize] != *variable {
                continue;
            }
            match attribute.qualifiers.first().map(|first| &first.key) {
                Some(QualifierKey::Field(name)) => fields.push(&**name),
                Some(QualifierKey::Const(_) | QualifierKey::Code(_)) | None => return None,
            }
        }
        Some(fields)
    }

    /// The maximum depth of recursion of an evaluation, in nested evaluations of a few hundred bytes of stack each.
    ///
    /// If lazy variables evaluate further programs, the host has to limit the sum of the heights.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Evaluates the expression with the default limits.
    pub fn evaluate<'a>(&'a self, bindings: &CelBindings<'a>) -> CelEvaluation<'a> {
        self.evaluate_within(bindings, &EvaluationLimits::default())
    }

    /// Evaluates the expression within `limits`. Simple expressions do not allocate.
    pub fn evaluate_within<'a>(
        &'a self,
        bindings: &CelBindings<'a>,
        limits: &EvaluationLimits<'_>,
    ) -> CelEvaluation<'a> {
        self.run(bindings, None, limits)
    }

    /// Evaluates the expression with `lazy` as the value of the variable that [`CelBindings::with_lazy`] names. Its
    /// fields are computed on demand.
    pub fn evaluate_lazy<'a>(
        &'a self,
        bindings: &CelBindings<'a>,
        lazy: &dyn CelLazyObject<'a>,
        limits: &EvaluationLimits<'_>,
    ) -> CelEvaluation<'a> {
        self.run(bindings, Some(lazy), limits)
    }

    fn run<'a>(
        &'a self,
        bindings: &CelBindings<'a>,
        lazy: Option<&dyn CelLazyObject<'a>>,
        limits: &EvaluationLimits<'_>,
    ) -> CelEvaluation<'a> {
        let mut evaluator = Evaluator::new(self, bindings, lazy, limits);
        let result = evaluator.eval(self.root);
        CelEvaluation {
            result,
            cost: evaluator.cost(),
            work: evaluator.work.taken(),
        }
    }
}

impl fmt::Debug for CelProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CelProgram")
            .field("result", &self.result)
            .field("size", &self.code.len())
            .finish_non_exhaustive()
    }
}

/// The result of an evaluation, and its cost.
#[derive(Clone, Debug)]
pub struct CelEvaluation<'a> {
    /// The value, or the error.
    pub result: CelResult<'a>,
    /// The cost in the original's units. If the limit was exceeded, it includes the step that exceeded it.
    pub cost: u64,
    /// The steps that it took beyond those that its cost allows, as [`CelWork`](crate::CelWork) counts them; at most the
    /// limit.
    pub work: u64,
}

/// The limits of an evaluation.
#[derive(Clone, Copy)]
pub struct EvaluationLimits<'i> {
    /// The maximum cost, in the original's units. An evaluation that exceeds it ends with an error.
    pub cost: u64,
    /// The maximum number of steps beyond those that the cost allows, as [`CelWork`](crate::CelWork) counts them. An
    /// evaluation that needs more ends with an error.
    pub work: u64,
    /// Called after every 100 iterations of comprehensions and every 10 000 steps. `true` ends the evaluation with the
    /// error `operation interrupted`.
    pub interrupted: Option<&'i dyn Fn() -> bool>,
}

impl Default for EvaluationLimits<'_> {
    fn default() -> Self {
        Self {
            cost: DEFAULT_COST_LIMIT,
            work: DEFAULT_WORK_LIMIT,
            interrupted: None,
        }
    }
}

impl fmt::Debug for EvaluationLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvaluationLimits")
            .field("cost", &self.cost)
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}
