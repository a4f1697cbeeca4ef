//! A world of the search: processes, an engine, a network that delays, loses, duplicates and reorders, and faults by seed.

use std::{collections::BTreeMap, rc::Rc};

use fairgate_core::random::Random;

use super::{
    engine::{Answer, Engine, Operation},
    invariants::{Judge, Violation},
    node::Node,
};
use crate::{
    identity::KeyRevision,
    records::{Report, SeatLedger},
    rules::{Mutant, ProtocolRules},
    settings::{Reclaim, Settings},
};
use std::time::Duration;

/// Microseconds.
const MILLI: u64 = 1_000;
/// Until when faults occur.
const FAULTS_END: u64 = 3_000 * MILLI;

/// What happens: to which process, in which of its runs.
#[derive(Clone)]
enum Event {
    Tick(usize, u64),
    Fault,
    ToEngine(usize, u64, Operation),
    Answer(usize, u64, Answer),
    SawLedger(usize, u64, Rc<SeatLedger>),
    SawReport(usize, u64, Rc<Report>, KeyRevision),
    Start(usize),
    LearnLimit(usize, u32),
    Revoke,
}

pub(super) struct World {
    random: Random,
    pub(super) now: u64,
    sequence: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub(super) engine: Engine,
    pub(super) nodes: Vec<Node>,
    /// Ends and seats of requests whose gateway has crashed.
    pub(super) orphans: Vec<(u64, u32)>,
    pub(super) settings: Settings,
    pub(super) limit: u32,
    full_limit: u32,
    /// The longest request, in microseconds.
    longest: u64,
    /// The longest time between two faults, and how many of a hundred messages are late or lost.
    fault_interval: u64,
    unreliable: u64,
    judge: Judge,
}

impl World {
    pub(super) fn drawn(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut random = Random::seeded(seed);
        let rules = ProtocolRules::breaking(mutant);
        let nodes = random.within(2..5);
        let drain = random.within(50..800);
        let is_strict = random.percent(75);
        let reclaim = if is_strict {
            Reclaim::Strict {
                drain: Duration::from_millis(drain),
            }
        } else {
            Reclaim::Prompt
        };
        let mut settings = Settings::new(u32::try_from(nodes).unwrap(), 1, reclaim);
        settings.floor = u32::try_from(random.within(1..4)).unwrap();
        settings.lease = Duration::from_millis(400);
        settings.clock_rate_percent = *random.pick(&[5, 20]);
        settings.report_interval = Duration::from_millis(30);
        settings.ledger_interval = Duration::from_millis(30);
        settings.rules = rules;
        let limit = u32::try_from(random.within(40..120)).unwrap();
        let nodes = usize::try_from(nodes).unwrap();
        let mut world = Self {
            engine: Engine::new(nodes, random.percent(60), rules),
            random,
            now: 1,
            sequence: 0,
            events: BTreeMap::new(),
            nodes: Vec::new(),
            orphans: Vec::new(),
            settings,
            limit,
            full_limit: limit,
            longest: drain * MILLI,
            fault_interval: match seed % 3 {
                0 => 100,
                1 => 300,
                _ => 1_000,
            },
            unreliable: [15, 3][usize::from(seed.is_multiple_of(2))],
            judge: Judge::default(),
        };
        for number in 0..nodes {
            let rate = world.rate();
            let mut node = Node::new(number, 1, &world.settings, 1, rate);
            node.limit = limit;
            node.wants = world.wants();
            world.nodes.push(node);
            world.schedule(world.now, Event::Tick(number, 1));
        }
        world.schedule(100 * MILLI, Event::Fault);
        world
    }

    fn rate(&mut self) -> u64 {
        let percent = u64::from(self.settings.clock_rate_percent) * 10;
        let any = 1000 - percent + self.random.within(0..2 * percent + 1);
        *self.random.pick(&[1000 - percent, 1000 + percent, any])
    }

    fn wants(&mut self) -> u32 {
        let some = u32::try_from(self.random.within(0..60)).unwrap();
        *self.random.pick(&[200, 200, some, 0])
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((at.max(self.now), self.sequence), event);
    }

    fn is_calm(&self) -> bool {
        self.now >= FAULTS_END
    }

    /// Microseconds for a message, or nothing if it gets lost.
    fn delay(&mut self) -> Option<u64> {
        let usual = self.random.within(200..6 * MILLI);
        if self.is_calm() {
            return Some(usual);
        }
        if !self.random.percent(self.unreliable) {
            return Some(usual);
        }
        match self.random.within(0..15) {
            0..3 => None,
            3..13 => Some(self.random.within(5 * MILLI..200 * MILLI)),
            _ => Some(self.random.within(100 * MILLI..1_500 * MILLI)),
        }
    }

    /// Plays to the end of faults and until seats must be usable again.
    pub(super) fn play(&mut self) -> Result<(), Violation> {
        let recovered = FAULTS_END + self.recovery();
        let mut healed = false;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > recovered {
                break;
            }
            self.now = at;
            if self.is_calm() && !healed {
                healed = true;
                self.heal();
            }
            self.step(event);
            let mut judge = std::mem::take(&mut self.judge);
            let verdict = judge.check(self);
            self.judge = judge;
            verdict?;
        }
        Judge::check_recovered(self)
    }

    /// The time within which seats are usable again after the last fault: an election, and twice what a silent gateway is waited for.
    fn recovery(&self) -> u64 {
        let silence = u64::try_from(self.settings.silence().as_micros()).unwrap();
        1_000 * MILLI + 2 * silence * 5 / 4
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Tick(number, life) => self.tick(number, life),
            Event::Fault => self.fault(),
            Event::ToEngine(number, life, operation) => self.arrive(number, life, operation),
            Event::Start(number) => self.start(number),
            Event::Revoke => self.engine.elected = None,
            Event::LearnLimit(number, limit) => {
                // Late news do not undo what is known in the end.
                let limit = if self.is_calm() { self.limit } else { limit };
                self.nodes[number].limit = limit;
            }
            Event::Answer(number, life, _)
            | Event::SawLedger(number, life, _)
            | Event::SawReport(number, life, ..) => {
                if self.reaches(number, life, &event) {
                    self.deliver(number, event);
                }
            }
        }
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            if node.is_up && node.paused_until <= self.now && !node.is_leaving {
                node.dispatch(self.now, self.longest, &mut self.random);
            }
        }
    }

    fn deliver(&mut self, number: usize, event: Event) {
        let node = &mut self.nodes[number];
        match event {
            Event::Answer(_, _, answer) => node.answer(self.now, answer, &self.settings),
            Event::SawLedger(_, _, ledger) => node.saw_ledger(self.now, &ledger),
            Event::SawReport(_, _, report, revision) => {
                node.saw_report(self.now, &report, revision);
            }
            _ => {}
        }
    }

    /// Whether a process gets a message now. A paused one gets it later.
    fn reaches(&mut self, number: usize, life: u64, event: &Event) -> bool {
        let node = &self.nodes[number];
        let is_answer = matches!(event, Event::Answer(..));
        let is_lost = node.is_cut[if is_answer { 1 } else { 2 }];
        if !node.is_up || node.life != life || is_lost {
            return false;
        }
        let paused_until = node.paused_until;
        if paused_until > self.now {
            self.schedule(paused_until, event.clone());
            return false;
        }
        true
    }

    fn tick(&mut self, number: usize, life: u64) {
        let node = &mut self.nodes[number];
        if !node.is_up || node.life != life {
            return;
        }
        if node.paused_until > self.now {
            let at = node.paused_until;
            return self.schedule(at, Event::Tick(number, life));
        }
        let operations = node.tick(self.now, &self.settings);
        // A process may pause between deciding and writing.
        let pauses = !self.is_calm() && self.random.percent(1);
        let pause = if pauses {
            self.random.within(0..900 * MILLI)
        } else {
            0
        };
        for operation in operations {
            self.send(number, life, pause, &operation);
        }
        if pause > 0 {
            self.nodes[number].paused_until = self.now + pause;
        }
        let next = self.now + pause + self.random.within(10 * MILLI..40 * MILLI);
        self.schedule(next, Event::Tick(number, life));
    }

    fn send(&mut self, number: usize, life: u64, pause: u64, operation: &Operation) {
        if self.nodes[number].is_cut[0] {
            return;
        }
        let copies = if !self.is_calm() && self.random.percent(4) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            if let Some(delay) = self.delay() {
                let event = Event::ToEngine(number, life, operation.clone());
                self.schedule(self.now + pause + delay, event);
            }
        }
    }

    fn arrive(&mut self, number: usize, life: u64, operation: Operation) {
        if !self.engine.is_up {
            return;
        }
        let holder = self.engine.elected;
        let is_live = |((number, life), _): ((usize, u64), _)| self.nodes[number].life == life;
        if self.is_calm() && !holder.is_some_and(is_live) {
            self.engine.elected = None;
        }
        let written = match &operation {
            Operation::PutLedger(_, limit) => Some(*limit),
            _ => None,
        };
        let Some(answer) = self.engine.process(number, operation) else {
            return;
        };
        match &answer {
            Answer::ReportStored(..) => self.tell_report(number),
            Answer::LedgerStored(..) => {
                self.judge.ledger_written(
                    &self.engine,
                    &self.settings,
                    self.limit,
                    written.unwrap_or(0),
                );
                self.tell_ledger();
            }
            _ => {}
        }
        if let Some(delay) = self.delay() {
            self.schedule(self.now + delay, Event::Answer(number, life, answer));
        }
    }

    fn tell_report(&mut self, from: usize) {
        let (report, revision) = self.engine.reports[from].clone().expect("it was stored");
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let (life, lag) = (node.life, node.watch_lag);
            if node.coordinator.is_some()
                && let Some(delay) = self.delay()
            {
                let event = Event::SawReport(number, life, Rc::clone(&report), revision);
                self.schedule(self.now + delay + lag, event);
            }
        }
    }

    fn tell_ledger(&mut self) {
        let ledger = Rc::clone(&self.engine.ledger.0);
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let (life, lag) = (node.life, node.watch_lag);
            if let Some(delay) = self.delay() {
                let event = Event::SawLedger(number, life, Rc::clone(&ledger));
                self.schedule(self.now + delay + lag, event);
            }
        }
    }

    fn fault(&mut self) {
        if self.is_calm() {
            return;
        }
        let number = usize::try_from(self.random.within(0..self.nodes.len() as u64)).unwrap();
        let long = self.random.within(0..1_500 * MILLI);
        match self.random.within(0..16) {
            0 | 1 => self.nodes[number].is_cut = [true; 3],
            2 => {
                let lost = [(); 3].map(|()| self.random.percent(50));
                self.nodes[number].is_cut = lost;
            }
            3..5 => self.nodes[number].is_cut = [false; 3],
            5 | 6 => {
                self.crash(number);
                self.schedule(self.now + long / 3, Event::Start(number));
            }
            7 => self.nodes[number].paused_until = self.now + long,
            8 => {
                self.engine.is_up = !self.engine.is_up;
            }
            9 => self.engine.elected = None,
            10 => self.change_limit(),
            11 => {
                let rate = self.rate();
                self.nodes[number].clock.set_rate(self.now, rate);
            }
            12 => {
                self.nodes[number].watch_lag = *self.random.pick(&[0, long]);
            }
            13 if self.random.percent(40) => {
                self.nodes[number].gateway.leave();
                self.nodes[number].is_leaving = true;
            }
            _ => {
                self.nodes[number].wants = self.wants();
            }
        }
        let next = self.now + self.random.within(20 * MILLI..self.fault_interval * MILLI);
        self.schedule(next, Event::Fault);
    }

    fn crash(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.is_up = false;
        self.orphans.append(&mut node.running);
        self.orphans.retain(|(end, _)| *end > self.now);
        if self
            .engine
            .elected
            .is_some_and(|((holder, _), _)| holder == number)
        {
            let at = self.now + self.random.within(0..800 * MILLI);
            self.schedule(at, Event::Revoke);
        }
    }

    /// A new run; of a process that is up or left, after it has ended.
    fn start(&mut self, number: usize) {
        if self.nodes[number].is_up {
            self.crash(number);
        }
        let life = self.nodes[number].life + 1;
        let rate = self.rate();
        let mut node = Node::new(number, life, &self.settings, self.now, rate);
        node.limit = self.limit;
        node.wants = self.wants();
        node.is_cut = self.nodes[number].is_cut;
        self.nodes[number] = node;
        self.schedule(self.now, Event::Tick(number, life));
    }

    fn change_limit(&mut self) {
        let part = self.random.within(40..101);
        let before = self.limit;
        self.limit = u32::try_from(u64::from(self.full_limit) * part / 100).unwrap();
        self.judge.limit_changed(before);
        self.tell_limit();
    }

    fn tell_limit(&mut self) {
        for number in 0..self.nodes.len() {
            let at = self.now + self.random.within(0..100 * MILLI);
            self.schedule(at, Event::LearnLimit(number, self.limit));
        }
    }

    /// The end of all faults.
    fn heal(&mut self) {
        self.engine.is_up = true;
        self.tell_limit();
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            node.is_cut = [false; 3];
            node.watch_lag = 0;
            node.paused_until = self.now;
            let must_start = !node.is_up || node.is_leaving;
            if must_start {
                self.start(number);
            }
        }
    }
}
