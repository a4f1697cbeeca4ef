//! How the requests of one server end, counted by all cores and asked for once a period.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Requests of two users or more that fail in a row until a server counts as down.
pub const FAILURES_IN_A_ROW: u32 = 3;
/// How many users are told apart: as many as a mask has bits.
const USERS: usize = 64;

/// How the requests of one server ended, since it was last asked, and which still wait. Shared by all cores; no lock.
#[derive(Debug)]
pub struct Outcomes {
    /// Requests that wait for the heads of their responses, by a hash of the user's name.
    awaited: [AtomicU32; USERS],
    /// Requests that were sent and whose responses are awaited, or were.
    sent: AtomicU64,
    /// Requests that failed one after the other, without an answer in between.
    failed_in_a_row: AtomicU32,
    /// Their users: a bit for each, by a hash of the name.
    users_in_row: AtomicU64,
    answers: AtomicU64,
    errors: AtomicU64,
    resets: AtomicU64,
    others: AtomicU64,
    /// The users who got errors: a bit for each, by a hash of the name.
    users_with_errors: AtomicU64,
    /// The shortest time to an answer in nanoseconds, plus one; 0 if there was none.
    shortest: AtomicU64,
}

/// How the requests of one server ended in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodOutcomes {
    /// Requests that were sent, but for those that run for long or whose bodies had not arrived.
    pub sent: u64,
    /// Those among all that were ever sent which wait for an answer at the end of the period.
    pub awaited: AwaitedAnswers,
    /// Responses whose status is below 500.
    pub answers: u64,
    /// Responses of status 500 and more, but for those that a client's own time limit can cause.
    pub errors: u64,
    /// Requests that the server ended alone, without a response. That does not say that it answers.
    pub resets: u64,
    /// Other responses: 504, and those to watches and other requests that run for long.
    pub others: u64,
    /// The users who got errors, or whose requests were reset: a bit for each, of 64 that several users may share.
    pub users_with_errors: u64,
    /// The shortest time from sending a request to the head of its response, in nanoseconds.
    pub shortest_nanos: Option<u64>,
}

impl PeriodOutcomes {
    /// Whether the server answered anything.
    pub fn is_answering(&self) -> bool {
        self.answers > 0 || self.errors > 0 || self.others > 0
    }
}

/// The requests that wait for answers of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwaitedAnswers {
    /// How many they are.
    pub requests: u32,
    /// Their users: a bit for each, of 64 that several users may share.
    pub users: u64,
    /// Whether the server has no seat left.
    pub is_full: bool,
}

/// A request whose response is awaited, until this is dropped.
#[derive(Debug)]
pub struct AwaitedAnswer<'a>(&'a AtomicU32);

impl Drop for AwaitedAnswer<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            awaited: std::array::from_fn(|_| AtomicU32::new(0)),
            sent: AtomicU64::default(),
            failed_in_a_row: AtomicU32::default(),
            users_in_row: AtomicU64::default(),
            answers: AtomicU64::default(),
            errors: AtomicU64::default(),
            resets: AtomicU64::default(),
            others: AtomicU64::default(),
            users_with_errors: AtomicU64::default(),
            shortest: AtomicU64::default(),
        }
    }
}

impl Outcomes {
    /// A request of a user whose name has this hash is sent, and its response is awaited until the result is dropped.
    pub fn await_answer(&self, user: u64) -> AwaitedAnswer<'_> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let awaited = &self.awaited[bucket(user)];
        awaited.fetch_add(1, Ordering::Relaxed);
        AwaitedAnswer(awaited)
    }

    /// A response arrived that is no error, `nanos` after the request had been sent.
    pub fn answered(&self, nanos: u64) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.end_row();
        let nanos = nanos.saturating_add(1);
        let shortest = self.shortest.load(Ordering::Relaxed);
        if shortest == 0 || nanos < shortest {
            // Two cores may overwrite each other: a hint is lost, nothing more.
            self.shortest.store(nanos, Ordering::Relaxed);
        }
    }

    /// A response that is an error of the server arrived, to a user whose name has this hash.
    pub fn answered_with_error(&self, user: u64) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.end_row();
        self.users_with_errors
            .fetch_or(1 << bucket(user), Ordering::Relaxed);
    }

    /// The server ended a request alone, of a user whose name has this hash. It may be due to the request, as an error may.
    pub fn reset(&self, user: u64) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.users_with_errors
            .fetch_or(1 << bucket(user), Ordering::Relaxed);
    }

    /// A response arrived that says no more than that the server answers.
    pub fn answered_otherwise(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
        self.end_row();
    }

    /// A request was sent and not answered, of a user whose name has this hash. True if the server counts as down after it: one user may
    /// send what makes a server close its connection, so it takes two.
    pub fn failed(&self, user: u64) -> bool {
        let user = 1 << bucket(user);
        let users = self.users_in_row.fetch_or(user, Ordering::Relaxed) | user;
        let before = self.failed_in_a_row.fetch_add(1, Ordering::Relaxed);
        before.saturating_add(1) >= FAILURES_IN_A_ROW && users.count_ones() > 1
    }

    /// An answer ends a row of failures. Hardly ever a write, since many cores answer at a time.
    fn end_row(&self) {
        if self.failed_in_a_row.load(Ordering::Relaxed) != 0 {
            self.forget_failures();
        }
    }

    /// The server is tried again: what failed before no longer counts.
    pub fn forget_failures(&self) {
        self.failed_in_a_row.store(0, Ordering::Relaxed);
        self.users_in_row.store(0, Ordering::Relaxed);
    }

    /// How requests ended since the last call, and which wait. `is_full`: whether the server has no seat left.
    pub(super) fn take(&self, is_full: bool) -> PeriodOutcomes {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        PeriodOutcomes {
            sent: take(&self.sent),
            awaited: self.awaited(is_full),
            answers: take(&self.answers),
            errors: take(&self.errors),
            resets: take(&self.resets),
            others: take(&self.others),
            users_with_errors: take(&self.users_with_errors),
            shortest_nanos: take(&self.shortest).checked_sub(1),
        }
    }

    fn awaited(&self, is_full: bool) -> AwaitedAnswers {
        let mut awaited = AwaitedAnswers {
            is_full,
            ..AwaitedAnswers::default()
        };
        for (user, requests) in self.awaited.iter().enumerate() {
            let requests = requests.load(Ordering::Relaxed);
            awaited.requests = awaited.requests.saturating_add(requests);
            awaited.users |= u64::from(requests > 0) << user;
        }
        awaited
    }
}

/// Which of the users that are told apart one is whose name has this hash.
fn bucket(user: u64) -> usize {
    usize::try_from(user % USERS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_counted_by_user_until_it_ends_and_what_ended_once() {
        let outcomes = Outcomes::default();
        let mut waits = Vec::from([2, 1, 1, 65].map(|user| outcomes.await_answer(user)));
        outcomes.answered(30);
        outcomes.answered(20);
        outcomes.answered_otherwise();
        outcomes.answered_with_error(3);
        let first = outcomes.take(true);
        let awaited = AwaitedAnswers {
            requests: 4,
            users: 0b110,
            is_full: true,
        };
        let expected = PeriodOutcomes {
            sent: 4,
            awaited,
            answers: 2,
            errors: 1,
            resets: 0,
            others: 1,
            users_with_errors: 0b1000,
            shortest_nanos: Some(20),
        };
        assert_eq!(first, expected);
        waits.truncate(1);
        outcomes.reset(5);
        let second = outcomes.take(false);
        assert!(!second.is_answering() && second.sent == 0);
        assert_eq!((second.resets, second.users_with_errors), (1, 0b10_0000));
        assert_eq!((second.awaited.requests, second.awaited.users), (1, 0b100));
        drop(waits);
        assert_eq!(outcomes.take(false), PeriodOutcomes::default());
    }

    #[test]
    fn any_answer_ends_a_row_of_requests_without_one() {
        let answers: [fn(&Outcomes); 3] = [
            |outcomes| outcomes.answered(1),
            |outcomes| outcomes.answered_with_error(1),
            Outcomes::answered_otherwise,
        ];
        for answer in answers {
            let outcomes = Outcomes::default();
            assert!(!outcomes.failed(1) && !outcomes.failed(2));
            answer(&outcomes);
            assert!(!outcomes.failed(2) && !outcomes.failed(2));
            // That a request is reset says nothing of whether the server answers.
            outcomes.reset(1);
            assert!(outcomes.failed(1));
        }
    }

    #[test]
    fn a_row_of_one_user_does_not_count_until_another_one_is_in_it() {
        let outcomes = Outcomes::default();
        for _ in 0..10 {
            assert!(!outcomes.failed(1));
        }
        assert!(outcomes.failed(2));
        outcomes.forget_failures();
        assert!(!outcomes.failed(2) && !outcomes.failed(1));
        assert!(outcomes.failed(1));
    }
}
