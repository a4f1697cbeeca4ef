//! What is observed of one request, for the access log and the metrics.
//!
//! No layer bases a decision on it: what layers pass to each other is in
//! [`RequestContext`](super::RequestContext). It consists of plain cells, because a request stays on one
//! core. Each layer writes its own cells once.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;

use fairgate_core::{digest::RequestDigest, time::Time};

/// What is observed of one request.
#[derive(Debug, Default)]
pub struct Trace {
    /// When the request's head was complete.
    pub received: Cell<Time>,
    /// The client's address; only set while the access log is enabled.
    pub remote: Cell<Option<SocketAddr>>,
    /// The `User-Agent` header; only set while the access log is enabled.
    pub user_agent: OnceCell<HeaderValue>,
    /// Whether it is a server-side apply.
    pub is_apply: Cell<bool>,
    /// The attributes of the request; set once its user is known.
    pub digest: OnceCell<Arc<RequestDigest>>,
    /// Name of the FlowSchema that matched.
    pub schema: OnceCell<Arc<str>>,
    /// Name of the FlowSchema's priority level.
    pub level: OnceCell<Arc<str>>,
    /// Seats taken while executing.
    pub initial_seats: Cell<u32>,
    /// Seats taken for `additional_latency` after the reply.
    pub final_seats: Cell<u32>,
    /// How long the final seats are held.
    pub additional_latency: Cell<Duration>,
    /// Time spent in a queue, of all attempts; `None` if the request was never queued.
    pub wait: Cell<Option<Duration>>,
    /// Time for which an eviction was held until its disruption budget allowed it; `None` if it was not.
    pub eviction_wait: Cell<Option<Duration>>,
    /// When it was first handed to an upstream connection.
    pub sent_upstream: Cell<Option<Time>>,
    /// When the head of the upstream's response arrived.
    pub upstream_answered: Cell<Option<Time>>,
    /// Time from dispatch to finish, of all attempts.
    pub execution: Cell<Option<Duration>>,
    /// `wait` and `execution` of the attempts before this one.
    earlier: Cell<(Duration, Duration)>,
    /// Time from a watch's dispatch to the end of its initialization.
    pub watch_init: Cell<Option<Duration>>,
    /// HTTP status of the reply; 0 until there is one.
    pub status: Cell<u16>,
    /// Bytes of the request's body that were received from the client.
    pub request_bytes: Cell<u64>,
    /// Why the request was refused, in one word; the same as in the reply and in the metrics.
    pub reason: Cell<Option<&'static str>>,
    /// Name of the upstream, or of the server of several, that the request was sent to last.
    pub upstream: RefCell<Option<Arc<str>>>,
}

impl Trace {
    /// The request is carried out once more. What this attempt takes is added to what those before it took.
    pub fn begin_attempt(&self) {
        let [wait, execution] = [&self.wait, &self.execution].map(Cell::get);
        self.earlier
            .set((wait.unwrap_or_default(), execution.unwrap_or_default()));
    }

    /// This attempt has spent so much time in a queue.
    pub fn waited(&self, wait: Duration) {
        self.wait.set(Some(self.earlier.get().0 + wait));
    }

    /// So much time has passed since this attempt was dispatched.
    pub fn executed(&self, execution: Duration) {
        self.execution.set(Some(self.earlier.get().1 + execution));
    }

    /// The request is sent to the upstream of this name.
    pub fn set_upstream(&self, name: &Arc<str>) {
        *self.upstream.borrow_mut() = Some(Arc::clone(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_all_attempts_are_added_up() {
        let trace = Trace::default();
        let seconds = Duration::from_secs;
        trace.begin_attempt();
        assert_eq!((trace.wait.get(), trace.execution.get()), (None, None));
        trace.executed(seconds(1));
        trace.begin_attempt();
        trace.waited(seconds(10));
        // As when a client disconnects, and its request ends later.
        trace.executed(seconds(2));
        trace.executed(seconds(3));
        trace.begin_attempt();
        trace.waited(seconds(20));
        let spent = (trace.wait.get(), trace.execution.get());
        assert_eq!(spent, (Some(seconds(30)), Some(seconds(4))));
    }
}
