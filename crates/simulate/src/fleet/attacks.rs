//! Known attacks of [`known_attacks`](crate::world::known_attacks), spread over three gateways, beside a polite client at one of
//! them.

use std::time::Duration;

use super::{
    ClientGain, ClientNames, FleetClient, FleetWorld, LevelOfFleet, LongRequests, SeatDivision,
    draw::CATCH_ALL, run::play,
};

/// An attack and whom it is meant for.
#[derive(Clone, Debug)]
pub struct FleetAttack {
    /// What the attacker does.
    pub name: &'static str,
    /// The world; its last client attacks.
    pub world: FleetWorld,
    /// The place of the polite client.
    pub polite: usize,
}

impl FleetAttack {
    /// What the polite client gets beside the attack of one gateway that has all seats.
    pub fn at_one_gateway(&self) -> ClientGain {
        play(&self.world.with_one_gateway(), SeatDivision::Equal).remove(self.polite)
    }
}

/// Attackers with threads at each of three gateways, before 30 seats. The polite client has four threads at one gateway.
///
/// - A hundred threads at each, whose requests take 20 ms: a new name for each request, a thousand names and a dozen names of one
///   tenant.
/// - As many under one name, of whose requests a fifth takes 200 ms and the others 1 ms.
/// - Four at each, whose requests take ten seats for 1 ms.
pub fn fleet_attacks() -> Vec<FleetAttack> {
    let attacker = client(20, [100; 3]);
    let named = |names| FleetClient {
        names,
        ..attacker.clone()
    };
    let two_times = FleetClient {
        service: Duration::from_millis(1),
        long: Some(LongRequests {
            one_in: 5,
            service: Duration::from_millis(200),
        }),
        ..attacker.clone()
    };
    let wide = FleetClient {
        width: (10, 10),
        ..client(1, [4; 3])
    };
    let attacks = [
        ("a new name for each request", named(ClientNames::Each)),
        (
            "a thousand names of one tenant",
            named(ClientNames::Of(1_000)),
        ),
        ("a dozen names of one tenant", named(ClientNames::Of(12))),
        ("requests of two service times", two_times),
        ("short wide requests", wide),
    ];
    let attacks = attacks.map(|(name, attacker)| FleetAttack {
        name,
        world: world(attacker),
        polite: 0,
    });
    attacks.into()
}

/// A client of one name whose requests take so many milliseconds.
fn client(millis: u64, threads: [u32; 3]) -> FleetClient {
    FleetClient {
        level: 0,
        threads: threads.into(),
        width: (1, 1),
        service: Duration::from_millis(millis),
        long: None,
        think: Duration::ZERO,
        names: ClientNames::One,
    }
}

fn world(attacker: FleetClient) -> FleetWorld {
    FleetWorld {
        seed: 1,
        gateways: 3,
        total_seats: 30 + CATCH_ALL,
        levels: vec![LevelOfFleet {
            shares: 30,
            lendable_percent: 0,
        }],
        clients: vec![client(20, [4, 0, 0]), attacker],
        warm_up: Duration::from_secs(15),
        measured: Duration::from_secs(20),
    }
}
