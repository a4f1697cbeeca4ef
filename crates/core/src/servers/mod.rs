//! Which of several API servers a request goes to, and how many seats each has.
//!
//! [`load`] counts what each server has to do and chooses the least loaded one; [`waiting`] lets requests wait until a server has room, in their [`places`];
//! [`health`] says which part of its seats a server may use; [`slowness`] compares servers with each other; [`hanging`] finds one that lets requests wait for ever, both from the [`outcomes`] of requests; [`rebalance`] says how
//! many watches move to a server that has too few; [`fleet_part`] says what a gateway may use of each server whose fleet shares them.
//!
//! # The bound
//!
//! A server is never charged more seats than its *capacity* by requests that flow control limits, but for one request that is
//! wider than the server and has it for itself. The dispatcher starts requests of at most L seats together, and L is the sum of
//! [`ServerLoad::contribution`](load::ServerLoad::contribution) of all servers. A request of one seat therefore finds room: if all servers were full, all L seats
//! would be in use without it. A wider one may have to wait here until one server has so much room; so does a request that was
//! started just before L fell.
//!
//! Requests on a server that takes no new ones keep their seats until they end, and add them to L meanwhile, so that
//! they do not take away seats of the servers that are left.
//!
//! Not here: connections, probes, names; `fairgate-upstream` has them.

pub mod fleet_part;
pub mod hanging;
pub mod health;
pub mod load;
pub mod outcomes;
pub mod places;
pub mod rebalance;
pub mod slowness;
pub mod waiting;

#[cfg(test)]
mod tests;

use crate::apf::Seats;

/// `seats` in so many equal parts; the first ones have one more where they cannot be equal, and none is 0.
pub fn equal_parts(seats: Seats, parts: usize) -> impl Iterator<Item = Seats> + use<> {
    let number = Seats::try_from(parts.max(1)).unwrap_or(Seats::MAX);
    let (each, more) = (seats / number, seats % number);
    (0..number).map(move |index| (each + Seats::from(index < more)).max(1))
}
