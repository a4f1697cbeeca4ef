//! The conditions of a policy one by one, before the objects of a request are known.

use fairgate_cel::CelValue;

use super::{EvaluationContext, ExpressionClock, PolicyRun};
use crate::observer::ExpressionRole;
use crate::policy::CompiledPolicy;

/// What a condition gave before the objects are known, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyResult {
    /// Whether it is false; `None` if there was an error.
    pub(crate) is_false: Option<bool>,
    pub(crate) cost: u64,
}

/// The conditions of one policy, evaluated one by one. The context need not have what they do not read.
pub(crate) struct EarlyRun<'p, 'c, 'e>(PolicyRun<'p, 'c, 'e>);

impl<'p: 'c, 'c, 'e> EarlyRun<'p, 'c, 'e> {
    pub(crate) fn new(policy: &'p CompiledPolicy, context: &'e EvaluationContext<'c>) -> Self {
        let mut run = PolicyRun::new(policy, context, None);
        run.bind_for_conditions();
        Self(run)
    }

    /// The result of the condition with this index; `None` if it costs more than `budget`.
    pub(crate) fn condition(&self, index: usize, budget: u64) -> Option<EarlyResult> {
        let mut is_false = None;
        let condition = self.0.policy.conditions.get(index)?;
        let left = self.0.part(
            ExpressionRole::Condition,
            std::iter::once((index, condition)),
            budget,
            &mut ExpressionClock::stopped(),
            |result, _| is_false = result.ok().map(|of| matches!(of, CelValue::Bool(false))),
        );
        let cost = budget - left.ok()?;
        Some(EarlyResult { is_false, cost })
    }
}
