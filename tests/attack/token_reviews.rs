//! The fake upstream's reviews of tokens. They take as long as they do in a server that asks somebody else.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::time::ms;

/// How the tokens begin that are of nobody, and those of the user [`REVIEWED`]. Reviews of all others are refused.
pub(crate) const BOGUS: &str = "bogus-";
pub(crate) const GOOD: &str = "good-";
const REVIEWED: &str = "reviewed";
const TIME: Duration = ms(30);

/// Reviews so far.
#[derive(Debug, Default)]
pub(crate) struct TokenReviews {
    bogus: AtomicUsize,
    /// How many bogus ones had begun when the last good one began.
    before_good: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

impl TokenReviews {
    /// How many reviews of bogus tokens have begun.
    pub(crate) fn bogus(&self) -> usize {
        self.bogus.load(Ordering::SeqCst)
    }

    /// The same when the last review of a good token began.
    pub(crate) fn before_good(&self) -> usize {
        self.before_good.load(Ordering::SeqCst)
    }

    /// The most reviews that ran at a time.
    pub(crate) fn most_running(&self) -> usize {
        self.most_running.load(Ordering::SeqCst)
    }

    /// The response to a review, or `None` if it is refused.
    pub(crate) async fn review(&self, body: &[u8]) -> Option<Bytes> {
        let review: Value = serde_json::from_slice(body).ok()?;
        let token = review["spec"]["token"].as_str()?;
        let status = if token.starts_with(BOGUS) {
            self.bogus.fetch_add(1, Ordering::SeqCst);
            json!({"authenticated": false})
        } else if token.starts_with(GOOD) {
            self.before_good.store(self.bogus(), Ordering::SeqCst);
            json!({"authenticated": true, "user": {"username": REVIEWED, "groups": ["others"]}})
        } else {
            return None;
        };
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        let _ends = Running(&self.running);
        tokio::time::sleep(TIME).await;
        let review = json!({
            "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {}, "status": status,
        });
        Some(review.to_string().into())
    }
}

/// A review that runs, until this is dropped: also if the gateway gives it up.
struct Running<'r>(&'r AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
