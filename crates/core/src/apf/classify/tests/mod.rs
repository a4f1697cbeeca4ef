//! The index gives the same results as a linear scan, in few steps.

use std::{cell::Cell, sync::Arc};

use k8s_openapi::{
    api::flowcontrol::v1::{
        FlowSchema, FlowSchemaSpec, GroupSubject, NonResourcePolicyRule, PolicyRulesWithSubjects,
        PriorityLevelConfigurationReference, ResourcePolicyRule, ServiceAccountSubject, Subject,
        UserSubject,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use proptest::prelude::*;

use super::*;
use crate::{
    apf::{
        objects::ObjectSet,
        policy::{Policy, PolicySettings},
    },
    digest::User,
};

thread_local! {
    /// Steps that classification has taken on this thread.
    pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
}

const SETTINGS: PolicySettings = PolicySettings {
    total_seats: 600,
    semantics: crate::apf::Semantics::Improved,
    hash_key: [42; 16],
    tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
};

fn policy(schemas: Vec<FlowSchema>) -> Policy {
    let objects = ObjectSet::from_objects("test", schemas, []);
    match Policy::compile(&objects, &SETTINGS) {
        Ok(compiled) => compiled.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn schema(name: &str, precedence: i32, rules: Vec<PolicyRulesWithSubjects>) -> FlowSchema {
    FlowSchema {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        spec: Some(FlowSchemaSpec {
            matching_precedence: Some(precedence),
            priority_level_configuration: PriorityLevelConfigurationReference {
                name: "workload-low".to_owned(),
            },
            distinguisher_method: None,
            rules: Some(rules),
        }),
        status: None,
    }
}

fn rule(
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourcePolicyRule>,
    non_resource_rules: Vec<NonResourcePolicyRule>,
) -> PolicyRulesWithSubjects {
    PolicyRulesWithSubjects {
        subjects,
        resource_rules: Some(resource_rules),
        non_resource_rules: Some(non_resource_rules),
    }
}

fn user(name: &str) -> Subject {
    Subject {
        kind: "User".to_owned(),
        user: Some(UserSubject {
            name: name.to_owned(),
        }),
        ..Default::default()
    }
}

fn group(name: &str) -> Subject {
    Subject {
        kind: "Group".to_owned(),
        group: Some(GroupSubject {
            name: name.to_owned(),
        }),
        ..Default::default()
    }
}

fn account(namespace: &str, name: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        service_account: Some(ServiceAccountSubject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        ..Default::default()
    }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn resources(
    verbs: &[&str],
    groups: &[&str],
    resources: &[&str],
    namespaces: &[&str],
    cluster_scope: bool,
) -> ResourcePolicyRule {
    ResourcePolicyRule {
        verbs: strings(verbs),
        api_groups: strings(groups),
        resources: strings(resources),
        namespaces: Some(strings(namespaces)),
        cluster_scope: Some(cluster_scope),
    }
}

fn paths(verbs: &[&str], urls: &[&str]) -> NonResourcePolicyRule {
    NonResourcePolicyRule {
        verbs: strings(verbs),
        non_resource_urls: strings(urls),
    }
}

fn everything() -> (Vec<ResourcePolicyRule>, Vec<NonResourcePolicyRule>) {
    (
        vec![resources(&["*"], &["*"], &["*"], &["*"], true)],
        vec![paths(&["*"], &["*"])],
    )
}

fn all_of(subject: Subject) -> PolicyRulesWithSubjects {
    let (resource_rules, non_resource_rules) = everything();
    rule(vec![subject], resource_rules, non_resource_rules)
}

fn digest(user: &str, groups: &[&str], method: &str, target: &str) -> RequestDigest {
    RequestDigest {
        info: RequestInfo::from_target(method, target).unwrap(),
        user: Arc::new(User::new(user, groups.iter().copied())),
    }
}

/// The reference: a linear scan of all schemas in matching order.
fn scan(policy: &Policy, digest: &RequestDigest) -> SchemaIndex {
    (0..)
        .map(SchemaIndex)
        .take(policy.schemas().len())
        .find(|&schema| policy.explain(schema, digest).is_ok())
        .unwrap_or(policy.catch_all())
}

fn matched<'a>(policy: &'a Policy, digest: &RequestDigest) -> &'a str {
    let flow = policy.classify(digest);
    assert_eq!(flow.schema, scan(policy, digest), "index and scan agree");
    &policy.schema(flow.schema).name
}

mod cost;
mod cover;
mod golden;
mod random;
mod recompiling;
mod tenants;
