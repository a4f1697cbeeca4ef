//! A world in virtual time.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use super::{
    Arrivals, FlowSpec, LevelShape, Service, ServiceDistribution, World, WorldReport, duration,
    measure::{Meter, StartedRequest},
};
use fairgate_core::random::Random;
use fairgate_core::{
    apf::{
        LevelIndex, Policy,
        dispatcher::Dispatcher,
        level::{Decisions, Level},
        policy::{Queuing, Semantics},
        queueset::{Admission, ArrivingRequest, Discipline, EntryId, QueueSet, QueueSetEvents},
        shard::Dealer,
        units::Seats,
        work::Work,
    },
    time::{Time, nanos},
};

/// The time after which a rejected client tries again.
const RETRY: Duration = Duration::from_secs(1);

/// How often levels lend and borrow seats.
fn borrowing_period(semantics: Semantics) -> Duration {
    match semantics {
        Semantics::Compatible => Duration::from_secs(10),
        Semantics::Improved => Duration::from_secs(1),
    }
}

/// In Improved they do so this soon after a request has to wait or is refused.
const SOON: Duration = Duration::from_millis(50);

/// A request's number in the order of arrival.
type Number = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorldEvent {
    /// The next request of a flow, by one of its threads or from outside.
    Call(u32),
    End(Number),
    GiveUp(Number),
    Tick,
}

/// One request.
struct WorldRequest {
    flow: u32,
    id: Option<EntryId>,
    arrived: Time,
    service: Duration,
    width: Seats,
    /// The longest service that executed when it arrived.
    longest_executing: Duration,
    waits: bool,
}

struct Stage<'a> {
    world: &'a World,
    level: Level<Number>,
    heap: BinaryHeap<Reverse<(u64, u64, WorldEvent)>>,
    sequence: u64,
    /// Whether each flow of the world is a flow for flow control; otherwise all are one flow.
    by_flow: bool,
    hashes: Vec<u64>,
    draws: Vec<Draws>,
    requests: Vec<WorldRequest>,
    meter: Meter,
    end: u64,
    /// Whether a request had to wait or was refused since the last rebalancing.
    is_contended: bool,
}

/// Plays `world` under `semantics` and measures it. The same world gives the same report.
///
/// Both semantics get the same arrivals, as far as these do not depend on responses.
///
/// # Panics
///
/// If the world is invalid: no seats, a hand that cannot be dealt, a width of 0.
pub fn run(world: &World, semantics: Semantics) -> WorldReport {
    play(world, semantics, world.level, true)
}

/// Plays `world` without fairness: all its requests are one flow, in one FIFO queue without a limit.
///
/// # Panics
///
/// If the world is invalid: no seats, a width of 0.
pub fn run_fifo(world: &World) -> WorldReport {
    let shape = LevelShape {
        queues: 1,
        hand_size: 1,
        queue_length_limit: u32::MAX,
        ..world.level
    };
    play(world, Semantics::Compatible, shape, false)
}

fn play(world: &World, semantics: Semantics, shape: LevelShape, by_flow: bool) -> WorldReport {
    let queuing = Queuing {
        queues: shape.queues,
        hand_size: shape.hand_size,
        queue_length_limit: shape.queue_length_limit,
    };
    let dealer = Dealer::new(shape.queues, shape.hand_size).expect("the hand can be dealt");
    let discipline = Discipline::Queue { queuing, dealer };
    let level = Level::new(semantics, discipline, shape.seats, Time::ZERO);
    let mut stage = Stage::new(world, level, by_flow);
    while stage.next().is_some_and(|at| at <= stage.end) {
        stage.step();
    }
    stage.report()
}

/// Plays worlds together whose levels are those of `policy`: they lend each other seats. The shape of each world's level
/// only counts for the ideal, in which nothing is lent.
///
/// # Panics
///
/// If a world has a width of 0, or a level that the policy does not have.
pub fn run_lending(policy: &Arc<Policy>, worlds: &[(LevelIndex, World)]) -> Vec<WorldReport> {
    let dispatcher = Dispatcher::new(Arc::clone(policy), Time::ZERO);
    let view = dispatcher.view();
    let semantics = policy.settings().semantics;
    let mut stages: Vec<Stage<'_>> = worlds
        .iter()
        .map(|(level, world)| Stage::new(world, view.level(*level).clone(), true))
        .collect();
    let period = borrowing_period(semantics);
    let mut due = Time::ZERO.plus(period);
    loop {
        let upcoming = (0..).zip(&stages);
        let upcoming = upcoming.filter_map(|(number, stage)| Some((stage.next()?, number)));
        let Some((at, number)) = upcoming.min() else {
            break;
        };
        let stage: &mut Stage<'_> = &mut stages[number];
        if at > stage.end {
            break;
        }
        if at < due.as_nanos() {
            stage.step();
            let is_contended = std::mem::take(&mut stage.is_contended);
            if is_contended && semantics == Semantics::Improved {
                due = due.min(Time::from_nanos(at).plus(SOON));
            }
            continue;
        }
        lend(&dispatcher, due, &mut stages);
        due = due.plus(period);
    }
    stages.into_iter().map(Stage::report).collect()
}

/// Lends and borrows seats, and begins what can execute because of that.
fn lend(dispatcher: &Dispatcher<Number>, now: Time, stages: &mut [Stage<'_>]) {
    let mut out = Decisions::default();
    for stage in &mut *stages {
        stage.pass(now);
    }
    dispatcher.rebalance(now, &mut out);
    for (number, ticket) in out.dispatched {
        let stage = stages
            .iter_mut()
            .find(|stage| stage.level.is(ticket.level()));
        stage
            .expect("only the levels of worlds have requests")
            .begin(now, number);
    }
}

impl<'a> Stage<'a> {
    /// A world before its first request.
    fn new(world: &'a World, level: Level<Number>, by_flow: bool) -> Self {
        let mut seeds = Random::seeded(world.seed);
        let mut stage = Self {
            world,
            level,
            heap: BinaryHeap::new(),
            sequence: 0,
            by_flow,
            hashes: world.flows.iter().map(|_| seeds.number()).collect(),
            draws: world
                .flows
                .iter()
                .map(|_| Draws::new(seeds.number()))
                .collect(),
            requests: Vec::new(),
            meter: Meter::new(world),
            end: nanos(duration(world.warm_up_seconds + world.seconds)),
            is_contended: false,
        };
        stage.open();
        stage
    }

    fn report(self) -> WorldReport {
        self.level.inspect(QueueSet::check_invariants);
        self.meter.report(self.world)
    }
}

impl Stage<'_> {
    fn open(&mut self) {
        for (flow, spec) in (0u32..).zip(&self.world.flows) {
            let start = nanos(duration(spec.starts_seconds));
            match spec.arrivals {
                Arrivals::Closed { threads, .. } => {
                    for _ in 0..threads {
                        // Threads do not start in step.
                        let draws = &mut self.draws[flow as usize];
                        let spread = nanos(duration(spec.service.mean_seconds)).max(1);
                        let at = start + draws.random.within(0..spread);
                        self.at(at, WorldEvent::Call(flow));
                    }
                }
                Arrivals::Open { .. } => self.at(start, WorldEvent::Call(flow)),
            }
        }
    }

    /// The time of the next event, in nanoseconds.
    fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Accounts for the time until `now`.
    fn pass(&mut self, now: Time) {
        let seats_in_use = self.level.inspect(|set| set.summary().seats_in_use);
        self.meter.pass(now, seats_in_use);
    }

    /// Plays the next event.
    fn step(&mut self) {
        let Some(Reverse((at, _, event))) = self.heap.pop() else {
            return;
        };
        let now = Time::from_nanos(at);
        self.pass(now);
        let mut out = QueueSetEvents::default();
        match event {
            WorldEvent::Call(flow) => self.call(now, flow, &mut out),
            WorldEvent::End(number) => self.finish(now, number, &mut out),
            WorldEvent::GiveUp(number) => self.give_up(now, number, &mut out),
            WorldEvent::Tick => self.level.act(|set| set.tick(now, &mut out)),
        }
        for (number, _) in out.dispatched {
            self.begin(now, number);
        }
    }

    fn at(&mut self, time: u64, event: WorldEvent) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence, event)));
    }

    fn call(&mut self, now: Time, flow: u32, out: &mut QueueSetEvents<Number>) {
        let spec = &self.world.flows[flow as usize];
        let draws = &mut self.draws[flow as usize];
        let width = draws.width(spec);
        let request = WorldRequest {
            flow,
            id: None,
            arrived: now,
            service: draws.service_time(spec.service),
            width,
            longest_executing: self.meter.longest_executing(),
            waits: false,
        };
        if let Arrivals::Open { rate, .. } = spec.arrivals {
            let gap = exponential(draws.gaps.draw(&mut draws.random)) / rate;
            self.at(now.plus(duration(gap)).as_nanos(), WorldEvent::Call(flow));
        }
        let number = Number::try_from(self.requests.len()).expect("a few million requests");
        self.requests.push(request);
        let controlled = if self.by_flow { flow } else { 0 };
        let arriving = ArrivingRequest {
            waiter: number,
            schema: controlled,
            hash: self.hashes[controlled as usize],
            tenant: self.hashes[controlled as usize],
            work: Work {
                initial_seats: width,
                final_seats: spec.final_seats,
                additional_latency: duration(spec.additional_latency_seconds),
            },
        };
        match self.level.act(|set| set.arrive(now, arriving, out)) {
            Admission::Execute(id) => {
                self.requests[number as usize].id = Some(id);
                self.begin(now, number);
            }
            Admission::Wait(id) => self.wait(now, number, id),
            Admission::Reject(_) => {
                self.is_contended = true;
                self.meter.refused(now, flow);
                self.call_again(now.plus(RETRY), flow);
            }
        }
    }

    fn wait(&mut self, now: Time, number: Number, id: EntryId) {
        let request = &mut self.requests[number as usize];
        request.id = Some(id);
        request.waits = true;
        self.is_contended = true;
        let (flow, width) = (request.flow, request.width);
        self.meter.waits(width);
        if let Arrivals::Open {
            deadline_seconds, ..
        } = self.world.flows[flow as usize].arrivals
        {
            let at = now.plus(duration(deadline_seconds)).as_nanos();
            self.at(at, WorldEvent::GiveUp(number));
        }
    }

    fn begin(&mut self, now: Time, number: Number) {
        let request = &mut self.requests[number as usize];
        if std::mem::take(&mut request.waits) {
            self.meter.waits_no_more(request.width);
        }
        self.meter.begins(&StartedRequest {
            flow: request.flow,
            width: request.width,
            arrived: request.arrived,
            now,
            service: request.service,
            longest_executing: request.longest_executing,
        });
        let end = now.plus(request.service).as_nanos();
        self.at(end, WorldEvent::End(number));
    }

    fn finish(&mut self, now: Time, number: Number, out: &mut QueueSetEvents<Number>) {
        let request = &self.requests[number as usize];
        let (flow, service) = (request.flow, request.service);
        self.meter.ends(service);
        let id = request.id.expect("what executes was admitted");
        if let Some(release) = self.level.act(|set| set.finish(now, id, out)) {
            self.at(release.as_nanos(), WorldEvent::Tick);
        }
        self.call_again(now, flow);
    }

    fn give_up(&mut self, now: Time, number: Number, out: &mut QueueSetEvents<Number>) {
        let request = &mut self.requests[number as usize];
        if !std::mem::take(&mut request.waits) {
            return;
        }
        self.meter.waits_no_more(request.width);
        self.meter.gives_up(now, request.flow, request.arrived);
        let id = request.id.expect("what waits was admitted");
        self.level.act(|set| set.cancel(now, id, out));
    }

    /// A thread of a closed loop thinks and calls again.
    fn call_again(&mut self, now: Time, flow: u32) {
        if let Arrivals::Closed { think_seconds, .. } = self.world.flows[flow as usize].arrivals {
            let draws = &mut self.draws[flow as usize];
            let part = 0.5 + draws.gaps.draw(&mut draws.random);
            let at = now.plus(duration(think_seconds * part)).as_nanos();
            self.at(at, WorldEvent::Call(flow));
        }
    }
}

/// The random numbers of one flow.
struct Draws {
    random: Random,
    services: Deck,
    gaps: Deck,
}

/// Numbers from 0 to 1, of which each run of [`Deck::SIZE`] is spread evenly: means hold over few
/// draws, so that differences from the ideal are caused by the scheduler and not by chance.
struct Deck {
    cards: Vec<u32>,
}

impl Draws {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::seeded(seed),
            services: Deck { cards: Vec::new() },
            gaps: Deck { cards: Vec::new() },
        }
    }

    fn width(&mut self, spec: &FlowSpec) -> Seats {
        let (least, most) = spec.width;
        let drawn = self.random.within(u64::from(least)..u64::from(most) + 1);
        Seats::try_from(drawn).expect("a width")
    }

    fn service_time(&mut self, service: Service) -> Duration {
        let drawn = self.services.draw(&mut self.random);
        let part = match service.shape {
            ServiceDistribution::Constant => 1.0,
            ServiceDistribution::Exponential => exponential(drawn).min(10.0),
            ServiceDistribution::Bimodal if drawn < 0.1 => 5.5,
            ServiceDistribution::Bimodal => 0.5,
        };
        duration(service.mean_seconds * part).max(Duration::from_nanos(1))
    }
}

impl Deck {
    const SIZE: u32 = 40;

    fn draw(&mut self, random: &mut Random) -> f64 {
        if self.cards.is_empty() {
            self.cards.extend(0..Self::SIZE);
        }
        let place = random.within(0..self.cards.len() as u64);
        let card = self.cards.swap_remove(usize::try_from(place).unwrap_or(0));
        (f64::from(card) + unit(random)) / f64::from(Self::SIZE)
    }
}

/// The exponential distribution of mean 1 at its quantile `part`.
fn exponential(part: f64) -> f64 {
    -(1.0 - part).ln()
}

/// Evenly distributed from 0 to 1.
fn unit(random: &mut Random) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 random bits")]
    let bits = (random.number() >> 11) as f64;
    bits / 9_007_199_254_740_992.0
}
