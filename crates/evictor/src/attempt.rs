//! What the two layers of this crate tell each other about an eviction that may wait: the outer one in the
//! extensions of the request, the inner one in those of the reply.

use bytes::Bytes;

use fairgate_eviction::waiting::{BudgetName, WaitPlace};

/// An attempt at an eviction that may wait for its budget.
#[derive(Clone, Debug)]
pub(crate) struct EvictionAttempt {
    /// Its place, if it has waited already.
    pub(crate) place: Option<WaitPlace>,
}

/// A budget has refused the attempt. It is neither counted nor logged: that is done when the eviction ends.
#[derive(Clone, Debug)]
pub(crate) struct BudgetRefusal {
    pub(crate) budget: BudgetName,
    /// The body of the request, for the next attempt.
    pub(crate) body: Bytes,
}
