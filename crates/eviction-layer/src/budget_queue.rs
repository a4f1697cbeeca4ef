//! Turns at charging a budget, so that the evictions of one gateway do not conflict with each other.
//!
//! A turn covers the read of the budget and the write of its status. It avoids conflicts and the pauses that
//! follow them. It is not needed for correctness: the conditional write of the status is, since other gateways and the
//! controller write at any time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fairgate_core::sync::{Mutex, lock};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

/// Namespace and name of a budget.
type BudgetKey = (String, String);

/// The version that was last written in a turn, if known.
type LastWritten = Option<u64>;

/// The budgets for which there are turns.
#[derive(Debug, Default)]
pub(crate) struct BudgetQueues {
    queues: Mutex<BTreeMap<BudgetKey, Weak<tokio::sync::Mutex<LastWritten>>>>,
}

/// The right to charge a budget; others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct BudgetTurn(OwnedMutexGuard<LastWritten>);

impl BudgetQueues {
    /// Waits for a turn. Turns are given in the order in which they were requested.
    pub(crate) async fn turn(&self, namespace: &str, budget: &str) -> BudgetTurn {
        let queue = self.queue((namespace.to_owned(), budget.to_owned()));
        BudgetTurn(queue.lock_owned().await)
    }

    fn queue(&self, key: BudgetKey) -> Arc<tokio::sync::Mutex<LastWritten>> {
        let mut queues = lock(&self.queues);
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        // At most as many as there are evictions.
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::default();
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}

impl BudgetTurn {
    /// Whether a write in an earlier turn has replaced the version of the object that was read.
    pub(crate) fn is_outdated(&self, object: &Value) -> bool {
        let versions = version(object).zip(*self.0);
        versions.is_some_and(|(read, written)| read < written)
    }

    /// Records that the status was written. `stored` is the object after the write, if known.
    pub(crate) fn wrote(&mut self, stored: &Value) {
        *self.0 = version(stored).or(*self.0);
    }
}

/// Resource versions of one kind are numbers that grow with each write. If not, nothing is known of their order.
fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(version: &str) -> Value {
        json!({"metadata": {"resourceVersion": version}})
    }

    #[tokio::test]
    async fn who_waited_for_a_turn_knows_that_the_budget_has_changed() {
        let queues = Arc::new(BudgetQueues::default());
        let mut first = queues.turn("ns", "foo").await;
        assert!(!first.is_outdated(&at("7")));
        let other = queues.turn("ns", "bar").await;
        let waiting = {
            let queues = Arc::clone(&queues);
            tokio::spawn(async move { queues.turn("ns", "foo").await })
        };
        while queues.queue(("ns".into(), "foo".into())).try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        first.wrote(&at("8"));
        drop((first, other));
        let second = waiting.await.unwrap();
        assert!(second.is_outdated(&at("7")));
        assert!(!second.is_outdated(&at("8")) && !second.is_outdated(&at("opaque")));
        drop(second);
        drop(queues.turn("other", "x").await);
        assert_eq!(lock(&queues.queues).len(), 1);
    }
}
