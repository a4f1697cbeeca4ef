//! Draws random traces.

use std::collections::BTreeMap;

use fairgate_core::{apf::queueset::EntryId, random::Random};

use crate::{
    player::Player,
    trace::{Event, Number, Shape, Step, Trace},
};

/// The parameters of a trace.
pub(crate) struct Generator {
    random: Random,
    flows: Vec<u64>,
    /// Time passes in multiples of this, in nanoseconds.
    quantum: u64,
    /// Between two events, fewer quanta pass than this.
    quanta: u64,
    /// A wide request has fewer seats than this.
    width_end: u64,
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
    /// The trace with this number of this seed, with its outcomes.
    pub(crate) fn trace(seed: u64, number: u64) -> Trace {
        // Drawn twice, since neighbouring seeds could give the same numbers one place further on.
        let own = Random::seeded(seed ^ number.rotate_left(32)).number();
        let mut generator = Self::drawn(Random::seeded(own));
        let (limit, shape) = (generator.limit(), generator.shape(true));
        let mut trace = Trace {
            seed,
            number,
            limit,
            shape,
            lazy: generator.random.percent(30),
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
        if generator.random.percent(50) {
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
            width_end: *random.pick(&[2, 3, 11, 30]),
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
        if generator.random.percent(3) {
            generator.long();
        }
        generator
    }

    /// Months between events and hundreds of seats for few queues: virtual time reaches its limit.
    fn long(&mut self) {
        self.long = true;
        (self.quantum, self.quanta) = (1_000_000_000_000_007, 50);
        (self.width_end, self.wide) = (200, 90);
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
        let wide = self.random.percent(self.wide);
        let lingers = self.random.percent(self.lingers);
        let width =
            |random: &mut Random| u32::try_from(random.within(1..self.width_end)).unwrap_or(1);
        let initial = if wide { width(&mut self.random) } else { 1 };
        let last = if lingers && self.random.percent(90) {
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
        if self.random.percent(60) {
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
