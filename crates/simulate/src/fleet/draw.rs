//! Worlds of fleets: the two worked cases of the design, and worlds by seed.

use std::time::Duration;

use fairgate_core::random::Random;

use super::{ClientNames, FleetClient, FleetWorld, LevelOfFleet};

/// A client with one name and this many threads at each gateway, that asks for more than it can get.
fn saturating(level: usize, threads: Vec<u32>) -> FleetClient {
    FleetClient {
        level,
        threads,
        width: (1, 1),
        service: Duration::from_millis(50),
        long: None,
        think: Duration::ZERO,
        names: ClientNames::One,
    }
}

/// Three gateways, and a level of 60 seats. The level `catch-all`, which is always there, has shares of its own and lends nothing:
/// the total is chosen so that 60 are left.
fn sixty_seats(clients: Vec<FleetClient>) -> FleetWorld {
    let level = LevelOfFleet {
        shares: 60,
        lendable_percent: 0,
    };
    FleetWorld {
        seed: 1,
        gateways: 3,
        total_seats: 60 + CATCH_ALL,
        levels: vec![level],
        clients,
        warm_up: Duration::from_secs(15),
        measured: Duration::from_secs(20),
    }
}

/// The shares of the level `catch-all`.
pub(super) const CATCH_ALL: u32 = 5;

/// A flow on three gateways beside three flows with one gateway each: 15 of 60 seats for each.
pub fn three_beside_one_each() -> FleetWorld {
    let mut clients = vec![saturating(0, vec![100; 3])];
    clients.extend((0..3).map(|own| {
        let mut threads = vec![0; 3];
        threads[own] = 100;
        saturating(0, threads)
    }));
    sixty_seats(clients)
}

/// An elephant on three gateways beside nine flows on one of them: 6 of 60 seats for each.
pub fn elephant_beside_nine() -> FleetWorld {
    let mut clients = vec![saturating(0, vec![100; 3])];
    clients.extend((0..9).map(|_| saturating(0, vec![100, 0, 0])));
    sixty_seats(clients)
}

/// Three to eight gateways, one to three levels of which some lend, and 4 to 12 clients, each with some gateways and requests of
/// one to four seats: all of one width, or mixed.
pub fn drawn_world(seed: u64) -> FleetWorld {
    let mut random = Random::seeded(seed ^ 0xf1ee);
    let gateways = below(&mut random, 6) + 3;
    let shapes: &[&[u32]] = &[&[120], &[80, 40], &[60, 40, 20]];
    let shape = *random.pick(shapes);
    let levels = shape.iter().map(|shares| LevelOfFleet {
        shares: *shares,
        lendable_percent: *random.pick(&[0, 25, 50]),
    });
    let levels: Vec<_> = levels.collect();
    let clients = (0..random.within(4..13)).map(|_| {
        let level = below(&mut random, levels.len());
        let mut threads = vec![0; gateways];
        for _ in 0..=below(&mut random, gateways) {
            threads[below(&mut random, gateways)] = 150;
        }
        let service = *random.pick(&[20, 50, 100]);
        FleetClient {
            width: *random.pick(&[(1, 1), (1, 1), (1, 2), (1, 4), (3, 3)]),
            service: Duration::from_millis(service),
            long: None,
            ..saturating(level, threads)
        }
    });
    FleetWorld {
        clients: clients.collect(),
        seed,
        gateways,
        total_seats: 120 + CATCH_ALL,
        levels,
        warm_up: Duration::from_secs(15),
        measured: Duration::from_secs(20),
    }
}

/// A number from 0 to less than `end`.
fn below(random: &mut Random, end: usize) -> usize {
    let number = random.within(0..end as u64);
    usize::try_from(number).unwrap_or(0)
}
