//! How evenly the flows of each priority level share its seats.
//!
//! Seats are whole and few, so at any moment most flows have none. What counts are means: once a second the
//! seats of each flow enter a mean in which older samples count less, with a time constant of [`MEMORY`]
//! samples.
//!
//! Jain's index of shares x is (Σx)² / (n · Σx²): 1 if all n are equal, 1/n if one has everything. It compares
//! flows that want more than they have, so a flow counts only while its requests wait, and only if they did so
//! for most of the time. Flows that get all they ask for differ because their clients do.
//!
//! Source: R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::flow_states::LevelFlows;

/// The number of samples after which a sample counts 1/e.
const MEMORY: f64 = 30.0;
/// A flow with less weight than this is forgotten.
const FORGOTTEN: f64 = 0.02;
/// Flows that are remembered in each level. Further ones are not counted.
const MAX_FLOWS: usize = 4096;

/// The shares of all levels.
#[derive(Debug, Default)]
pub(crate) struct FlowShares(BTreeMap<Arc<str>, LevelShares>);

/// How the flows of one level share its seats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShareReport {
    /// Jain's index of the mean seats of the flows whose requests waited most of the time; 1 with fewer
    /// than two of them.
    pub(crate) jain: f64,
    /// The mean seats of the flow that had most, divided by the mean current limit, or by the seats in use where those are
    /// more; 0 without seats.
    pub(crate) largest: f64,
}

/// Sums of samples, all with the same weights.
#[derive(Debug, Default)]
struct LevelShares {
    weight: f64,
    limit: f64,
    flows: BTreeMap<u64, FlowSums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowSums {
    /// The weight of the samples in which the flow had requests.
    weight: f64,
    seats: f64,
    /// Its seats, and one for each of its waiting requests.
    demand: f64,
    /// The weight of the samples in which its requests waited.
    waiting_weight: f64,
    waiting_seats: f64,
}

impl FlowShares {
    /// Enters a sample of all levels; to be called once a second. O(flows).
    pub(crate) fn sample(&mut self, levels: &[LevelFlows]) {
        let existing: HashSet<&str> = levels.iter().map(|level| &*level.level).collect();
        self.0.retain(|name, _| existing.contains(&**name));
        for level in levels {
            let shares = self.0.entry(Arc::clone(&level.level)).or_default();
            shares.sample(level);
        }
    }

    /// The mean seats of the flow `hash` of `level`, divided by its fair share: the mean of all flows that waited most of the
    /// time, or what it asked for if that is less. `None` if it did not wait most of the time, or no other flow did, or none had
    /// any seats.
    pub(crate) fn fair_share(&self, level: &str, hash: u64) -> Option<f64> {
        self.0.get(level)?.fair_share(hash)
    }

    /// The shares in `level`.
    pub(crate) fn report(&self, level: &str) -> ShareReport {
        let shares = self.0.get(level);
        shares.map_or(
            ShareReport {
                jain: 1.0,
                largest: 0.0,
            },
            LevelShares::report,
        )
    }
}

impl LevelShares {
    fn sample(&mut self, level: &LevelFlows) {
        let keep = (-1.0 / MEMORY).exp();
        self.weight = self.weight * keep + 1.0;
        // An exempt level has no limit of its own, and others may be over a limit that shrank.
        let in_use: u32 = level.flows.iter().map(|flow| flow.seats).sum();
        self.limit = self.limit * keep + f64::from(level.limit.max(in_use));
        self.flows.retain(|_, sums| {
            for sum in [
                &mut sums.weight,
                &mut sums.seats,
                &mut sums.demand,
                &mut sums.waiting_weight,
                &mut sums.waiting_seats,
            ] {
                *sum *= keep;
            }
            sums.weight > FORGOTTEN
        });
        for flow in &level.flows {
            let has_room = self.flows.len() < MAX_FLOWS;
            if !has_room && !self.flows.contains_key(&flow.hash) {
                continue;
            }
            let sums = self.flows.entry(flow.hash).or_default();
            sums.weight += 1.0;
            sums.seats += f64::from(flow.seats);
            sums.demand += f64::from(flow.seats) + f64::from(flow.waiting);
            if flow.waiting > 0 {
                sums.waiting_weight += 1.0;
                sums.waiting_seats += f64::from(flow.seats);
            }
        }
    }

    /// The flows whose requests waited most of the time.
    fn waiting_flows(&self) -> impl Iterator<Item = &FlowSums> {
        self.flows.values().filter(|sums| self.is_waiting(sums))
    }

    fn is_waiting(&self, sums: &FlowSums) -> bool {
        sums.waiting_weight > self.weight / 2.0
    }

    fn fair_share(&self, hash: u64) -> Option<f64> {
        let mine = self.flows.get(&hash).filter(|mine| self.is_waiting(mine))?;
        let (count, seats) = self
            .waiting_flows()
            .fold((0.0, 0.0), |(count, seats), sums| {
                (count + 1.0, seats + sums.seats)
            });
        let fair = (seats / count).min(mine.demand);
        (count > 1.0 && fair > 0.0).then(|| mine.seats / fair)
    }

    fn report(&self) -> ShareReport {
        let most = self
            .flows
            .values()
            .map(|sums| sums.seats)
            .fold(0.0, f64::max);
        ShareReport {
            jain: jain(
                self.waiting_flows()
                    .map(|sums| sums.waiting_seats / sums.waiting_weight),
            ),
            largest: if self.limit > 0.0 {
                most / self.limit
            } else {
                0.0
            },
        }
    }
}

/// Jain's index; 1 for fewer than two shares, and if all are 0.
fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares > 0.0 {
        sum * sum / (count * squares)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::counting::flow_states::PresentFlow;

    fn level(limit: u32, flows: &[(u64, u32, u32)]) -> LevelFlows {
        let flow = |(hash, waiting, seats): &(u64, u32, u32)| PresentFlow {
            hash: *hash,
            schema: 0,
            waiting: *waiting,
            seats: *seats,
            request: None,
            oldest: None,
        };
        LevelFlows {
            level: "busy".into(),
            limit,
            flows: flows.iter().map(flow).collect(),
            oldest: None,
            active_queues: 0,
        }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} != {expected}");
    }

    #[test]
    fn flows_that_take_turns_on_one_seat_are_even_over_time() {
        let mut shares = FlowShares::default();
        for turn in 0..400 {
            let seats = |flow: u64| u32::from(turn % 2 == flow);
            shares.sample(&[level(1, &[(0, 5, seats(0)), (1, 1, seats(1))])]);
        }
        let report = shares.report("busy");
        assert!(report.jain > 0.999, "{report:?}");
        assert!((report.largest - 0.5).abs() < 0.02, "{report:?}");
    }

    #[test]
    fn a_flow_that_has_everything_while_others_wait_is_seen() {
        let mut shares = FlowShares::default();
        for _ in 0..100 {
            shares.sample(&[level(10, &[(0, 5, 10), (1, 1, 0), (2, 1, 0), (3, 1, 0)])]);
        }
        close(shares.report("busy").jain, 0.25);
        close(shares.report("busy").largest, 1.0);
        close(shares.fair_share("busy", 0).unwrap(), 4.0);
        close(shares.fair_share("busy", 1).unwrap(), 0.0);
        assert_eq!(shares.fair_share("busy", 9), None);
    }

    #[test]
    fn the_fair_share_of_a_flow_is_no_more_than_it_asks_for() {
        let mut shares = FlowShares::default();
        for turn in 0..400 {
            // One request at a time, which waits three times as long as it executes.
            let is_executing = turn % 4 == 0;
            let (waiting, seats) = if is_executing { (0, 1) } else { (1, 0) };
            shares.sample(&[level(10, &[(0, 50, 9), (1, waiting, seats)])]);
        }
        let mouse = shares.fair_share("busy", 1).unwrap();
        assert!((0.2..0.3).contains(&mouse), "{mouse}");
        assert!(shares.fair_share("busy", 0).unwrap() > 1.5);
    }

    #[test]
    fn no_flow_has_more_than_all_seats() {
        let mut shares = FlowShares::default();
        for _ in 0..100 {
            shares.sample(&[level(2, &[(0, 0, 9), (1, 0, 3)])]);
        }
        close(shares.report("busy").largest, 0.75);
    }

    #[test]
    fn flows_that_get_all_they_ask_for_do_not_count_as_uneven() {
        let mut shares = FlowShares::default();
        for _ in 0..100 {
            shares.sample(&[level(10, &[(0, 0, 8), (1, 0, 1)])]);
        }
        let expected = ShareReport {
            jain: 1.0,
            largest: 0.8,
        };
        close(shares.report("busy").jain, expected.jain);
        assert_eq!(shares.fair_share("busy", 1), None, "no flow waits");
        close(shares.report("busy").largest, expected.largest);
        shares.sample(&[]);
        assert_eq!(
            shares.report("busy"),
            ShareReport {
                jain: 1.0,
                largest: 0.0
            },
            "the level is gone"
        );
    }

    #[test]
    fn flows_are_forgotten_and_bounded() {
        let mut shares = FlowShares::default();
        for second in 0..20 {
            let flows: Vec<_> = (0..1000).map(|flow| (second * 1000 + flow, 1, 0)).collect();
            shares.sample(&[level(1, &flows)]);
        }
        assert_eq!(shares.0["busy"].flows.len(), MAX_FLOWS);
        for _ in 0..200 {
            shares.sample(&[level(1, &[])]);
        }
        assert_eq!(shares.0["busy"].flows.len(), 0);
    }

    proptest! {
        #[test]
        fn jains_index_lies_between_one_nth_and_one(shares in prop::collection::vec(0.0_f64..100.0, 0..20)) {
            let index = jain(shares.iter().copied());
            let least = 1.0 / f64::from(u32::try_from(shares.len().max(1)).unwrap());
            prop_assert!(index >= least - 1e-9 && index <= 1.0 + 1e-9, "{index}");
        }
    }
}
