//! A fleet in virtual time.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use fairgate_core::{
    apf::{
        LevelIndex,
        level::{Arrival, Decisions, Ticket},
        queueset::ArrivingRequest,
        units::Seats,
        work::Work,
    },
    random::Random,
    time::{Time, nanos},
};

use super::{
    ClientGain, ClientNames, FleetWorld, SeatDivision,
    gateway::{LedgerInMemory, RequestNumber, Site},
    levels::{level_name, policy},
};

/// The time between two turns of a gateway.
const TURN: Duration = Duration::from_millis(100);
/// How often levels lend seats.
const BORROWING_PERIOD: Duration = Duration::from_millis(100);
/// How soon they do so after a request had to wait.
const SOON: Duration = Duration::from_millis(50);
/// The time after which a client that was refused tries again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FleetEvent {
    /// A thread of a client sends its next request to a gateway.
    Call {
        client: usize,
        site: usize,
    },
    End(RequestNumber),
    Turn(usize),
    Sample(usize),
    Rebalance(usize),
}

struct FleetRequest {
    client: usize,
    site: usize,
    width: Seats,
    service: Duration,
    arrived: Time,
    ticket: Option<Ticket<RequestNumber>>,
}

#[derive(Default)]
struct Meter {
    seat_nanos: u64,
    waits: Vec<Duration>,
    refused: usize,
}

struct Stage<'a> {
    world: &'a FleetWorld,
    levels: Vec<LevelIndex>,
    sites: Vec<Site>,
    engine: LedgerInMemory,
    heap: BinaryHeap<Reverse<(u64, u64, FleetEvent)>>,
    sequence: u64,
    /// When gateways look at what flows use.
    moments: Random,
    draws: Vec<Random>,
    /// The hashes of the client's first name and of its tenant.
    hashes: Vec<(u64, u64)>,
    requests: Vec<FleetRequest>,
    meters: Vec<Meter>,
}

/// Plays the world and returns what each client got. The same world gives the same.
///
/// # Panics
///
/// If the world is invalid: no gateway, no seats, a width of 0, a client of a level that is not there.
pub fn play(world: &FleetWorld, division: SeatDivision) -> Vec<ClientGain> {
    let mut stage = Stage::new(world, division);
    let end = nanos(world.warm_up + world.measured);
    while let Some(Reverse((at, _, event))) = stage.heap.pop() {
        if at > end {
            break;
        }
        stage.step(Time::from_nanos(at), event);
    }
    stage.gains()
}

impl<'a> Stage<'a> {
    fn new(world: &'a FleetWorld, division: SeatDivision) -> Self {
        let policy = policy(world);
        let level = |place| policy.level_by_name(&level_name(place));
        let levels = (0..world.levels.len()).map(level);
        let site = |number| Site::new(&policy, number, world.gateways, division);
        let mut random = Random::seeded(world.seed);
        let hashes = world.clients.iter();
        let mut stage = Self {
            world,
            levels: levels
                .map(|level| level.expect("the level is there"))
                .collect(),
            sites: (0..world.gateways).map(site).collect(),
            engine: LedgerInMemory::default(),
            heap: BinaryHeap::new(),
            sequence: 0,
            moments: Random::seeded(!world.seed),
            hashes: hashes.map(|_| (random.number(), random.number())).collect(),
            draws: Vec::new(),
            requests: Vec::new(),
            meters: world.clients.iter().map(|_| Meter::default()).collect(),
        };
        let seeds = world
            .clients
            .iter()
            .map(|_| Random::seeded(random.number()));
        stage.draws = seeds.collect();
        stage.open(&mut random);
        if division == SeatDivision::Equal {
            stage.give_equal_parts();
        } else {
            for site in 0..world.gateways {
                let phase = random.within(0..nanos(TURN));
                stage.at(phase, FleetEvent::Turn(site));
            }
        }
        stage
    }

    fn open(&mut self, random: &mut Random) {
        for site in 0..self.world.gateways {
            self.at(nanos(SOON), FleetEvent::Rebalance(site));
            for (client, spec) in self.world.clients.iter().enumerate() {
                for _ in 0..spec.threads[site] {
                    // Threads do not start in step.
                    let start = random.within(0..nanos(spec.service + spec.think).max(1));
                    self.at(start, FleetEvent::Call { client, site });
                }
            }
        }
    }

    fn give_equal_parts(&mut self) {
        let count = Seats::try_from(self.sites.len()).expect("a few gateways");
        let total = self.world.total_seats;
        for (number, site) in (0..).zip(&self.sites) {
            let mut nobody = Decisions::default();
            let seats = total / count + Seats::from(number < total % count);
            site.give_part(seats, &mut nobody);
            assert!(nobody.dispatched.is_empty(), "nobody waits yet");
        }
    }
}

impl Stage<'_> {
    /// Adds an event at `time`, in nanoseconds.
    fn at(&mut self, time: u64, event: FleetEvent) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence, event)));
    }

    fn step(&mut self, now: Time, event: FleetEvent) {
        let mut out = Decisions::default();
        match event {
            FleetEvent::Call { client, site } => self.call(now, client, site, &mut out),
            FleetEvent::End(number) => self.finish(now, number, &mut out),
            FleetEvent::Turn(site) => {
                self.sites[site].turn(now, &mut self.engine, &mut out);
                let moment = self.moments.within(0..nanos(TURN));
                self.at(now.as_nanos() + moment, FleetEvent::Sample(site));
                self.at(now.plus(TURN).as_nanos(), FleetEvent::Turn(site));
            }
            FleetEvent::Sample(site) => self.sites[site].sample(now),
            FleetEvent::Rebalance(number) => {
                let site = &mut self.sites[number];
                let is_due = now.since(site.rebalanced) >= BORROWING_PERIOD;
                if std::mem::take(&mut site.is_contended) || is_due {
                    site.rebalanced = now;
                    site.dispatcher.rebalance(now, &mut out);
                }
                self.at(now.plus(SOON).as_nanos(), FleetEvent::Rebalance(number));
            }
        }
        if let Some(number) = out.replaced {
            let FleetRequest { client, site, .. } = self.requests[number];
            self.refused(now, client, site);
        }
        for (number, ticket) in out.dispatched {
            self.begin(now, number, ticket);
        }
    }

    fn call(&mut self, now: Time, client: usize, site: usize, out: &mut Decisions<RequestNumber>) {
        let number = self.requests.len();
        let request = self.drawn(now, client, site);
        let (name, tenant) = self.hashes[client];
        let hash = match self.world.clients[client].names {
            ClientNames::One => name,
            ClientNames::Of(names) => name
                .wrapping_add(self.draws[client].within(0..names))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ClientNames::Each => self.draws[client].number(),
        };
        let arriving = ArrivingRequest {
            waiter: number,
            schema: 0,
            hash,
            tenant,
            work: Work {
                initial_seats: request.width,
                ..Work::ONE
            },
        };
        self.requests.push(request);
        let level = self.levels[self.world.clients[client].level];
        let place = &mut self.sites[site];
        let view = std::sync::Arc::clone(&place.view);
        match view.level(level).arrive(now, arriving, out) {
            Arrival::Execute(ticket) => self.begin(now, number, ticket),
            Arrival::Wait(_) => place.is_contended = true,
            Arrival::Reject(_) => {
                place.is_contended = true;
                self.refused(now, client, site);
            }
        }
    }

    fn drawn(&mut self, now: Time, client: usize, site: usize) -> FleetRequest {
        let spec = &self.world.clients[client];
        let random = &mut self.draws[client];
        let (least, most) = spec.width;
        let width = random.within(least.into()..u64::from(most) + 1);
        let service = match spec.long {
            Some(long) if random.within(0..long.one_in) == 0 => long.service,
            Some(_) => spec.service,
            None => spec
                .service
                .mul_f64((-(1.0 - random.unit()).ln()).min(10.0)),
        };
        FleetRequest {
            client,
            site,
            width: Seats::try_from(width).expect("a width"),
            service,
            arrived: now,
            ticket: None,
        }
    }

    fn refused(&mut self, now: Time, client: usize, site: usize) {
        if now.as_nanos() >= nanos(self.world.warm_up) {
            self.meters[client].refused += 1;
        }
        self.at(
            now.plus(RETRY).as_nanos(),
            FleetEvent::Call { client, site },
        );
    }

    fn begin(&mut self, now: Time, number: RequestNumber, ticket: Ticket<RequestNumber>) {
        let request = &mut self.requests[number];
        request.ticket = Some(ticket);
        let from = nanos(self.world.warm_up);
        let end = now.plus(request.service).as_nanos();
        let to = end.min(from + nanos(self.world.measured));
        let used = to.saturating_sub(now.as_nanos().max(from));
        let meter = &mut self.meters[request.client];
        meter.seat_nanos += used * u64::from(request.width);
        if now.as_nanos() >= from {
            meter.waits.push(now.since(request.arrived));
        }
        self.at(end, FleetEvent::End(number));
    }

    fn finish(&mut self, now: Time, number: RequestNumber, out: &mut Decisions<RequestNumber>) {
        let request = &mut self.requests[number];
        let (client, site) = (request.client, request.site);
        let ticket = request.ticket.take().expect("it executes");
        let release = ticket.finish(now, out);
        assert!(release.is_none(), "there are no final seats");
        let think = self.world.clients[client].think;
        self.at(
            now.plus(think).as_nanos(),
            FleetEvent::Call { client, site },
        );
    }

    fn gains(self) -> Vec<ClientGain> {
        let seconds = self.world.measured.as_secs_f64();
        let gain = |mut meter: Meter| {
            meter.waits.sort_unstable();
            let place = meter.waits.len() * 99 / 100;
            ClientGain {
                seats: Duration::from_nanos(meter.seat_nanos).as_secs_f64() / seconds,
                p99_wait: meter.waits.get(place).copied().unwrap_or_default(),
                begun: meter.waits.len(),
                refused: meter.refused,
            }
        };
        self.meters.into_iter().map(gain).collect()
    }
}
