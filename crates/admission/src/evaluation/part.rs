//! One part of an evaluation: expressions that share a budget and the values of variables.

use fairgate_cel::{CelBindings, CelValue, DEFAULT_WORK_LIMIT};

use super::variables::PolicyVariables;
use crate::policy::PolicyExpression;

/// The steps that all expressions of a part may take besides those that their cost allows: as many as four expressions
/// may. Only work that costs nothing takes them.
const WORK_LIMIT: u64 = 4 * DEFAULT_WORK_LIMIT;

/// The budget does not suffice for the expressions of a part; none of its results counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "validation failed due to running out of cost budget, no further validation rules will be run"
)]
pub(super) struct OutOfBudget;

/// Expressions that share a budget and the values of variables.
pub(super) struct EvaluationPart<'c, 'e> {
    bindings: &'e CelBindings<'c>,
    variables: PolicyVariables<'c, 'e>,
    left: u64,
}

impl<'c, 'e> EvaluationPart<'c, 'e> {
    pub(super) fn new(
        variables: &'c [(String, PolicyExpression)],
        bindings: &'e CelBindings<'c>,
        interrupted: &'e dyn Fn() -> bool,
        budget: u64,
    ) -> Self {
        Self {
            bindings,
            variables: PolicyVariables::new(variables, bindings, interrupted, WORK_LIMIT),
            left: budget,
        }
    }

    /// What is left of the budget.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The value of an expression, or the text of its error.
    ///
    /// # Errors
    ///
    /// When the budget does not suffice.
    pub(super) fn evaluate(
        &mut self,
        expression: &'c PolicyExpression,
    ) -> Result<Result<CelValue<'c>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {error}"))),
        };
        let limits = self.variables.limits();
        self.variables.begin(program.height());
        let evaluation = program.evaluate_lazy(self.bindings, &self.variables, &limits);
        self.variables.take_work(evaluation.work);
        let cost = self.variables.take_cost().saturating_add(evaluation.cost);
        self.left = self.left.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(evaluation.result.map_err(|error| {
            format!(
                "expression '{}' resulted in error: {error}",
                expression.source
            )
        }))
    }
}
