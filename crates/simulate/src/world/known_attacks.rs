//! Worlds in which `Improved` was worse than the original for somebody within his share.
//!
//! Unless said otherwise, each is a level of 32 seats with 64 queues of 50 requests and hands of 8, threads are closed loops
//! without think time, and service times are constant.

use std::iter;

use super::{
    Arrivals, DEFAULT_TENANT_WEIGHT, FlowNames, FlowSpec, LevelShape, Service, Tenant, World,
    arrival_table::{ClientLine, ComparedWorld},
    judge::LEAST_SHARE,
};
use fairgate_core::apf::units::Seats;

/// A world and whom it is about.
#[derive(Clone, Debug)]
pub struct KnownAttack {
    /// What is wrong; attacks that exploit the same weakness have the same.
    pub weakness: Weakness,
    /// The world.
    pub world: World,
    /// The place of the client that suffers.
    pub victim: usize,
    /// The fraction of the seats that may be idle while a waiting request would have fitted, if it is about that.
    pub most_idle: Option<f64>,
    /// The 99th percentile of the victim's waits in seconds that it may have, if that is less than the original allows.
    pub most_wait: Option<f64>,
}

/// A weakness of a rule for fair queuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// New flows are always ahead of known ones.
    NewFlows,
    /// A flow of two service times gets many seats before its debt is known.
    TwoServiceTimes,
    /// Many names get more than the many requests that come under them.
    ManyNames,
    /// A client loses by who else comes under its name.
    SharedNames,
    /// The seats that idle for a wide request are not charged: others get less than their share.
    IdleSeats,
    /// The requests of a flow differ in width, and seats idle for the wide ones although narrower ones wait behind them.
    MixedWidths,
    /// The queues of a small flow are full of the requests of large ones.
    FullHands,
}

impl KnownAttack {
    /// Plays the world. `tenant_weight` is what the flows of one tenant weigh together at most in the ideal.
    pub fn play(&self, tenant_weight: f64) -> ComparedWorld {
        ComparedWorld::play(&self.world, 0, tenant_weight, 1)
    }

    /// What every client got in the world, beside what is wrong with that, a line each.
    pub fn figures(&self, played: &ComparedWorld) -> String {
        let [original, ours] = played.idle.map(|idle| idle * 100.0);
        let heading = format!(
            "{:?}: {}; idle {original:.1} {ours:.1} %",
            self.weakness, self.world.name
        );
        let clients = played.clients.iter().map(|client| {
            let mark = if client.flow == self.victim { '*' } else { ' ' };
            format!(" {mark}{}", ClientLine(client))
        });
        let faults = self.faults(played).into_iter();
        let faults = faults.map(|fault| format!("  fault: {fault}"));
        let lines: Vec<String> = iter::once(heading).chain(clients).chain(faults).collect();
        lines.join("\n")
    }

    /// What is not as it must be: somebody within his share is worse off than with the original; the victim demands more and gets
    /// less than its ideal share, or is refused although it demands less; seats are idle.
    pub fn faults(&self, played: &ComparedWorld) -> Vec<String> {
        let name = &self.world.name;
        let mut faults = Vec::new();
        for client in played.exceptions() {
            let (wait, share) = (client.wait_excess(), client.share_ratio());
            let [before, refused] = client.refused;
            let who = &client.name;
            faults.push(format!(
                "{name}: {who} waits {wait:.2} times as long as it may, gets {share:.3} of the original's seats, and is refused {refused} times instead of {before}"
            ));
        }
        let victim = &played.clients[self.victim];
        let (who, ideal, got) = (&victim.name, victim.ideal_seats, victim.seats[1]);
        // Idle seats are missing from somebody's share, and have a bound of their own.
        let has_share = victim.saturated && !victim.judged && self.most_idle.is_none();
        if has_share && got < LEAST_SHARE * ideal {
            faults.push(format!("{name}: {who} gets {got:.3} seats of {ideal:.3}"));
        }
        let refused = victim.refused[1];
        if refused > 0 && !victim.saturated {
            faults.push(format!("{name}: {refused} requests of {who} are refused"));
        }
        let wait = victim.p99[1];
        if let Some(most) = self.most_wait.filter(|most| wait > *most) {
            faults.push(format!(
                "{name}: {who} waits {wait:.3} s, more than {most:.3}"
            ));
        }
        let idle = played.idle[1];
        if let Some(most) = self.most_idle.filter(|most| idle > *most) {
            faults.push(format!(
                "{name}: {idle:.3} of the seats are idle, more than {most:.3}"
            ));
        }
        faults
    }
}

const MILLI: f64 = 0.001;

/// How long a closed loop waits before it times out, in seconds.
const TIME_OUT: f64 = 15.0;

/// All of them.
pub fn known_attacks() -> Vec<KnownAttack> {
    let mut all = vec![new_names(), new_names_beside_a_backlog()];
    all.extend([0.94, 0.99, 1.03].map(one_shot_users));
    all.push(two_service_times(0.2, 200.0));
    all.push(two_service_times(0.05, 400.0));
    for names in [64, 256, 1_000] {
        all.push(many_names(names, Tenant::Own));
        all.push(many_names(names, Tenant::EachName));
        all.push(many_tenants_beside_one_thread(names));
    }
    all.push(five_users_of_one_name());
    all.push(attacker_in_a_shared_name());
    all.push(short_and_wide(1, FlowNames::One));
    all.push(short_and_wide(20, FlowNames::One));
    all.push(short_and_wide(20, FlowNames::Each));
    all.push(wide_and_impatient());
    all.extend([12, 32].map(widths_per_request));
    all.push(full_hands());
    all.extend([0, 1].map(new_names_in_all_queues));
    all
}

fn level(seats: Seats) -> LevelShape {
    LevelShape {
        seats,
        queues: 64,
        hand_size: 8,
        queue_length_limit: 50,
        limits: Vec::new(),
        tenant_weight: DEFAULT_TENANT_WEIGHT,
    }
}

fn attack(
    weakness: Weakness,
    name: impl Into<String>,
    seats: Seats,
    flows: Vec<FlowSpec>,
    victim: usize,
) -> KnownAttack {
    let world = World {
        name: name.into(),
        seed: 26,
        level: level(seats),
        flows,
        warm_up_seconds: 5.0,
        seconds: 60.0,
    };
    KnownAttack {
        weakness,
        world,
        victim,
        most_idle: None,
        most_wait: None,
    }
}

fn with_idle(attack: KnownAttack, most_idle: f64) -> KnownAttack {
    KnownAttack {
        most_idle: Some(most_idle),
        ..attack
    }
}

fn threads(name: &str, threads: u32, service: Service) -> FlowSpec {
    FlowSpec::closed(name, threads, service, 0.0)
}

/// One thread, 10 ms, with pauses.
fn polite(pause_seconds: f64) -> FlowSpec {
    FlowSpec {
        patience_seconds: Some(TIME_OUT),
        ..FlowSpec::closed("polite", 1, Service::constant(10.0 * MILLI), pause_seconds)
    }
}

fn backlog(service: Service) -> FlowSpec {
    FlowSpec {
        patience_seconds: Some(TIME_OUT),
        ..threads("backlog", 40, service)
    }
}

fn renamed() -> FlowSpec {
    FlowSpec {
        names: FlowNames::Each,
        ..threads("renamed", 33, Service::constant(20.0 * MILLI))
    }
}

fn new_names() -> KnownAttack {
    let flows = vec![polite(30.0 * MILLI), renamed()];
    let name = "a new name for each request, beside one thread";
    attack(Weakness::NewFlows, name, 32, flows, 0)
}

fn new_names_beside_a_backlog() -> KnownAttack {
    let flows = vec![
        backlog(Service::constant(20.0 * MILLI)),
        polite(30.0 * MILLI),
        renamed(),
    ];
    let name = "a new name for each request, beside a backlog";
    attack(Weakness::NewFlows, name, 32, flows, 0)
}

/// Many users with one request each, which take `part` of the level's capacity.
fn one_shot_users(part: f64) -> KnownAttack {
    let service = Service::constant(20.0 * MILLI);
    let arrivals = Arrivals::Poisson {
        rate: part * 32.0 / service.mean_seconds,
        deadline_seconds: TIME_OUT,
    };
    let users = FlowSpec {
        names: FlowNames::Each,
        tenant: Tenant::EachName,
        ..FlowSpec::new("users", arrivals, service)
    };
    let flows = vec![polite(30.0 * MILLI), users];
    let name = format!("users of one request each, at {part} of capacity");
    attack(Weakness::NewFlows, name, 32, flows, 0)
}

fn two_service_times(long_part: f64, long_millis: f64) -> KnownAttack {
    let service = Service::two_mode(MILLI, long_part, long_millis * MILLI);
    let flows = vec![
        polite(20.0 * MILLI),
        threads("elephant", 64, Service::exponential(20.0 * MILLI)),
        threads("two-mode", 60, service),
    ];
    let name = format!("two service times, {long_part} of them {long_millis} ms");
    attack(Weakness::TwoServiceTimes, name, 32, flows, 0)
}

fn many_names(names: u32, tenant: Tenant) -> KnownAttack {
    let name = match tenant {
        Tenant::EachName => format!("{names} tenants beside a backlog"),
        _ => format!("{names} names of one tenant beside a backlog"),
    };
    let service = Service::constant(20.0 * MILLI);
    let many = FlowSpec {
        names: FlowNames::Of(names),
        tenant,
        ..threads("many", 1_024, service)
    };
    let flows = vec![backlog(service), many];
    attack(Weakness::ManyNames, name, 32, flows, 0)
}

/// Names that are tenants; the victim has one request at a time.
fn many_tenants_beside_one_thread(names: u32) -> KnownAttack {
    let many = FlowSpec {
        names: FlowNames::Of(names),
        tenant: Tenant::EachName,
        ..threads("many", 1_024, Service::constant(20.0 * MILLI))
    };
    let name = format!("{names} tenants beside one thread");
    let flows = vec![polite(30.0 * MILLI), many];
    let mut attack = attack(Weakness::ManyNames, name, 32, flows, 0);
    // About a thousand requests, of which each waits for most of a second.
    attack.world.seconds = 600.0;
    attack
}

/// Users with ten threads each who share a name.
fn users(count: u32) -> Vec<FlowSpec> {
    let user = |number| FlowSpec {
        shared_name: Some("namespace".to_owned()),
        ..threads(
            &format!("user-{number}"),
            10,
            Service::constant(20.0 * MILLI),
        )
    };
    (1..=count).map(user).collect()
}

fn five_users_of_one_name() -> KnownAttack {
    let mut flows = users(5);
    flows.push(backlog(Service::constant(20.0 * MILLI)));
    let name = "five users of one name beside a backlog";
    attack(Weakness::SharedNames, name, 32, flows, 0)
}

/// A tenant with a thousand names also sends requests under the name that others share.
fn attacker_in_a_shared_name() -> KnownAttack {
    let service = Service::constant(20.0 * MILLI);
    let mut flows = users(5);
    flows.push(FlowSpec {
        name: "joined".to_owned(),
        tenant: Tenant::Named("attacker".to_owned()),
        ..flows[0].clone()
    });
    flows.push(FlowSpec {
        names: FlowNames::Of(1_000),
        ..threads("attacker", 300, service)
    });
    flows.push(backlog(service));
    let name = "a tenant with many names in a name that others share";
    attack(Weakness::SharedNames, name, 32, flows, 0)
}

/// An elephant and a backlog.
fn crowd() -> [FlowSpec; 2] {
    ["elephant", "backlog"].map(|name| threads(name, 64, Service::exponential(20.0 * MILLI)))
}

fn short_and_wide(requests: u32, names: FlowNames) -> KnownAttack {
    let wide = FlowSpec {
        width: (10, 10),
        names,
        ..threads("wide", requests, Service::constant(0.2 * MILLI))
    };
    let [elephant, backlog] = crowd();
    let flows = vec![elephant, backlog, wide];
    let name = format!("short and wide, {requests} at a time, names: {names:?}");
    attack(Weakness::IdleSeats, name, 24, flows, 0)
}

fn wide_and_impatient() -> KnownAttack {
    let wide = FlowSpec {
        width: (10, 10),
        patience_seconds: Some(10.0 * MILLI),
        ..threads("wide", 1, Service::constant(20.0 * MILLI))
    };
    let [elephant, backlog] = crowd();
    let flows = vec![elephant, backlog, wide];
    attack(Weakness::IdleSeats, "wide and impatient", 12, flows, 0)
}

fn widths_per_request(seats: Seats) -> KnownAttack {
    let flows = ["one", "two", "three", "four"].map(|name| FlowSpec {
        width: (1, 10),
        ..threads(name, 64, Service::constant(20.0 * MILLI))
    });
    let name = format!("widths of 1 to 10 in each flow, {seats} seats");
    let most_idle = if seats < 20 { 0.05 } else { 0.02 };
    with_idle(
        attack(Weakness::MixedWidths, name, seats, flows.into(), 0),
        most_idle,
    )
}

fn full_hands() -> KnownAttack {
    let mice = FlowSpec {
        names: FlowNames::Of(994),
        tenant: Tenant::EachName,
        ..FlowSpec::new(
            "mice",
            Arrivals::Poisson {
                rate: 200.0,
                deadline_seconds: TIME_OUT,
            },
            Service::exponential(5.0 * MILLI),
        )
    };
    let mut flows = vec![mice];
    for number in 1..=6 {
        let name = format!("elephant-{number}");
        flows.push(threads(&name, 500, Service::constant(20.0 * MILLI)));
    }
    let mut attack = attack(Weakness::FullHands, "elephants fill hands", 32, flows, 0);
    attack.world.seconds = 48.0;
    attack
}

/// More requests under new names than all queues hold, beside one thread and a backlog.
fn new_names_in_all_queues(victim: usize) -> KnownAttack {
    let names = FlowSpec {
        names: FlowNames::Each,
        ..threads("names", 4_000, Service::constant(20.0 * MILLI))
    };
    let flows = vec![
        polite(30.0 * MILLI),
        backlog(Service::constant(20.0 * MILLI)),
        names,
    ];
    let name = format!("new names in all queues, beside {}", flows[victim].name);
    // Names weigh more as others leave, in steps of hundreds: nobody may wait for all of them.
    KnownAttack {
        most_wait: Some(0.2),
        ..attack(Weakness::FullHands, name, 32, flows, victim)
    }
}
