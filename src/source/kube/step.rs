//! Whether what is known of the upstream's objects is what the upstream has: the age of a policy
//! that is followed.
//!
//! One is *in step* while a watch is open for each kind. The age is the time since that was last so.

use std::{sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// A watch ends now and then and is opened again; that alone is no trouble.
const UNREMARKABLE: Duration = Duration::from_secs(2);

/// Whether a source is in step with its upstream, and since when it is not.
#[derive(Debug)]
pub struct InStep {
    clock: Clock,
    /// As many watches as there are kinds.
    wanted: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: usize,
    /// When it was last in step, or began to try.
    last: Time,
    /// Whether it ever was.
    reached: bool,
    /// Why it failed last.
    why: Option<String>,
}

impl InStep {
    pub(super) fn new(clock: Clock, wanted: usize) -> Arc<Self> {
        let last = clock.now();
        Arc::new(Self {
            clock,
            wanted,
            state: Mutex::new(State {
                open: 0,
                last,
                reached: false,
                why: None,
            }),
        })
    }

    /// Time since the objects were last known to be the upstream's: zero while they are. Before
    /// they ever were, the time since the start.
    pub fn age(&self) -> Duration {
        let state = lock(&self.state);
        if state.open >= self.wanted {
            Duration::ZERO
        } else {
            self.clock.now().since(state.last)
        }
    }

    /// What is wrong, if anything is, and what serves meanwhile.
    pub fn trouble(&self) -> Option<String> {
        let age = self.age();
        let state = lock(&self.state);
        if state.open >= self.wanted || state.reached && age < UNREMARKABLE {
            return None;
        }
        let seconds = age.as_secs();
        let silent = if state.reached {
            "it has fallen silent"
        } else {
            "it has not answered yet"
        };
        let why = state.why.as_deref().unwrap_or(silent);
        Some(if state.reached {
            format!("out of step for {seconds} s: {why}; the last good policy serves")
        } else {
            format!("not reached in {seconds} s: {why}; the built-in objects serve")
        })
    }

    pub(super) fn failed(&self, why: String) {
        lock(&self.state).why = Some(why);
    }

    /// A watch was opened; it ends with what is returned.
    pub(super) fn opened(self: &Arc<Self>) -> Open {
        let mut state = lock(&self.state);
        state.open += 1;
        if state.open >= self.wanted {
            state.reached = true;
            state.why = None;
        }
        Open {
            step: Arc::clone(self),
            heard: self.clock.now(),
        }
    }
}

/// An open watch.
#[derive(Debug)]
pub(super) struct Open {
    step: Arc<InStep>,
    /// When something last came, if only its end.
    heard: Time,
}

impl Open {
    /// Something came.
    pub(super) fn heard(&mut self) {
        self.heard = self.step.clock.now();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = lock(&self.step.state);
        if state.open >= self.step.wanted {
            // One that was given up for its silence was in step no longer than it was heard of.
            state.last = self.heard;
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
        let step = InStep::new(clock.clone(), 2);
        clock.advance(Duration::from_secs(3));
        assert_eq!(step.age(), Duration::from_secs(3));
        let trouble = step.trouble().unwrap();
        assert!(trouble.contains("the built-in objects serve"), "{trouble}");

        let (mut a, b) = (step.opened(), step.opened());
        clock.advance(Duration::from_secs(10));
        assert_eq!(step.age(), Duration::ZERO);
        assert_eq!(step.trouble(), None);
        a.heard();

        drop(a);
        step.failed("refused".to_owned());
        clock.advance(Duration::from_secs(1));
        assert_eq!(step.trouble(), None, "watches are renewed");
        drop(b);
        clock.advance(Duration::from_secs(4));
        assert_eq!(step.age(), Duration::from_secs(5));
        let trouble = step.trouble().unwrap();
        assert_eq!(
            trouble,
            "out of step for 5 s: refused; the last good policy serves"
        );

        let one = step.opened();
        assert_eq!(step.age(), Duration::from_secs(5), "one of two");
        let _other = step.opened();
        assert_eq!(step.trouble(), None);
        clock.advance(Duration::from_secs(60));
        drop(one);
        assert_eq!(step.age(), Duration::from_secs(60), "it had been silent");
        let trouble = step.trouble().unwrap();
        assert!(trouble.contains("it has fallen silent"), "{trouble}");
    }
}
