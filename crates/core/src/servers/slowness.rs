//! A server that is much slower than the others gets less to do.
//!
//! The least loaded server is the one that has the fewest requests for its seats, so a slow server would keep as many requests waiting as
//! each other. What is compared is the *shortest* time to an answer in a period: requests differ, but a server that has enough of
//! them and is well answers one of them fast.

/// How many answers a server needs in a period for its times to count.
const ENOUGH_ANSWERS: u64 = 10;
/// A server is slow if its shortest time is more than so many times that of the others.
const SLOW_FACTOR: u64 = 8;
/// Times below this are not slow, whatever the others do: 20 ms.
const FAST_ENOUGH: u64 = 20_000_000;
/// The smallest part of its seats that a slow server keeps, in thousandths: enough to notice that it is well again.
const SMALLEST_PART: u32 = 10;

/// How much slower than the others a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    part: u32,
}

impl Default for Slowness {
    fn default() -> Self {
        Self { part: 1_000 }
    }
}

/// The shortest time of one server in a period.
#[derive(Clone, Copy, Debug)]
pub struct ShortestTime {
    /// Answers in the period.
    pub answers: u64,
    /// The shortest time, in nanoseconds.
    pub nanos: u64,
}

impl Slowness {
    /// The part of its seats that the server may use, in thousandths.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Whether it is given less than its seats.
    pub fn is_slow(&self) -> bool {
        self.part < 1_000
    }

    /// Compares a period of this server with the same of the others. Without enough answers nothing is known, but for a server
    /// that already counts as slow: that gets few requests, so one answer is enough.
    pub fn compare(&mut self, own: Option<ShortestTime>, others: &[ShortestTime]) {
        let enough = if self.is_slow() { 1 } else { ENOUGH_ANSWERS };
        let Some(own) = own.filter(|own| own.answers >= enough) else {
            return;
        };
        let mut known: Vec<u64> = others
            .iter()
            .filter(|other| other.answers >= ENOUGH_ANSWERS)
            .map(|other| other.nanos)
            .collect();
        known.sort_unstable();
        let Some(usual) = known.get(known.len() / 2).copied() else {
            // Nobody to compare with: it is not slower than they are.
            self.part = 1_000;
            return;
        };
        let usual = usual.max(1);
        let is_slow = own.nanos > FAST_ENOUGH && own.nanos / usual > SLOW_FACTOR;
        self.part = if is_slow {
            let part = u128::from(usual) * 1_000 / u128::from(own.nanos);
            u32::try_from(part).unwrap_or(1_000).max(SMALLEST_PART)
        } else {
            // Back step by step: one fast answer is not much.
            (self.part * 2).min(1_000)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(answers: u64, millis: u64) -> ShortestTime {
        ShortestTime {
            answers,
            nanos: millis * 1_000_000,
        }
    }

    #[test]
    fn a_server_that_is_a_hundred_times_slower_keeps_a_hundredth_and_comes_back_step_by_step() {
        let mut slowness = Slowness::default();
        let others = [time(50, 5), time(60, 4)];
        slowness.compare(Some(time(10, 500)), &others);
        assert_eq!(slowness.part(), 10);
        slowness.compare(None, &others);
        assert_eq!(slowness.part(), 10, "no answer says nothing");
        let mut parts = Vec::new();
        while slowness.is_slow() {
            slowness.compare(Some(time(1, 6)), &others);
            parts.push(slowness.part());
        }
        assert_eq!(parts, [20, 40, 80, 160, 320, 640, 1_000]);
    }

    #[test]
    fn few_answers_short_times_and_slow_fellows_are_no_reason() {
        for (own, others) in [
            (time(9, 5_000), vec![time(50, 5)]),
            (time(50, 19), vec![time(50, 1)]),
            (time(50, 900), vec![time(50, 200)]),
            (time(50, 900), vec![time(9, 1)]),
            (time(50, 900), vec![]),
        ] {
            let mut slowness = Slowness::default();
            slowness.compare(Some(own), &others);
            assert!(!slowness.is_slow(), "{own:?} {others:?}");
        }
    }
}
