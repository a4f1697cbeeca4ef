//! Many concurrent evictions, as several gateways make them: their calls reach the upstream in any order,
//! and some get no response.

use std::time::Duration;

use fairgate_core::random::Random;
use jiff::Timestamp;
use serde_json::json;

use super::{
    CallOutcome, CallReply, Eviction, EvictionResult, EvictionStep, MAX_CALLS, Response,
    ServerClock, Upstream, UpstreamCall, budget, failure, pod, start,
};
use crate::procedure::request::EvictionRequest;

/// Evictions of the pods `p0`, `p1` and so on, all of one budget.
pub(super) struct Crowd {
    pub(super) upstream: Upstream,
    evictions: Vec<Eviction<Response>>,
    random: Random,
    now: Timestamp,
    /// The percentage of calls that fail.
    faults: u64,
    /// Writes that the upstream has not received yet.
    late: Vec<UpstreamCall>,
}

fn name(index: usize) -> String {
    format!("p{index}")
}

fn eviction(index: usize) -> Eviction<Response> {
    let name = name(index);
    let body = json!({"metadata": {"name": name}});
    let request = EvictionRequest::new("ns", &name, &[], &body).unwrap();
    Eviction::new(request, ServerClock::default())
}

impl Crowd {
    /// Evictions of `pods` ready pods, with a budget that allows `allowed` disruptions.
    pub(super) fn new(pods: usize, allowed: i32, seed: u64) -> Self {
        let mut upstream = Upstream::default().with_budget(budget(allowed, 100, 0));
        for index in 0..pods {
            let mut pod = pod("Running", true);
            pod["metadata"]["name"] = json!(name(index));
            pod["metadata"]["uid"] = json!(format!("uid-{index}"));
            upstream = upstream.with_pod(pod);
        }
        Self {
            upstream,
            evictions: (0..pods).map(eviction).collect(),
            random: Random::seeded(seed),
            now: start(),
            faults: 0,
            late: Vec::new(),
        }
    }

    pub(super) fn with_faults(mut self, percent: u64) -> Self {
        self.faults = percent;
        self
    }

    /// The clients whose pods still exist send their evictions again.
    pub(super) fn repeat(&mut self) {
        for (index, one) in self.evictions.iter_mut().enumerate() {
            if self.upstream.pods.contains_key(&name(index)) {
                *one = eviction(index);
            }
        }
    }

    /// Runs all evictions to their end, interleaved at random.
    pub(super) fn run(&mut self) {
        let most_steps = 2 * MAX_CALLS as usize * self.evictions.len();
        let mut steps = 0;
        loop {
            let is_open =
                |one: &&mut Eviction<Response>| !matches!(one.step(), EvictionStep::Done(_));
            let mut open: Vec<_> = self.evictions.iter_mut().filter(is_open).collect();
            if open.is_empty() {
                break;
            }
            // A step is a call, or a pause before one.
            steps += 1;
            assert!(steps <= most_steps);
            let index = index_below(&mut self.random, open.len());
            let one = open.swap_remove(index);
            self.now += Duration::from_millis(100);
            let call = match one.step() {
                EvictionStep::Call(call) => call,
                EvictionStep::Pause(_) => {
                    one.paused();
                    continue;
                }
                EvictionStep::Done(_) => continue,
            };
            let outcome = send(
                &mut self.upstream,
                &call,
                &mut self.random,
                self.faults,
                &mut self.late,
            );
            one.replied(CallReply {
                outcome,
                sent: self.now,
                received: self.now,
                date: None,
            });
        }
        for call in std::mem::take(&mut self.late) {
            self.upstream.carry_out(&call);
        }
    }

    pub(super) fn codes(&self) -> Vec<u16> {
        let code = |one: &Eviction<Response>| match one.step() {
            EvictionStep::Done(EvictionResult::Upstream { code, .. }) => *code,
            EvictionStep::Done(result) => result.status().unwrap().code,
            step => panic!("it has not ended: {step:?}"),
        };
        self.evictions.iter().map(code).collect()
    }
}

/// Sends a call, which may be lost, arrive late, or get no response. A late write may arrive before it.
fn send(
    upstream: &mut Upstream,
    call: &UpstreamCall,
    random: &mut Random,
    faults: u64,
    late: &mut Vec<UpstreamCall>,
) -> CallOutcome<Response> {
    if !late.is_empty() && random.percent(25) {
        let index = index_below(random, late.len());
        let call = late.swap_remove(index);
        upstream.carry_out(&call);
    }
    if !random.percent(faults) {
        return upstream.call(call);
    }
    match random.within(0..7) {
        0 => CallOutcome::Unknown,
        1 => {
            upstream.call(call);
            CallOutcome::Unknown
        }
        2 => {
            upstream.call(call);
            failure(500, "it was done")
        }
        3 => failure(503, "it was not done"),
        4 => failure(429, "too many requests"),
        5 => CallOutcome::NotSent,
        _ => {
            if !call.is_read_only() {
                late.push(call.clone());
            }
            CallOutcome::Unknown
        }
    }
}

fn index_below(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.within(0..length as u64)).unwrap()
}
