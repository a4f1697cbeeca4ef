//! The protocol by which several gateways share the seats of the servers behind them.
//!
//! Each [gateway](gateway::FleetGateway) schedules alone, with no round trip for a request, and *reports* what it holds and asks for. One of them is
//! [coordinator](coordinator::Coordinator): it writes a *ledger* that says how many seats each may use. Both are keys in an *engine* with
//! compare-and-swap, such as etcd. This crate has no clock, no I/O and no randomness: times are arguments, records come in and go out.
//!
//! # The rule
//!
//! [Reserved](records::LedgerEntry::reserved) of a gateway is max(held in its last report, every grant not older than the epoch that it reported).
//! A ledger that raises what is reserved is written only if the sum of Reserved, plus the floors of gateways that are not listed, is at most
//! L, the seats of all servers. So a decrease is written at once; an increase waits until somebody has acknowledged a decrease.
//!
//! # Why the bound holds
//!
//! *No gateway uses more than what is reserved for it*, because:
//!
//! 1. It reported epoch e and what it held. Ledgers apply in rising order, so later it has that, or the grant of e or of a later
//!    ledger. All of these are reserved; the ledger itself carries them, so a successor of the coordinator counts them too. Any older report is as
//!    good as a new one here, it only reserves more.
//! 2. Seats are taken back without acknowledgement only from a *silent* gateway. Let the coordinator first have seen its last report
//!    at v, and have read all reports, by a read sent at r ≥ v + [silence](settings::Settings::silence), without finding a newer one. The gateway
//!    sent that report before v, so by r its clock has counted T since, whatever the rates of both clocks within 1 ± ρ, and it has stopped. If it
//!    knew a later report to be stored before it stopped, that report was stored before r, and the read would have found it. What it knows
//!    later does not help it: a grant that has expired stays void until a ledger acknowledges a report that was sent after that and is known to
//!    be stored. The coordinator that wrote such a ledger has seen that the gateway is back.
//! 3. Its requests have ended D later, which the silence includes (`Strict`).
//! 4. A gateway that is cut off uses its floor; every grant is at least the floor, and the floors of gateways that are not
//!    listed are reserved.
//! 5. A new run of a gateway leaves what the earlier run held reserved until that has been silent as in 2. It uses no seat itself until it is
//!    listed, or D has passed since it started.
//! 6. Ledgers are written by compare-and-swap, so each is made from the last. A new coordinator counts all silence from its own
//!    beginning, and reads all reports after the ledger. Where the engine can compare the election key too, a deposed coordinator cannot
//!    write at all; where it cannot, it cannot write after its successor's first ledger, and each new coordinator writes one at once.
//!
//! # What is promised, and by whom
//!
//! - Clock rates stay within 1 ± ρ (`clock_rate_percent`). A clock that is slower than that breaks the bound.
//! - Clocks go on while a machine sleeps, and the gateway looks at its clock for each dispatch, again after each wait. A process that
//!   is paused between that look and the write to the server may send what it had looked at: at most one request a data core.
//! - `Strict`: no server works on a request for longer than D after its dispatch. With `Prompt`, what is *granted* is bounded, not what
//!   executes.
//! - No two running processes have the same name, and there are at most `max_gateways` names. A gateway that reads a ledger of
//!   so many others uses no floor.
//! - The engine loses no acknowledged write, and its reads are linearizable. Its leases and locks prove nothing here.
//! - L is at least the sum of all floors. When L falls, seats beyond it are taken back as gateways acknowledge it; nothing is cut.
//!
//! `src/tests/search` tries random schedules with delay, loss, duplication, reordering, partitions, pauses, crashes and failover, and shows
//! that each rule is needed by breaking it. Not here: engines, elections, timers and tasks.

pub mod book;
pub mod coordinator;
pub mod division;
pub mod gateway;
pub mod grants;
pub mod identity;
pub mod received;
pub mod records;
pub mod remote;
mod rules;
pub mod settings;
pub mod tenants;
#[cfg(test)]
mod tests;
