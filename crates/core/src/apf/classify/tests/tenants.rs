//! Tenants: who shares a hash, by the rule and the distinguisher of a schema, and that the names say the same.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::flowcontrol::v1::FlowDistinguisherMethod;

use super::*;
use crate::apf::spec::TenantRule;

/// A policy whose schema `it` takes all requests.
fn policy_of(rule: Option<&str>, distinguisher: Option<&str>) -> Policy {
    let mut it = schema("it", 2, vec![all_of(user("*"))]);
    it.metadata.annotations =
        rule.map(|rule| [(TenantRule::ANNOTATION.to_owned(), rule.to_owned())].into());
    let spec = it.spec.as_mut().unwrap();
    spec.distinguisher_method = distinguisher.map(|method| FlowDistinguisherMethod {
        type_: method.to_owned(),
    });
    policy(vec![it])
}

/// Requests of two users and of three service accounts of two namespaces, in two namespaces and in none.
fn requests() -> Vec<RequestDigest> {
    let accounts = ["a:one", "a:two", "b:one"].map(|name| format!("system:serviceaccount:{name}"));
    let users = ["red", "ann"]
        .into_iter()
        .chain(accounts.iter().map(String::as_str));
    let targets = [
        "/api/v1/namespaces/red/pods",
        "/api/v1/namespaces/blue/pods",
        "/api/v1/nodes",
    ];
    let requests = users.flat_map(|user| targets.map(|target| digest(user, &[], "GET", target)));
    requests.collect()
}

/// The names of the tenants of all requests. Requests of one tenant by name must have one hash and others another, where
/// the flows do not tell anyway.
fn tenants(rule: Option<&str>, distinguisher: Option<&str>) -> BTreeSet<String> {
    let policy = policy_of(rule, distinguisher);
    let it = policy.schema_by_name("it").unwrap();
    let mut by_hash = BTreeMap::new();
    let mut by_name = BTreeMap::new();
    for request in &requests() {
        let flow = policy.classify(request);
        assert_eq!(flow.schema, it);
        let name = match policy.tenant(it, request) {
            TenantName::Flow => {
                assert_eq!(flow.tenant, flow.hash);
                continue;
            }
            name => name.to_string(),
        };
        let known = by_hash.entry(flow.tenant).or_insert_with(|| name.clone());
        assert_eq!(*known, name, "one hash");
        let known = by_name.entry(name).or_insert(flow.tenant);
        assert_eq!(*known, flow.tenant, "one name");
    }
    by_name.into_keys().collect()
}

const USERS: [&str; 2] = ["user \"ann\"", "user \"red\""];
const ACCOUNTS: [&str; 2] = [
    "service accounts of namespace \"a\"",
    "service accounts of namespace \"b\"",
];

#[test]
fn by_default_a_tenant_is_a_user_or_the_service_accounts_of_a_namespace() {
    let expected: BTreeSet<String> = ACCOUNTS
        .iter()
        .chain(&USERS)
        .map(ToString::to_string)
        .collect();
    for rule in [None, Some("default"), Some("nobody"), Some("")] {
        for distinguisher in ["ByUser", "ByNamespace"] {
            assert_eq!(tenants(rule, Some(distinguisher)), expected);
        }
    }
}

#[test]
fn by_user_each_service_account_is_a_tenant() {
    for distinguisher in ["ByUser", "ByNamespace"] {
        let all = tenants(Some("user"), Some(distinguisher));
        assert_eq!(all.len(), 5, "{all:?}");
        assert!(all.contains("user \"system:serviceaccount:a:two\""));
    }
}

#[test]
fn by_namespace_all_who_work_in_one_are_a_tenant() {
    let all = tenants(Some("namespace"), Some("ByUser"));
    let namespaces = ["namespace \"blue\"", "namespace \"red\""];
    let without = USERS.iter().chain(&ACCOUNTS);
    let expected: BTreeSet<String> = namespaces
        .iter()
        .chain(without)
        .map(ToString::to_string)
        .collect();
    assert_eq!(all, expected);
    assert!(
        tenants(Some("namespace"), Some("ByNamespace")).is_empty(),
        "as each flow"
    );
}

#[test]
fn each_flow_may_be_a_tenant() {
    for distinguisher in [Some("ByUser"), Some("ByNamespace"), None] {
        assert!(tenants(Some("flow"), distinguisher).is_empty());
    }
    for rule in TenantRule::ALL {
        assert!(
            tenants(Some(rule.as_str()), None).is_empty(),
            "there is one flow"
        );
    }
}

#[test]
fn a_changed_annotation_is_another_policy() {
    let settings = SETTINGS;
    let objects = |rule: &str| {
        let mut it = schema("it", 2, vec![all_of(user("*"))]);
        it.metadata.annotations =
            Some([(TenantRule::ANNOTATION.to_owned(), rule.to_owned())].into());
        ObjectSet::from_objects("test", [it], [])
    };
    let before = Policy::compile(&objects("user"), &settings).unwrap().policy;
    let after = before
        .recompile(&objects("flow"), &settings)
        .unwrap()
        .policy;
    let rule = |policy: &Policy| policy.schema(policy.schema_by_name("it").unwrap()).tenant;
    assert_eq!(
        (rule(&before), rule(&after)),
        (TenantRule::User, TenantRule::Flow)
    );
}
