//! Refusing evictions in front of an upstream that enforces budgets itself.
//!
//! A [`Precheck`] makes the reads of an eviction and stops before the first write. It refuses what the upstream would
//! certainly refuse. All other evictions are forwarded, also if a read fails. It never grants an eviction.

use super::{
    calls::{CallReply, UpstreamCall},
    machine::{Eviction, EvictionResult, EvictionStep},
    refusal::EvictionRefusal,
    request::EvictionRequest,
    server_clock::ServerClock,
};

/// A check in progress.
#[derive(Debug)]
pub struct Precheck<R> {
    eviction: Eviction<R>,
    pod: String,
}

/// The next step of a check.
#[derive(Debug, PartialEq)]
pub enum PrecheckStep {
    /// Make this read-only call, then continue with [`Precheck::replied`].
    Call(UpstreamCall),
    /// Refuse the eviction.
    Refuse(EvictionRefusal),
    /// Forward the request unchanged.
    Forward,
}

impl<R> Precheck<R> {
    /// Starts the check of an eviction.
    pub fn new(request: EvictionRequest) -> Self {
        Self {
            pod: request.pod.clone(),
            eviction: Eviction::new(request, ServerClock::default()),
        }
    }

    /// The next step.
    pub fn step(&self) -> PrecheckStep {
        match self.eviction.step() {
            EvictionStep::Call(
                call @ (UpstreamCall::GetPod { .. } | UpstreamCall::ListBudgets { .. }),
            ) => PrecheckStep::Call(call),
            EvictionStep::Done(EvictionResult::Refused(refusal)) if is_certain(refusal) => {
                PrecheckStep::Refuse(refusal.clone())
            }
            // Only the read of the pod ends with this result.
            EvictionStep::Done(EvictionResult::Upstream { code: 404, .. }) => {
                let pod = self.pod.clone();
                PrecheckStep::Refuse(EvictionRefusal::PodGone { pod })
            }
            EvictionStep::Call(_) | EvictionStep::Pause(_) | EvictionStep::Done(_) => {
                PrecheckStep::Forward
            }
        }
    }

    /// Continues with the reply to the call.
    pub fn replied(&mut self, reply: CallReply<R>) {
        self.eviction.replied(reply);
    }
}

/// Whether every server that enforces budgets refuses an eviction for this reason. This also applies to the errors of
/// [`EvictionRequest::new`]. If not, the request must be forwarded.
pub fn is_certain(refusal: &EvictionRefusal) -> bool {
    matches!(
        refusal,
        EvictionRefusal::BudgetExhausted { .. }
            | EvictionRefusal::BudgetNotProcessed { .. }
            | EvictionRefusal::SeveralBudgets
            | EvictionRefusal::BudgetNegative { .. }
            | EvictionRefusal::TooManyDisruptedPods { .. }
            | EvictionRefusal::NameMismatch
            | EvictionRefusal::NamespaceMismatch
    )
}
