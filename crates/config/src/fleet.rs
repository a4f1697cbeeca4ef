//! The settings of a fleet: several gateways that share the seats of the servers behind them.

use std::time::Duration;

use fairgate_core::apf::Seats;

use crate::etcd::EtcdConfig;

/// Several gateways that share `flowControl.totalSeats`.
#[derive(Clone, Debug)]
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
}

/// Where reports and the ledger are kept.
#[derive(Clone, Debug)]
pub enum FleetEngineConfig {
    /// In `Lease` objects of the upstream.
    Kubernetes {
        /// The namespace of the objects.
        namespace: String,
    },
    /// In an etcd.
    Etcd(EtcdConfig),
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
    pub fn accepts(&self, gateway: &str) -> bool {
        let is_listed = self.members.is_empty() || self.members.iter().any(|name| name == gateway);
        is_listed && is_record_name(gateway)
    }
}

/// Whether it can be part of the name of an object: a DNS label that leaves room for a prefix.
pub(crate) fn is_record_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_dash_at_end = name.starts_with('-') || name.ends_with('-');
    (1..=40).contains(&name.len()) && name.bytes().all(is_plain) && !has_dash_at_end
}
