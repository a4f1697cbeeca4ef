//! How long single expressions take.

use std::time::Duration;

use fairgate_core::time::Time;

use crate::inputs::AdmissionInputs;

/// Measures how long expressions take. Reading the time costs a tenth of a simple evaluation, so it is read only where the
/// duration of an expression is asked for, or may be and the time is not known from the expression before.
pub(super) struct ExpressionClock<'i> {
    inputs: Option<&'i dyn AdmissionInputs>,
    /// When the present expression began.
    began: Time,
    /// When the next one begins, if that is known.
    next: Option<Time>,
}

impl<'i> ExpressionClock<'i> {
    /// For expressions of which nobody asks how long they took.
    pub(super) fn stopped() -> Self {
        Self {
            inputs: None,
            began: Time::ZERO,
            next: None,
        }
    }

    /// For expressions of which the first one begins now, or at `next`.
    pub(super) fn new(inputs: &'i dyn AdmissionInputs, next: Option<Time>) -> Self {
        Self {
            inputs: Some(inputs),
            next,
            ..Self::stopped()
        }
    }

    pub(super) fn begin(&mut self) {
        if let Some(inputs) = self.inputs {
            self.began = self.next.take().unwrap_or_else(|| inputs.now());
        }
    }

    /// How long the expression has taken that has just ended.
    pub(super) fn took(&mut self) -> Duration {
        let now = self.inputs.map_or(Time::ZERO, AdmissionInputs::now);
        self.next = Some(now);
        now.since(self.began)
    }
}
