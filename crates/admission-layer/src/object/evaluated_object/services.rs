//! What the server does to a service that is written, besides allocating addresses and ports: what an update leaves out is kept, what its
//! type cannot have is dropped, and `clusterIPs` follows `clusterIP`.
//!
//! Source: Kubernetes `pkg/registry/core/service/storage/storage.go` (`patchAllocatedValues`, `normalizeClusterIPs`), of `alloc.go`
//! there `initIPFamilyFields`, and `pkg/registry/core/service/strategy.go` (`dropTypeDependentFields`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::derived::text;

/// Fills and drops fields of a service, of which `old` is what is stored.
pub(super) fn fill(service: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        keep_ports(service, old);
    }
    cluster_ips(service, old);
    if let Some(old) = old {
        keep_ip_families(service, old);
        drop_of_other_types(service, old);
    }
}

fn spec_mut(service: &mut Value) -> Option<&mut Map<String, Value>> {
    service.get_mut("spec")?.as_object_mut()
}

fn is_of_type(service: &Value, types: &[&str]) -> bool {
    text(service, "/spec/type").is_some_and(|of| types.contains(&of))
}

fn has_cluster_ip(service: &Value) -> bool {
    !is_of_type(service, &["ExternalName"])
}

/// Whether its type comes with ports of the nodes.
fn has_node_ports(service: &Value) -> bool {
    is_of_type(service, &["NodePort", "LoadBalancer"])
}

/// Whether ports of the nodes are allocated to it.
fn needs_node_ports(service: &Value) -> bool {
    let declines = service.pointer("/spec/allocateLoadBalancerNodePorts") == Some(&json!(false));
    has_node_ports(service) && !(declines && is_of_type(service, &["LoadBalancer"]))
}

fn needs_health_check_port(service: &Value) -> bool {
    is_of_type(service, &["LoadBalancer"])
        && text(service, "/spec/externalTrafficPolicy") == Some("Local")
}

fn is_reachable_from_outside(service: &Value) -> bool {
    let addresses = service
        .pointer("/spec/externalIPs")
        .and_then(Value::as_array);
    has_node_ports(service)
        || is_of_type(service, &["ClusterIP"]) && addresses.is_some_and(|all| !all.is_empty())
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    ports.into_iter().flatten()
}

/// A port that is neither missing nor zero.
fn port_number(value: Option<&Value>) -> Option<i64> {
    value.and_then(Value::as_i64).filter(|port| *port != 0)
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    let all = ports(service).map(|port| port_number(port.get("nodePort")));
    all.flatten().collect()
}

fn name_of(port: &Value) -> &str {
    text(port, "/name").unwrap_or_default()
}

/// Keeps the allocated ports that an update leaves out. Ports are told apart by their names.
fn keep_ports(service: &mut Value, old: &Value) {
    if needs_node_ports(old) && needs_node_ports(service) {
        let used: BTreeSet<i64> = &node_ports(old) & &node_ports(service);
        // Of two ports with one name the last counts, also if it has none.
        let by_name: BTreeMap<&str, Option<i64>> = ports(old)
            .map(|port| (name_of(port), port_number(port.get("nodePort"))))
            .collect();
        let ports = service
            .pointer_mut("/spec/ports")
            .and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let kept = by_name.get(name_of(port)).copied().flatten();
            let kept = kept.filter(|kept| !used.contains(kept));
            if port_number(port.get("nodePort")).is_none()
                && let (Some(kept), Some(members)) = (kept, port.as_object_mut())
            {
                members.insert("nodePort".to_owned(), json!(kept));
            }
        }
    }
    if needs_health_check_port(old) && needs_health_check_port(service) {
        let kept = port_number(old.pointer("/spec/healthCheckNodePort"));
        let has_one = port_number(service.pointer("/spec/healthCheckNodePort")).is_some();
        if let (Some(kept), Some(spec)) = (kept.filter(|_| !has_one), spec_mut(service)) {
            spec.insert("healthCheckNodePort".to_owned(), json!(kept));
        }
    }
}

/// Keeps the policy and the families of the addresses of a service, as far as an update leaves them out and its addresses stay.
fn keep_ip_families(service: &mut Value, old: &Value) {
    let addresses = |service: &Value| service.pointer("/spec/clusterIPs").cloned();
    if !has_cluster_ip(service) || !has_cluster_ip(old) || addresses(service) != addresses(old) {
        return;
    }
    let kept = ["ipFamilyPolicy", "ipFamilies"].map(|name| (name, old["spec"].get(name).cloned()));
    let Some(spec) = spec_mut(service) else {
        return;
    };
    for (name, kept) in kept {
        let is_missing = spec
            .get(name)
            .is_none_or(|value| [json!(null), json!([])].contains(value));
        if let Some(kept) = kept.filter(|_| is_missing) {
            spec.insert(name.to_owned(), kept);
        }
    }
}

/// Drops what was there before and is of no use with the new type, unless the update changes it, which is then found invalid.
fn drop_of_other_types(service: &mut Value, old: &Value) {
    let was_and_is = |has: fn(&Value) -> bool| has(old) && !has(service);
    let is_same = |name: &str| {
        let of = |service: &Value| {
            let value = service.get("spec").and_then(|spec| spec.get(name)).cloned();
            value.filter(|value| ![json!(null), json!(0), json!(""), json!([])].contains(value))
        };
        of(old) == of(service)
    };
    let mut dropped: Vec<&str> = Vec::new();
    if was_and_is(has_cluster_ip) {
        if is_same("clusterIP") && is_same("clusterIPs") {
            dropped.extend(["clusterIP", "clusterIPs"]);
        }
        let families = ["ipFamilies", "ipFamilyPolicy"];
        dropped.extend(families.iter().filter(|name| is_same(name)));
    }
    let has_load_balancer = |service: &Value| is_of_type(service, &["LoadBalancer"]);
    if was_and_is(has_load_balancer) {
        let class = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];
        dropped.extend(class.iter().filter(|name| is_same(name)));
    }
    if was_and_is(needs_health_check_port) && is_same("healthCheckNodePort") {
        dropped.push("healthCheckNodePort");
    }
    if was_and_is(is_reachable_from_outside) && is_same("externalTrafficPolicy") {
        dropped.push("externalTrafficPolicy");
    }
    let drops_ports =
        was_and_is(has_node_ports) && node_ports(old).is_superset(&node_ports(service));
    let drops_status = !has_load_balancer(service);
    if let Some(spec) = spec_mut(service) {
        for name in dropped {
            spec.remove(name);
        }
    }
    if drops_ports {
        let ports = service
            .pointer_mut("/spec/ports")
            .and_then(Value::as_array_mut);
        let ports = ports.into_iter().flatten();
        for port in ports.filter_map(Value::as_object_mut) {
            port.remove("nodePort");
        }
    }
    if drops_status && let Some(balancer) = service.pointer_mut("/status/loadBalancer") {
        *balancer = json!({});
    }
}

/// `clusterIPs` of a service follows `clusterIP`, which older clients write alone, and an update that leaves out the addresses
/// keeps them.
fn cluster_ips(service: &mut Value, old: Option<&Value>) {
    let (Some(mut ip), Some(mut all)) = (cluster_ip(service), all_cluster_ips(service)) else {
        return;
    };
    let kept = old.map(|old| {
        let ip = cluster_ip(old).unwrap_or_default();
        (ip, all_cluster_ips(old).unwrap_or_default())
    });
    match kept {
        None if all.is_empty() && !ip.is_empty() => all.push(json!(ip)),
        None => {}
        Some((kept, kept_all)) => {
            let has_ips = |service| text(service, "/spec/type") != Some("ExternalName");
            if has_ips(service) && old.is_some_and(has_ips) {
                ip = if ip.is_empty() { kept.clone() } else { ip };
                all = if all.is_empty() {
                    kept_all.clone()
                } else {
                    all
                };
            }
            if ip == kept && all.is_empty() {
                all = kept_all;
            } else if ip != kept && all == kept_all {
                all = ([&ip].into_iter().filter(|ip| !ip.is_empty()))
                    .map(|ip| json!(ip))
                    .collect();
            }
        }
    }
    let Some(Value::Object(spec)) = service.get_mut("spec") else {
        return;
    };
    spec.remove("clusterIPs");
    if !ip.is_empty() {
        spec.insert("clusterIP".to_owned(), ip.into());
    }
    if !all.is_empty() {
        spec.insert("clusterIPs".to_owned(), all.into());
    }
}

/// Empty if there is none; `None` if it is no text.
fn cluster_ip(service: &Value) -> Option<String> {
    match service.pointer("/spec/clusterIP") {
        None | Some(Value::Null) => Some(String::new()),
        Some(ip) => ip.as_str().map(str::to_owned),
    }
}

/// Empty if there are none; `None` if they are no list.
fn all_cluster_ips(service: &Value) -> Option<Vec<Value>> {
    match service.pointer("/spec/clusterIPs") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(all) => all.as_array().cloned(),
    }
}

#[cfg(test)]
mod tests;
