//! Whether the objects of one kind are up to date.
//!
//! They are while they are listed and the watch is open. Their age is the time since they were last so.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{ObservedWatch, WatchObserver};
use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// Watches end regularly and are opened again; a gap of this length is not a problem.
const RENEWAL_GRACE: Duration = Duration::from_secs(2);

/// How many different reasons of one outage are logged.
const MAX_REASONS: usize = 16;

/// Whether a watch is open, and since when it is not.
#[derive(Debug)]
pub struct WatchHealth {
    clock: Clock,
    /// What is watched, in the plural.
    what: &'static str,
    purpose: &'static str,
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    open: usize,
    /// Whether one ever was.
    was_open: bool,
    /// When a watch was last open; the start if none ever was.
    last: Time,
    /// When anything was last heard of the server on a watch: it was opened, or something was received.
    heard: Time,
    /// When the last event, bookmark or complete list was received; the start if there was none.
    progressed: Time,
    /// When the last complete list was asked for; the start if there was none.
    listed: Time,
    /// The last failure, until a watch is open again.
    failure: Option<String>,
    /// The reasons that were logged since then, at most [`MAX_REASONS`].
    logged: BTreeSet<String>,
    /// Whether that does not change by itself.
    is_final: bool,
}

impl WatchHealth {
    /// The health of a watch that is not open yet. Messages call the objects `what`, and say what for: "cannot watch `what` `purpose`".
    pub fn new(clock: Clock, what: &'static str, purpose: &'static str) -> Arc<Self> {
        let last = clock.now();
        Arc::new(Self {
            clock,
            what,
            purpose,
            state: Mutex::new(HealthState {
                open: 0,
                was_open: false,
                last,
                heard: last,
                progressed: last,
                listed: last,
                failure: None,
                logged: BTreeSet::new(),
                is_final: false,
            }),
        })
    }

    /// The objects are those of a list that was asked for at this time.
    pub(super) fn listed(&self, asked: Time) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        (state.listed, state.progressed) = (asked, now);
    }

    /// When the last complete list was asked for. Nothing that happened before is unknown.
    pub fn listed_at(&self) -> Time {
        lock(&self.state).listed
    }

    /// The time since anything was heard of the server on a watch, be it open or not: a server that has nothing to tell sends a
    /// bookmark once a minute.
    pub(super) fn silence(&self) -> Duration {
        let heard = lock(&self.state).heard;
        self.clock.now().since(heard)
    }

    /// The time since the last event, bookmark or complete list. That watches are opened and end is no progress.
    pub(super) fn without_progress(&self) -> Duration {
        let progressed = lock(&self.state).progressed;
        self.clock.now().since(progressed)
    }

    /// Whether a watch is open.
    pub fn is_open(&self) -> bool {
        lock(&self.state).open > 0
    }

    /// An open watch is closed by the gateway itself: until now the objects were up to date, whenever something last arrived.
    pub(super) fn given_up(&self) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        if state.open > 0 {
            state.last = now;
        }
    }

    fn hear(&self) {
        let now = self.clock.now();
        lock(&self.state).heard = now;
    }

    /// Whether a watch has ever been open.
    pub fn was_open(&self) -> bool {
        lock(&self.state).was_open
    }

    /// What is watched, in the plural.
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// Why the objects cannot be listed or watched, and whether that does not change by itself; `None` if nothing failed since a watch was
    /// last opened.
    pub fn failure(&self) -> Option<(String, bool)> {
        let state = lock(&self.state);
        let why = state.failure.clone()?;
        Some((why, state.is_final))
    }

    /// The time since the watch was last open; zero while it is.
    pub fn age(&self) -> Duration {
        let state = lock(&self.state);
        match state.open {
            0 => self.clock.now().since(state.last),
            _ => Duration::ZERO,
        }
    }

    /// Why the objects are not up to date; `None` if they are, or were a moment ago.
    pub fn problem(&self) -> Option<String> {
        // Before the lock, which `age` takes, too.
        let age = self.age();
        if age < RENEWAL_GRACE {
            return None;
        }
        let state = lock(&self.state);
        let why = state.failure.as_deref().unwrap_or("no response yet");
        let (what, seconds) = (self.what, age.as_secs());
        Some(format!("{what}: not watched for {seconds} s: {why}"))
    }

    /// The objects, of `kind`, cannot be listed or watched; `is_final` if that does not change by itself. Each reason is logged once
    /// until they can, also if it alternates with others.
    pub fn failed(&self, kind: &str, why: String, is_final: bool) {
        let mut state = lock(&self.state);
        state.is_final = is_final;
        if state.is_new(&why) {
            let Self { what, purpose, .. } = self;
            tracing::warn!(kind, %why, "cannot watch {what} {purpose}; trying again");
        }
        state.failure = Some(why);
    }

    /// The objects can be watched, as far as known.
    pub fn recovered(&self) {
        let mut state = lock(&self.state);
        state.logged.clear();
        if state.failure.take().is_some() {
            tracing::info!("watching {} again", self.what);
        }
    }
}

impl HealthState {
    /// Whether a reason is to be logged; it is not a second time.
    fn is_new(&mut self, why: &str) -> bool {
        if self.logged.len() == MAX_REASONS || self.logged.contains(why) {
            return false;
        }
        self.logged.insert(why.to_owned())
    }
}

impl WatchObserver for WatchHealth {
    fn opened(self: Arc<Self>) -> Box<dyn ObservedWatch> {
        self.hear();
        let mut state = lock(&self.state);
        (state.open, state.was_open) = (state.open + 1, true);
        // `recovered` takes the lock itself.
        drop(state);
        self.recovered();
        let last_received = self.clock.now();
        Box::new(OpenWatch {
            health: self,
            last_received,
        })
    }
}

/// An open watch.
struct OpenWatch {
    health: Arc<WatchHealth>,
    /// When anything was last received on it, its end included.
    last_received: Time,
}

impl ObservedWatch for OpenWatch {
    fn received(&mut self) {
        self.last_received = self.health.clock.now();
    }

    fn heard(&mut self) {
        self.health.hear();
        let now = self.health.clock.now();
        lock(&self.health.state).progressed = now;
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut state = lock(&self.health.state);
        state.open -= 1;
        // Not now: the end of a watch may be noticed long after the connection was lost.
        state.last = state.last.max(self.last_received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_watch_on_which_nothing_arrives_is_silent() {
        let clock = Clock::manual(Time::ZERO);
        let health = WatchHealth::new(clock.clone(), "policies", "for admission");
        let mut open = Arc::clone(&health).opened();
        let second = Duration::from_secs(1);
        clock.advance(5 * second);
        assert_eq!(
            (health.age(), health.silence()),
            (Duration::ZERO, 5 * second)
        );
        open.heard();
        clock.advance(second);
        open.received();
        drop(open);
        assert_eq!(health.silence(), second, "its end says nothing");
        let _open = Arc::clone(&health).opened();
        assert_eq!(
            (health.silence(), health.without_progress()),
            (Duration::ZERO, second),
            "that it is opened is no progress"
        );
        health.listed(clock.now());
        assert_eq!(health.without_progress(), Duration::ZERO);
    }

    #[test]
    fn reasons_that_alternate_are_logged_once_in_an_outage() {
        let clock = Clock::manual(Time::ZERO);
        let health = WatchHealth::new(clock, "policies", "for admission");
        let mut is_logged = |why: &str| {
            let is_new = lock(&health.state).is_new(why);
            health.failed("Policy", why.to_owned(), false);
            assert_eq!(health.failure(), Some((why.to_owned(), false)));
            is_new
        };
        let outage = ["refused", "late", "refused", "late"].map(&mut is_logged);
        assert_eq!(outage, [true, true, false, false]);
        let many = (0..100).filter(|number| is_logged(&number.to_string()));
        assert_eq!(many.count(), MAX_REASONS - 2);
        health.recovered();
        assert_eq!(health.failure(), None);
        assert!(lock(&health.state).is_new("refused"));
    }

    #[test]
    fn the_age_is_the_time_since_the_last_sign_of_life() {
        let clock = Clock::manual(Time::ZERO);
        let health = WatchHealth::new(clock.clone(), "namespaces", "for admission");
        let second = Duration::from_secs(1);
        clock.advance(3 * second);
        assert_eq!(health.age(), 3 * second);
        health.failed("Namespace", "refused".to_owned(), true);
        assert_eq!(health.failure(), Some(("refused".to_owned(), true)));
        let problem = "namespaces: not watched for 3 s: refused";
        assert_eq!(health.problem().as_deref(), Some(problem));
        let mut open = Arc::clone(&health).opened();
        clock.advance(second);
        assert_eq!((health.age(), health.problem()), (Duration::ZERO, None));
        assert_eq!(health.failure(), None);
        health.failed("Namespace", "too many".to_owned(), false);
        assert_eq!(health.failure(), Some(("too many".to_owned(), false)));
        open.received();
        clock.advance(5 * second);
        drop(open);
        assert_eq!(health.age(), 5 * second);
        let problem = "namespaces: not watched for 5 s: too many";
        assert_eq!(health.problem().as_deref(), Some(problem));
    }
}
