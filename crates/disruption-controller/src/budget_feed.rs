//! The interface to budgets that are not the upstream's, such as those that the gateway hosts.

use std::pin::Pin;

use fairgate_disruption::controller::{ObjectKey, StatusWriteOutcome};
use fairgate_upstream::informer::Event;
use futures_util::stream::BoxStream;

use serde_json::Value;

/// A change of the budgets, or a part of their list: see [`Event`].
pub type BudgetEvent = Event<Value>;

/// The list of all budgets, followed by their changes. An error is a message for operators; the stream continues after
/// it.
pub type BudgetEvents = BoxStream<'static, Result<BudgetEvent, String>>;

/// The outcome of a status write.
pub type StatusWriteFuture<'a> = Pin<Box<dyn Future<Output = StatusWriteOutcome> + Send + 'a>>;

/// The budgets of an API other than the upstream's.
pub trait BudgetFeed: Send + Sync + 'static {
    /// Lists and watches all budgets.
    fn watch(&self) -> BudgetEvents;

    /// Replaces the status of a budget by that of `object`, if the budget still has the resource version of `object`.
    /// Otherwise the outcome is [`StatusWriteOutcome::Conflict`].
    fn write_status<'a>(&'a self, key: &'a ObjectKey, object: &'a Value) -> StatusWriteFuture<'a>;
}
