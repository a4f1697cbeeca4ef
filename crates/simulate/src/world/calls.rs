//! The requests that the clients of a world send, and when, whoever serves them.
//!
//! [`DrawnCalls`] draws each request and keeps the events to come. What is drawn for a client does not depend on the server, but a
//! closed loop sends its next request only when it gets a response.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::{
    Arrivals, Bursts, FlowSpec, World,
    draws::{Draws, NameHashes},
    duration,
};
use fairgate_core::{
    apf::units::Seats,
    random::Random,
    time::{Time, nanos},
};

/// A request's number in the order of arrival.
pub(super) type Number = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldEvent {
    /// The next request of a flow, by one of its threads or from outside.
    Call(u32),
    End(Number),
    GiveUp(Number),
    Tick,
    /// The limit becomes the one of this place in the list of the level.
    Limit(u32),
}

/// What is drawn for a request.
pub(super) struct DrawnRequest {
    pub(super) width: Seats,
    pub(super) service: Duration,
}

/// The clients of a world, and the events to come.
pub(super) struct DrawnCalls<'a> {
    pub(super) world: &'a World,
    heap: BinaryHeap<Reverse<(u64, u64, WorldEvent)>>,
    sequence: u64,
    names: NameHashes,
    draws: Vec<Draws>,
}

impl<'a> DrawnCalls<'a> {
    /// The clients before their first requests.
    pub(super) fn new(world: &'a World) -> Self {
        let mut seeds = Random::seeded(world.seed);
        let names = NameHashes::new(world, &mut seeds);
        let draws = world.flows.iter();
        let draws = draws.map(|spec| Draws::new(spec, seeds.number())).collect();
        let mut calls = Self {
            world,
            heap: BinaryHeap::new(),
            sequence: 0,
            names,
            draws,
        };
        calls.open();
        calls
    }

    /// What `flow` is.
    pub(super) fn spec(&self, flow: u32) -> &'a FlowSpec {
        &self.world.flows[flow as usize]
    }

    fn open(&mut self) {
        for (flow, spec) in (0u32..).zip(&self.world.flows) {
            let start = nanos(duration(spec.starts_seconds));
            match spec.arrivals {
                Arrivals::Closed { threads, .. } => {
                    for _ in 0..threads {
                        // Threads do not start in step.
                        let spread = nanos(duration(spec.service.mean_seconds)).max(1);
                        let at = start + self.draws[flow as usize].start(spread);
                        self.call_at(at, flow);
                    }
                }
                Arrivals::Open { .. } | Arrivals::Poisson { .. } => self.call_at(start, flow),
            }
        }
        for (place, (at, _)) in (0..).zip(&self.world.level.limits) {
            self.at(nanos(duration(*at)), WorldEvent::Limit(place));
        }
    }

    /// The time of the next event, in nanoseconds.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(Time, WorldEvent)> {
        let Reverse((at, _, event)) = self.heap.pop()?;
        Some((Time::from_nanos(at), event))
    }

    /// Adds an event at `time`, in nanoseconds; after those that are there for the same time.
    pub(super) fn at(&mut self, time: u64, event: WorldEvent) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence, event)));
    }

    /// Draws the request of `flow` that arrives now. An open loop sends another one after a gap.
    pub(super) fn draw(&mut self, now: Time, flow: u32) -> DrawnRequest {
        let spec = self.spec(flow);
        let draws = &mut self.draws[flow as usize];
        let width = draws.width(spec);
        let service = draws.service_time(spec.service);
        if let Some(gap) = draws.gap(spec.arrivals) {
            self.call_at(now.plus(gap).as_nanos(), flow);
        }
        DrawnRequest { width, service }
    }

    /// The hashes of the name of the next request of `flow`, and of its tenant.
    pub(super) fn name(&mut self, flow: u32) -> (u64, u64) {
        let spec = self.spec(flow);
        self.names.next(flow, spec)
    }

    /// A request that arrives now gives up when its client's patience ends, unless somebody begins it before.
    pub(super) fn give_up_later(&mut self, now: Time, flow: u32, number: Number) {
        let spec = self.spec(flow);
        let patience = match spec.arrivals {
            Arrivals::Open {
                deadline_seconds, ..
            }
            | Arrivals::Poisson {
                deadline_seconds, ..
            } => Some(deadline_seconds),
            Arrivals::Closed { .. } => spec.patience_seconds,
        };
        if let Some(seconds) = patience {
            let at = now.plus(duration(seconds)).as_nanos();
            self.at(at, WorldEvent::GiveUp(number));
        }
    }

    /// A thread of a closed loop thinks and calls again.
    pub(super) fn call_again(&mut self, now: Time, flow: u32) {
        if let Arrivals::Closed { think_seconds, .. } = self.spec(flow).arrivals {
            let think = self.draws[flow as usize].think(think_seconds);
            self.call_at(now.plus(think).as_nanos(), flow);
        }
    }

    /// The next request of `flow` comes at `time`, or when its next burst begins.
    fn call_at(&mut self, time: u64, flow: u32) {
        let bursts = self.spec(flow).bursts;
        let time = bursts.map_or(time, |bursts| bursts.next(time));
        self.at(time, WorldEvent::Call(flow));
    }
}

impl Bursts {
    /// The first time at or after `time` at which requests are sent, in nanoseconds.
    fn next(&self, time: u64) -> u64 {
        let nanos = |seconds| nanos(duration(seconds));
        let period = nanos(self.on_seconds + self.off_seconds).max(1);
        let phase = nanos(self.phase_seconds) % period;
        let since = (time + period - phase) % period;
        if since < nanos(self.on_seconds) {
            time
        } else {
            time + period - since
        }
    }
}
