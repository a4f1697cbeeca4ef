//! Random worlds by seed in which arrivals change; each kind is about one way to do so.
//!
//! In each world there are clients within their share: one thread with pauses, and mostly another that has a few threads, or is an
//! open loop, or has wide requests. Beside them there are those that are special to the kind, and often an elephant. A world is
//! long enough for [`FEWEST_REQUESTS`] requests of each client within its share, if they do not wait long.

use super::{
    Arrivals, Bursts, DEFAULT_TENANT_WEIGHT, FlowNames, FlowSpec, LevelShape, Service,
    ServiceDistribution, Tenant, World,
    judge::FEWEST_REQUESTS,
    kinds::{Draw, whole},
    real,
};
use fairgate_core::{apf::units::Seats, random::Random};

/// How arrivals change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    /// Clients with a new name for each request.
    NewNames,
    /// Many users with one request each, at 0.5 to 1.1 times the capacity.
    OneShotUsers,
    /// Clients with two service times.
    TwoServiceTimes,
    /// Clients with heavy-tailed service times.
    Pareto,
    /// Clients that draw a width for each request.
    WidthsPerRequest,
    /// Wide requests that are short or are cancelled, among narrow ones.
    ShortAndWide,
    /// Tenants with many names, and users that share a name.
    Tenants,
    /// 64, 256 or 1 000 tenants beside a few clients.
    ManyTenants,
    /// Clients that send bursts, all at the same time.
    Bursts,
    /// Clients that cancel requests which wait.
    Cancels,
    /// Clients that hold seats after the response, for as long as was estimated.
    WrongEstimates,
    /// A limit that moves.
    MovingLimit,
    /// A tenant's own client, beside further names of that tenant that come and go.
    OwnNames,
}

impl ArrivalKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::NewNames,
        Self::OneShotUsers,
        Self::TwoServiceTimes,
        Self::Pareto,
        Self::WidthsPerRequest,
        Self::ShortAndWide,
        Self::Tenants,
        Self::ManyTenants,
        Self::Bursts,
        Self::Cancels,
        Self::WrongEstimates,
        Self::MovingLimit,
        Self::OwnNames,
    ];

    /// The name of the kind in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewNames => "new names",
            Self::OneShotUsers => "one-shot users",
            Self::TwoServiceTimes => "two service times",
            Self::Pareto => "pareto",
            Self::WidthsPerRequest => "widths per request",
            Self::ShortAndWide => "short and wide",
            Self::Tenants => "tenants",
            Self::OwnNames => "own names",
            Self::ManyTenants => "many tenants",
            Self::Bursts => "bursts",
            Self::Cancels => "cancels",
            Self::WrongEstimates => "wrong estimates",
            Self::MovingLimit => "moving limit",
        }
    }

    /// The world of this kind with this number and seed.
    pub fn draw(self, seed: u64, number: u64) -> World {
        let mut mixed = Random::seeded(seed ^ (self as u64 + 100) << 32 ^ number << 40);
        let seed = mixed.number();
        let draw = Draw {
            random: Random::seeded(seed),
        };
        let mut cast = Cast::new(draw, self.least_seats());
        match self {
            Self::NewNames => cast.new_names(),
            Self::OneShotUsers => cast.one_shot_users(),
            Self::TwoServiceTimes => cast.two_service_times(),
            Self::Pareto => cast.pareto(),
            Self::WidthsPerRequest => cast.widths_per_request(),
            Self::ShortAndWide => cast.short_and_wide(),
            Self::Tenants => cast.tenants(),
            Self::OwnNames => cast.own_names(),
            Self::ManyTenants => cast.many_tenants(),
            Self::Bursts => cast.bursts(),
            Self::Cancels => cast.cancels(),
            Self::WrongEstimates => cast.wrong_estimates(),
            Self::MovingLimit => cast.elephants(1, 3),
        }
        let mut world = cast.world(self.name(), seed);
        if self == Self::MovingLimit {
            cast.move_limit(&mut world);
        }
        world
    }

    const fn least_seats(self) -> Seats {
        match self {
            Self::WidthsPerRequest
            | Self::ShortAndWide
            | Self::MovingLimit
            | Self::TwoServiceTimes => 8,
            _ => 4,
        }
    }
}

/// The clients of a world that is being drawn.
struct Cast {
    draw: Draw,
    seats: Seats,
    /// The mean service time of most clients.
    seconds: f64,
    flows: Vec<FlowSpec>,
}

impl Cast {
    fn new(mut draw: Draw, least_seats: Seats) -> Self {
        let seats = draw.limit(least_seats, 32);
        let seconds = draw.real(0.005, 0.05);
        Self {
            draw,
            seats,
            seconds,
            flows: Vec::new(),
        }
    }

    /// The world with these clients, and with those that are within their share.
    fn world(&mut self, name: &str, seed: u64) -> World {
        let specials = self.flows.len();
        let mut polite = vec![self.polite_thread()];
        if self.draw.random.percent(75) {
            polite.push(self.other_polite(specials + 2));
        }
        let slowest = polite.iter().map(seconds_per_request).fold(0.0, f64::max);
        polite.append(&mut self.flows);
        let hand = *self.draw.random.pick(&[(64, 6), (64, 8), (128, 6)]);
        World {
            name: name.to_owned(),
            seed,
            level: LevelShape {
                seats: self.seats,
                queues: hand.0,
                hand_size: hand.1,
                queue_length_limit: 50,
                limits: Vec::new(),
                tenant_weight: DEFAULT_TENANT_WEIGHT,
            },
            flows: polite,
            warm_up_seconds: 100.0 * self.seconds,
            seconds: 1.3 * f64::from(FEWEST_REQUESTS) * slowest,
        }
    }

    /// One thread with requests of one seat.
    fn polite_thread(&mut self) -> FlowSpec {
        let service = self.service();
        let think = service.mean_seconds * self.draw.real(1.0, 4.0);
        FlowSpec::closed("polite", 1, service, think)
    }

    /// A client that demands less than its part, if `clients` weigh the same.
    fn other_polite(&mut self, clients: usize) -> FlowSpec {
        let service = self.service();
        let part = f64::from(self.seats) / real(clients) * self.draw.real(0.2, 0.7);
        let name = "polite-2";
        if part < 0.3 {
            let think = service.mean_seconds * (1.0 / part - 1.0);
            return FlowSpec::closed(name, 1, service, think);
        }
        match self.draw.number(0, 2) {
            0 => {
                let threads = whole(part).max(2);
                let think = service.mean_seconds * (f64::from(threads) / part - 1.0).max(0.1);
                FlowSpec::closed(name, threads, service, think)
            }
            1 => {
                let arrivals = Arrivals::Poisson {
                    rate: part / service.mean_seconds,
                    deadline_seconds: 15.0,
                };
                FlowSpec::new(name, arrivals, service)
            }
            _ => {
                let width = self.draw.number(1, (self.seats / 4).clamp(1, 6));
                let think = service.mean_seconds * (f64::from(width) / part - 1.0).max(1.0);
                let spec = FlowSpec::closed(name, 1, service, think);
                FlowSpec {
                    width: (width, width),
                    ..spec
                }
            }
        }
    }

    fn service(&mut self) -> Service {
        let mean = self.seconds * self.draw.real(0.5, 1.5);
        if self.draw.random.percent(50) {
            Service::constant(mean)
        } else {
            Service::exponential(mean)
        }
    }

    /// So many threads that they have `least` to `most` requests for each seat.
    fn threads(&mut self, least: f64, most: f64) -> u32 {
        whole(f64::from(self.seats) * self.draw.real(least, most)) + 1
    }

    fn elephants(&mut self, least: u32, most: u32) {
        for number in 0..self.draw.number(least, most) {
            let threads = self.threads(1.0, 3.0);
            let service = self.service();
            let name = format!("elephant-{number}");
            self.flows
                .push(FlowSpec::closed(name, threads, service, 0.0));
        }
    }

    /// One to `most` clients; `of` changes what is special about them.
    fn specials(&mut self, most: u32, least: f64, mut of: impl FnMut(&mut Self, &mut FlowSpec)) {
        for number in 0..self.draw.number(1, most) {
            let threads = self.threads(least, 3.0);
            let service = self.service();
            let name = format!("special-{number}");
            let mut flow = FlowSpec::closed(name, threads, service, 0.0);
            of(self, &mut flow);
            self.flows.push(flow);
        }
    }

    fn width(&mut self, least: Seats, most: Seats) -> Seats {
        let most = most.clamp(1, self.seats);
        self.draw.number(least.min(most), most)
    }

    fn new_names(&mut self) {
        self.elephants(0, 1);
        self.specials(2, 0.5, |_, flow| flow.names = FlowNames::Each);
    }

    fn one_shot_users(&mut self) {
        if self.draw.random.percent(30) {
            self.elephants(1, 1);
        }
        let service = self.service();
        let part = self.draw.real(0.5, 1.1);
        let arrivals = Arrivals::Poisson {
            rate: part * f64::from(self.seats) / service.mean_seconds,
            deadline_seconds: 15.0,
        };
        self.flows.push(FlowSpec {
            names: FlowNames::Each,
            tenant: Tenant::EachName,
            ..FlowSpec::new("users", arrivals, service)
        });
    }

    fn two_service_times(&mut self) {
        self.elephants(1, 2);
        self.specials(2, 1.0, |cast, flow| {
            let short = cast.seconds * cast.draw.real(0.02, 0.2);
            let long_part = cast.draw.real(0.03, 0.25);
            let long = cast.seconds * cast.draw.real(5.0, 25.0);
            flow.service = Service::two_mode(short, long_part, long);
        });
    }

    fn pareto(&mut self) {
        self.elephants(0, 1);
        self.specials(3, 0.5, |cast, flow| {
            flow.service.shape = ServiceDistribution::Pareto {
                alpha: cast.draw.real(1.2, 2.5),
                cut: cast.draw.real(20.0, 100.0),
            };
        });
    }

    fn widths_per_request(&mut self) {
        self.elephants(0, 1);
        self.specials(3, 0.5, |cast, flow| {
            flow.width = (1, cast.width(2, 10));
        });
    }

    fn short_and_wide(&mut self) {
        self.elephants(1, 2);
        self.specials(2, 0.5, |cast, flow| {
            let width = cast.width(cast.seats / 4, 10);
            flow.width = (width, width);
            let think_seconds = cast.seconds * cast.draw.real(0.0, 1.0);
            flow.arrivals = Arrivals::Closed {
                threads: cast.draw.number(1, 4),
                think_seconds,
            };
            if cast.draw.random.percent(50) {
                flow.service.mean_seconds *= cast.draw.real(0.01, 0.1);
            }
            if cast.draw.random.percent(50) {
                flow.patience_seconds = Some(cast.seconds * cast.draw.real(0.2, 2.0));
            }
        });
    }

    fn tenants(&mut self) {
        self.elephants(0, 1);
        self.specials(2, 1.0, |cast, flow| {
            flow.names = FlowNames::Of(cast.draw.number(5, 200));
        });
        // A second client of the same credential.
        let second = FlowSpec {
            name: "special-too".to_owned(),
            tenant: Tenant::Named("special-0".to_owned()),
            names: FlowNames::Each,
            ..self.flows[self.flows.len() - 1].clone()
        };
        if self.draw.random.percent(50) {
            self.flows.push(second);
        }
        for number in 0..self.draw.number(0, 3) {
            let spec = self.polite_thread();
            self.flows.push(FlowSpec {
                name: format!("sharing-{number}"),
                shared_name: Some("namespace".to_owned()),
                ..spec
            });
        }
    }

    fn own_names(&mut self) {
        self.elephants(0, 1);
        let bursts = Bursts {
            on_seconds: self.seconds * self.draw.real(1.0, 50.0),
            off_seconds: self.seconds * self.draw.real(50.0, 500.0),
            phase_seconds: 0.0,
        };
        let threads = self.threads(0.5, 3.0);
        let service = self.service();
        self.flows.push(FlowSpec {
            names: FlowNames::Of(self.draw.number(10, 1_000)),
            bursts: Some(bursts),
            ..FlowSpec::closed("crowd", threads, service, 0.0)
        });
        let own = self.polite_thread();
        self.flows.push(FlowSpec {
            name: "own".to_owned(),
            tenant: Tenant::Named("crowd".to_owned()),
            ..own
        });
    }

    fn many_tenants(&mut self) {
        self.elephants(0, 1);
        let names = *self.draw.random.pick(&[64, 256, 1_000]);
        let service = self.service();
        self.flows.push(FlowSpec {
            names: FlowNames::Of(names),
            tenant: Tenant::EachName,
            ..FlowSpec::closed("tenants", names, service, 0.0)
        });
    }

    fn bursts(&mut self) {
        self.elephants(0, 1);
        let bursts = Bursts {
            on_seconds: self.seconds * self.draw.real(1.0, 20.0),
            off_seconds: self.seconds * self.draw.real(5.0, 50.0),
            phase_seconds: 0.0,
        };
        self.specials(3, 0.5, |cast, flow| {
            flow.bursts = Some(bursts);
            let width = cast.width(1, cast.seats / 2);
            if cast.draw.random.percent(30) {
                flow.width = (width, width);
            }
        });
    }

    fn cancels(&mut self) {
        self.elephants(0, 1);
        self.specials(3, 1.0, |cast, flow| {
            flow.patience_seconds = Some(cast.seconds * cast.draw.real(0.2, 3.0));
            let width = cast.width(1, 4);
            flow.width = (width, width);
        });
    }

    fn wrong_estimates(&mut self) {
        self.elephants(0, 1);
        self.specials(3, 0.5, |cast, flow| {
            flow.final_seats = cast.width(1, 10);
            flow.additional_latency_seconds = cast.seconds * cast.draw.real(0.1, 2.0);
            if cast.draw.random.percent(30) {
                flow.names = FlowNames::Each;
            }
        });
    }

    /// From a quarter of the seats to all.
    fn move_limit(&mut self, world: &mut World) {
        let mut at = 0.0;
        while at < world.warm_up_seconds + world.seconds {
            let seats = self.draw.number((self.seats / 4).max(2), self.seats);
            world.level.limits.push((at, seats));
            at += self.seconds * self.draw.real(20.0, 200.0);
        }
    }
}

/// How often a client sends requests that do not wait.
fn seconds_per_request(flow: &FlowSpec) -> f64 {
    match flow.arrivals {
        Arrivals::Open { rate, .. } | Arrivals::Poisson { rate, .. } => 1.0 / rate,
        Arrivals::Closed {
            threads,
            think_seconds,
        } => (flow.service.mean_seconds + think_seconds) / f64::from(threads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::judge::{compare, run_both};

    #[test]
    fn the_same_seed_draws_the_same_worlds_of_requests_that_fit_the_level() {
        for kind in ArrivalKind::ALL {
            for number in 0..30 {
                let world = kind.draw(1, number);
                assert_eq!(world, kind.draw(1, number));
                for flow in &world.flows {
                    let (least, most) = flow.width;
                    let fits = 1 <= least && least <= most && most <= world.level.seats;
                    assert!(fits, "{} {number}: {flow:?}", kind.name());
                }
            }
        }
    }

    #[test]
    fn every_world_has_a_client_within_its_share() {
        for kind in ArrivalKind::ALL {
            let mut world = kind.draw(1, 0);
            world.seconds /= 100.0;
            let clients = compare(&world, &run_both(&world), 4.0, 0);
            assert!(clients[0].judged, "{}: {clients:?}", kind.name());
        }
    }
}
