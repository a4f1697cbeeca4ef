//! Messages from other threads to a core's gate.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{core_policy::CorePolicy, waiters::Waiter};
use fairgate_core::{apf::level::Ticket, digest::RequestDigest};

/// A message in a core's mailbox.
#[derive(Debug)]
pub enum GateMessage {
    /// A waiting request may execute.
    Granted(Waiter, Ticket<Waiter>),
    /// A waiting request is refused, because another one has taken its place in the queue.
    Replaced(Waiter),
    /// The policy or a setting has changed.
    Policy(Arc<CorePolicy>),
    /// Describe these requests, for a dump. The reply has `None` for those that no longer exist.
    Describe(
        Vec<Waiter>,
        oneshot::Sender<Vec<Option<Arc<RequestDigest>>>>,
    ),
}
