//! Compiled expressions.

mod attributes;
mod compile;
mod cost;
mod eval;
mod folds;
mod operators;
mod plan;

use std::fmt;
use std::sync::Arc;

use crate::checker::Checked;
use crate::declarations::{CelCostFn, CelDeclarations, CelFunction, CelFunctionDecl};
use crate::syntax::Ast;
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelValue};
use eval::Evaluator;
use plan::{Code, CodeId};

/// The cost that one evaluation may have, unless [`EvaluationLimits`] says otherwise.
pub const DEFAULT_COST_LIMIT: u64 = 1_000_000;

/// The work that one evaluation may do besides what cost counts: parts of values that are compared or copied.
const DEFAULT_WORK_LIMIT: u64 = 20_000_000;

/// Comprehensions ask whether to stop once in so many iterations.
const INTERRUPT_CHECK_FREQUENCY: u32 = 100;

/// A compiled expression. It can be evaluated by several threads at once.
pub struct CelProgram {
    code: Vec<Code>,
    root: CodeId,
    /// For each variable of a comprehension how its first value is computed, if it is an accumulator.
    inits: Vec<Option<CodeId>>,
    result: CelType,
    /// Names of the variables, by number.
    variables: Arc<[Box<str>]>,
    used: Box<[u32]>,
}

impl CelProgram {
    /// Compiles a checked expression.
    ///
    /// # Errors
    ///
    /// When a constant is one that a function does not take.
    pub(crate) fn compile(
        ast: &Ast,
        checked: &Checked,
        declarations: &CelDeclarations,
        variables: Arc<[Box<str>]>,
    ) -> Result<Self, CelError> {
        let compiled = compile::compile(ast, checked, declarations)?;
        Ok(Self {
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

    /// Evaluates the expression with the default limits.
    pub fn evaluate<'a>(&'a self, bindings: &'a CelBindings<'a>) -> CelEvaluation<'a> {
        self.evaluate_within(bindings, &EvaluationLimits::default())
    }

    /// Evaluates the expression. A simple one allocates nothing.
    pub fn evaluate_within<'a>(
        &'a self,
        bindings: &'a CelBindings<'a>,
        limits: &EvaluationLimits<'_>,
    ) -> CelEvaluation<'a> {
        let mut evaluator = Evaluator::new(self, bindings, limits);
        let result = evaluator.eval(self.root);
        let cost = evaluator.cost();
        CelEvaluation { result, cost }
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

/// What an evaluation gave and what it cost.
#[derive(Clone, Debug)]
pub struct CelEvaluation<'a> {
    /// The value, or why there is none.
    pub result: CelResult<'a>,
    /// The cost in the original's units; at most a little over the limit.
    pub cost: u64,
}

/// The limits of an evaluation.
#[derive(Clone, Copy)]
pub struct EvaluationLimits<'i> {
    /// The highest cost; when it is exceeded the evaluation stops.
    pub cost: u64,
    /// Asked now and then by comprehensions; `true` stops the evaluation with `operation interrupted`.
    pub interrupted: Option<&'i dyn Fn() -> bool>,
}

impl Default for EvaluationLimits<'_> {
    fn default() -> Self {
        Self {
            cost: DEFAULT_COST_LIMIT,
            interrupted: None,
        }
    }
}

impl fmt::Debug for EvaluationLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvaluationLimits")
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// The values of an environment's variables. One set can be used for all programs of the environment.
#[derive(Clone, Debug)]
pub struct CelBindings<'a> {
    names: Arc<[Box<str>]>,
    values: Vec<Option<CelValue<'a>>>,
}

impl<'a> CelBindings<'a> {
    /// No value yet for any of the variables.
    pub(crate) fn new(names: Arc<[Box<str>]>) -> Self {
        let values = vec![None; names.len()];
        Self { names, values }
    }

    /// Gives the variable `name` a value. Whether the environment has such a variable.
    pub fn set(&mut self, name: &str, value: CelValue<'a>) -> bool {
        let Some(number) = self.names.iter().position(|of| **of == *name) else {
            return false;
        };
        self.values[number] = Some(value);
        true
    }

    /// These bindings with a value for the variable `name`; a name that the environment has not is ignored.
    #[must_use]
    pub fn with(mut self, name: &str, value: CelValue<'a>) -> Self {
        self.set(name, value);
        self
    }

    /// The value of the variable number `variable`.
    fn get(&self, variable: u32) -> Option<&CelValue<'a>> {
        self.values.get(variable as usize)?.as_ref()
    }
}
