//! One part of an evaluation: expressions that share a budget and the values of variables.

use std::fmt;

use fairgate_cel::{CelBindings, CelValue, DEFAULT_WORK_LIMIT};

use super::variables::PolicyVariables;
use crate::inputs::AdmissionInputs;
use crate::observer::{ExpressionRole, ExpressionStep};
use crate::policy::PolicyExpression;

/// The steps that all expressions of a part may take besides those that their cost allows: as many as four expressions
/// may. Only work that costs nothing takes them.
pub(crate) const WORK_LIMIT: u64 = 4 * DEFAULT_WORK_LIMIT;

/// The budget does not suffice for the expressions of a part; none of its results counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "validation failed due to running out of cost budget, no further validation rules will be run"
)]
pub(super) struct OutOfBudget;

/// Expressions that share a budget and the values of variables.
pub(super) struct EvaluationPart<'c, 'e> {
    bindings: &'e CelBindings<'c>,
    inputs: &'e dyn AdmissionInputs,
    role: ExpressionRole,
    variables: PolicyVariables<'c, 'e>,
    left: u64,
}

impl<'c, 'e> EvaluationPart<'c, 'e> {
    pub(super) fn new(
        variables: &'c [(String, PolicyExpression)],
        bindings: &'e CelBindings<'c>,
        inputs: &'e dyn AdmissionInputs,
        interrupted: &'e dyn Fn() -> bool,
        (role, budget, work): (ExpressionRole, u64, u64),
    ) -> Self {
        let observer = inputs.observer();
        Self {
            bindings,
            inputs,
            role,
            variables: PolicyVariables::new(variables, bindings, interrupted, observer, work),
            left: budget,
        }
    }

    /// What is left of the budget.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The value of the expression with this index in its list, or the text of its error.
    ///
    /// # Errors
    ///
    /// When the budget does not suffice.
    pub(super) fn evaluate(
        &mut self,
        index: usize,
        expression: &'c PolicyExpression,
    ) -> Result<Result<CelValue<'c>, String>, OutOfBudget> {
        let (result, cost) = self.run(expression);
        if let Some(observer) = self.inputs.observer() {
            observer.expression(&ExpressionStep {
                role: self.role,
                index,
                name: "",
                result: result.as_ref().map_err(String::as_str),
                cost,
            });
        }
        let cost = self.variables.take_cost().saturating_add(cost);
        self.left = self.left.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(result)
    }

    /// The value of an expression and its cost, without that of variables.
    fn run(&mut self, expression: &'c PolicyExpression) -> (Result<CelValue<'c>, String>, u64) {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return (Err(format!("compilation error: {error}")), 0),
        };
        let failed = |error: &dyn fmt::Display| {
            let source = &expression.source;
            format!("expression '{source}' resulted in error: {error}")
        };
        if let Err(error) = self.variables.check_interrupt() {
            return (Err(failed(&error)), 0);
        }
        let limits = self.variables.limits();
        self.variables.begin(program.height());
        let evaluation = program.evaluate_lazy(self.bindings, &self.variables, &limits);
        self.variables.take_work(evaluation.work);
        let result = evaluation.result.map_err(|error| failed(&error));
        (result, evaluation.cost)
    }
}
