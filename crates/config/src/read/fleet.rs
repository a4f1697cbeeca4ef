//! Reads `fleet`: several gateways that share one limit, and what it must fulfil together with other keys.

use fairgate_core::apf::policy::Semantics;

use crate::{
    config::{Config, EnforcementConfig},
    fleet::{FleetConfig, FleetReclaim},
    section::{ConfigReader, ConfigSection},
};

pub(super) fn fleet(section: &mut ConfigSection<'_>) -> FleetConfig {
    let members: Vec<String> = section.get("members");
    let max_gateways: u32 = section.get("maxGateways");
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let gateway: String = section.get("gateway");
    FleetConfig {
        engine: section.get("engine"),
        name: section.get("name"),
        gateway: Some(gateway).filter(|name| !name.is_empty()),
        max_gateways: if count == 0 { max_gateways } else { count },
        members,
        isolated_seats: section.get("isolatedSeats"),
        reclaim: section.get("reclaim"),
        request_limit: section.get("requestLimit"),
        namespace: section.section("kubernetes", |kubernetes| kubernetes.get("namespace")),
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
    if config.flow_control.enforcement != EnforcementConfig::Enforce {
        reader.warning(
            "fleet.engine",
            "flowControl.enforcement is not enforce: this gateway holds no request back, whatever its fleet grants it",
            "set flowControl.enforcement to enforce",
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
fn is_label(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_dash_at_end = name.starts_with('-') || name.ends_with('-');
    (1..=40).contains(&name.len()) && name.bytes().all(is_plain) && !has_dash_at_end
}
