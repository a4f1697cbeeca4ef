//! Several gateways that share one limit: what `fleet` must fulfil.

use super::*;
use crate::fleet::FleetEngineConfig;

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

/// Fields with errors, but for that of the engine in a build without etcd.
fn errors(reading: &ConfigReading) -> Vec<&str> {
    let mut errors = fields(reading, Severity::Error);
    let is_missing = |field: &str| !cfg!(feature = "etcd") && field == "fleet.engine";
    errors.retain(|field| !is_missing(field));
    errors
}

#[test]
fn a_fleet_in_etcd_needs_no_upstream_but_an_etcd() {
    let missing = fleet(json!({"engine": "etcd"}));
    assert_eq!(errors(&missing), ["fleet.etcd.endpoints"]);
    let built = fields(&missing, Severity::Error).contains(&"fleet.engine");
    assert_eq!(
        built,
        !cfg!(feature = "etcd"),
        "a build without etcd says so"
    );

    let own = json!({"endpoints": ["http://e-0:2379"], "prefix": "/fleets"});
    let standalone = json!({"mode": "standalone", "fleet": {"engine": "etcd", "etcd": own}});
    let standalone = read(standalone);
    assert_eq!(errors(&standalone), [""; 0]);
    let Some(FleetEngineConfig::Etcd(etcd)) = &standalone.config.fleet.engine else {
        panic!("the engine is etcd")
    };
    assert_eq!(
        (&*etcd.endpoints[0], &*etcd.prefix),
        ("http://e-0:2379", "/fleets")
    );
}

#[test]
fn a_fleet_may_use_the_etcd_of_the_hosted_objects_under_another_prefix() {
    for (prefix, wrong) in [
        ("/fairgate-fleets", None),
        ("/fairgate", Some("fleet.etcd.prefix")),
        ("/fairgate/fleets", Some("fleet.etcd.prefix")),
    ] {
        let reading = read(json!({
            "mode": "standalone", "fleet": {"engine": "etcd", "etcd": {"prefix": prefix}},
            "store": {"type": "etcd", "etcd": {"endpoints": ["http://e-1:2379"]}},
        }));
        let mut found = errors(&reading);
        found.retain(|field| *field != "store.type");
        assert_eq!(found, Vec::from_iter(wrong), "{prefix}");
        let Some(FleetEngineConfig::Etcd(etcd)) = &reading.config.fleet.engine else {
            panic!("the engine is etcd")
        };
        assert_eq!(etcd.endpoints, ["http://e-1:2379"]);
        assert_eq!(etcd.prefix, prefix);
    }
}

#[test]
fn credentials_of_a_fleet_are_not_ignored_and_fit_the_endpoints() {
    let scratch = Scratch::new("fleet-credentials");
    scratch.file("password", "secret");
    scratch.pki();
    let user = json!({"user": "fleet", "passwordFile": "password"});
    for (etcd, wrong) in [
        (user.clone(), Some("fleet.etcd.endpoints")),
        (
            json!({"endpoints": ["https://e-0:2379"]}),
            Some("fleet.etcd.endpoints"),
        ),
        (
            json!({"endpoints": ["http://e-0:2379"], "caFile": "ca.crt"}),
            Some("fleet.etcd.endpoints"),
        ),
        (
            json!({"endpoints": ["https://e-0:2379"], "caFile": "ca.crt"}),
            None,
        ),
    ] {
        let reading = scratch.read(json!({
            "mode": "standalone", "fleet": {"engine": "etcd", "etcd": etcd},
            "store": {"type": "etcd", "etcd": {"endpoints": ["http://e-1:2379"]}},
        }));
        let mut found = errors(&reading);
        found.retain(|field| *field != "store.type");
        assert_eq!(found, Vec::from_iter(wrong), "{etcd}");
    }
}

#[test]
fn keys_of_another_engine_have_no_effect() {
    let kubernetes = fleet(json!({"etcd": {"prefix": "/fleets"}}));
    assert!(fields(&kubernetes, Severity::Warning).contains(&"fleet.etcd.prefix"));
    let etcd = json!({"endpoints": ["http://e-0:2379"]});
    let etcd = fleet(json!({"engine": "etcd", "etcd": etcd, "kubernetes": {"namespace": "x"}}));
    let warned = fields(&etcd, Severity::Warning).contains(&"fleet.kubernetes.namespace");
    // A build without etcd has said before that the engine is wrong.
    assert_eq!(warned, cfg!(feature = "etcd"));
}

#[test]
fn a_host_name_that_no_record_can_have_is_not_accepted() {
    let open = fleet(json!({}));
    for (name, accepted) in [("gw-0", true), ("gw.example.com", false), ("", false)] {
        assert_eq!(open.config.fleet.accepts(name), accepted, "{name:?}");
    }
}

#[test]
fn floors_that_leave_little_to_share_are_a_warning_and_listed_members_count() {
    let warned = fleet(json!({"isolatedSeats": 20}));
    assert!(fields(&warned, Severity::Warning).contains(&"fleet.isolatedSeats"));
    let members = ["gw-1", "gw-2"];
    let listed = fleet(json!({"isolatedSeats": 20, "members": members, "gateway": "gw-2"}));
    assert!(!fields(&listed, Severity::Warning).contains(&"fleet.isolatedSeats"));
    assert_eq!(listed.config.fleet.max_gateways, 2);
    assert!(listed.config.fleet.accepts("gw-1") && !listed.config.fleet.accepts("gw-3"));
    let without = read(json!({"fleet": {"isolatedSeats": 20}}));
    assert_eq!(fields(&without, Severity::Warning), ["fleet.isolatedSeats"]);
}
