//! Which part of its seats a server may use: a state machine fed with probes, failures and comparisons.

use std::time::Duration;

use super::slowness::Slowness;
use crate::{apf::Seats, time::Time};

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It takes requests.
    Ready,
    /// It says that it is not ready: it is starting or shutting down. It takes no new requests; those that run end.
    NotReady,
    /// It cannot be reached, or fails all it is asked. It takes no new requests until a probe succeeds, and not before some time.
    Ejected,
}

/// What a probe of `/readyz` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProbe {
    /// The server is ready.
    Ready,
    /// It answers that it is not.
    NotReady,
    /// No connection could be opened.
    NotConnected,
    /// No answer came in time, or the connection broke.
    NoAnswer,
}

/// Why a server was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionReason {
    /// No connection could be opened.
    NotConnected,
    /// Probes or requests failed in a row.
    Failing,
    /// It answered every request with an error, and other servers did not.
    OnlyErrors,
    /// It answered probes and no request, and other servers did.
    Hanging,
}

/// The health of one server. Times are arguments; it has no clock.
#[derive(Clone, Debug)]
pub struct Health {
    state: ServerState,
    /// Since when it is in this state.
    since: Time,
    reason: Option<EjectionReason>,
    /// Probes that failed in a row.
    failed_probes: u32,
    /// Ejections for requests that failed while probes succeeded, one soon after the other.
    relapses: u32,
    /// No return before this time.
    not_before: Time,
    /// Since when it is given seats step by step; `None` from the beginning, when it may have all.
    warming_since: Option<Time>,
    /// Whether it has all its seats at once, although it has just returned.
    skips_slow_start: bool,
    /// Whether it let requests hang before it was ejected, and has answered none since: it gets one at a time.
    is_on_trial: bool,
    slowness: Slowness,
}

/// Probes that fail in a row until a server counts as down.
const FAILED_PROBES: u32 = 3;
/// How long it takes until a server that came back has all its seats again.
pub const SLOW_START: Duration = Duration::from_secs(10);
/// The part of its seats with which it begins, in thousandths.
const FIRST_PART: u64 = 100;
/// How long a server stays ejected that fails requests and answers probes, the first time.
const FIRST_EJECTION: Duration = Duration::from_secs(2);
/// The time doubles with each relapse, as often as this.
const MOST_DOUBLINGS: u32 = 5;
/// A server that was ejected for so long without an answer is lost.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// A server that was well for so long has no relapse, but a new failure.
const FORGIVEN_AFTER: Duration = Duration::from_secs(300);

impl Health {
    /// A server that counts as ready until something shows that it is not.
    pub fn new(now: Time) -> Self {
        Self {
            state: ServerState::Ready,
            since: now,
            reason: None,
            failed_probes: 0,
            relapses: 0,
            not_before: now,
            warming_since: None,
            skips_slow_start: false,
            is_on_trial: false,
            slowness: Slowness::default(),
        }
    }

    /// A server that was added while others are in use: it begins with a part of its seats.
    pub fn added(now: Time) -> Self {
        Self {
            warming_since: Some(now),
            ..Self::new(now)
        }
    }

    /// Its state.
    pub fn state(&self) -> ServerState {
        self.state
    }

    /// Since when it has this state.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Why it is ejected; `None` if it is not.
    pub fn reason(&self) -> Option<EjectionReason> {
        self.reason.filter(|_| self.state == ServerState::Ejected)
    }

    /// Whether it gets one request at a time, until it answers one.
    pub fn is_on_trial(&self) -> bool {
        self.is_on_trial
    }

    /// How much slower than the others it is.
    pub fn slowness(&self) -> &Slowness {
        &self.slowness
    }

    /// Whether it has not answered for so long that what still seems to run there is lost: its watches show nothing, and end only
    /// with their connections.
    pub fn is_lost(&self, now: Time) -> bool {
        self.state == ServerState::Ejected
            && self.reason != Some(EjectionReason::OnlyErrors)
            && now.since(self.since) >= LOST_AFTER
    }

    /// As [`slowness`](Self::slowness), to be told of comparisons.
    pub fn slowness_mut(&mut self) -> &mut Slowness {
        &mut self.slowness
    }

    /// A probe ended. Whether the state changed.
    pub fn probed(&mut self, now: Time, result: ServerProbe) -> bool {
        match result {
            ServerProbe::Ready => {
                self.failed_probes = 0;
                match self.state {
                    ServerState::Ready => false,
                    // Requests failed although probes succeeded, so a probe alone does not end that.
                    _ if now < self.not_before => false,
                    ServerState::NotReady | ServerState::Ejected => {
                        self.warming_since = Some(now);
                        self.skips_slow_start = false;
                        self.slowness = Slowness::default();
                        self.is_on_trial = self.reason == Some(EjectionReason::Hanging);
                        self.enter(now, ServerState::Ready)
                    }
                }
            }
            ServerProbe::NotReady => {
                self.failed_probes = 0;
                // It answers: it is not down, but it is not to be used either.
                self.enter(now, ServerState::NotReady)
            }
            ServerProbe::NotConnected => {
                self.failed_probes += 1;
                self.eject(now, EjectionReason::NotConnected)
            }
            ServerProbe::NoAnswer => {
                self.failed_probes += 1;
                self.failed_probes >= FAILED_PROBES && self.eject(now, EjectionReason::Failing)
            }
        }
    }

    /// It may have all its seats at once: there is no other server that could serve meanwhile. Whether it had fewer, for a slow start or a
    /// trial.
    pub fn skip_slow_start(&mut self, now: Time) -> bool {
        let is_warming = self
            .warming_since
            .is_some_and(|since| now.since(since) < SLOW_START);
        let is_held_back = self.is_on_trial || is_warming && !self.skips_slow_start;
        if is_held_back {
            self.skips_slow_start = true;
            self.end_trial();
        }
        is_held_back
    }

    /// It answered a request. Whether that ends a trial.
    pub fn answered(&mut self, now: Time) -> bool {
        let ends = self.is_on_trial && self.state == ServerState::Ready;
        if ends {
            self.end_trial();
            self.warming_since = Some(now);
            self.skips_slow_start = false;
        }
        ends
    }

    /// Forgets that it let requests hang: what happens to it next is something else.
    fn end_trial(&mut self) {
        self.is_on_trial = false;
        self.reason = None;
    }

    /// A request found that no connection can be opened. Whether the state changed.
    pub fn not_connected(&mut self, now: Time) -> bool {
        self.eject(now, EjectionReason::NotConnected)
    }

    /// Requests failed, although probes may succeed. Whether the state changed: a server that is not ready is not to answer, and gets no
    /// requests anyway.
    pub fn requests_fail(&mut self, now: Time, reason: EjectionReason) -> bool {
        if self.state != ServerState::Ready {
            return false;
        }
        let is_relapse = self.warming_since.is_some() && now.since(self.since) < FORGIVEN_AFTER;
        self.relapses = if is_relapse { self.relapses + 1 } else { 0 };
        let doublings = self.relapses.min(MOST_DOUBLINGS);
        self.not_before = now.plus(FIRST_EJECTION * 2_u32.pow(doublings));
        self.eject(now, reason)
    }

    fn eject(&mut self, now: Time, reason: EjectionReason) -> bool {
        if self.state != ServerState::Ejected {
            self.reason = Some(reason);
        }
        self.enter(now, ServerState::Ejected)
    }

    fn enter(&mut self, now: Time, state: ServerState) -> bool {
        let changed = self.state != state;
        if changed {
            self.state = state;
            self.since = now;
        }
        changed
    }

    /// How many of `seats` it may use now; 0 if it takes no requests.
    pub fn capacity(&self, now: Time, seats: Seats) -> Seats {
        if self.state != ServerState::Ready {
            return 0;
        }
        if self.is_on_trial {
            return seats.min(1);
        }
        let warming_since = self.warming_since.filter(|_| !self.skips_slow_start);
        let warm = warming_since.map_or(1_000, |since| {
            let part = now.since(since).as_millis() * 1_000 / SLOW_START.as_millis();
            u64::try_from(part)
                .unwrap_or(1_000)
                .clamp(FIRST_PART, 1_000)
        });
        let part = warm.min(u64::from(self.slowness.part()));
        let seats = u64::from(seats) * part / 1_000;
        // At least 1, since 0 would say that it takes no requests.
        Seats::try_from(seats).unwrap_or(Seats::MAX).max(1)
    }
}
