//! Bounds how often one kind of event is logged.
//!
//! Events that clients can cause as often as they like must not fill the log. A [`LogLimit`] allows a number of
//! lines in each period and counts the others; the first line of a later period reports their number.

use std::time::Duration;

use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// Length of a period.
const PERIOD: Duration = Duration::from_secs(10);

/// How often one kind of event may be logged: a number of lines in 10 s.
#[derive(Debug)]
pub struct LogLimit {
    lines: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The start of the current period.
    began: Option<Time>,
    logged: u32,
    left_out: u64,
}

impl LogLimit {
    /// Allows `lines` in each 10 s.
    pub const fn new(lines: u32) -> Self {
        Self {
            lines,
            state: Mutex::new(State {
                began: None,
                logged: 0,
                left_out: 0,
            }),
        }
    }

    /// An event happened at `now`. If it is to be logged, returns how many were left out since the
    /// last one that was.
    pub fn next_line(&self, now: Time) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.began.is_none_or(|began| now.since(began) >= PERIOD) {
            state.began = Some(now);
            state.logged = 0;
        }
        if state.logged >= self.lines {
            state.left_out += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_in_a_later_period() {
        let limit = LogLimit::new(2);
        let at = |seconds| Time::ZERO.plus(Duration::from_secs(seconds));
        let lines: Vec<_> = (0..5).map(|_| limit.next_line(at(1))).collect();
        assert_eq!(lines, [Some(0), Some(0), None, None, None]);
        assert_eq!(limit.next_line(at(10)), None, "the period is not over");
        assert_eq!(limit.next_line(at(11)), Some(4));
        assert_eq!(limit.next_line(at(12)), Some(0));
    }
}
