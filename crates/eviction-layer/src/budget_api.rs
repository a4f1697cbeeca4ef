//! Where budgets are read and charged.

use std::pin::Pin;

use fairgate_disruption::procedure::calls::{CallReply, UpstreamCall};

use crate::upstream_response::UpstreamResponse;

/// The reply to a call.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = CallReply<UpstreamResponse>> + Send + 'a>>;

/// Where budgets are read and their status is written: in the upstream, or in an API that the gateway hosts.
///
/// Reads must return what was last written, and a write of the status must fail with 409 if the object has another
/// resource version than the one that is sent. So concurrent evictions cannot exceed a budget.
pub trait BudgetApi: Send + Sync + 'static {
    /// Makes a call about the budgets of a namespace: to list them, to read one, or to write its status.
    fn call<'a>(&'a self, namespace: &'a str, call: &'a UpstreamCall) -> CallFuture<'a>;
}
