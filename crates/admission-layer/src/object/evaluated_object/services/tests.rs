//! Updates of services, as the server keeps and clears their fields.

use super::*;

fn filled(service: &Value, old: Option<&Value>) -> Value {
    let mut service = service.clone();
    fill(&mut service, old);
    service
}

/// A service of a type, with these other members of its spec.
fn service(of: &str, others: &Value) -> Value {
    let mut spec = json!({"type": of});
    for (name, value) in others.as_object().unwrap() {
        spec[name] = value.clone();
    }
    json!({"spec": spec, "status": {"loadBalancer": {}}})
}

#[test]
fn an_update_keeps_the_ports_that_it_leaves_out() {
    let port = |name: &str, node: i64| {
        let mut port = json!({"name": name, "port": 80});
        if node != 0 {
            port["nodePort"] = json!(node);
        }
        port
    };
    for of in ["NodePort", "LoadBalancer"] {
        let old = service(
            of,
            &json!({"ports": [port("a", 30_001), port("b", 30_002)]}),
        );
        for (sent, seen) in [
            (
                vec![port("a", 0), port("b", 0)],
                vec![port("a", 30_001), port("b", 30_002)],
            ),
            (
                vec![port("b", 0), port("c", 0)],
                vec![port("b", 30_002), port("c", 0)],
            ),
            // One that another port has taken is not kept.
            (
                vec![port("a", 0), port("c", 30_001)],
                vec![port("a", 0), port("c", 30_001)],
            ),
            (vec![port("a", 30_009)], vec![port("a", 30_009)]),
        ] {
            let sent = service(of, &json!({"ports": sent}));
            assert_eq!(
                filled(&sent, Some(&old)),
                service(of, &json!({"ports": seen}))
            );
        }
        let none = service("ClusterIP", &json!({"ports": [port("a", 0)]}));
        let sent = service(of, &json!({"ports": [port("a", 0)]}));
        assert_eq!(filled(&sent, Some(&none)), sent);
        assert_eq!(filled(&sent, None), sent);
    }
    let declining = json!({"allocateLoadBalancerNodePorts": false, "ports": [port("a", 0)]});
    let declining = service("LoadBalancer", &declining);
    let old = service("LoadBalancer", &json!({"ports": [port("a", 30_001)]}));
    assert_eq!(filled(&declining, Some(&old)), declining);
    let local = |check: &Value| {
        service(
            "LoadBalancer",
            &json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": check}),
        )
    };
    let seen = filled(&local(&json!(0)), Some(&local(&json!(31_000))));
    assert_eq!(seen, local(&json!(31_000)));
}

#[test]
fn an_update_keeps_the_families_of_its_addresses() {
    let old = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
    let old = service("ClusterIP", &old);
    assert_eq!(filled(&service("ClusterIP", &json!({})), Some(&old)), old);
    let dual = service("ClusterIP", &json!({"ipFamilyPolicy": "PreferDualStack"}));
    let seen = filled(&dual, Some(&old));
    assert_eq!(seen["spec"]["ipFamilyPolicy"], "PreferDualStack");
    let external = service("ExternalName", &json!({}));
    assert_eq!(filled(&external, Some(&old)), external);
}

#[test]
fn a_service_loses_what_its_new_type_cannot_have() {
    let old = json!({
        "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "allocateLoadBalancerNodePorts": true, "loadBalancerClass": "x.io/y", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31_000, "ports": [{"port": 80, "nodePort": 30_001}],
    });
    let mut before = service("LoadBalancer", &old);
    before["status"]["loadBalancer"]["ingress"] = json!([{"ip": "1.2.3.4"}]);
    let patched = |of: &str| {
        let mut now = before.clone();
        now["spec"]["type"] = json!(of);
        filled(&now, Some(&before))
    };
    let addresses = json!({
        "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80}],
    });
    assert_eq!(patched("ClusterIP"), service("ClusterIP", &addresses));
    let external = service("ExternalName", &json!({"ports": [{"port": 80}]}));
    assert_eq!(patched("ExternalName"), external);
    let mut with_ports = addresses.clone();
    with_ports["ports"] = old["ports"].clone();
    with_ports["externalTrafficPolicy"] = json!("Local");
    assert_eq!(patched("NodePort"), service("NodePort", &with_ports));
    assert_eq!(patched("LoadBalancer"), before);
    // What is changed in the same update is left to validation.
    let mut changed = addresses;
    changed["ports"] = json!([{"port": 80, "nodePort": 30_007}]);
    changed["externalTrafficPolicy"] = json!("Cluster");
    let changed = service("ClusterIP", &changed);
    assert_eq!(filled(&changed, Some(&before)), changed);
}

#[test]
fn all_addresses_of_a_service_follow_its_first() {
    let of = |ip: &str, all: &[&str]| {
        let mut spec = json!({});
        if !ip.is_empty() {
            spec["clusterIP"] = json!(ip);
        }
        if !all.is_empty() {
            spec["clusterIPs"] = json!(all);
        }
        json!({"spec": spec})
    };
    let external = |service: Value| {
        let mut service = service;
        service["spec"]["type"] = json!("ExternalName");
        service
    };
    let none = of("", &[]);
    let kept = of("a", &["a", "x"]);
    for (sent, old, seen) in [
        (of("a", &[]), None, of("a", &["a"])),
        (of("", &["a"]), None, of("", &["a"])),
        (of("a", &["b"]), None, of("a", &["b"])),
        (none.clone(), None, none.clone()),
        (none.clone(), Some(&kept), kept.clone()),
        (of("a", &[]), Some(&kept), kept.clone()),
        (of("b", &["a", "x"]), Some(&kept), of("b", &["b"])),
        (of("b", &["b"]), Some(&kept), of("b", &["b"])),
        (
            external(of("", &["a", "x"])),
            Some(&kept),
            external(none.clone()),
        ),
        (external(none.clone()), Some(&kept), external(none.clone())),
        (
            json!({"spec": {"clusterIP": 1}}),
            None,
            json!({"spec": {"clusterIP": 1}}),
        ),
    ] {
        assert_eq!(filled(&sent, old), seen, "{sent} {old:?}");
    }
}
