//! What the two layers of this crate pass to each other about an eviction that may wait: the outer one in the
//! extensions of the request, the inner one in those of the reply.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;

use fairgate_disruption::waiting::{BudgetName, WaitPlace};

/// An attempt at an eviction that may wait for its budget.
#[derive(Clone, Debug)]
pub(crate) struct EvictionAttempt {
    /// The eviction's place in the queue of its budget; `None` for the first attempt, which has not waited.
    pub(crate) place: Option<WaitPlace>,
    /// Whether the eviction is being carried out.
    is_carried_out: Arc<AtomicBool>,
}

impl EvictionAttempt {
    /// An attempt that has not begun.
    pub(crate) fn new(place: Option<WaitPlace>) -> Self {
        Self {
            place,
            is_carried_out: Arc::default(),
        }
    }

    /// The procedure begins. It counts the end of the eviction, also if the client disconnects, unless the eviction continues to wait.
    pub(crate) fn carry_out(&self) {
        self.is_carried_out.store(true, Ordering::Relaxed);
    }

    /// Whether the procedure has begun.
    pub(crate) fn is_carried_out(&self) -> bool {
        self.is_carried_out.load(Ordering::Relaxed)
    }
}

/// A budget has refused the attempt. The attempt is neither counted nor logged; the eviction is, when it
/// ends.
#[derive(Clone, Debug)]
pub(crate) struct BudgetRefusal {
    pub(crate) budget: BudgetName,
    /// What the budget lacks, for the response and for operators.
    pub(crate) cause: String,
    /// The body of the request, for the next attempt.
    pub(crate) body: Bytes,
}

/// The attempt of an eviction that waits has failed and has changed nothing. As after a [`BudgetRefusal`], the eviction
/// continues to wait: a store or an upstream that is away for a moment costs it nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedAttempt;
