//! Random traces of events, and what a queue set of the semantics `Compatible` makes of them.
//!
//! `tests/cluster/queueset` plays the same events through kube-apiserver's own queue set and compares
//! what is told here after each event: fate, order of dispatch, and the whole visible state.
//!
//! ```console
//! $ queue_traces generate SEED FIRST COUNT    # traces FIRST to FIRST + COUNT - 1 of SEED, a line of JSON each
//! $ queue_traces play                         # plays traces from stdin again; of their events only `at` and `event` are read
//! ```
//!
//! Not here: the semantics `Improved`, and any judgement.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, BufWriter, Write},
    process::ExitCode,
    time::Duration,
};

use fairgate_core::random::Random;
use fairgate_core::{
    apf::{
        Semantics, Work,
        policy::Queuing,
        queueset::{
            Admission, ArrivingRequest, Discipline, EntryId, Phase, QueueReport, QueueSet,
            QueueSetEvents,
        },
        shard::Dealer,
    },
    time::Time,
};
use serde::{Deserialize, Serialize};

/// A request's number within its trace.
type Number = u32;

/// A queue set as it is made, and what happens to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trace {
    seed: u64,
    number: u64,
    limit: u32,
    shape: Shape,
    /// Whether seats that linger are released by the next event, and not by one of their own.
    lazy: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Step {
    /// Nanoseconds since the queue set was made.
    at: u64,
    event: Event,
    #[serde(default, skip_deserializing)]
    outcome: Option<Outcome>,
}

/// How a level treats its requests, in terms of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Shape {
    Queue { queues: u32, hand: u32, length: u32 },
    Reject,
    Exempt,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Event {
    /// A request arrives.
    Arrive {
        number: Number,
        hash: u64,
        initial: u32,
        last: u32,
        /// Nanoseconds.
        latency: u64,
    },
    /// A request that executes has been answered; any other is left alone.
    Finish { number: Number },
    /// A request that waits gives up; any other is left alone.
    Cancel { number: Number },
    /// The concurrency limit changes.
    Limit { limit: u32 },
    /// Number, hands or lengths of queues change, or whether there are any.
    Shape { shape: Shape },
    /// Nothing but lingering seats being released.
    Pass,
}

#[derive(Clone, Debug, Serialize)]
struct Outcome {
    /// What became of the request that arrived, finished or gave up.
    fate: &'static str,
    /// Other requests that started, in order.
    started: Vec<Number>,
    state: State,
}

/// Work is in units of 10⁻⁸ seat-seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct State {
    r: u64,
    seats: u32,
    executing: u32,
    waiting: u32,
    waiting_seats: u64,
    dispatched: u64,
    rejected: u64,
    cancelled: u64,
    idle: bool,
    lingering: u32,
    /// When lingering seats are released next, in nanoseconds; 0 if there are none.
    release: u64,
    /// Requests that execute without ever having stood in a queue.
    queueless: Vec<Number>,
    deck: usize,
    /// The queues that are not as they were after the event before.
    queues: Vec<QueueState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct QueueState {
    index: u32,
    next_dispatch_r: u64,
    seats: u32,
    initial_seats: u64,
    max_seats: u64,
    work: u64,
    waiting: u32,
    executing: u32,
    /// Who waits, first to last, and who executes, by number. `None` while requests of a queue that was
    /// removed under them cannot be told from those of the queue that has its number now.
    requests: Option<[Vec<Number>; 2]>,
}

impl Shape {
    fn discipline(self) -> Discipline {
        match self {
            Self::Exempt => Discipline::Exempt,
            Self::Reject => Discipline::Reject,
            Self::Queue {
                queues,
                hand,
                length,
            } => Discipline::Queue {
                queuing: Queuing {
                    queues,
                    hand_size: hand,
                    queue_length_limit: length,
                },
                dealer: Dealer::new(queues, hand).expect("shapes of traces are valid"),
            },
        }
    }
}

/// A queue set that is being played with.
struct Player {
    set: QueueSet<Number>,
    lazy: bool,
    waiting: BTreeMap<Number, EntryId>,
    executing: BTreeMap<Number, EntryId>,
    /// When lingering seats are released.
    releases: BTreeSet<u64>,
    /// Whether seats of two requests are released at the same time. In which order is nobody's promise.
    tie: bool,
    /// When the last event was.
    now: u64,
    queues: Vec<QueueState>,
}

impl Player {
    fn new(trace: &Trace) -> Self {
        let discipline = trace.shape.discipline();
        let mut player = Self {
            set: QueueSet::new(Semantics::Compatible, discipline, trace.limit, Time::ZERO),
            lazy: trace.lazy,
            waiting: BTreeMap::new(),
            executing: BTreeMap::new(),
            releases: BTreeSet::new(),
            tie: false,
            now: 0,
            queues: Vec::new(),
        };
        player.queues = player.queue_states();
        player
    }

    /// Plays an event. `None` if the original's books cannot hold it: more work at a time than a signed number
    /// takes, or virtual time set back by more than some request or queue has seen of it.
    fn play(&mut self, at: u64, event: Event) -> Option<Outcome> {
        const MOST: u128 = 10 * i64::MAX.unsigned_abs() as u128;
        let limit = self.set.summary().limit;
        let passed = u128::from(at - self.now) * u128::from(limit);
        if passed.max(self.held(at, event)) >= MOST {
            return None;
        }
        let outcome = self.played(at, event);
        (self.set.summary().counters.epochs_failed == 0).then_some(outcome)
    }

    /// Seat-nanoseconds for which whoever finishes has executed.
    fn held(&self, at: u64, event: Event) -> u128 {
        let Event::Finish { number } = event else {
            return 0;
        };
        let requests = self.set.requests();
        let finishes = requests.iter().find(|r| r.entry.waiter == number);
        finishes.map_or(0, |request| {
            let since = request.entry.started.map_or(at, Time::as_nanos);
            u128::from(at - since) * u128::from(request.entry.work.initial_seats)
        })
    }

    fn played(&mut self, at: u64, event: Event) -> Outcome {
        let mut events = QueueSetEvents::default();
        // Without it, nobody would know yet whether a request that is named waits or executes.
        let releases_too = match event {
            Event::Arrive { .. } | Event::Limit { .. } | Event::Shape { .. } => true,
            Event::Finish { number } => self.executing.contains_key(&number),
            Event::Cancel { .. } | Event::Pass => false,
        };
        if !(self.lazy && releases_too) {
            self.release_until(at, &mut events);
        }
        let fate = self.apply(Time::from_nanos(at), event, &mut events);
        let started = self.note(events);
        self.releases.retain(|release| *release > at);
        self.set.check_invariants();
        self.now = at;
        Outcome {
            fate,
            started,
            state: self.state(),
        }
    }

    fn release_until(&mut self, at: u64, events: &mut QueueSetEvents<Number>) {
        let at = Time::from_nanos(at);
        while let Some(release) = self.set.next_release().filter(|release| *release <= at) {
            self.set.tick(release, events);
        }
        // Whoever started may be named by the event.
        for (number, id) in &events.dispatched {
            self.waiting.remove(number);
            self.executing.insert(*number, *id);
        }
    }

    fn apply(
        &mut self,
        now: Time,
        event: Event,
        events: &mut QueueSetEvents<Number>,
    ) -> &'static str {
        match event {
            Event::Arrive {
                number,
                hash,
                initial,
                last,
                latency,
            } => {
                let work = Work {
                    initial_seats: initial,
                    final_seats: last,
                    additional_latency: Duration::from_nanos(latency),
                };
                self.arrive(now, number, hash, work, events)
            }
            Event::Finish { number } => {
                let Some(id) = self.executing.remove(&number) else {
                    return "left alone";
                };
                if let Some(until) = self.set.finish(now, id, events) {
                    self.tie |= !self.releases.insert(until.as_nanos());
                }
                "finishes"
            }
            Event::Cancel { number } => {
                let Some(id) = self.waiting.remove(&number) else {
                    return "left alone";
                };
                assert!(self.set.cancel(now, id, events), "it waits");
                "gives up"
            }
            Event::Limit { limit } => {
                self.set.set_limit(now, limit, limit.max(1), events);
                ""
            }
            Event::Shape { shape } => {
                let discipline = shape.discipline();
                self.set
                    .configure(now, Semantics::Compatible, discipline, events);
                ""
            }
            Event::Pass => "",
        }
    }

    fn arrive(
        &mut self,
        now: Time,
        number: Number,
        hash: u64,
        work: Work,
        events: &mut QueueSetEvents<Number>,
    ) -> &'static str {
        let arriving = ArrivingRequest {
            waiter: number,
            schema: 0,
            hash,
            work,
            until: Time::NEVER,
        };
        match self.set.arrive(now, arriving, events) {
            Admission::Execute(id) => {
                self.executing.insert(number, id);
                "executes"
            }
            Admission::Wait(id) => {
                self.waiting.insert(number, id);
                "waits"
            }
            Admission::Reject(reason) => reason.as_str(),
        }
    }

    fn note(&mut self, events: QueueSetEvents<Number>) -> Vec<Number> {
        let mut started = Vec::with_capacity(events.dispatched.len());
        for (number, id) in events.dispatched {
            if self.waiting.remove(&number).is_some() {
                self.executing.insert(number, id);
            }
            started.push(number);
        }
        started
    }

    fn state(&mut self) -> State {
        let summary = self.set.summary();
        let queues = self.queue_states();
        let before = std::mem::take(&mut self.queues);
        let changed = queues
            .iter()
            .filter(|queue| before.get(queue.index as usize) != Some(queue))
            .cloned()
            .collect();
        self.queues = queues;
        let mut queueless: Vec<Number> = (self.set.requests().iter())
            .filter(|request| request.queue.is_none() && request.entry.phase == Phase::Executing)
            .map(|request| request.entry.waiter)
            .collect();
        queueless.sort_unstable();
        State {
            r: summary.r.units(),
            seats: summary.seats_in_use,
            executing: summary.executing,
            waiting: summary.waiting,
            waiting_seats: summary.waiting_seats,
            dispatched: summary.counters.dispatched,
            rejected: summary.counters.rejected,
            cancelled: summary.counters.cancelled,
            idle: self.set.is_idle(),
            lingering: summary.lingering,
            release: self.set.next_release().map_or(0, Time::as_nanos),
            queueless,
            deck: self.queues.len(),
            queues: changed,
        }
    }

    fn queue_states(&self) -> Vec<QueueState> {
        let mut requests: BTreeMap<u32, [Vec<Number>; 2]> = BTreeMap::new();
        for request in self.set.requests() {
            let (Some(queue), waits) = (request.queue, request.entry.phase == Phase::Waiting)
            else {
                continue;
            };
            if request.entry.phase != Phase::Lingering {
                requests.entry(queue).or_default()[usize::from(!waits)].push(request.entry.waiter);
            }
        }
        let state = |queue: QueueReport| {
            let mut requests = requests.remove(&queue.index).unwrap_or_default();
            requests[1].sort_unstable();
            let known = [queue.waiting as usize, queue.executing as usize];
            QueueState {
                index: queue.index,
                next_dispatch_r: queue.next_dispatch_r.units(),
                seats: queue.seats_in_use,
                initial_seats: queue.initial_seats,
                max_seats: queue.max_seats,
                work: queue.total_work.units(),
                waiting: queue.waiting,
                executing: queue.executing,
                requests: (known == [requests[0].len(), requests[1].len()]).then_some(requests),
            }
        };
        self.set.queues().map(state).collect()
    }
}

/// What a trace is drawn from.
struct Generator {
    random: Random,
    flows: Vec<u64>,
    /// Time passes in multiples of this, in nanoseconds.
    quantum: u64,
    /// Up to so many at a time.
    quanta: u64,
    widest: u64,
    /// Chances in percent.
    wide: u64,
    lingers: u64,
    /// Weights.
    arrivals: u64,
    finishes: u64,
    cancels: u64,
    limits: u64,
    shapes: u64,
    long: bool,
    next: Number,
    now: u64,
}

impl Generator {
    /// The trace of this number of this seed, and what became of it.
    fn trace(seed: u64, number: u64) -> Trace {
        // Drawn twice, since neighbouring seeds could give the same numbers one place further on.
        let own = Random::seeded(seed ^ number.rotate_left(32)).number();
        let mut generator = Self::drawn(Random::seeded(own));
        let (limit, shape) = (generator.limit(), generator.shape(true));
        let mut trace = Trace {
            seed,
            number,
            limit,
            shape,
            lazy: generator.random.chance(30),
            steps: Vec::new(),
        };
        let mut player = Player::new(&trace);
        let steps = generator.random.within(10..150);
        for _ in 0..steps {
            let event = generator.event(&player);
            if !generator.step(&mut trace, &mut player, event) {
                return trace;
            }
        }
        if generator.random.chance(50) {
            generator.drain(&mut trace, &mut player);
        }
        trace
    }

    fn drawn(mut random: Random) -> Self {
        let flows = random.within(1..9);
        // Coarse time makes ties, fine time makes fractions.
        let quantum = *random.pick(&[1, 5, 7, 1_000, 1_000_000, 3_000_000, 3_000_000_000]);
        let mut generator = Self {
            flows: (0..flows).map(|_| random.number()).collect(),
            quantum,
            quanta: *random.pick(&[2, 3, 10, 1_000, 1_000_000]),
            widest: *random.pick(&[2, 3, 11, 30]),
            wide: *random.pick(&[0, 0, 10, 30, 90]),
            lingers: *random.pick(&[0, 0, 10, 30, 90]),
            arrivals: random.within(35..65),
            finishes: random.within(25..55),
            cancels: *random.pick(&[0, 3, 15]),
            limits: *random.pick(&[0, 0, 1, 5]),
            shapes: *random.pick(&[0, 0, 0, 1, 5]),
            long: false,
            next: 0,
            now: 0,
            random,
        };
        if generator.random.chance(3) {
            generator.long();
        }
        generator
    }

    /// Months between events and hundreds of seats for few queues: virtual time comes to its end.
    fn long(&mut self) {
        self.long = true;
        (self.quantum, self.quanta) = (1_000_000_000_000_007, 50);
        (self.widest, self.wide) = (200, 90);
        (self.arrivals, self.finishes) = (40, 50);
        self.flows.truncate(3);
    }

    fn event(&mut self, player: &Player) -> Event {
        let weights = [
            self.arrivals,
            self.finishes,
            self.cancels,
            self.limits,
            self.shapes,
            3,
        ];
        let mut drawn = self.random.within(0..weights.iter().sum());
        let chosen = weights.iter().position(|weight| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            here
        });
        let executing = pick(&player.executing, &mut self.random);
        let waiting = pick(&player.waiting, &mut self.random);
        match (chosen, executing, waiting) {
            (Some(1), Some(number), _) => Event::Finish { number },
            (Some(2), _, Some(number)) => Event::Cancel { number },
            (Some(3), ..) => Event::Limit {
                limit: self.limit(),
            },
            (Some(4), ..) => Event::Shape {
                shape: self.shape(false),
            },
            (Some(5), ..) => Event::Pass,
            _ => self.arrival(),
        }
    }

    fn arrival(&mut self) -> Event {
        let number = self.next;
        self.next += 1;
        let wide = self.random.chance(self.wide);
        let lingers = self.random.chance(self.lingers);
        let width = |random: &mut Random| u32::try_from(random.within(1..self.widest)).unwrap_or(1);
        let initial = if wide { width(&mut self.random) } else { 1 };
        let last = if lingers && self.random.chance(90) {
            width(&mut self.random)
        } else {
            0
        };
        let mut latency = 0;
        if lingers {
            latency = *self
                .random
                .pick(&[1, 1_000_000, 5_000_000, 25_000_000, 1_000_000_003]);
            // In which order seats are released matters while queues are removed.
            latency += if self.shapes > 0 { number.into() } else { 0 };
        }
        Event::Arrive {
            number,
            hash: *self.random.pick(&self.flows),
            initial,
            last,
            latency,
        }
    }

    fn limit(&mut self) -> u32 {
        let limits: &[u32] = if self.long {
            &[300, 600]
        } else {
            &[0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 10, 20, 50, 600]
        };
        *self.random.pick(limits)
    }

    fn shape(&mut self, first: bool) -> Shape {
        match self.random.within(0..20) {
            0 => return Shape::Reject,
            1 => return Shape::Exempt,
            2 if !first => return Shape::Reject,
            _ => {}
        }
        let queues: &[u32] = if self.long {
            &[1, 2, 3]
        } else {
            &[1, 2, 2, 3, 4, 5, 8, 16, 64]
        };
        let queues = *self.random.pick(queues);
        let hand = *self.random.pick(&[1, 1, 2, 3, 6, 9]);
        Shape::Queue {
            queues,
            hand: hand.min(queues),
            length: *self.random.pick(&[1, 2, 3, 10, 50]),
        }
    }

    /// False if the trace ends before this event or with it.
    fn step(&mut self, trace: &mut Trace, player: &mut Player, event: Event) -> bool {
        if self.random.chance(60) {
            self.now += self.quantum * self.random.within(0..self.quanta);
        }
        let Some(outcome) = player.play(self.now, event) else {
            return false;
        };
        trace.steps.push(Step {
            at: self.now,
            event,
            outcome: Some(outcome),
        });
        // The order of releases matters while queues are removed.
        !(player.tie && self.shapes > 0)
    }

    /// No more arrivals.
    fn drain(&mut self, trace: &mut Trace, player: &mut Player) {
        while let Some(number) = pick(&player.executing, &mut self.random) {
            if !self.step(trace, player, Event::Finish { number }) {
                return;
            }
        }
        self.now += 100_000_000_000;
        self.step(trace, player, Event::Pass);
    }
}

/// One of the requests.
fn pick(requests: &BTreeMap<Number, EntryId>, random: &mut Random) -> Option<Number> {
    if requests.is_empty() {
        return None;
    }
    let numbers: Vec<Number> = requests.keys().copied().collect();
    Some(*random.pick(&numbers))
}

/// Plays the events of a trace again.
fn again(mut trace: Trace) -> Trace {
    let mut player = Player::new(&trace);
    for mut step in std::mem::take(&mut trace.steps) {
        let Some(outcome) = player.play(step.at, step.event) else {
            break;
        };
        step.outcome = Some(outcome);
        trace.steps.push(step);
    }
    trace
}

fn write(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    serde_json::to_writer(&mut *out, trace)?;
    out.write_all(b"\n")
}

fn run(arguments: &[String]) -> io::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    match arguments {
        [command, seed, first, count] if command == "generate" => {
            let number = |text: &String| text.parse::<u64>().map_err(io::Error::other);
            let (seed, first, count) = (number(seed)?, number(first)?, number(count)?);
            for trace in first..first.saturating_add(count) {
                write(&mut out, &Generator::trace(seed, trace))?;
            }
        }
        [command] if command == "play" => {
            for line in io::stdin().lock().lines() {
                write(&mut out, &again(serde_json::from_str(&line?)?))?;
                out.flush()?;
            }
        }
        _ => return Ok(false),
    }
    out.flush()?;
    Ok(true)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("usage: queue_traces generate SEED FIRST COUNT | queue_traces play");
            ExitCode::from(2)
        }
        // Whoever read the traces has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue_traces: {error}");
            ExitCode::FAILURE
        }
    }
}
