//! Reads `fleet`: several gateways that share one limit.

use crate::{fleet::FleetConfig, section::ConfigSection};

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
