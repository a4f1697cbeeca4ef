//! Random worlds by seed; each kind is about one question.

use super::{
    Arrivals, DEFAULT_TENANT_WEIGHT, FlowSpec, LevelShape, Service, ServiceDistribution, World,
};
use fairgate_core::apf::units::Seats;
use fairgate_core::random::Random;

/// The question that a world is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldKind {
    /// Equal flows, all saturated, with requests of one seat.
    EqualFlows,
    /// One saturated flow, and some with little demand.
    ElephantAndMice,
    /// Saturated flows of short and of long requests.
    ShortAgainstLong,
    /// A flow that begins when another has been saturated for long, and some flows with little
    /// demand.
    LateComer,
    /// Saturated flows of one to ten seats, at most a quarter of the level.
    MixedWidths,
    /// As `MixedWidths`, but in levels of fewer than 40 seats some requests take more than a quarter of the level.
    BroadWidths,
    /// Saturated flows, some of them wider than the level.
    WiderThanLevel,
    /// A flow with little demand and requests of one seat, among wide and saturated ones.
    NarrowAmongWide,
    /// Saturated flows, some of which hold seats after the response.
    FinalSeats,
    /// A wide flow with little demand, and saturated flows of one seat.
    PoliteWide,
    /// Requests arrive at 1.2 times the capacity of the level, and time out.
    OpenLoop,
}

impl WorldKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::EqualFlows,
        Self::ElephantAndMice,
        Self::ShortAgainstLong,
        Self::LateComer,
        Self::MixedWidths,
        Self::BroadWidths,
        Self::WiderThanLevel,
        Self::NarrowAmongWide,
        Self::FinalSeats,
        Self::PoliteWide,
        Self::OpenLoop,
    ];

    /// The name of the kind in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EqualFlows => "equal flows",
            Self::ElephantAndMice => "elephant and mice",
            Self::ShortAgainstLong => "short against long",
            Self::LateComer => "late comer",
            Self::MixedWidths => "mixed widths",
            Self::BroadWidths => "broad widths",
            Self::WiderThanLevel => "wider than the level",
            Self::NarrowAmongWide => "narrow among wide",
            Self::FinalSeats => "final seats",
            Self::PoliteWide => "polite wide",
            Self::OpenLoop => "open loop, 1.2 times",
        }
    }

    /// The world of this kind with this number and seed.
    pub fn draw(self, seed: u64, number: u64) -> World {
        let mut mixed = Random::seeded(seed ^ (self as u64) << 32 ^ number << 40);
        let seed = mixed.number();
        let mut draw = Draw {
            random: Random::seeded(seed),
        };
        let level_and_flows = match self {
            Self::EqualFlows => draw.equal_flows(),
            Self::ElephantAndMice => draw.elephant_and_mice(),
            Self::ShortAgainstLong => draw.short_against_long(),
            Self::LateComer => draw.late_comer(),
            Self::MixedWidths => draw.mixed_widths(40),
            Self::BroadWidths => draw.mixed_widths(4),
            Self::WiderThanLevel => draw.wider_than_level(),
            Self::NarrowAmongWide => draw.narrow_among_wide(),
            Self::FinalSeats => draw.final_seats(),
            Self::PoliteWide => draw.polite_wide(),
            Self::OpenLoop => draw.open_loop(),
        };
        draw.world(self, seed, level_and_flows)
    }
}

/// A limit and the flows.
type Drawn = (Seats, Vec<FlowSpec>);

/// The measured time and the warm-up before it, in mean service times.
const MEASURED: f64 = 1_000.0;
const WARM_UP: f64 = 200.0;

/// Draws numbers that do not say what they are for.
pub(super) struct Draw {
    pub(super) random: Random,
}

impl Draw {
    fn world(&mut self, kind: WorldKind, seed: u64, (seats, flows): Drawn) -> World {
        let services: f64 = flows.iter().map(|flow| flow.service.mean_seconds).sum();
        let mean = services / super::real(flows.len());
        let hand = *self.random.pick(&[(64, 6), (64, 8), (128, 6)]);
        // Long enough that no thread of a closed loop is refused.
        let threads = flows.iter().map(|flow| match flow.arrivals {
            Arrivals::Closed { threads, .. } => threads,
            Arrivals::Open { .. } | Arrivals::Poisson { .. } => 0,
        });
        let queue_length_limit = threads.sum::<u32>().max(50);
        let warm_up_seconds = WARM_UP * mean;
        let mut world = World {
            name: kind.name().to_owned(),
            seed,
            level: LevelShape {
                seats,
                queues: hand.0,
                hand_size: hand.1,
                queue_length_limit,
                limits: Vec::new(),
                tenant_weight: DEFAULT_TENANT_WEIGHT,
            },
            flows,
            warm_up_seconds,
            seconds: MEASURED * mean,
        };
        if kind == WorldKind::LateComer {
            // A flow that begins late is measured from its beginning.
            world.flows[0].starts_seconds = warm_up_seconds;
        }
        world
    }

    fn equal_flows(&mut self) -> Drawn {
        let seats = self.limit(2, 600);
        let count = self.number(2, 10);
        let service = self.service();
        let flows = (0..count).map(|i| self.saturated(i, seats, count, 1, service));
        (seats, flows.collect())
    }

    fn elephant_and_mice(&mut self) -> Drawn {
        let seats = self.limit(2, 600);
        let mice = self.number(3, 10);
        let service = self.service();
        let mut flows = vec![self.saturated(0, seats, 1, 1, service)];
        for i in 1..=mice {
            flows.push(self.polite(i, seats, mice + 1, 1, service));
        }
        (seats, flows)
    }

    fn short_against_long(&mut self) -> Drawn {
        let seats = self.limit(2, 200);
        let count = self.number(2, 5);
        let long = self.service();
        let short = Service {
            mean_seconds: long.mean_seconds / self.real(5.0, 30.0),
            ..long
        };
        let flows = (0..count).map(|i| {
            let service = if i % 2 == 0 { long } else { short };
            self.saturated(i, seats, count, 1, service)
        });
        (seats, flows.collect())
    }

    fn late_comer(&mut self) -> Drawn {
        let seats = self.limit(2, 600);
        let mice = self.number(0, 5);
        let service = self.service();
        let mut flows = vec![
            self.saturated(0, seats, 2, 1, service),
            self.saturated(1, seats, 1, 1, service),
        ];
        for i in 0..mice {
            flows.push(self.polite(i + 2, seats, mice + 2, 1, service));
        }
        (seats, flows)
    }

    /// The widest requests take `10 / part` of the level's seats, at most ten seats and at most all: with 40, a quarter.
    fn mixed_widths(&mut self, part: Seats) -> Drawn {
        let seats = self.limit(4, 600);
        let widest = (seats * 10 / part).clamp(1, 10);
        let count = self.number(2, 8);
        let service = self.service();
        let mut flows = Vec::new();
        for i in 0..count {
            let width = match i {
                0 => 1,
                1 => widest,
                _ => self.number(1, widest),
            };
            flows.push(self.saturated(i, seats, count, width.min(seats), service));
        }
        (seats, flows)
    }

    fn wider_than_level(&mut self) -> Drawn {
        let seats = self.number(2, 9);
        let count = self.number(2, 6);
        let service = self.service();
        let mut flows = Vec::new();
        for i in 0..count {
            let width = match i {
                0 => self.number(seats + 1, 10),
                1 => 1,
                _ => self.number(1, 10),
            };
            flows.push(self.saturated(i, seats, count, width, service));
        }
        (seats, flows)
    }

    fn narrow_among_wide(&mut self) -> Drawn {
        let seats = self.limit(4, 600);
        let count = self.number(2, 5);
        let service = self.service();
        let mut flows = vec![self.polite(0, seats, count + 1, 1, service)];
        for i in 1..=count {
            let width = self.number((seats / 8).max(2), (seats / 2).max(2)).min(100);
            flows.push(self.saturated(i, seats, count + 1, width, service));
        }
        (seats, flows)
    }

    fn final_seats(&mut self) -> Drawn {
        let seats = self.limit(10, 600);
        let count = self.number(2, 6);
        let service = self.service();
        let mut flows = Vec::new();
        for i in 0..count {
            let mut flow = self.saturated(i, seats, count, 1, service);
            if i % 2 == 0 {
                flow.final_seats = self.number(1, 10.min(seats / 2));
                flow.additional_latency_seconds = service.mean_seconds * self.real(0.1, 1.0);
            }
            flows.push(flow);
        }
        (seats, flows)
    }

    fn polite_wide(&mut self) -> Drawn {
        let seats = self.limit(8, 600);
        let count = self.number(1, 4);
        let service = self.service();
        let width = self.number(2, (seats / 4).clamp(2, 100));
        let mut flows = vec![self.polite(0, seats, count + 1, width, service)];
        for i in 1..=count {
            flows.push(self.saturated(i, seats, count, 1, service));
        }
        (seats, flows)
    }

    fn open_loop(&mut self) -> Drawn {
        let seats = self.limit(8, 600);
        let count = self.number(3, 8);
        let service = self.service();
        let parts: Vec<f64> = (0..count).map(|_| self.real(0.2, 2.0)).collect();
        let whole: f64 = parts.iter().sum();
        let mut flows = Vec::new();
        for (i, part) in (0..).zip(parts) {
            let width = self.number(1, (seats / 8).clamp(1, 10));
            let mut flow = Self::flow(i, width, service);
            let demand = 1.2 * f64::from(seats) * part / whole;
            flow.arrivals = Arrivals::Open {
                rate: demand / flow.mean_work(seats),
                deadline_seconds: service.mean_seconds * self.real(3.0, 20.0),
            };
            flows.push(flow);
        }
        (seats, flows)
    }

    fn flow(number: u32, width: Seats, service: Service) -> FlowSpec {
        FlowSpec {
            width: (width, width),
            ..FlowSpec::closed(format!("flow-{number}"), 1, service, 0.0)
        }
    }

    /// A flow that always demands more than a `count`th of the seats.
    fn saturated(
        &mut self,
        number: u32,
        seats: Seats,
        count: u32,
        width: Seats,
        service: Service,
    ) -> FlowSpec {
        let mut flow = Self::flow(number, width, service);
        let share = f64::from(seats) / f64::from(count) / f64::from(width.min(seats));
        let threads = whole(share * self.real(1.5, 3.0)) + 2;
        flow.arrivals = Arrivals::Closed {
            threads,
            think_seconds: 0.0,
        };
        flow
    }

    /// A flow of one thread that demands less than half of a `count`th of the seats.
    fn polite(
        &mut self,
        number: u32,
        seats: Seats,
        count: u32,
        width: Seats,
        service: Service,
    ) -> FlowSpec {
        let mut flow = Self::flow(number, width, service);
        let share = f64::from(seats) / f64::from(count) / f64::from(width);
        let part = share.min(1.0) * self.real(0.1, 0.5);
        flow.arrivals = Arrivals::Closed {
            threads: 1,
            think_seconds: service.mean_seconds * (1.0 / part - 1.0),
        };
        flow
    }

    fn service(&mut self) -> Service {
        Service {
            mean_seconds: self.real(0.005, 0.2),
            shape: *self.random.pick(&[
                ServiceDistribution::Constant,
                ServiceDistribution::Exponential,
                ServiceDistribution::Bimodal,
            ]),
        }
    }

    /// A limit, drawn evenly on a logarithmic scale.
    pub(super) fn limit(&mut self, least: Seats, most: Seats) -> Seats {
        let (least, most) = (f64::from(least), f64::from(most));
        whole((self.real(least.ln(), most.ln())).exp().round())
    }

    pub(super) fn number(&mut self, least: u32, most: u32) -> u32 {
        let drawn = self.random.within(u64::from(least)..u64::from(most) + 1);
        u32::try_from(drawn).expect("it is at most `most`")
    }

    pub(super) fn real(&mut self, least: f64, most: f64) -> f64 {
        let part = f64::from(self.number(0, 1_000_000)) / 1e6;
        least + (most - least) * part
    }
}

/// The next whole number at or above `value`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few thousand at most, and not negative"
)]
pub(super) fn whole(value: f64) -> u32 {
    value.ceil() as u32
}
