//! The memory for responses with merged metrics.
//!
//! A response is long, and clients read slowly if they like. So few are merged at a time, and what waits to be read has
//! a limit of its own: slow readers delay merges only when they hold all of that.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many responses are read from the upstream and merged at a time.
const MERGES_AT_ONCE: usize = 2;
/// Bytes of responses that clients have not read yet.
const UNREAD_BYTES: usize = 64 << 20;
/// Bytes are counted in units of this size.
const UNIT: usize = 1 << 10;

/// The memory for responses with merged metrics.
pub(crate) struct MetricsMemory {
    merges: Arc<Semaphore>,
    unread: Arc<Semaphore>,
}

impl Default for MetricsMemory {
    fn default() -> Self {
        Self {
            merges: Arc::new(Semaphore::new(MERGES_AT_ONCE)),
            unread: Arc::new(Semaphore::new(UNREAD_BYTES / UNIT)),
        }
    }
}

impl MetricsMemory {
    /// Waits for a permit to merge a response.
    pub(crate) async fn merge(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphores are never closed.
        Arc::clone(&self.merges).acquire_owned().await.ok()
    }

    /// Waits for a permit to keep a response of `bytes` until its client has read it. One that is longer than the
    /// limit needs all of it.
    pub(crate) async fn keep(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).min(UNREAD_BYTES / UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        Arc::clone(&self.unread)
            .acquire_many_owned(units)
            .await
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context, task::Waker};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(future).poll(&mut context) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn unread_responses_wait_for_memory_and_not_for_their_number() {
        let memory = MetricsMemory::default();
        let small: Vec<_> = (0..100).map(|_| now(memory.keep(3_000))).collect();
        assert!(small.iter().all(Option::is_some));
        let large = now(memory.keep(63 << 20)).unwrap();
        assert!(now(memory.keep(2 << 20)).is_none());
        assert!(now(memory.keep(1 << 10)).is_some());
        drop(large);
        assert!(now(memory.keep(2 << 20)).is_some());
        assert!(now(memory.keep(65 << 20)).is_none(), "others are unread");
        drop(small);
        assert!(now(memory.keep(65 << 20)).is_some());
    }

    #[test]
    fn few_responses_are_merged_at_a_time() {
        let memory = MetricsMemory::default();
        let first = now(memory.merge()).unwrap();
        let _second = now(memory.merge()).unwrap();
        assert!(now(memory.merge()).is_none());
        drop(first);
        assert!(now(memory.merge()).is_some());
    }
}
