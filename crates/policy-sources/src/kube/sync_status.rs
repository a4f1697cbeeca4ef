//! Whether the known objects are up to date with the upstream.
//!
//! They are *in sync* while a watch is open for each kind. Their age is the time since they were last in sync.

use std::{sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_upstream::kube_transport::{ObservedWatch, WatchObserver};

/// Watches end regularly and are opened again; a gap of this length is not a problem.
const RENEWAL_GRACE: Duration = Duration::from_secs(2);

/// Whether a source is in sync with its upstream, and since when it is not.
#[derive(Debug)]
pub struct SyncStatus {
    clock: Clock,
    /// The number of watches that are open while in sync: one for each kind.
    expected_watches: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The number of open watches.
    open: usize,
    /// When the objects were last in sync; the start if they never were.
    last: Time,
    /// Whether it has ever been in sync.
    reached: bool,
    /// Whether the policy in force since the start is the last good one.
    has_last_good: bool,
    /// The last failure.
    why: Option<String>,
}

impl SyncStatus {
    pub(super) fn new(clock: Clock, expected_watches: usize) -> Arc<Self> {
        let last = clock.now();
        Arc::new(Self {
            clock,
            expected_watches,
            state: Mutex::new(State {
                open: 0,
                last,
                reached: false,
                has_last_good: false,
                why: None,
            }),
        })
    }

    /// Time since the objects were last in sync; zero while they are. If they never were, the time since the
    /// start.
    pub fn age(&self) -> Duration {
        let state = lock(&self.state);
        if state.open >= self.expected_watches {
            Duration::ZERO
        } else {
            self.clock.now().since(state.last)
        }
    }

    /// Why the objects are not in sync, and which policy is in force meanwhile; `None` if they are, or
    /// were less than 2 s ago.
    pub fn problem(&self) -> Option<String> {
        let age = self.age();
        let state = lock(&self.state);
        if state.open >= self.expected_watches || state.reached && age < RENEWAL_GRACE {
            return None;
        }
        let seconds = age.as_secs();
        let default = if state.reached {
            "the upstream does not respond"
        } else {
            "no response yet"
        };
        let why = state.why.as_deref().unwrap_or(default);
        Some(if state.reached {
            format!("out of sync for {seconds} s: {why}; the last good policy stays in force")
        } else if state.has_last_good {
            format!("not reached for {seconds} s: {why}; the last good policy is in force")
        } else {
            format!("not reached for {seconds} s: {why}; the built-in objects are in force")
        })
    }

    /// The gateway has started with the last good policy, not with the built-in one.
    pub fn started_with_last_good(&self) {
        lock(&self.state).has_last_good = true;
    }

    pub(super) fn failed(&self, why: String) {
        lock(&self.state).why = Some(why);
    }

    fn open(self: &Arc<Self>) -> OpenWatch {
        let mut state = lock(&self.state);
        state.open += 1;
        if state.open >= self.expected_watches {
            state.reached = true;
            state.why = None;
        }
        OpenWatch {
            status: Arc::clone(self),
            last_received: self.clock.now(),
        }
    }
}

impl WatchObserver for SyncStatus {
    fn opened(self: Arc<Self>) -> Box<dyn ObservedWatch> {
        Box::new(self.open())
    }
}

/// An open watch.
#[derive(Debug)]
struct OpenWatch {
    status: Arc<SyncStatus>,
    /// When anything was last received on it, its end included.
    last_received: Time,
}

impl ObservedWatch for OpenWatch {
    fn received(&mut self) {
        self.last_received = self.status.clock.now();
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut state = lock(&self.status.state);
        if state.open >= self.status.expected_watches {
            // A watch that was closed because it had been silent was in sync only until its last event.
            state.last = self.last_received;
        }
        state.open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_begins_when_the_first_of_the_watches_ends() {
        let clock = Clock::manual(Time::ZERO);
        let status = SyncStatus::new(clock.clone(), 2);
        clock.advance(Duration::from_secs(3));
        assert_eq!(status.age(), Duration::from_secs(3));
        let problem = status.problem().unwrap();
        assert!(
            problem.contains("the built-in objects are in force"),
            "{problem}"
        );

        let (mut a, b) = (status.open(), status.open());
        clock.advance(Duration::from_secs(10));
        assert_eq!(status.age(), Duration::ZERO);
        assert_eq!(status.problem(), None);
        a.received();

        drop(a);
        status.failed("refused".to_owned());
        clock.advance(Duration::from_secs(1));
        assert_eq!(status.problem(), None, "watches are renewed");
        drop(b);
        clock.advance(Duration::from_secs(4));
        assert_eq!(status.age(), Duration::from_secs(5));
        let problem = status.problem().unwrap();
        assert_eq!(
            problem,
            "out of sync for 5 s: refused; the last good policy stays in force"
        );

        let one = status.open();
        assert_eq!(status.age(), Duration::from_secs(5), "one of two");
        let _other = status.open();
        assert_eq!(status.problem(), None);
        clock.advance(Duration::from_secs(60));
        drop(one);
        assert_eq!(status.age(), Duration::from_secs(60), "it had been silent");
        let problem = status.problem().unwrap();
        assert!(
            problem.contains("the upstream does not respond"),
            "{problem}"
        );
    }
}
