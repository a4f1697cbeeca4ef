//! What each flow of a priority level has now: waiting requests and seats.
//!
//! Read from the requests of a level, which are copied under its lock and added up afterwards.
//!
//! Not here: how evenly flows are served over time ([`super::flow_shares`]).

use std::{cmp::Reverse, collections::HashSet, sync::Arc};

use fairgate_core::{
    apf::{level::Level, queueset::Phase},
    time::Time,
};
use fairgate_proxy::fairness::{FlowControl, Waiter};

/// The flows of a level that have requests.
#[derive(Clone, Debug)]
pub(crate) struct LevelFlows {
    /// The name of the level.
    pub(crate) level: Arc<str>,
    /// The current concurrency limit of the level, in seats.
    pub(crate) limit: u32,
    /// The flows of the level, in order of their hashes.
    pub(crate) flows: Vec<PresentFlow>,
    /// When the request arrived that has waited longest; `None` if none waits.
    pub(crate) oldest: Option<Time>,
    /// Queues in which requests wait.
    pub(crate) active_queues: usize,
}

/// A flow that has requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresentFlow {
    /// The hash of the flow.
    pub(crate) hash: u64,
    /// The number of the flow's FlowSchema, a `SchemaId`.
    pub(crate) schema: u32,
    /// Waiting requests.
    pub(crate) waiting: u32,
    /// Seats in use, including the final seats of requests whose response has ended.
    pub(crate) seats: u32,
    /// One of its requests. `None` if the responses of all have ended.
    pub(crate) request: Option<Waiter>,
    /// When the request of the flow arrived that has waited longest; `None` if none waits.
    pub(crate) oldest: Option<Time>,
}

/// Reads the flows of all levels, one level after the other. O(requests · log(requests)).
pub(crate) fn read(flow_control: &FlowControl) -> Vec<LevelFlows> {
    let levels = flow_control.dispatcher().levels();
    let read = |(name, level): &(Arc<str>, Level<Waiter>)| read_level(name, level);
    levels.iter().map(read).collect()
}

fn read_level(name: &Arc<str>, level: &Level<Waiter>) -> LevelFlows {
    let (summary, mut requests) = level.inspect(|set| {
        let summary = set.summary();
        let present = summary.waiting + summary.executing + summary.lingering;
        let mut requests = Vec::with_capacity(present as usize);
        set.visit(|entry| {
            let is_waiting = entry.phase == Phase::Waiting;
            requests.push(PresentFlow {
                hash: entry.flow_hash(),
                schema: entry.schema,
                waiting: u32::from(is_waiting),
                seats: if is_waiting { 0 } else { entry.seats },
                request: (entry.phase != Phase::Lingering).then_some(entry.waiter),
                oldest: is_waiting.then_some(entry.arrived),
            });
        });
        (summary, requests)
    });
    requests.sort_unstable_by_key(|request| request.hash);
    requests.dedup_by(|next, flow| {
        let same = next.hash == flow.hash;
        if same {
            flow.waiting += next.waiting;
            flow.seats = flow.seats.saturating_add(next.seats);
            flow.request = flow.request.or(next.request);
            flow.oldest = flow.oldest.into_iter().chain(next.oldest).min();
        }
        same
    });
    LevelFlows {
        level: Arc::clone(name),
        limit: summary.limit,
        oldest: requests.iter().filter_map(|flow| flow.oldest).min(),
        flows: requests,
        active_queues: summary.queues_waiting,
    }
}

impl LevelFlows {
    /// The `most` flows with the most waiting requests and seats, the greatest first; after them, of the others, those that
    /// are among the `most` that wait longest.
    pub(crate) fn notable(&self, most: usize) -> Vec<PresentFlow> {
        let mut flows = self.flows.clone();
        flows.sort_by_key(|flow| Reverse(u64::from(flow.waiting) + u64::from(flow.seats)));
        let mut smaller = flows.split_off(most.min(flows.len()));
        let mut waiting = self.flows.clone();
        waiting.retain(|flow| flow.oldest.is_some());
        waiting.sort_by_key(|flow| flow.oldest);
        waiting.truncate(most);
        let longest: HashSet<u64> = waiting.iter().map(|flow| flow.hash).collect();
        smaller.retain(|flow| longest.contains(&flow.hash));
        flows.append(&mut smaller);
        flows
    }
}
