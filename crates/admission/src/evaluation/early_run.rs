//! The conditions of policies one by one, before the objects of a request are known.

use fairgate_cel::{CelBindings, CelJson, CelValue, EvaluationLimits};

use super::part::EvaluationPart;
use crate::environment::PolicyEnvironment;
use crate::expression::PolicyExpression;
use crate::inputs::AdmissionInputs;
use crate::observer::ExpressionRole;

/// What a condition gave before the objects are known, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyResult {
    /// Whether it is false; `None` if there was an error.
    pub(crate) is_false: Option<bool>,
    pub(crate) cost: u64,
}

/// Evaluates conditions that read nothing but `request`, of policies without params.
pub(crate) struct EarlyRun<'c> {
    inputs: &'c dyn AdmissionInputs,
    bindings: CelBindings<'c>,
}

impl<'c> EarlyRun<'c> {
    pub(crate) fn new(inputs: &'c dyn AdmissionInputs, request: &'c CelJson<'c>) -> Self {
        let environment = PolicyEnvironment::for_bindings(false);
        let mut bindings = environment.bindings();
        if let Some(variable) = environment.variable("request") {
            bindings.bind(variable, Some(CelValue::json(request)));
        }
        Self { inputs, bindings }
    }

    /// The result of the condition with this index in its policy; `None` if it costs more than `budget`. It may take so many steps
    /// (`work`) besides those that its cost allows.
    pub(crate) fn condition(
        &self,
        index: usize,
        condition: &'c PolicyExpression,
        (budget, work): (u64, u64),
    ) -> Option<EarlyResult> {
        let interrupted = || self.inputs.is_interrupted();
        if self.inputs.observer().is_none() {
            // Without variables nothing is shared among the conditions but the budget, and nobody is told of errors.
            let Ok(program) = &condition.program else {
                return Some(EarlyResult {
                    is_false: None,
                    cost: 0,
                });
            };
            let all = EvaluationLimits::default();
            let limits = EvaluationLimits {
                work: all.work.min(work),
                interrupted: Some(&interrupted),
                ..all
            };
            let evaluation = program.evaluate_within(&self.bindings, &limits);
            let is_false = |of: CelValue<'_>| matches!(of, CelValue::Bool(false));
            return (evaluation.cost <= budget).then(|| EarlyResult {
                is_false: evaluation.result.ok().map(is_false),
                cost: evaluation.cost,
            });
        }
        let mut part = EvaluationPart::new(
            &[],
            &self.bindings,
            self.inputs,
            &interrupted,
            (ExpressionRole::Condition, budget, work),
        );
        let result = part.evaluate(index, condition).ok()?;
        Some(EarlyResult {
            is_false: result.ok().map(|of| matches!(of, CelValue::Bool(false))),
            cost: budget - part.left(),
        })
    }
}
