//! Sets of a source whose calls are cancelled.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
};

use bytes::Bytes;
use fairgate_store::{Precondition, WriteOutcome};
use serde_json::json;

use super::*;
use crate::store::tests::new_store;

/// Whether work in the background waits.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Lets work in the background wait until it is dropped, also by a test that fails.
struct Hold;

impl Hold {
    fn begin() -> Self {
        IS_HELD.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        IS_HELD.store(false, Ordering::SeqCst);
    }
}

fn wait_while_held() {
    while IS_HELD.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_change_that_a_cancelled_call_has_listed_is_in_the_next_set() {
    background::set_own_memory(wait_while_held);
    let store = new_store("admission-cancelled");
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let mut source = AdmissionStore::new(shared, Clock::system());
    assert!(source.next().await.documents.is_empty());
    let key = format!("{}own", VALIDATING_ADMISSION_POLICY.key_prefix());
    let policy = json!({"metadata": {"name": "own"}, "spec": {}});
    let policy = Bytes::from(policy.to_string());
    let written = store.write(&key, Precondition::Absent, Some(policy)).await;
    assert!(matches!(written, Ok(WriteOutcome::Done { .. })));
    let lists = store.lists() + ADMISSION_KINDS.len();
    {
        let _hold = Hold::begin();
        let mut call = pin!(source.next());
        let listing = poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending(), "it is held");
            if store.lists() < lists {
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        listing.await;
    }
    let next = tokio::time::timeout(Duration::from_secs(60), source.next()).await;
    let next = next.unwrap();
    assert_eq!(next.documents.len() + next.findings.len(), 1);
}
