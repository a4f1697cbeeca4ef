//! The only reader of time.
//!
//! Everything else gets the time, or a [`Clock`], as an argument, so that a seed replays a simulation and a
//! test can set the time. Monotonic time is [`Time`]: nanoseconds since the process first read the clock.
//!
//! Not here: timers. The runtime has them; [`Clock::instant`] converts their times.

use std::{
    cell::Cell,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use fairgate_core::time::Time;

/// When this process first read the clock.
static EPOCH: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| {
    #[expect(
        clippy::disallowed_methods,
        reason = "only this file may read the machine's clock"
    )]
    (Instant::now(), SystemTime::now())
});

/// A clock. Cheap to clone; reading it makes no system call.
#[derive(Clone, Debug, Default)]
pub struct Clock(ClockSource);

/// What a clock reads.
#[derive(Clone, Debug, Default)]
enum ClockSource {
    #[default]
    Machine,
    /// For tests whose runtime has paused its time.
    Runtime,
    /// For tests that set the time.
    Manual(Arc<Manual>),
}

/// The state of a manual clock, which its clones share.
#[derive(Debug)]
struct Manual {
    /// The present time, in nanoseconds since [`Time::ZERO`].
    nanos: AtomicU64,
    start: Time,
    /// When it was made: timers, which run by the machine's clock, count from here, so that they do not fire at
    /// once in a process that has been running for long.
    made: Instant,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        LazyLock::force(&EPOCH);
        Self::default()
    }

    /// The clock of the runtime that reads it: it shows the time of timers even where a test has paused that.
    pub fn runtime() -> Self {
        LazyLock::force(&EPOCH);
        Self(ClockSource::Runtime)
    }

    /// A manual clock, which stays at `start` until [`advance`](Self::advance) moves it.
    pub fn manual(start: Time) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "only this file may read the machine's clock"
        )]
        let made = Instant::now();
        let nanos = AtomicU64::new(start.as_nanos());
        Self(ClockSource::Manual(Arc::new(Manual { nanos, start, made })))
    }

    /// Monotonic time, as it was read last in this turn of a task ([`turns`](crate::turns)). So it is late by at most what the turn
    /// has taken since then, which is less than a task waits for its turn. Where the work of a turn is measured, use
    /// [`now`](Self::now). Outside of turns, and for the clocks of tests, it is read again.
    pub fn turn(&self) -> Time {
        match (&self.0, TURN.get()) {
            (ClockSource::Machine, Turn::Read(time)) => time,
            _ => self.now(),
        }
    }

    /// Monotonic time.
    pub fn now(&self) -> Time {
        let now = match &self.0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "only this file may read the machine's clock"
            )]
            ClockSource::Machine => {
                let now = Time::ZERO.plus(Instant::now().saturating_duration_since(EPOCH.0));
                if TURN.get() != Turn::None {
                    // Later calls of `turn` shall not give an earlier time than this one did.
                    TURN.set(Turn::Read(now));
                }
                return now;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "only this file may read the runtime's clock"
            )]
            ClockSource::Runtime => tokio::time::Instant::now().into_std(),
            ClockSource::Manual(manual) => return manual.now(),
        };
        Time::ZERO.plus(now.saturating_duration_since(EPOCH.0))
    }

    /// Wall-clock time. It may jump; where that would matter, use [`now`](Self::now).
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "only this file may read the machine's clock"
            )]
            ClockSource::Machine => SystemTime::now(),
            ClockSource::Runtime | ClockSource::Manual(_) => EPOCH.1 + self.now().since(Time::ZERO),
        }
    }

    /// Wall-clock time in whole seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        let since = self.wall().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// `at` as an instant of the runtime, to set a timer. Never earlier than the process's first reading of the
    /// clock (of a manual clock: its creation), and at most 30 years after that.
    pub fn instant(&self, at: Time) -> tokio::time::Instant {
        // Adding more to an instant may overflow, which panics; tokio's own "never" is as far away.
        const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
        let (from, zero) = match &self.0 {
            ClockSource::Machine | ClockSource::Runtime => (EPOCH.0, Time::ZERO),
            ClockSource::Manual(manual) => (manual.made, manual.start),
        };
        tokio::time::Instant::from_std(from + at.since(zero).min(FAR))
    }

    /// Moves a manual clock. Has no effect on others.
    pub fn advance(&self, by: Duration) {
        if let ClockSource::Manual(manual) = &self.0 {
            manual
                .nanos
                .fetch_add(fairgate_core::time::nanos(by), Ordering::Relaxed);
        }
    }
}

/// What is known of the time in a turn of a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// No turn.
    None,
    /// The clock was not read in it yet.
    Unread,
    Read(Time),
}

thread_local! {
    static TURN: Cell<Turn> = const { Cell::new(Turn::None) };
    static TURNS: Cell<u64> = const { Cell::new(0) };
}

/// A number that this turn of a task has and no other of the thread; `None` outside of turns.
pub fn turn_number() -> Option<u64> {
    (TURN.get() != Turn::None).then(|| TURNS.get())
}

/// A turn of a task, until it is dropped.
pub(crate) struct TurnGuard {
    /// The turn in which it began, if any.
    outer: Turn,
}

impl TurnGuard {
    pub(crate) fn begin() -> Self {
        TURNS.set(TURNS.get() + 1);
        Self {
            outer: TURN.replace(Turn::Unread),
        }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        TURN.set(self.outer);
    }
}

impl Manual {
    fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "it is compared with the machine's clock"
    )]
    fn timers_of_a_manual_clock_do_not_depend_on_how_long_the_process_has_run() {
        let before = Instant::now();
        let clock = Clock::manual(Time::from_nanos(5));
        let timer = clock.instant(Time::from_nanos(5).plus(Duration::from_secs(9)));
        assert!(timer.into_std() >= before + Duration::from_secs(9));
    }

    #[test]
    fn a_manual_clock_moves_only_when_advanced() {
        let clock = Clock::manual(Time::from_nanos(5));
        assert_eq!(clock.now(), Time::from_nanos(5));
        clock.advance(Duration::from_nanos(7));
        assert_eq!(clock.now(), Time::from_nanos(12));
    }

    #[test]
    fn in_a_turn_the_clock_need_not_be_read_again_but_can_be() {
        let clock = Clock::system();
        let outside = clock.turn();
        while clock.turn() == outside {}
        let turn = TurnGuard::begin();
        let read = clock.turn();
        while clock.now() == read {
            assert_eq!(clock.turn(), read);
        }
        let again = clock.turn();
        assert!(again > read);
        assert_eq!(clock.turn(), again);
        drop(turn);
        while clock.turn() == again {}
        let _next = TurnGuard::begin();
        assert!(clock.turn() > again);
    }

    #[test]
    fn a_manual_clock_is_read_anew_in_a_turn_too() {
        let clock = Clock::manual(Time::from_nanos(5));
        let _turn = TurnGuard::begin();
        assert_eq!(clock.turn(), Time::from_nanos(5));
        clock.advance(Duration::from_nanos(7));
        assert_eq!(clock.turn(), Time::from_nanos(12));
    }

    #[test]
    fn the_machines_clock_never_goes_back() {
        let clock = Clock::system();
        let before = clock.now();
        assert!(clock.now() >= before);
    }
}
