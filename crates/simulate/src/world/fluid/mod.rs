//! A world with a perfectly fair and infinitely divisible server, and the arrivals that it really has.
//!
//! `ideal` says what such a server gives on average. Here each request arrives when it does in [`run()`](super::run()), so waits
//! are those that bursts cause even there. At each moment the seats are shared max-min among the names that have requests
//! (generalized processor sharing). A name weighs 1, or less if its tenants are active under many names. Requests of one name
//! are served in the order of their arrival.
//!
//! A request ends when it has received its service time with all its seats; with fewer it takes longer. What it takes longer
//! than its service time is its wait. One that has received nothing when its patience or deadline ends leaves; as every name
//! receives something at once, that is never the first of a name. Nothing is refused. Final seats are demanded after the response,
//! before what the name has waiting, and the name has to be served with them as with anything else.

mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{
    World,
    calls::{DrawnCalls, Number, WorldEvent},
    duration,
    ideal::tenant,
    measure::{mean, p99, seconds},
    real,
};
use fairgate_core::time::{Time, nanos};
use server::{EACH_NAME, FluidRequest, FluidServer};

/// What a flow gets from the fluid server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluidFlow {
    /// The seats that it used, on average.
    pub seats: f64,
    /// The 99th percentile of the waits of its requests in seconds, with those that are not finished at the end.
    pub p99_wait: f64,
    /// The mean of the same waits, in seconds.
    pub mean_wait: f64,
    /// Requests that ended, and whose service time began in the measured time if they had all their seats in the end.
    pub executed: u32,
    /// Requests that left.
    pub lost: u32,
}

/// Plays `world` with a server that shares seats max-min at each moment; the flows of one tenant weigh together at most
/// `tenant_weight`, which is at least 1. In the order of the world's flows. The same world gives the same result.
///
/// # Panics
///
/// If the world is invalid: no seats, a width of 0.
pub fn run_fluid(world: &World, tenant_weight: f64) -> Vec<FluidFlow> {
    let mut stage = FluidStage::new(world, tenant_weight);
    let from = nanos(duration(world.warm_up_seconds));
    let to = nanos(duration(world.warm_up_seconds + world.seconds));
    stage.play_until(from);
    let before = stage.server.received().to_vec();
    stage.play_until(to);
    stage.report(&before)
}

/// The results of a flow so far; waits in nanoseconds.
#[derive(Clone, Default)]
struct Tally {
    waits: Vec<u64>,
    executed: u32,
    lost: u32,
}

struct FluidStage<'a> {
    calls: DrawnCalls<'a>,
    server: FluidServer,
    /// The number of each flow's tenant, as the server knows it.
    tenants: Vec<usize>,
    /// When each request arrived, in seconds.
    arrived: Vec<f64>,
    /// In seconds.
    now: f64,
    tallies: Vec<Tally>,
}

impl<'a> FluidStage<'a> {
    fn new(world: &'a World, tenant_weight: f64) -> Self {
        let mut numbers = BTreeMap::new();
        let tenants = world.flows.iter().map(|spec| match tenant(spec) {
            None => EACH_NAME,
            Some(name) => {
                let next = numbers.len() + 1;
                *numbers.entry(name).or_insert(next)
            }
        });
        let tenants: Vec<usize> = tenants.collect();
        let flows = world.flows.len();
        Self {
            calls: DrawnCalls::new(world),
            server: FluidServer::new(world.level.seats, flows, numbers.len(), tenant_weight),
            tenants,
            arrived: Vec::new(),
            now: 0.0,
            tallies: vec![Tally::default(); flows],
        }
    }

    /// Plays what happens until `to`, in nanoseconds.
    fn play_until(&mut self, to: u64) {
        loop {
            let event = self.calls.next().filter(|at| *at <= to);
            let at = seconds(event.unwrap_or(to));
            let ends = self.server.next_end();
            if self.now + ends < at {
                self.pass(ends);
                continue;
            }
            self.pass((at - self.now).max(0.0));
            if event.is_none() {
                return;
            }
            if let Some((now, event)) = self.calls.pop() {
                self.happen(now, event);
            }
        }
    }

    /// So many seconds pass, and requests end.
    fn pass(&mut self, seconds: f64) {
        self.server.pass(seconds);
        self.now += seconds;
        for number in self.server.end() {
            let request = &self.server.requests()[number as usize];
            let (flow, service) = (request.flow, request.service);
            let waited = self.now - self.arrived[number as usize] - service;
            if self.now - service >= self.calls.world.warm_up_seconds {
                let tally = &mut self.tallies[flow];
                tally.executed += 1;
                tally.waits.push(whole_nanos(waited));
            }
            let flow = u32::try_from(flow).expect("a world has few clients");
            let now = Time::from_nanos(whole_nanos(self.now));
            self.calls.call_again(now, flow);
        }
    }

    fn happen(&mut self, now: Time, event: WorldEvent) {
        match event {
            WorldEvent::Call(flow) => self.call(now, flow),
            WorldEvent::GiveUp(number) => self.give_up(now, number),
            WorldEvent::Limit(place) => {
                let (_, seats) = self.calls.world.level.limits[place as usize];
                self.server.set_limit(seats);
            }
            WorldEvent::End(_) | WorldEvent::Tick => {}
        }
    }

    fn call(&mut self, now: Time, flow: u32) {
        let drawn = self.calls.draw(now, flow);
        let (name, _) = self.calls.name(flow);
        let spec = self.calls.spec(flow);
        let service = drawn.service.as_secs_f64();
        let number = self.server.arrive(FluidRequest {
            flow: flow as usize,
            name,
            tenant: self.tenants[flow as usize],
            width: drawn.width,
            service,
            left: service,
            final_seats: spec.final_seats,
            final_seconds: spec.additional_latency_seconds,
            responded: false,
            has_left: false,
        });
        self.arrived.push(self.now);
        self.calls.give_up_later(now, flow, number);
    }

    fn give_up(&mut self, now: Time, number: Number) {
        if !self.server.leave(number) {
            return;
        }
        let flow = self.server.requests()[number as usize].flow;
        if self.now >= self.calls.world.warm_up_seconds {
            let tally = &mut self.tallies[flow];
            tally.lost += 1;
            let waited = self.now - self.arrived[number as usize];
            tally.waits.push(whole_nanos(waited));
        }
        let flow = u32::try_from(flow).expect("a world has few clients");
        self.calls.call_again(now, flow);
    }

    /// The results; `before` are the seat-seconds that each flow had received when the measured time began.
    fn report(mut self, before: &[f64]) -> Vec<FluidFlow> {
        let received = self.server.received().to_vec();
        let requests = self.server.requests().iter().zip(&self.arrived);
        for (request, arrived) in requests.filter(|(request, _)| request.is_unfinished()) {
            let served = request.service - request.left;
            let waited = whole_nanos(self.now - arrived - served);
            self.tallies[request.flow].waits.push(waited);
        }
        let measured = self.calls.world.seconds;
        let seats = received.iter().zip(before);
        let seats = seats.map(|(received, before)| (received - before) / measured);
        let flows = self.tallies.into_iter().zip(seats);
        let flows = flows.map(|(mut tally, seats)| {
            tally.waits.sort_unstable();
            FluidFlow {
                seats,
                p99_wait: p99(&tally.waits),
                mean_wait: mean(&tally.waits),
                executed: tally.executed,
                lost: tally.lost,
            }
        });
        flows.collect()
    }
}

/// The nearest whole number of nanoseconds; 0 for less than none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "virtual times are far below 2^52 ns"
)]
fn whole_nanos(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9).round() as u64
}
