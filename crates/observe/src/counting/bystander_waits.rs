//! How long bystanders wait: the flows of a level but for the largest.
//!
//! A flow that sends more than its level serves waits behind itself, and that is what fair queuing is for. What matters is
//! how long the others wait meanwhile. The largest flow is the one with most waiting requests and seats at a moment; of two
//! equal ones, one is a bystander of the other.
//!
//! A request that waits is seen once a second, so its wait is at most a second longer than what is seen. What was seen is kept
//! for [`WINDOW`] samples: most scrapes see a level at a moment in which no bystander waits.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fairgate_core::time::Time;

use super::flow_states::{LevelFlows, PresentFlow};

/// The number of samples that are kept.
const WINDOW: usize = 30;

/// The waits of bystanders in all levels.
#[derive(Debug, Default)]
pub(crate) struct BystanderWaits(BTreeMap<Arc<str>, VecDeque<Duration>>);

impl BystanderWaits {
    /// Enters a sample of all levels, taken at `now`; to be called once a second. O(flows).
    pub(crate) fn sample(&mut self, levels: &[LevelFlows], now: Time) {
        let existing: HashSet<&str> = levels.iter().map(|level| &*level.level).collect();
        self.0.retain(|name, _| existing.contains(&**name));
        for level in levels {
            let waits = self.0.entry(Arc::clone(&level.level)).or_default();
            if waits.len() == WINDOW {
                waits.pop_front();
            }
            waits.push_back(longest(&level.flows, now));
        }
    }

    /// The longest wait of a bystander in `level` that the samples show; 0 if none waited.
    pub(crate) fn longest(&self, level: &str) -> Duration {
        let waits = self.0.get(level);
        waits
            .into_iter()
            .flatten()
            .max()
            .copied()
            .unwrap_or_default()
    }
}

/// How long the request of a bystander waits that has waited longest.
fn longest(flows: &[PresentFlow], now: Time) -> Duration {
    let size = |flow: &PresentFlow| u64::from(flow.waiting) + u64::from(flow.seats);
    let largest = flows.iter().max_by_key(|flow| size(flow));
    let largest = largest.map(|flow| flow.hash);
    let bystanders = flows.iter().filter(|flow| Some(flow.hash) != largest);
    let oldest = bystanders.filter_map(|flow| flow.oldest).min();
    oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(100_000_000_000);

    /// A level of flows: waiting requests, seats, and seconds for which the oldest waits.
    fn level(flows: &[(u32, u32, u64)]) -> LevelFlows {
        let flow = |(hash, (waiting, seats, wait)): (usize, &(u32, u32, u64))| PresentFlow {
            hash: hash as u64,
            schema: 0,
            waiting: *waiting,
            seats: *seats,
            request: None,
            oldest: (*waiting > 0).then(|| Time::from_nanos((100 - wait) * 1_000_000_000)),
        };
        LevelFlows {
            level: "busy".into(),
            limit: 10,
            flows: flows.iter().enumerate().map(flow).collect(),
            oldest: None,
            active_queues: 0,
        }
    }

    fn seconds(samples: &[&[(u32, u32, u64)]]) -> u64 {
        let mut waits = BystanderWaits::default();
        for flows in samples {
            waits.sample(&[level(flows)], NOW);
        }
        waits.longest("busy").as_secs()
    }

    #[test]
    fn a_flow_that_waits_behind_itself_is_no_bystander() {
        assert_eq!(seconds(&[&[(40, 9, 60)]]), 0);
        assert_eq!(seconds(&[&[(1, 0, 2), (40, 9, 60)]]), 2);
        assert_eq!(seconds(&[&[(1, 0, 2), (40, 9, 60), (2, 0, 3)]]), 3);
        assert_eq!(seconds(&[&[(0, 1, 0), (40, 9, 60)]]), 0, "it executes");
    }

    #[test]
    fn a_flow_with_seats_alone_can_be_the_largest() {
        assert_eq!(seconds(&[&[(0, 10, 0), (3, 0, 7)]]), 7);
    }

    #[test]
    fn a_wait_is_shown_for_half_a_minute() {
        let none: &[(u32, u32, u64)] = &[(40, 9, 60)];
        let mut samples = vec![none; WINDOW];
        samples[0] = &[(1, 0, 5), (40, 9, 60)];
        assert_eq!(seconds(&samples), 5);
        samples.push(none);
        assert_eq!(seconds(&samples), 0);
    }

    #[test]
    fn a_level_that_is_gone_is_forgotten() {
        let mut waits = BystanderWaits::default();
        waits.sample(&[level(&[(1, 0, 5), (40, 9, 60)])], NOW);
        waits.sample(&[], NOW);
        assert_eq!(waits.longest("busy"), Duration::ZERO);
    }
}
