//! Behaviour of attackers, drawn and changed at random.

use super::victim::Victim;
use crate::world::{
    Bursts, DEFAULT_TENANT_WEIGHT, FlowNames, FlowSpec, LevelShape, Service, Tenant, World,
    kinds::Draw,
};
use fairgate_core::{
    apf::{borrowing::LevelLimits, units::Seats},
    random::Random,
};

const MILLI: f64 = 0.001;

/// The most attackers in a world.
const MOST_ATTACKERS: usize = 3;

/// About so many requests come in a world, unless it would be shorter or longer than these seconds.
const REQUESTS: f64 = 15_000.0;
const LEAST_SECONDS: f64 = 3.0;
const MOST_SECONDS: f64 = 10.0;

const MOST_FINAL_SEATS: Seats = 10;

/// What the attackers do, and to whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Attack {
    /// The limit of the level, in seats.
    pub seats: Seats,
    /// Its queues.
    pub queues: Queues,
    /// Whether requests may be wider than what the gateway estimates, up to the whole level.
    pub any_width: bool,
    /// The client that is watched.
    pub victim: Victim,
    /// Whether the first attacker is of the same tenant as the client that is watched.
    pub same_tenant: bool,
    /// Whether there is also an elephant that is neither attacker nor watched.
    pub elephant: bool,
    /// One to three.
    pub attackers: Vec<Attacker>,
}

/// The queues of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// How many there are.
    pub count: u32,
    /// How many of them a flow may use.
    pub hand_size: u32,
    /// How many requests wait in each at most.
    pub length_limit: u32,
}

impl Queues {
    /// As many and as long as in most of Kubernetes' suggested levels.
    const USUAL: Self = Self {
        count: 64,
        hand_size: 8,
        length_limit: 50,
    };
}

/// One attacker: a closed loop of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Attacker {
    threads: u32,
    names: FlowNames,
    /// Whose the requests are.
    tenant: AttackerTenant,
    width: (Seats, Seats),
    /// How long most requests take, in seconds.
    short: f64,
    /// The part that takes `long` seconds.
    long_part: f64,
    long: f64,
    think: f64,
    patience: Option<f64>,
    bursts: Option<Bursts>,
    final_seats: Seats,
    /// For how long these are held, in seconds.
    additional_latency: f64,
}

/// Whose the requests of an attacker are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttackerTenant {
    /// A tenant of its own.
    Own,
    /// The first attacker, too.
    First,
    /// Each name is a tenant.
    EachName,
}

impl Attack {
    /// Any attack on `victim`.
    pub fn draw(random: &mut Random, victim: Victim, any_width: bool) -> Self {
        let mut draw = Draw {
            random: Random::seeded(random.number()),
        };
        let seats = draw.level(any_width);
        let widest = Widest::of(seats, any_width);
        let count = draw.number(1, 3);
        Self {
            seats,
            queues: draw.queues(),
            any_width,
            victim,
            same_tenant: draw.random.percent(20),
            elephant: draw.random.percent(50),
            attackers: (0..count).map(|_| draw.attacker(widest)).collect(),
        }
    }

    /// How wide requests are at most.
    fn widest(&self) -> Widest {
        Widest::of(self.seats, self.any_width)
    }

    /// The same attack with one to three changes.
    #[must_use]
    pub fn changed(&self, random: &mut Random) -> Self {
        let mut draw = Draw {
            random: Random::seeded(random.number()),
        };
        let mut attack = self.clone();
        for _ in 0..draw.number(1, 3) {
            attack.change(&mut draw);
        }
        attack
    }

    /// The same attack, but all requests of each attacker have the same name.
    #[must_use]
    pub(super) fn with_one_name(mut self) -> Self {
        for attacker in &mut self.attackers {
            attacker.names = FlowNames::One;
        }
        self
    }

    /// Whether the victim's part of the level is what its kind expects, however many names the attackers invent: they have not more
    /// than one tenant each, and not that of the victim.
    #[cfg(test)]
    pub(super) fn leaves_the_victim_its_part(&self) -> bool {
        let tenants = |attacker: &Attacker| attacker.tenant != AttackerTenant::EachName;
        !self.same_tenant && self.attackers.iter().all(tenants)
    }

    /// This attack with one thing less, in every way: without an attacker, without the elephant, with the usual queues, or with an
    /// attacker that behaves as others do in one respect.
    pub(super) fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |attack: Self| {
            if attack != *self {
                all.push(attack);
            }
        };
        if self.attackers.len() > 1 {
            for place in 0..self.attackers.len() {
                let mut attack = self.clone();
                attack.attackers.remove(place);
                add(attack);
            }
        }
        add(Self {
            elephant: false,
            ..self.clone()
        });
        add(Self {
            queues: Queues::USUAL,
            ..self.clone()
        });
        add(Self {
            same_tenant: false,
            ..self.clone()
        });
        for place in 0..self.attackers.len() {
            for property in 0..PROPERTIES {
                let mut attack = self.clone();
                attack.attackers[place].simplify(property);
                add(attack);
            }
        }
        all
    }

    fn change(&mut self, draw: &mut Draw) {
        let place = draw.random.within(0..self.attackers.len() as u64);
        let place = usize::try_from(place).unwrap_or(0);
        match draw.number(0, 21) {
            0 if self.attackers.len() < MOST_ATTACKERS => {
                self.attackers.push(draw.attacker(self.widest()));
            }
            1 if self.attackers.len() > 1 => {
                self.attackers.swap_remove(place);
            }
            2 => self.elephant = !self.elephant,
            3 => {
                self.seats = draw.level(self.any_width);
                let widest = self.widest();
                for attacker in &mut self.attackers {
                    let (least, most) = attacker.width;
                    attacker.width = (least.min(widest.seats), most.min(widest.seats));
                    attacker.final_seats = attacker.final_seats.min(widest.final_seats);
                }
            }
            4 => self.queues = draw.queues(),
            5 => self.same_tenant = !self.same_tenant,
            _ => {
                let widest = self.widest();
                draw.change(&mut self.attackers[place], widest);
            }
        }
    }

    /// The world of this attack: the victim comes first. It lasts about 15 000 requests.
    pub fn world(&self, seed: u64) -> World {
        let mut victim = self.victim.client(self.seats, self.widest().seats);
        if self.same_tenant {
            victim.tenant = first_attacker();
        }
        let mut flows = vec![victim];
        if self.elephant {
            let service = Service::exponential(20.0 * MILLI);
            flows.push(FlowSpec::closed("elephant", 2 * self.seats, service, 0.0));
        }
        let attackers = self.attackers.iter().enumerate();
        flows.extend(attackers.map(|(number, attacker)| attacker.client(number)));
        let rate: f64 = flows
            .iter()
            .map(|flow| greatest_rate(flow, self.seats))
            .sum();
        World {
            name: format!("attack on {}", self.victim.name()),
            seed,
            level: LevelShape {
                seats: self.seats,
                queues: self.queues.count,
                hand_size: self.queues.hand_size,
                queue_length_limit: self.queues.length_limit,
                limits: Vec::new(),
                tenant_weight: DEFAULT_TENANT_WEIGHT,
            },
            flows,
            warm_up_seconds: 0.5,
            seconds: (REQUESTS / rate).clamp(LEAST_SECONDS, MOST_SECONDS),
        }
    }
}

impl Attacker {
    /// Makes one of the properties what it is for a client that does nothing special.
    fn simplify(&mut self, property: u32) {
        match property {
            1 => self.names = FlowNames::One,
            2 => self.width = (1, 1),
            4 => self.long_part = 0.0,
            5 if self.long_part == 0.0 => self.long = 0.0,
            6 => self.think = 0.0,
            7 => self.patience = None,
            8 => self.bursts = None,
            9 => (self.final_seats, self.additional_latency) = (0, 0.0),
            10 => self.tenant = AttackerTenant::Own,
            _ => {}
        }
    }

    fn client(&self, number: usize) -> FlowSpec {
        let service = if self.long_part > 0.0 {
            Service::two_mode(self.short, self.long_part, self.long)
        } else {
            Service::constant(self.short)
        };
        let tenant = match self.tenant {
            AttackerTenant::Own => Tenant::Own,
            AttackerTenant::First if number == 0 => Tenant::Own,
            AttackerTenant::First => first_attacker(),
            AttackerTenant::EachName => Tenant::EachName,
        };
        FlowSpec {
            width: self.width,
            names: self.names,
            tenant,
            patience_seconds: self.patience,
            bursts: self.bursts,
            final_seats: self.final_seats,
            additional_latency_seconds: self.additional_latency,
            ..FlowSpec::closed(attacker_name(number), self.threads, service, self.think)
        }
    }
}

fn attacker_name(number: usize) -> String {
    format!("attacker-{number}")
}

fn first_attacker() -> Tenant {
    Tenant::Named(attacker_name(0))
}

impl Draw {
    /// The limit of a level. Where widths are limited, only large levels have wide requests.
    fn level(&mut self, any_width: bool) -> Seats {
        let least = if self.random.percent(10) { 1 } else { 6 };
        self.limit(least, if any_width { 32 } else { 96 })
    }

    /// The usual queues or, one time in three, fewer or shorter ones, which attackers can fill.
    fn queues(&mut self) -> Queues {
        if self.random.percent(67) {
            return Queues::USUAL;
        }
        let (count, hand_size) = [(64, 8), (16, 4), (4, 2), (1, 1)][self.place(4)];
        Queues {
            count,
            hand_size,
            length_limit: [1, 5, 50][self.place(3)],
        }
    }

    /// One of so many places.
    fn place(&mut self, places: u32) -> usize {
        usize::try_from(self.number(0, places - 1)).unwrap_or(0)
    }

    fn attacker(&mut self, widest: Widest) -> Attacker {
        let mut attacker = Attacker {
            threads: 1,
            names: FlowNames::One,
            tenant: AttackerTenant::Own,
            width: (1, 1),
            short: 0.0,
            long_part: 0.0,
            long: 0.0,
            think: 0.0,
            patience: None,
            bursts: None,
            final_seats: 0,
            additional_latency: 0.0,
        };
        for property in 0..PROPERTIES {
            self.set(&mut attacker, property, widest);
        }
        attacker
    }

    fn change(&mut self, attacker: &mut Attacker, widest: Widest) {
        let property = self.number(0, PROPERTIES - 1);
        self.set(attacker, property, widest);
    }

    /// Draws one of the properties of an attacker, whose requests are no wider than `widest`.
    fn set(&mut self, attacker: &mut Attacker, property: u32, widest: Widest) {
        match property {
            0 => attacker.threads = self.limit(1, 64),
            1 => attacker.names = self.names(),
            2 => attacker.width = self.widths(widest.seats),
            3 => attacker.short = self.millis(0.5, 50.0),
            4 => attacker.long_part = self.sometimes(50, |draw| draw.real(0.01, 0.5)),
            5 => attacker.long = self.millis(20.0, 400.0),
            6 => attacker.think = self.sometimes(50, |draw| draw.millis(0.2, 100.0)),
            7 => {
                let patience = self.millis(1.0, 100.0);
                attacker.patience = self.random.percent(30).then_some(patience);
            }
            8 => {
                let bursts = self.bursts();
                attacker.bursts = self.random.percent(40).then_some(bursts);
            }
            9 => {
                let final_seats = self.number(1, widest.final_seats);
                let holds = self.random.percent(30);
                attacker.final_seats = if holds { final_seats } else { 0 };
                attacker.additional_latency = if holds { self.millis(1.0, 200.0) } else { 0.0 };
            }
            _ => {
                attacker.tenant = match self.number(0, 9) {
                    0..7 => AttackerTenant::Own,
                    7 | 8 => AttackerTenant::First,
                    _ => AttackerTenant::EachName,
                };
            }
        }
    }

    fn names(&mut self) -> FlowNames {
        match self.number(0, 2) {
            0 => FlowNames::One,
            1 => FlowNames::Of(self.limit(2, 300)),
            _ => FlowNames::Each,
        }
    }

    fn widths(&mut self, widest: Seats) -> (Seats, Seats) {
        let most = self.limit(1, widest);
        match self.number(0, 4) {
            0 | 1 => (1, 1),
            2 => (1, most),
            _ => (most, most),
        }
    }

    fn bursts(&mut self) -> Bursts {
        let on_seconds = self.millis(5.0, 500.0);
        let off_seconds = self.millis(10.0, 2_000.0);
        Bursts {
            on_seconds,
            off_seconds,
            phase_seconds: self.real(0.0, on_seconds + off_seconds),
        }
    }

    /// Seconds, drawn evenly on a logarithmic scale of milliseconds.
    fn millis(&mut self, least: f64, most: f64) -> f64 {
        // As few digits as are needed, so that worlds can be read.
        let millis = self.real(least.ln(), most.ln()).exp();
        (millis * 100.0).round() / 100.0 * MILLI
    }

    fn sometimes(&mut self, percent: u64, of: impl FnOnce(&mut Self) -> f64) -> f64 {
        if self.random.percent(percent) {
            of(self)
        } else {
            0.0
        }
    }
}

/// How many properties of an attacker are drawn.
const PROPERTIES: u32 = 11;

/// The most seats of one request.
#[derive(Clone, Copy)]
struct Widest {
    seats: Seats,
    final_seats: Seats,
}

impl Widest {
    /// What the gateway estimates at most in a level of so many seats, or all of the level.
    fn of(level: Seats, any_width: bool) -> Self {
        let (seats, final_seats) = if any_width {
            (level, MOST_FINAL_SEATS)
        } else {
            let widest = LevelLimits::widest_part(level).max(1);
            (widest, widest.min(MOST_FINAL_SEATS))
        };
        Self { seats, final_seats }
    }
}

/// At most so many requests of the client come in a second.
fn greatest_rate(flow: &FlowSpec, seats: Seats) -> f64 {
    let served = f64::from(seats) / flow.mean_work(seats).max(1e-6);
    let sent = flow.peak_demand(seats) / flow.mean_work(seats).max(1e-9);
    match flow.patience_seconds {
        // Threads whose requests are cancelled send others.
        Some(patience) => sent.min(served + sent * flow.service.mean_seconds / patience),
        None => sent.min(served),
    }
}
