//! A server that says that it is ready and lets requests hang.
//!
//! Nothing fails at such a server, so nothing else notices it: its requests wait until their clients give up, and each client whose
//! connection prefers it waits again. What shows it is that requests wait for its answers and none comes, while other servers answer.
//!
//! Requests may be slow by themselves, so the rule asks for much: several users, some seconds in which the server answers nothing at all, and
//! requests whose bodies have arrived. And it is wrong at little cost: the server is away for seconds, and one answer ends that.

use super::outcomes::{AwaitedAnswers, PeriodOutcomes};

/// How many periods without an answer are needed. Four periods are the least that those who wait at the end of the first have waited.
const PERIODS: usize = 5;
/// How many requests have to wait, unless fewer take all seats of the server. New requests go where the fewest run, so it never has many
/// more than a server that is well.
const ENOUGH: u32 = 3;

/// What is known of the answers of one server. Told of each period of about a second.
#[derive(Clone, Debug, Default)]
pub struct Hanging {
    /// What waited at the ends of the last periods, if none of them had an answer.
    quiet: [AwaitedAnswers; PERIODS],
    /// Periods since a request was sent, if none has been answered since.
    periods_since_sent: usize,
}

impl Hanging {
    /// A period ended.
    pub fn note(&mut self, period: &PeriodOutcomes) {
        if period.is_answering() {
            *self = Self::default();
            return;
        }
        self.quiet.rotate_left(1);
        self.quiet[PERIODS - 1] = period.awaited;
        if self.periods_since_sent > 0 || period.sent > 0 {
            self.periods_since_sent += 1;
        }
    }

    /// Whether the server lets requests hang. On trial, which it is after it did so, one request without an answer says so.
    pub fn is_hanging(&self, is_on_trial: bool) -> bool {
        if is_on_trial {
            self.periods_since_sent > PERIODS
        } else {
            self.quiet.iter().all(are_enough)
        }
    }
}

/// Whether so much waits that the server should have answered something.
fn are_enough(awaited: &AwaitedAnswers) -> bool {
    awaited.users.count_ones() > 1 && (awaited.requests >= ENOUGH || awaited.is_full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(requests: u32, users: u64) -> PeriodOutcomes {
        PeriodOutcomes {
            sent: 1,
            awaited: AwaitedAnswers {
                requests,
                users,
                is_full: false,
            },
            ..PeriodOutcomes::default()
        }
    }

    /// After how many of these periods the server counts as hanging, if it does.
    fn hangs_after(periods: &[PeriodOutcomes], is_on_trial: bool) -> Option<usize> {
        let mut hanging = Hanging::default();
        periods.iter().position(|period| {
            hanging.note(period);
            hanging.is_hanging(is_on_trial)
        })
    }

    #[test]
    fn three_requests_of_two_users_and_no_answer_in_five_periods() {
        assert_eq!(hangs_after(&[quiet(3, 0b11); 8], false), Some(4));
        let mut full = quiet(2, 0b11);
        full.awaited.is_full = true;
        assert_eq!(hangs_after(&[full; 8], false), Some(4), "no seat is left");
    }

    #[test]
    fn few_requests_one_user_and_any_answer_are_no_reason() {
        assert_eq!(hangs_after(&[quiet(2, 0b11); 8], false), None);
        assert_eq!(hangs_after(&[quiet(100, 0b10); 8], false), None);
        let answers: [fn(&mut PeriodOutcomes); 3] = [
            |period| period.answers = 1,
            |period| period.errors = 1,
            |period| period.others = 1,
        ];
        for answer in answers {
            let mut answered = quiet(100, 0b111);
            answer(&mut answered);
            let mut periods = [quiet(100, 0b111); 9];
            periods[4] = answered;
            assert_eq!(hangs_after(&periods, false), None, "{answered:?}");
        }
    }

    #[test]
    fn on_trial_one_request_that_is_not_answered_is_enough_and_none_that_is_sent_says_nothing() {
        let nothing = PeriodOutcomes::default();
        assert_eq!(hangs_after(&[nothing; 20], true), None);
        // The request was given up at once by its client, or it still waits.
        let mut periods = [nothing; 9];
        periods[1].sent = 1;
        assert_eq!(hangs_after(&periods, true), Some(6));
        periods[4].others = 1;
        assert_eq!(hangs_after(&periods, true), None);
    }
}
