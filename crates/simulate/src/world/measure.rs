//! The results of a world, compared with the ideal.

use std::{collections::BTreeMap, time::Duration};

use super::{
    World, duration,
    ideal::{Ideal, ideal},
    real,
};
use fairgate_core::fairness::jain_index;
use fairgate_core::{
    apf::units::Seats,
    time::{Time, nanos},
};

/// The result of one flow.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The name of the flow.
    pub name: String,
    /// The seats that the flow used, on average.
    pub seats: f64,
    /// The ideal result of the flow.
    pub ideal: Ideal,
    /// The longest wait of the flow's requests, in seconds.
    pub longest_wait: f64,
    /// The 99th percentile of the waits of its requests, in seconds.
    pub p99_wait: f64,
    /// As `p99_wait`, but those that still wait at the end count, too, with the time for which they have waited.
    pub tail_wait: f64,
    /// The mean of the same waits, in seconds.
    pub mean_wait: f64,
    /// The maximum over its requests of the wait divided by the sum of the ideal wait and the
    /// longest service that executed when the request arrived. Requests that give up or still wait at the end count, too.
    pub wait_ratio: f64,
    /// Seconds from arrival to the end of the execution, of the requests that executed, ascending.
    pub latencies: Vec<f64>,
    /// Requests that began to execute.
    pub executed: u32,
    /// Requests that were rejected, timed out or cancelled.
    pub lost: u32,
    /// Those of them that were rejected when they arrived.
    pub refused: u32,
}

/// The results of a world.
#[derive(Clone, Debug)]
pub struct WorldReport {
    /// In the order of the world's flows.
    pub flows: Vec<FlowReport>,
    /// The fraction of the seats that were idle while a waiting request would have fitted.
    pub idle: f64,
    /// The most seats ever in use over the limit.
    pub(crate) over: Seats,
    /// Mean service time over all flows, in seconds.
    pub(crate) mean_service: f64,
}

impl FlowReport {
    /// How far the flow's seats are from the ideal, as a part of the ideal seats.
    pub(crate) fn share_error(&self) -> f64 {
        (self.seats - self.ideal.seats).abs() / self.ideal.seats
    }
}

impl WorldReport {
    /// Jain's index of the flows' seats divided by the ideal: 1 is fair.
    pub(crate) fn jain(&self) -> f64 {
        let parts = self.flows.iter().map(|flow| flow.seats / flow.ideal.seats);
        // A world in which no flow gets anything is as unfair as can be.
        jain_index(parts).unwrap_or(0.0)
    }

    /// The greatest share error of a flow.
    pub(crate) fn worst_error(&self) -> f64 {
        self.worst(|flow| true.then(|| flow.share_error()))
    }

    /// The greatest wait ratio of the flows that demand less than a fair share.
    pub(crate) fn worst_wait_ratio(&self) -> f64 {
        self.worst(|flow| (!flow.ideal.saturated).then_some(flow.wait_ratio))
    }

    fn worst(&self, of: impl Fn(&FlowReport) -> Option<f64>) -> f64 {
        self.flows.iter().filter_map(of).fold(0.0, f64::max)
    }
}

/// A request that begins to execute.
pub(super) struct StartedRequest {
    pub(super) width: Seats,
    pub(super) now: Time,
    pub(super) service: Duration,
    pub(super) waited: WaitingRequest,
}

/// A request that waits, or waited until something happens to it.
pub(super) struct WaitingRequest {
    pub(super) flow: u32,
    pub(super) arrived: Time,
    /// The longest service that executed when it arrived.
    pub(super) longest_executing: Duration,
}

/// Collects the results while a world runs.
pub(super) struct Meter {
    limit: Seats,
    /// The limit on average, in seats.
    mean_limit: f64,
    /// The beginning and the end of the measured time, in nanoseconds.
    from: f64,
    to: f64,
    last: Time,
    idle: f64,
    over: Seats,
    /// How many requests of each width wait, and how many of each service time execute.
    waiting: BTreeMap<Seats, u32>,
    executing: BTreeMap<Duration, u32>,
    flows: Vec<Tally>,
}

/// The result of one flow so far.
#[derive(Default)]
struct Tally {
    seat_nanos: f64,
    waits: Vec<u64>,
    latencies: Vec<u64>,
    wait_ratio: f64,
    executed: u32,
    lost: u32,
    refused: u32,
    /// The waits of the requests that still wait at the end.
    unserved: Vec<u64>,
    fluid_wait: Duration,
    final_seats: Seats,
    lingers: Duration,
}

impl Tally {
    /// How long `request` has waited at `now`; it counts for the greatest wait ratio, whether or not it executes at last.
    fn wait(&mut self, now: Time, request: &WaitingRequest) -> Duration {
        let waited = now.since(request.arrived);
        let bound = self.fluid_wait + request.longest_executing;
        let bound = bound.max(Duration::from_micros(1));
        let ratio = waited.as_secs_f64() / bound.as_secs_f64();
        self.wait_ratio = self.wait_ratio.max(ratio);
        waited
    }
}

impl Meter {
    pub(super) fn new(world: &World) -> Self {
        let flows = world.flows.iter().zip(ideal(world));
        let flows = flows.map(|(spec, ideal)| Tally {
            fluid_wait: duration(ideal.wait_seconds),
            final_seats: spec.final_seats,
            lingers: duration(spec.additional_latency_seconds),
            ..Tally::default()
        });
        let (from, to) = (world.warm_up_seconds, world.warm_up_seconds + world.seconds);
        Self {
            limit: world.level.seats,
            mean_limit: world.level.mean_limit(from, to),
            from: world.warm_up_seconds * 1e9,
            to: (world.warm_up_seconds + world.seconds) * 1e9,
            last: Time::ZERO,
            idle: 0.0,
            over: 0,
            waiting: BTreeMap::new(),
            executing: BTreeMap::new(),
            flows: flows.collect(),
        }
    }

    /// Accounts for the time until `now`: the seats in use, and the waits.
    pub(super) fn pass(&mut self, now: Time, seats_in_use: Seats) {
        let free = self.limit.saturating_sub(seats_in_use);
        self.over = self.over.max(seats_in_use.saturating_sub(self.limit));
        let narrowest = self.waiting.keys().next();
        if narrowest.is_some_and(|width| (*width).min(self.limit) <= free) && free > 0 {
            self.idle += f64::from(free) * self.overlap(self.last, now);
        }
        self.last = now;
    }

    pub(super) fn longest_executing(&self) -> Duration {
        let longest = self.executing.keys().next_back();
        longest.copied().unwrap_or_default()
    }

    pub(super) fn waits(&mut self, width: Seats) {
        *self.waiting.entry(width).or_default() += 1;
    }

    pub(super) fn waits_no_more(&mut self, width: Seats) {
        take_one(&mut self.waiting, &width);
    }

    pub(super) fn begins(&mut self, begun: &StartedRequest) {
        *self.executing.entry(begun.service).or_default() += 1;
        let ends = begun.now.plus(begun.service);
        let flow = begun.waited.flow as usize;
        let released = ends.plus(self.flows[flow].lingers);
        let executes = self.overlap(begun.now, ends);
        let lingers = self.overlap(ends, released);
        let width = f64::from(begun.width.min(self.limit));
        let measured = self.is_measured(begun.now);
        let tally = &mut self.flows[flow];
        tally.seat_nanos += width * executes + f64::from(tally.final_seats) * lingers;
        if !measured {
            return;
        }
        let waited = tally.wait(begun.now, &begun.waited);
        tally.executed += 1;
        tally.waits.push(nanos(waited));
        tally.latencies.push(nanos(waited + begun.service));
    }

    pub(super) fn ends(&mut self, service: Duration) {
        take_one(&mut self.executing, &service);
    }

    /// The limit changes now; the time until now was accounted for.
    pub(super) fn limit(&mut self, seats: Seats) {
        self.limit = seats;
    }

    pub(super) fn refused(&mut self, now: Time, flow: u32) {
        let measured = u32::from(self.is_measured(now));
        let tally = &mut self.flows[flow as usize];
        tally.lost += measured;
        tally.refused += measured;
    }

    /// A request waits at the end of the world, until which the time was accounted for.
    pub(super) fn still_waits(&mut self, request: &WaitingRequest) {
        let tally = &mut self.flows[request.flow as usize];
        let waited = tally.wait(self.last, request);
        tally.unserved.push(nanos(waited));
    }

    pub(super) fn gives_up(&mut self, now: Time, request: &WaitingRequest) {
        if self.is_measured(now) {
            let tally = &mut self.flows[request.flow as usize];
            let waited = tally.wait(now, request);
            tally.lost += 1;
            tally.waits.push(nanos(waited));
        }
    }

    pub(super) fn report(self, world: &World) -> WorldReport {
        let measured = self.to - self.from;
        let flows = world.flows.iter().zip(ideal(world)).zip(self.flows);
        let flows = flows.map(|((spec, ideal), mut tally)| {
            tally.waits.sort_unstable();
            tally.latencies.sort_unstable();
            let (p99_wait, longest_wait) = (p99(&tally.waits), tally.waits.last());
            let longest_wait = longest_wait.map_or(0.0, |wait| seconds(*wait));
            tally.waits.append(&mut tally.unserved);
            tally.waits.sort_unstable();
            FlowReport {
                name: spec.name.clone(),
                seats: tally.seat_nanos / measured,
                ideal,
                longest_wait,
                p99_wait,
                tail_wait: p99(&tally.waits),
                mean_wait: mean(&tally.waits),
                wait_ratio: tally.wait_ratio,
                latencies: tally.latencies.iter().map(|l| seconds(*l)).collect(),
                executed: tally.executed,
                lost: tally.lost,
                refused: tally.refused,
            }
        });
        let services = world.flows.iter().map(|flow| flow.service.mean_seconds);
        WorldReport {
            flows: flows.collect(),
            idle: self.idle / (measured * self.mean_limit),
            over: self.over,
            mean_service: services.sum::<f64>() / real(world.flows.len()),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "virtual times are far below 2^52 ns"
    )]
    fn overlap(&self, from: Time, to: Time) -> f64 {
        let (from, to) = (from.as_nanos() as f64, to.as_nanos() as f64);
        (to.min(self.to) - from.max(self.from)).max(0.0)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "virtual times are far below 2^52 ns"
    )]
    fn is_measured(&self, now: Time) -> bool {
        now.as_nanos() as f64 >= self.from
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "virtual times are far below 2^52 ns"
)]
pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The 99th percentile of `waits`, which are in nanoseconds and ascending, in seconds.
pub(super) fn p99(waits: &[u64]) -> f64 {
    waits
        .get(waits.len() * 99 / 100)
        .map_or(0.0, |wait| seconds(*wait))
}

/// The mean of `waits`, in seconds.
pub(super) fn mean(waits: &[u64]) -> f64 {
    let sum: f64 = waits.iter().map(|wait| seconds(*wait)).sum();
    sum / real(waits.len().max(1))
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    let count = counts.get_mut(key).expect("it was counted");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}
