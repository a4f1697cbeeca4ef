//! Seeing how a verdict comes about: for tools that explain it.

use fairgate_cel::{CelJson, CelValue};

/// What an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionRole {
    /// One of the `matchConditions`.
    Condition,
    /// One of the `variables`.
    Variable,
    /// The `expression` of one of the `validations`.
    Validation,
    /// The `messageExpression` of one of the `validations`.
    Message,
    /// The `valueExpression` of one of the `auditAnnotations`.
    Annotation,
}

impl ExpressionRole {
    /// The list of the policy's `spec`, and the member of its items that is the expression.
    pub fn members(self) -> (&'static str, &'static str) {
        match self {
            Self::Condition => ("matchConditions", "expression"),
            Self::Variable => ("variables", "expression"),
            Self::Validation => ("validations", "expression"),
            Self::Message => ("validations", "messageExpression"),
            Self::Annotation => ("auditAnnotations", "valueExpression"),
        }
    }

    /// The field of the expression at an index of its list, such as `spec.validations[0].expression`.
    pub fn field(self, index: usize) -> String {
        let (list, member) = self.members();
        format!("spec.{list}[{index}].{member}")
    }
}

/// An expression that has been evaluated.
#[derive(Clone, Copy, Debug)]
pub struct ExpressionStep<'s> {
    /// What it is for.
    pub role: ExpressionRole,
    /// Its index in the list of the policy that has it; 0 for variables.
    pub index: usize,
    /// The name of the variable; empty for others.
    pub name: &'s str,
    /// The value, or the text of the error.
    pub result: Result<&'s CelValue<'s>, &'s str>,
    /// What it cost, in CEL cost units, without the variables that were computed for it: each of those is a step of its
    /// own, which comes before.
    pub cost: u64,
}

/// Sees each step of evaluating. See [`AdmissionInputs::observer`](crate::AdmissionInputs::observer).
pub trait EvaluationObserver {
    /// An evaluation with one of the binding's params begins; the steps until the next one belong to it.
    fn evaluation(&self, policy: &str, binding: &str, param: Option<&CelJson<'_>>);

    /// An expression has been evaluated.
    fn expression(&self, step: &ExpressionStep<'_>);

    /// A policy that matches, or one of its bindings, is configured wrongly for this request.
    fn configuration_error(&self, policy: &str, binding: Option<&str>, error: &str);
}
