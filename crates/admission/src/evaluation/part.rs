//! One part of an evaluation: expressions that share a budget and the values of variables.

use fairgate_cel::{CelBindings, CelError, CelErrorKind, CelValue, DEFAULT_WORK_LIMIT};

use super::variables::PolicyVariables;
use crate::expression::PolicyExpression;
use crate::inputs::AdmissionInputs;
use crate::observer::{ExpressionRole, ExpressionStep};

/// The steps that all expressions of a part may take besides those that their cost allows: as many as four expressions
/// may. Only work that costs nothing takes them.
pub(crate) const WORK_LIMIT: u64 = 4 * DEFAULT_WORK_LIMIT;

/// The budget does not suffice for the expressions of a part; none of its results counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "validation failed due to running out of cost budget, no further validation rules will be run"
)]
pub(super) struct OutOfBudget;

/// Why an expression has no value.
#[derive(Debug)]
pub(super) struct ExpressionError {
    pub(super) message: String,
    /// Whether a limit ended it that Kubernetes does not have. What Kubernetes would have found is then not known, and the client
    /// chooses the object, so `failurePolicy: Ignore` does not apply.
    pub(super) is_own_limit: bool,
}

impl ExpressionError {
    fn of_program(source: &str, error: &CelError) -> Self {
        Self {
            message: format!("expression '{source}' resulted in error: {error}"),
            is_own_limit: error.kind() == CelErrorKind::OwnLimit,
        }
    }

    /// Several errors as one: each text once, in brackets unless there is only one.
    pub(super) fn of_all(errors: &[Self]) -> Self {
        let mut distinct: Vec<&str> = Vec::new();
        for error in errors {
            if !distinct.contains(&error.message.as_str()) {
                distinct.push(&error.message);
            }
        }
        let message = match distinct.as_slice() {
            [only] => (*only).to_owned(),
            all => format!("[{}]", all.join(", ")),
        };
        Self {
            message,
            is_own_limit: errors.iter().any(|error| error.is_own_limit),
        }
    }

    /// An error that Kubernetes has, too.
    pub(super) fn other(message: String) -> Self {
        Self {
            message,
            is_own_limit: false,
        }
    }
}

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

    /// The value of the expression with this index in its list, or its error.
    ///
    /// # Errors
    ///
    /// When the budget does not suffice.
    pub(super) fn evaluate(
        &mut self,
        index: usize,
        expression: &'c PolicyExpression,
    ) -> Result<Result<CelValue<'c>, ExpressionError>, OutOfBudget> {
        let (result, cost) = self.run(expression);
        if let Some(observer) = self.inputs.observer() {
            observer.expression(&ExpressionStep {
                role: self.role,
                index,
                name: "",
                result: result.as_ref().map_err(|error| error.message.as_str()),
                cost,
            });
        }
        let cost = self.variables.take_cost().saturating_add(cost);
        self.left = self.left.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(result)
    }

    /// The value of an expression and its cost, without that of variables.
    fn run(
        &mut self,
        expression: &'c PolicyExpression,
    ) -> (Result<CelValue<'c>, ExpressionError>, u64) {
        let program = match &expression.program {
            Ok(program) => program,
            Err(problem) => {
                let error = ExpressionError {
                    message: format!("compilation error: {problem}"),
                    is_own_limit: problem.is_own_limit,
                };
                return (Err(error), 0);
            }
        };
        let failed = |error: &CelError| ExpressionError::of_program(&expression.source, error);
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
