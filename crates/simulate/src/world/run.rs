//! A world in virtual time.

mod preferred;

use std::{sync::Arc, time::Duration};

use super::{
    FlowSpec, LevelShape, World, WorldReport,
    calls::{DrawnCalls, DrawnRequest, Number, WorldEvent},
    duration,
    measure::{Meter, StartedRequest, WaitingRequest},
};
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
use preferred::Preferred;

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

impl WorldRequest {
    /// What its wait is measured by.
    fn waited(&self) -> WaitingRequest {
        WaitingRequest {
            flow: self.flow,
            arrived: self.arrived,
            longest_executing: self.longest_executing,
        }
    }
}

struct Stage<'a> {
    world: &'a World,
    level: Level<Number>,
    calls: DrawnCalls<'a>,
    /// Whether each flow of the world is a flow for flow control; otherwise all are one flow.
    by_flow: bool,
    requests: Vec<WorldRequest>,
    meter: Meter,
    end: u64,
    /// Whether a request had to wait or was refused since the last rebalancing.
    is_contended: bool,
    /// A client that is served before all others, if there is one.
    preferred: Option<Preferred>,
}

/// Plays `world` under `semantics` and measures it. The same world gives the same report.
///
/// Both semantics get the same arrivals, as far as these do not depend on responses.
///
/// # Panics
///
/// If the world is invalid: no seats, a hand that cannot be dealt, a width of 0.
pub fn run(world: &World, semantics: Semantics) -> WorldReport {
    play(world, semantics, &world.level, true, None)
}

/// Plays `world` under `Improved`, but requests of the client at place `flow` start before those of all others, as soon as their
/// seats are free. They hold no final seats.
///
/// # Panics
///
/// If the world is invalid, as in [`run()`].
pub fn run_preferring(world: &World, flow: usize) -> WorldReport {
    let flow = u32::try_from(flow).expect("a world has few clients");
    play(world, Semantics::Improved, &world.level, true, Some(flow))
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
        ..world.level.clone()
    };
    play(world, Semantics::Compatible, &shape, false, None)
}

fn play(
    world: &World,
    semantics: Semantics,
    shape: &LevelShape,
    by_flow: bool,
    preferred: Option<u32>,
) -> WorldReport {
    let queuing = Queuing {
        queues: shape.queues,
        hand_size: shape.hand_size,
        queue_length_limit: shape.queue_length_limit,
    };
    let dealer = Dealer::new(shape.queues, shape.hand_size).expect("the hand can be dealt");
    let discipline = Discipline::Queue { queuing, dealer };
    let level = Level::new(semantics, discipline, shape.seats, Time::ZERO);
    level.configure(
        Time::ZERO,
        semantics,
        discipline,
        shape.tenant_weight,
        &mut Decisions::default(),
    );
    let mut stage = Stage::new(world, level, by_flow);
    stage.preferred = preferred.map(|flow| Preferred::new(flow, shape.seats));
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
        Self {
            world,
            level,
            calls: DrawnCalls::new(world),
            by_flow,
            requests: Vec::new(),
            meter: Meter::new(world),
            end: nanos(duration(world.warm_up_seconds + world.seconds)),
            is_contended: false,
            preferred: None,
        }
    }

    fn report(mut self) -> WorldReport {
        self.level.inspect(QueueSet::check_invariants);
        // Requests wait until the end, whenever the last event was.
        self.pass(Time::from_nanos(self.end));
        for request in self.requests.iter().filter(|request| request.waits) {
            self.meter.still_waits(&request.waited());
        }
        self.meter.report(self.world)
    }
}

impl Stage<'_> {
    /// The time of the next event, in nanoseconds.
    fn next(&self) -> Option<u64> {
        self.calls.next()
    }

    /// Accounts for the time until `now`.
    fn pass(&mut self, now: Time) {
        let seats_in_use = self.level.inspect(|set| set.summary().seats_in_use);
        self.meter.pass(now, seats_in_use);
    }

    /// Plays the next event.
    fn step(&mut self) {
        let Some((now, event)) = self.calls.pop() else {
            return;
        };
        self.pass(now);
        let mut out = QueueSetEvents::default();
        match event {
            WorldEvent::Call(flow) => self.call(now, flow, &mut out),
            WorldEvent::End(number) => self.finish(now, number, &mut out),
            WorldEvent::GiveUp(number) => self.give_up(now, number, &mut out),
            WorldEvent::Tick => {
                if let Some(at) = self.level.act(|set| set.tick(now, &mut out)) {
                    self.calls.at(at.as_nanos(), WorldEvent::Tick);
                }
            }
            WorldEvent::Limit(place) => {
                let (_, seats) = self.world.level.limits[place as usize];
                self.meter.limit(seats);
                if !self.limit_preferred(seats) {
                    self.level
                        .act(|set| set.set_limit(now, seats, seats, &mut out));
                }
            }
        }
        self.carry_out(now, out);
        self.serve_preferred(now);
    }

    fn carry_out(&mut self, now: Time, out: QueueSetEvents<Number>) {
        if let Some(number) = out.replaced {
            self.replaced(now, number);
        }
        for (number, _) in out.dispatched {
            self.begin(now, number);
        }
    }

    fn call(&mut self, now: Time, flow: u32, out: &mut QueueSetEvents<Number>) {
        let DrawnRequest { width, service } = self.calls.draw(now, flow);
        let request = WorldRequest {
            flow,
            id: None,
            arrived: now,
            service,
            width,
            longest_executing: self.meter.longest_executing(),
            waits: false,
        };
        let number = Number::try_from(self.requests.len()).expect("a few million requests");
        self.requests.push(request);
        if self.prefers(flow) {
            self.call_preferred(now, number);
            return;
        }
        let arriving = self.arriving(number, self.calls.spec(flow));
        match self.level.act(|set| set.arrive(now, arriving, out)) {
            Admission::Execute(id) => {
                self.requests[number as usize].id = Some(id);
                self.begin(now, number);
            }
            Admission::Wait(id) => {
                self.requests[number as usize].id = Some(id);
                self.is_contended = true;
                self.wait(now, number);
            }
            Admission::Reject(_) => self.refused(now, flow),
        }
    }

    /// A waiting request is refused, because another one takes its place.
    fn replaced(&mut self, now: Time, number: Number) {
        let request = &mut self.requests[number as usize];
        request.waits = false;
        self.meter.waits_no_more(request.width);
        let flow = request.flow;
        self.refused(now, flow);
    }

    fn refused(&mut self, now: Time, flow: u32) {
        self.is_contended = true;
        self.meter.refused(now, flow);
        self.calls.call_again(now.plus(RETRY), flow);
    }

    /// The request as the core sees it.
    fn arriving(&mut self, number: Number, spec: &FlowSpec) -> ArrivingRequest<Number> {
        let request = &self.requests[number as usize];
        let (schema, (hash, tenant)) = if self.by_flow {
            (request.flow, self.calls.name(request.flow))
        } else {
            (0, (0, 0))
        };
        ArrivingRequest {
            waiter: number,
            schema,
            hash,
            tenant,
            work: Work {
                initial_seats: request.width,
                final_seats: spec.final_seats,
                additional_latency: duration(spec.additional_latency_seconds),
            },
        }
    }

    fn wait(&mut self, now: Time, number: Number) {
        let request = &mut self.requests[number as usize];
        request.waits = true;
        let (flow, width) = (request.flow, request.width);
        self.meter.waits(width);
        self.calls.give_up_later(now, flow, number);
    }

    fn begin(&mut self, now: Time, number: Number) {
        let request = &mut self.requests[number as usize];
        if std::mem::take(&mut request.waits) {
            self.meter.waits_no_more(request.width);
        }
        self.meter.begins(&StartedRequest {
            width: request.width,
            now,
            service: request.service,
            waited: request.waited(),
        });
        let (flow, width) = (request.flow, request.width);
        let end = now.plus(request.service).as_nanos();
        self.count_executing(flow, 0, width);
        self.calls.at(end, WorldEvent::End(number));
    }

    fn finish(&mut self, now: Time, number: Number, out: &mut QueueSetEvents<Number>) {
        let request = &self.requests[number as usize];
        let (flow, service, width) = (request.flow, request.service, request.width);
        self.meter.ends(service);
        let id = request.id;
        self.count_executing(flow, width, 0);
        // A preferred request does not enter the level.
        if let Some(id) = id
            && let Some(release) = self.level.act(|set| set.finish(now, id, out))
        {
            self.calls.at(release.as_nanos(), WorldEvent::Tick);
        }
        self.calls.call_again(now, flow);
    }

    fn give_up(&mut self, now: Time, number: Number, out: &mut QueueSetEvents<Number>) {
        let request = &mut self.requests[number as usize];
        if !std::mem::take(&mut request.waits) {
            return;
        }
        self.meter.waits_no_more(request.width);
        let flow = request.flow;
        self.meter.gives_up(now, &request.waited());
        if let Some(id) = request.id {
            self.level.act(|set| set.cancel(now, id, out));
        }
        self.calls.call_again(now, flow);
    }
}
