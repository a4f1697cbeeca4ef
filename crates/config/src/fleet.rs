//! The settings of a fleet: several gateways that share the seats of the servers behind them.

use std::time::Duration;

use fairgate_core::apf::{Seats, policy::Semantics};

use crate::{config::Config, section::ConfigReader};

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

/// Reports what contradicts other keys.
pub(super) fn validate(reader: &mut ConfigReader, config: &Config) {
    let fleet = &config.fleet;
    if fleet.engine.is_none() {
        return;
    }
    validate_names(reader, fleet);
    validate_seats(reader, config);
    if !config.has_upstream {
        reader.error(
            "fleet.engine",
            "kubernetes keeps its objects in the upstream, and there is none",
            "set upstream.url, or set it to none",
        );
    } else if !config.upstream.url.tls && !reader.is_set("upstream.tokenFile") {
        reader.warning(
            "fleet.engine",
            "the gateway has no credential for the upstream, where it keeps the objects of the fleet",
            "set upstream.tokenFile, or use https and upstream.clientCertificate",
        );
    }
    if config.flow_control.semantics != Semantics::Improved {
        reader.error(
            "fleet.engine",
            "flowControl.semantics is Compatible, with which a wide request may exceed the limit of its level",
            "set flowControl.semantics to Improved",
        );
    }
    let is_strict = fleet.reclaim == FleetReclaim::Strict;
    if is_strict && fleet.request_limit < config.timeouts.request {
        reader.error(
            "fleet.requestLimit",
            "less than timeouts.request: a server may work on a request for that long",
            "increase it, or decrease timeouts.request",
        );
    }
}

/// The sum of the floors, against all seats.
fn validate_seats(reader: &mut ConfigReader, config: &Config) {
    let (fleet, total) = (&config.fleet, u64::from(config.flow_control.total_seats));
    let (gateways, floor, reserved) = (fleet.max_gateways, fleet.isolated_seats, fleet.reserved());
    if reserved > total {
        reader.error(
            "fleet.isolatedSeats",
            format!(
                "{gateways} gateways × {floor} seats = {reserved} seats are kept for gateways that are cut off, and flowControl.totalSeats is {total}"
            ),
            "decrease fleet.isolatedSeats or fleet.maxGateways, or increase flowControl.totalSeats",
        );
    } else if reserved * 2 > total {
        reader.warning(
            "fleet.isolatedSeats",
            format!(
                "{gateways} gateways × {floor} seats = {reserved} of {total} seats cannot follow demand, since each gateway keeps its own"
            ),
            "decrease fleet.isolatedSeats or fleet.maxGateways",
        );
    }
}

fn validate_names(reader: &mut ConfigReader, fleet: &FleetConfig) {
    let named = [
        ("fleet.name", Some(&fleet.name)),
        ("fleet.gateway", fleet.gateway.as_ref()),
        ("fleet.kubernetes.namespace", Some(&fleet.namespace)),
    ];
    let named = named
        .into_iter()
        .filter_map(|(key, name)| Some((key, name?)));
    let members = fleet.members.iter().map(|name| ("fleet.members", name));
    for (key, name) in named.chain(members) {
        if !is_label(name) {
            reader.error(
                key,
                format!(
                    "{name:?} is not a name of at most 40 lower-case letters, digits and dashes"
                ),
                "write a name such as gateway-0",
            );
        }
    }
    let mut members = fleet.members.clone();
    members.sort();
    members.dedup();
    if members.len() < fleet.members.len() {
        reader.error(
            "fleet.members",
            "a name is listed twice",
            "list each gateway once",
        );
    }
    if let Some(gateway) = fleet.gateway.as_ref().filter(|name| !fleet.admits(name)) {
        reader.error(
            "fleet.gateway",
            format!("{gateway:?} is not listed in fleet.members"),
            "list it, or correct the name",
        );
    }
}

/// Whether it can be part of the name of an object: a DNS label that leaves room for a prefix.
pub(super) fn is_label(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_dash_at_end = name.starts_with('-') || name.ends_with('-');
    (1..=40).contains(&name.len()) && name.bytes().all(is_plain) && !has_dash_at_end
}
