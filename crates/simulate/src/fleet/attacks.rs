//! Known attacks of [`known_attacks`](crate::world::known_attacks), spread over three gateways, beside a polite client at one of
//! them.

use std::time::Duration;

use super::{
    ClientGain, ClientNames, FleetClient, FleetWorld, LevelOfFleet, SeatDivision, draw::CATCH_ALL,
    run::play,
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

/// A new name for each request, and a thousand names of one tenant: 100 threads at each of three gateways, before 30 seats. The
/// polite client has four threads at one gateway.
pub fn fleet_attacks() -> Vec<FleetAttack> {
    let attacks = [
        ("a new name for each request", ClientNames::Each),
        ("a thousand names of one tenant", ClientNames::Of(1_000)),
    ];
    let attacks = attacks.map(|(name, names)| FleetAttack {
        name,
        world: world(names),
        polite: 0,
    });
    attacks.into()
}

fn world(names: ClientNames) -> FleetWorld {
    let client = |threads: [u32; 3], names| FleetClient {
        level: 0,
        threads: threads.into(),
        width: (1, 1),
        service: Duration::from_millis(20),
        think: Duration::ZERO,
        names,
    };
    FleetWorld {
        seed: 1,
        gateways: 3,
        total_seats: 30 + CATCH_ALL,
        levels: vec![LevelOfFleet {
            shares: 30,
            lendable_percent: 0,
        }],
        clients: vec![client([4, 0, 0], ClientNames::One), client([100; 3], names)],
        warm_up: Duration::from_secs(15),
        measured: Duration::from_secs(20),
    }
}
