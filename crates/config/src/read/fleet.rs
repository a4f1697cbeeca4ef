//! Reads `fleet`: several gateways that share one limit, and what it must fulfil together with other keys.

use fairgate_core::apf::policy::Semantics;

use super::store::{WITHOUT_ETCD, etcd_client};
use crate::{
    config::{Config, EnforcementConfig, StoreConfig},
    etcd::EtcdConfig,
    fleet::{FleetConfig, FleetEngineConfig, FleetReclaim, is_record_name},
    section::{ConfigReader, ConfigSection},
    values::Keyword,
};

/// The engine, apart from its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineKind {
    None,
    Kubernetes,
    Etcd,
}

impl Keyword for EngineKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("kubernetes", Self::Kubernetes),
        ("etcd", Self::Etcd),
    ];
}

/// Reads the section. `store` is where the hosted objects are: a fleet may use the same etcd.
pub(super) fn fleet(section: &mut ConfigSection<'_>, store: &StoreConfig) -> FleetConfig {
    let members: Vec<String> = section.get("members");
    let max_gateways: u32 = section.get("maxGateways");
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let gateway: String = section.get("gateway");
    FleetConfig {
        engine: engine(section, store),
        name: section.get("name"),
        gateway: Some(gateway).filter(|name| !name.is_empty()),
        max_gateways: if count == 0 { max_gateways } else { count },
        members,
        isolated_seats: section.get("isolatedSeats"),
        reclaim: section.get("reclaim"),
        request_limit: section.get("requestLimit"),
    }
}

fn engine(section: &mut ConfigSection<'_>, store: &StoreConfig) -> Option<FleetEngineConfig> {
    let kind = section.get("engine");
    let namespace = section.section("kubernetes", |kubernetes| kubernetes.get("namespace"));
    let etcd = section.section("etcd", etcd_client);
    match kind {
        EngineKind::None => None,
        EngineKind::Kubernetes => Some(FleetEngineConfig::Kubernetes { namespace }),
        EngineKind::Etcd => {
            if !cfg!(feature = "etcd") {
                let field = section.field("engine");
                let remedy = "build it with --features etcd, or use kubernetes";
                section.reader.error(&field, WITHOUT_ETCD, remedy);
            }
            validate_unused(section, &etcd);
            let etcd = shared_etcd(etcd, store);
            validate_etcd(section, &etcd, store);
            Some(FleetEngineConfig::Etcd(etcd))
        }
    }
}

/// The etcd of the fleet: without endpoints, that of the hosted objects, under the fleet's own prefix.
fn shared_etcd(own: EtcdConfig, store: &StoreConfig) -> EtcdConfig {
    match store {
        StoreConfig::Etcd(shared) if own.endpoints.is_empty() => EtcdConfig {
            prefix: own.prefix,
            compaction: false,
            ..shared.clone()
        },
        _ => own,
    }
}

/// Credentials and compaction without endpoints would be ignored: those of the store's etcd are used there.
fn validate_unused(section: &mut ConfigSection<'_>, own: &EtcdConfig) {
    let has_own = own.user.is_some() || !own.files.list().is_empty();
    if own.endpoints.is_empty() && has_own {
        let field = section.field("etcd.endpoints");
        let problem = "empty, so that the etcd of the hosted objects is used with store.etcd's credentials, and fleet.etcd has others";
        let remedy = "name the endpoints, or remove the credentials";
        section.reader.error(&field, problem, remedy);
    }
    if own.endpoints.is_empty() && own.compaction {
        let field = section.field("etcd.compaction");
        let problem = "true, and without endpoints the etcd of the hosted objects is used, for which store.etcd.compaction decides";
        let remedy = "name the endpoints, or set store.etcd.compaction";
        section.reader.error(&field, problem, remedy);
    }
}

fn validate_etcd(section: &mut ConfigSection<'_>, etcd: &EtcdConfig, store: &StoreConfig) {
    let field = section.field("etcd.endpoints");
    if etcd.endpoints.is_empty() && !section.reader.has_error(&field) {
        let problem = "empty, and the hosted objects are not in an etcd";
        let remedy = "name at least one, such as https://etcd-0:2379";
        section.reader.error(&field, problem, remedy);
    }
    let StoreConfig::Etcd(objects) = store else {
        return;
    };
    // Which addresses are of one cluster is not known, so the prefixes must differ in any case.
    if is_below(&etcd.prefix, &objects.prefix) || is_below(&objects.prefix, &etcd.prefix) {
        let field = section.field("etcd.prefix");
        let problem = format!(
            "{:?} and store.etcd.prefix, {:?}, contain one another",
            etcd.prefix, objects.prefix
        );
        let remedy = "choose prefixes of which none is below the other";
        section.reader.error(&field, problem, remedy);
    }
}

/// Whether all keys below the first prefix are below the second.
fn is_below(prefix: &str, other: &str) -> bool {
    let rest = prefix.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reports what contradicts other keys.
pub(super) fn validate(reader: &mut ConfigReader, config: &Config) {
    let fleet = &config.fleet;
    let Some(engine) = &fleet.engine else {
        return;
    };
    validate_names(reader, fleet);
    validate_seats(reader, config);
    let needs_upstream = matches!(engine, FleetEngineConfig::Kubernetes { .. });
    if needs_upstream && !config.has_upstream {
        reader.error(
            "fleet.engine",
            "kubernetes keeps its objects in the upstream, and there is none",
            "set upstream.url, or set it to etcd",
        );
    } else if needs_upstream && !config.upstream.url.tls && !reader.is_set("upstream.tokenFile") {
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
    let namespace = match &fleet.engine {
        Some(FleetEngineConfig::Kubernetes { namespace }) => Some(namespace),
        _ => None,
    };
    let named = [
        ("fleet.name", Some(&fleet.name)),
        ("fleet.gateway", fleet.gateway.as_ref()),
        ("fleet.kubernetes.namespace", namespace),
    ];
    let named = named
        .into_iter()
        .filter_map(|(key, name)| Some((key, name?)));
    let members = fleet.members.iter().map(|name| ("fleet.members", name));
    for (key, name) in named.chain(members) {
        if !is_record_name(name) {
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
    let is_listed = |name: &String| fleet.members.is_empty() || fleet.members.contains(name);
    if let Some(gateway) = fleet.gateway.as_ref().filter(|name| !is_listed(name)) {
        reader.error(
            "fleet.gateway",
            format!("{gateway:?} is not listed in fleet.members"),
            "list it, or correct the name",
        );
    }
}
