//! Answers, for a while and in a bounded number.
//!
//! They leave in the order in which they came, by age or for want of room; both cost a constant
//! amount per insertion.

use std::collections::{HashMap, VecDeque};

use super::{Decision, Key};
use fairgate_core::time::Time;

/// A map that holds no more than a given number of answers.
pub(super) struct Remembered {
    answers: HashMap<Key, Answer>,
    /// In order of insertion; also of answers that were replaced since.
    order: VecDeque<(Key, u64)>,
    stamp: u64,
    max_entries: usize,
}

struct Answer {
    decision: Decision,
    /// The first moment at which it does not hold any more.
    expires: Time,
    stamp: u64,
}

impl Remembered {
    pub(super) fn new(max_entries: usize) -> Self {
        Self {
            answers: HashMap::new(),
            order: VecDeque::new(),
            stamp: 0,
            max_entries: max_entries.max(1),
        }
    }

    /// The answer that holds now.
    pub(super) fn get(&self, key: &Key, now: Time) -> Option<Decision> {
        let answer = self.answers.get(key)?;
        (now < answer.expires).then(|| answer.decision.clone())
    }

    /// Keeps an answer until `expires`.
    pub(super) fn put(&mut self, key: Key, decision: Decision, now: Time, expires: Time) {
        self.stamp += 1;
        let stamp = self.stamp;
        let answer = Answer {
            decision,
            expires,
            stamp,
        };
        self.answers.insert(key, answer);
        self.order.push_back((key, stamp));
        while let Some((oldest, stamp)) = self.order.front().copied() {
            let current = self.answers.get(&oldest);
            let current = current.filter(|answer| answer.stamp == stamp);
            let holds = current.is_some_and(|answer| now < answer.expires);
            if holds && self.order.len() <= self.max_entries {
                return;
            }
            if current.is_some() {
                self.answers.remove(&oldest);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    fn yes() -> Decision {
        Decision::plain(true)
    }

    #[test]
    fn an_answer_holds_until_it_expires() {
        let mut remembered = Remembered::new(10);
        remembered.put([1; 32], yes(), at(0), at(10));
        assert_eq!(remembered.get(&[1; 32], at(9)), Some(yes()));
        assert_eq!(remembered.get(&[1; 32], at(10)), None);
        assert_eq!(remembered.get(&[2; 32], at(9)), None);
    }

    #[test]
    fn the_oldest_leave_for_want_of_room_and_by_age() {
        let mut remembered = Remembered::new(3);
        for key in 0..5 {
            remembered.put([key; 32], yes(), at(0), at(10));
        }
        let known = |remembered: &Remembered, now| {
            let keys = 0..6u8;
            keys.filter(|key| remembered.get(&[*key; 32], at(now)).is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(known(&remembered, 1), [2, 3, 4]);
        remembered.put([5; 32], yes(), at(20), at(30));
        assert_eq!(remembered.answers.len(), 1);
        assert_eq!(remembered.order.len(), 1);
    }

    #[test]
    fn a_renewed_answer_does_not_leave_with_its_old_record() {
        let mut remembered = Remembered::new(3);
        remembered.put([1; 32], yes(), at(0), at(10));
        remembered.put([1; 32], yes(), at(11), at(21));
        remembered.put([2; 32], yes(), at(12), at(22));
        assert_eq!(remembered.get(&[1; 32], at(20)), Some(yes()));
        for now in 0..1_000 {
            remembered.put([3; 32], yes(), at(12), at(30 + now));
        }
        assert!(remembered.order.len() <= 3);
    }
}
