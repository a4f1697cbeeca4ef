//! The settings of a fleet: several gateways that share the seats of the servers behind them.

use std::time::Duration;

use fairgate_core::apf::Seats;

/// Several gateways that share `flowControl.totalSeats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Where reports and the ledger are kept; `None`: this gateway has all seats for itself.
    pub engine: Option<FleetEngineConfig>,
    /// The name of the fleet.
    pub name: String,
    /// The name of this gateway; `None`: that of the host.
    pub gateway: Option<String>,
    /// The names that gateways may have; empty: any, up to `max_gateways`.
    pub members: Vec<String>,
    /// The most gateways, by name; if `members` are listed, their number.
    pub max_gateways: u32,
    /// The seats that a gateway keeps when it is cut off; at least 1.
    pub isolated_seats: Seats,
    /// When the seats of a silent gateway are given to others.
    pub reclaim: FleetReclaim,
    /// The longest time for which a server works on a request after its gateway is gone.
    pub request_limit: Duration,
    /// The namespace of the objects, with [`FleetEngineConfig::Kubernetes`].
    pub namespace: String,
}

/// Where reports and the ledger are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetEngineConfig {
    /// In `Lease` objects of the upstream.
    Kubernetes,
}

/// When the seats of a silent gateway are given to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetReclaim {
    /// When its requests have ended at the servers: what executes never exceeds the limit.
    Strict,
    /// As soon as it has stopped sending requests: what is granted never exceeds the limit.
    Prompt,
}

impl FleetConfig {
    /// The seats that are kept for gateways that are cut off: one `isolated_seats` for each.
    pub fn reserved(&self) -> u64 {
        u64::from(self.max_gateways) * u64::from(self.isolated_seats)
    }

    /// Whether a gateway may have this name.
    pub fn admits(&self, gateway: &str) -> bool {
        self.members.is_empty() || self.members.iter().any(|member| member == gateway)
    }
}
