//! Fleets: several gateways that share the seats of the servers behind them, and what each client gets.
//!
//! Each gateway has a dispatcher of its own, as the program has, and takes part in the protocol of `fairgate-fleet` in turns of
//! 100 ms, as `fairgate-fleet-engine` lets it: it applies the ledger, reports, and the first one coordinates. The ledger lies in
//! memory, and each call to it takes no time. Turns of gateways do not coincide.
//!
//! [`play`] lets the clients of a [`FleetWorld`] send their requests. The ideal is the same world with one gateway that has all
//! seats: it has the same clients, widths and limits of levels, so a difference comes from the division alone.
//!
//! Not here: faults, which the tests of `fairgate-fleet` search by seed, and sockets, which `tests/it/fleet` has.

mod attacks;
mod draw;
mod figures;
mod gateway;
mod levels;
mod run;
#[cfg(test)]
mod tests;

pub use attacks::{FleetAttack, fleet_attacks};
pub use draw::{drawn_world, elephant_beside_nine, three_beside_one_each};
pub use figures::{FairnessFigures, FairnessSummary, FigureRange, compare};
pub use run::play;

use std::time::Duration;

use fairgate_core::apf::units::Seats;

/// Gateways, levels and clients.
#[derive(Clone, Debug)]
pub struct FleetWorld {
    /// The seed of times and widths.
    pub seed: u64,
    /// The number of gateways; at least 1.
    pub gateways: usize,
    /// The seats of all servers together.
    pub total_seats: Seats,
    /// The priority levels besides the mandatory ones.
    pub levels: Vec<LevelOfFleet>,
    /// The clients.
    pub clients: Vec<FleetClient>,
    /// Time that is not measured.
    pub warm_up: Duration,
    /// Time that is measured after that.
    pub measured: Duration,
}

/// A priority level of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct LevelOfFleet {
    /// Its nominal shares.
    pub shares: u32,
    /// The percentage of its nominal seats that it lends.
    pub lendable_percent: u32,
}

/// Closed loops: each thread sends its next request some time after the response to the last one.
#[derive(Clone, Debug)]
pub struct FleetClient {
    /// The place of its level in the world.
    pub level: usize,
    /// Its threads at each gateway; gateways that it does not use have 0.
    pub threads: Vec<u32>,
    /// The least and greatest number of seats of a request; drawn evenly.
    pub width: (Seats, Seats),
    /// Mean service time; exponential, cut off at ten times the mean.
    pub service: Duration,
    /// If some of its requests take much longer: all take exactly `service`, but for those.
    pub long: Option<LongRequests>,
    /// Time between a response and the next request.
    pub think: Duration,
    /// Under how many flows its requests come.
    pub names: ClientNames,
}

/// The requests of a client that take longer than its others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongRequests {
    /// One of so many is one, at random; at least 1.
    pub one_in: u64,
    /// How long they take.
    pub service: Duration,
}

/// Under how many names the requests of a client come; all belong to one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientNames {
    /// All under the same.
    One,
    /// Each under one of so many, at least one.
    Of(u64),
    /// Each under a new one.
    Each,
}

/// How the seats are divided among gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatDivision {
    /// Each gateway has an equal part for good.
    Equal,
    /// By the demand of flows, and a flow does not pay at one gateway for what it received at others.
    ByDemand,
    /// By the demand of flows, with remote charges: what the program does.
    WithCharges,
}

/// What a client got in the time that was measured.
#[derive(Clone, Debug, Default)]
pub struct ClientGain {
    /// Seats in use on average.
    pub seats: f64,
    /// The 99th percentile of the waits of requests that began.
    pub p99_wait: Duration,
    /// Requests that began.
    pub begun: usize,
    /// Requests that were refused.
    pub refused: usize,
}

impl FleetWorld {
    /// The same clients in front of one gateway that has all seats.
    #[must_use]
    pub fn with_one_gateway(&self) -> Self {
        let mut world = self.clone();
        world.gateways = 1;
        for client in &mut world.clients {
            client.threads = vec![client.threads.iter().sum()];
        }
        world
    }
}
