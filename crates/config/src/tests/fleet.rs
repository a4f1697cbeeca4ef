//! Several gateways that share one limit: what `fleet` must fulfil.

use super::*;

/// A fleet with these members beside a limit of 100 seats.
fn fleet(members: Value) -> ConfigReading {
    let mut fleet = json!({"engine": "kubernetes"});
    let Value::Object(members) = members else {
        panic!("members are a mapping")
    };
    fleet.as_object_mut().unwrap().extend(members);
    read(json!({"fleet": fleet, "flowControl": {"totalSeats": 100}}))
}

#[test]
fn all_that_is_wrong_with_a_fleet_is_reported_at_once() {
    let reading = fleet(json!({
        "name": "Front", "gateway": "gw-9", "members": ["gw-1", "gw-2", "gw-1"], "isolatedSeats": 50,
        "requestLimit": "10s", "kubernetes": {"namespace": "a/b"},
    }));
    let mut expected = [
        "fleet.name",
        "fleet.kubernetes.namespace",
        "fleet.members",
        "fleet.gateway",
        "fleet.isolatedSeats",
        "fleet.requestLimit",
    ];
    expected.sort_unstable();
    let mut found = fields(&reading, Severity::Error);
    found.sort_unstable();
    assert_eq!(found, expected);
    let text = format!("{:?}", reading.findings);
    assert!(text.contains("3 gateways × 50 seats = 150 seats"), "{text}");
}

#[test]
fn a_fleet_needs_the_upstream_for_its_leases_and_improved_for_its_bound() {
    let standalone = read(json!({"mode": "standalone", "fleet": {"engine": "kubernetes"}}));
    assert_eq!(fields(&standalone, Severity::Error), ["fleet.engine"]);
    let compatible = json!({"semantics": "Compatible"});
    let compatible = read(json!({"fleet": {"engine": "kubernetes"}, "flowControl": compatible}));
    assert_eq!(fields(&compatible, Severity::Error), ["fleet.engine"]);
    let watched = json!({"enforcement": "observe"});
    let watched = read(json!({"fleet": {"engine": "kubernetes"}, "flowControl": watched}));
    let warnings = fields(&watched, Severity::Warning);
    let observed = warnings.iter().filter(|field| **field == "fleet.engine");
    assert_eq!(
        observed.count(),
        2,
        "no credential, and nothing is enforced"
    );
    let prompt = fleet(json!({"reclaim": "prompt", "requestLimit": "1s"}));
    assert_eq!(fields(&prompt, Severity::Error), [""; 0]);
}

#[test]
fn floors_that_leave_little_to_share_are_a_warning_and_listed_members_count() {
    let warned = fleet(json!({"isolatedSeats": 20}));
    assert!(fields(&warned, Severity::Warning).contains(&"fleet.isolatedSeats"));
    let members = ["gw-1", "gw-2"];
    let listed = fleet(json!({"isolatedSeats": 20, "members": members, "gateway": "gw-2"}));
    assert!(!fields(&listed, Severity::Warning).contains(&"fleet.isolatedSeats"));
    assert_eq!(listed.config.fleet.max_gateways, 2);
    assert!(listed.config.fleet.admits("gw-1") && !listed.config.fleet.admits("gw-3"));
    let without = read(json!({"fleet": {"isolatedSeats": 20}}));
    assert_eq!(fields(&without, Severity::Warning), ["fleet.isolatedSeats"]);
}
