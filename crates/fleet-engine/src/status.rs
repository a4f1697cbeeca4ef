//! What operators see of a gateway's part in its fleet: read by metrics, dumps and health checks.

use fairgate_core::{
    apf::Seats,
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_fleet::{gateway::GatewayState, records::SeatLedger};
use serde_json::Value;

use crate::engine::EngineFailure;

/// What is said when the ledger is lost, and what to do.
pub const LEDGER_LOST: &str = "the ledger is missing, or older than one that was in force: it was deleted, or restored from a backup; grants stay as they are, and no seat is divided anew; stop all gateways, delete the fleet's records, and start them again";

/// The state of a member of a fleet, as its task last saw it.
#[derive(Debug, Default)]
pub struct FleetStatus(Mutex<FleetView>);

/// One look at the state.
#[derive(Clone, Debug, Default)]
pub struct FleetView {
    /// Where this gateway stands; `None` before it has begun.
    pub state: Option<GatewayState>,
    /// Whether the fleet has no place for this gateway: `maxGateways` others are listed.
    pub has_no_place: bool,
    /// The seats that it may use.
    pub seats: Seats,
    /// The seats that it holds: within limits, or still in use beyond them.
    pub held: Seats,
    /// Until when its grant holds; [`Time::ZERO`] if it has none.
    pub lease_end: Time,
    /// The last ledger that it read.
    pub ledger: SeatLedger,
    /// When it read a ledger for the last time, of whatever epoch.
    pub ledger_read: Option<Time>,
    /// When it first saw this ledger.
    pub ledger_since: Option<Time>,
    /// Whether the ledger is missing, or older than one that was in force: somebody deleted it, or restored a backup. The
    /// last one that was in force is then kept as [`Self::ledger`].
    pub ledger_lost: bool,
    /// Whether this gateway divides the seats.
    pub coordinates: bool,
    /// When this gateway last saw that a gateway, itself or another one, took or renewed the coordinator's lease.
    pub coordinator_renewed: Option<Time>,
    /// The version of the lease that it saw then.
    coordinator_lease: String,
    /// The seats of all servers.
    pub limit: Seats,
    /// Why the engine cannot be used at present, or what it holds.
    pub problem: Option<String>,
    /// Which gateways hash flows with different keys, and what to do; only where seats are divided.
    pub hash_keys_differ: Option<String>,
    /// What kind of problem that is.
    pub failure: Option<EngineFailure>,
    /// Calls of the engine that failed.
    pub failed_calls: u64,
    /// Ledgers that this gateway has written.
    pub ledgers_written: u64,
    /// Reports that this gateway has stored.
    pub reports_stored: u64,
}

impl FleetStatus {
    /// The present state.
    pub fn view(&self) -> FleetView {
        lock(&self.0).clone()
    }

    /// Reads a part of it.
    pub fn with<T>(&self, read: impl FnOnce(&FleetView) -> T) -> T {
        read(&lock(&self.0))
    }

    /// The coordinator's lease was read or written at `now`. One that nobody holds, or that has not changed, shows no coordinator.
    pub(crate) fn saw_lease(&self, lease: &Value, now: Time) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&lease["metadata"]["resourceVersion"]);
        if text(&lease["spec"]["holderIdentity"]).is_empty() {
            return;
        }
        self.update(|view| {
            if view.coordinator_lease != version {
                view.coordinator_lease = version;
                view.coordinator_renewed = Some(now);
            }
        });
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut FleetView)) {
        change(&mut lock(&self.0));
    }
}

/// Why a gateway that is cut off is so, in metrics.
const NOT_LISTED: &str = "not-listed";
const NO_PLACE: &str = "no-place";
/// Another gateway reports under its name.
const SAME_NAME: &str = "same-name";

impl FleetView {
    /// All values of [`Self::isolation_reason`].
    pub fn isolation_reasons() -> impl Iterator<Item = &'static str> {
        let failures = EngineFailure::ALL.map(EngineFailure::as_str);
        failures
            .into_iter()
            .chain([NOT_LISTED, NO_PLACE, SAME_NAME])
    }

    /// Why this gateway has no grant, in a word or two; `None` unless it is cut off. Without a failure of the engine, no ledger lists it:
    /// nobody coordinates, the coordinator cannot use a record, or the fleet has no place for it.
    pub fn isolation_reason(&self) -> Option<&'static str> {
        match self.state? {
            GatewayState::Displaced => Some(SAME_NAME),
            GatewayState::Isolated => Some(match self.failure {
                Some(failure) => failure.as_str(),
                None if self.has_no_place => NO_PLACE,
                None => NOT_LISTED,
            }),
            GatewayState::Granted | GatewayState::Starting | GatewayState::Leaving => None,
        }
    }
}

/// What a state is called in metrics, dumps and logs.
pub const fn state_name(state: Option<GatewayState>) -> &'static str {
    match state {
        Some(GatewayState::Granted) => "granted",
        Some(GatewayState::Isolated) => "isolated",
        Some(GatewayState::Starting) | None => "starting",
        Some(GatewayState::Leaving) => "leaving",
        Some(GatewayState::Displaced) => "displaced",
    }
}
