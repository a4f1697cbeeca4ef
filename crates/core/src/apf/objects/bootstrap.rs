//! The objects that every API server creates, and the rules by which it maintains them.
//!
//! *Mandatory* objects (`exempt` and `catch-all` of either kind) always exist and have a fixed spec.
//! *Suggested* objects are a starting point: an object of the same name overrides the built-in one if its
//! annotation [`AUTOUPDATE`] is false, or if it was edited and has no such annotation.
//!
//! Source: the Kubernetes documentation of API Priority and Fairness, "Defaults" and "Maintenance
//! of the mandatory and suggested configuration objects".

use std::sync::LazyLock;

use k8s_openapi::{
    api::flowcontrol::v1::{
        ExemptPriorityLevelConfiguration, FlowDistinguisherMethod, FlowSchema, FlowSchemaSpec,
        GroupSubject, LimitResponse, LimitedPriorityLevelConfiguration, NonResourcePolicyRule,
        PolicyRulesWithSubjects, PriorityLevelConfiguration, PriorityLevelConfigurationReference,
        PriorityLevelConfigurationSpec, QueuingConfiguration, ResourcePolicyRule,
        ServiceAccountSubject, Subject, UserSubject,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::digest::User;

/// The annotation that says whether the server keeps an object at its built-in spec.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The name of the mandatory objects for requests that nothing holds back.
pub const EXEMPT: &str = "exempt";
/// The name of the mandatory objects for requests that nothing else matches.
pub(crate) const CATCH_ALL: &str = "catch-all";

/// Which of the built-in objects take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Bootstrap {
    /// Only those that cannot be missing. Other objects are taken as they are.
    Mandatory,
    /// The suggested ones too, maintained as a server does.
    #[default]
    Suggested,
}

/// Whether `name` is the name of a mandatory object.
pub fn is_mandatory(name: &str) -> bool {
    name == EXEMPT || name == CATCH_ALL
}

/// Whose spec an object of a suggested name gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecOwner {
    /// The server: the built-in spec applies.
    BuiltIn,
    /// The author of the object: the given spec applies.
    Author,
}

/// Who keeps an object: its annotation if that is a boolean, else whether it was ever edited.
///
/// Generation 1 means never edited. An object without a generation comes from a file that a user
/// wrote, so it counts as edited.
pub fn spec_owner(annotation: Option<&str>, generation: Option<i64>) -> SpecOwner {
    owner(annotation.and_then(parse_bool), is_unedited(generation))
}

/// [`spec_owner`] of an object whose annotation is this boolean, or none.
pub(super) fn owner(autoupdate: Option<bool>, is_unedited: bool) -> SpecOwner {
    match autoupdate {
        Some(true) => SpecOwner::BuiltIn,
        None if is_unedited => SpecOwner::BuiltIn,
        Some(false) | None => SpecOwner::Author,
    }
}

/// Whether an object of this generation was never edited.
pub(super) fn is_unedited(generation: Option<i64>) -> bool {
    generation == Some(1)
}

/// The value of the annotation [`AUTOUPDATE`].
pub(super) fn autoupdate(metadata: &ObjectMeta) -> Option<&str> {
    metadata
        .annotations
        .as_ref()?
        .get(AUTOUPDATE)
        .map(String::as_str)
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// All built-in schemas, mandatory ones included, in matching order.
pub fn flow_schemas() -> &'static [FlowSchema] {
    static ALL: LazyLock<Vec<FlowSchema>> = LazyLock::new(build_flow_schemas);
    &ALL
}

/// All built-in levels, mandatory ones included.
pub fn priority_levels() -> &'static [PriorityLevelConfiguration] {
    static ALL: LazyLock<Vec<PriorityLevelConfiguration>> = LazyLock::new(build_priority_levels);
    &ALL
}

/// The built-in schema of this name.
pub fn flow_schema(name: &str) -> Option<&'static FlowSchema> {
    flow_schemas()
        .iter()
        .find(|schema| schema.metadata.name.as_deref() == Some(name))
}

/// The built-in level of this name.
pub fn priority_level(name: &str) -> Option<&'static PriorityLevelConfiguration> {
    priority_levels()
        .iter()
        .find(|level| level.metadata.name.as_deref() == Some(name))
}

const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const NODES: &str = "system:nodes";
const EVERYBODY: [&str; 2] = [User::UNAUTHENTICATED, User::AUTHENTICATED];

fn build_flow_schemas() -> Vec<FlowSchema> {
    let by_user = Some("ByUser");
    let by_namespace = Some("ByNamespace");
    let everybody = || EVERYBODY.map(group).to_vec();
    vec![
        schema(EXEMPT, 1, EXEMPT, None, all(vec![group(User::MASTERS)])),
        schema("probes", 2, EXEMPT, None, probes(everybody())),
        schema(
            "system-leader-election",
            100,
            "leader-election",
            by_user,
            leader_election(),
        ),
        schema("system-node-high", 400, "node-high", by_user, node_high()),
        schema(
            "system-nodes",
            500,
            "system",
            by_user,
            all(vec![group(NODES)]),
        ),
        schema(
            "kube-controller-manager",
            800,
            "workload-high",
            by_namespace,
            all(vec![user(CONTROLLER_MANAGER)]),
        ),
        schema(
            "kube-scheduler",
            800,
            "workload-high",
            by_namespace,
            all(vec![user(SCHEDULER)]),
        ),
        schema(
            "kube-system-service-accounts",
            900,
            "workload-high",
            by_namespace,
            all(vec![service_accounts("kube-system")]),
        ),
        schema(
            "service-accounts",
            9000,
            "workload-low",
            by_user,
            all(vec![group("system:serviceaccounts")]),
        ),
        schema(
            "global-default",
            9900,
            "global-default",
            by_user,
            all(everybody()),
        ),
        schema(CATCH_ALL, 10_000, CATCH_ALL, by_user, all(everybody())),
    ]
}

fn build_priority_levels() -> Vec<PriorityLevelConfiguration> {
    vec![
        level(EXEMPT, exempt()),
        level(CATCH_ALL, limited(5, 0, None)),
        level("system", limited(30, 33, Some((64, 6)))),
        level("node-high", limited(40, 25, Some((64, 6)))),
        level("leader-election", limited(10, 0, Some((16, 4)))),
        level("workload-high", limited(40, 50, Some((128, 6)))),
        level("workload-low", limited(100, 90, Some((128, 6)))),
        level("global-default", limited(20, 50, Some((128, 6)))),
    ]
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        annotations: Some([(AUTOUPDATE.to_owned(), "true".to_owned())].into()),
        ..Default::default()
    }
}

fn schema(
    name: &str,
    precedence: i32,
    level: &str,
    distinguisher: Option<&str>,
    rule: PolicyRulesWithSubjects,
) -> FlowSchema {
    FlowSchema {
        metadata: metadata(name),
        spec: Some(FlowSchemaSpec {
            matching_precedence: Some(precedence),
            priority_level_configuration: PriorityLevelConfigurationReference {
                name: level.to_owned(),
            },
            distinguisher_method: distinguisher.map(|method| FlowDistinguisherMethod {
                type_: method.to_owned(),
            }),
            rules: Some(vec![rule]),
        }),
        status: None,
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

fn service_accounts(namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        service_account: Some(ServiceAccountSubject {
            name: "*".to_owned(),
            namespace: namespace.to_owned(),
        }),
        ..Default::default()
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// A rule for all requests of these subjects.
fn all(subjects: Vec<Subject>) -> PolicyRulesWithSubjects {
    PolicyRulesWithSubjects {
        subjects,
        resource_rules: Some(vec![resources(&["*"], "*", &["*"], true)]),
        non_resource_rules: Some(vec![NonResourcePolicyRule {
            verbs: strings(&["*"]),
            non_resource_urls: strings(&["*"]),
        }]),
    }
}

fn probes(subjects: Vec<Subject>) -> PolicyRulesWithSubjects {
    PolicyRulesWithSubjects {
        subjects,
        resource_rules: None,
        non_resource_rules: Some(vec![NonResourcePolicyRule {
            verbs: strings(&["get"]),
            non_resource_urls: strings(&["/healthz", "/readyz", "/livez"]),
        }]),
    }
}

fn leader_election() -> PolicyRulesWithSubjects {
    PolicyRulesWithSubjects {
        subjects: vec![
            user(CONTROLLER_MANAGER),
            user(SCHEDULER),
            service_accounts("kube-system"),
        ],
        resource_rules: Some(vec![resources(
            &["get", "create", "update"],
            "coordination.k8s.io",
            &["leases"],
            false,
        )]),
        non_resource_rules: None,
    }
}

fn node_high() -> PolicyRulesWithSubjects {
    PolicyRulesWithSubjects {
        subjects: vec![group(NODES)],
        resource_rules: Some(vec![
            resources(&["*"], "", &["nodes", "nodes/status"], true),
            resources(&["*"], "coordination.k8s.io", &["leases"], false),
        ]),
        non_resource_rules: None,
    }
}

/// Resources of one API group in every namespace.
fn resources(
    verbs: &[&str],
    group: &str,
    resources: &[&str],
    cluster_scope: bool,
) -> ResourcePolicyRule {
    ResourcePolicyRule {
        verbs: strings(verbs),
        api_groups: strings(&[group]),
        resources: strings(resources),
        namespaces: Some(strings(&["*"])),
        cluster_scope: Some(cluster_scope),
    }
}

fn level(name: &str, spec: PriorityLevelConfigurationSpec) -> PriorityLevelConfiguration {
    PriorityLevelConfiguration {
        metadata: metadata(name),
        spec: Some(spec),
        status: None,
    }
}

fn exempt() -> PriorityLevelConfigurationSpec {
    PriorityLevelConfigurationSpec {
        type_: "Exempt".to_owned(),
        limited: None,
        exempt: Some(ExemptPriorityLevelConfiguration {
            nominal_concurrency_shares: Some(0),
            lendable_percent: Some(0),
        }),
    }
}

/// A limited level with `queues`, the number of queues and the hand size; without them, one that rejects.
fn limited(
    shares: i32,
    lendable_percent: i32,
    queues: Option<(i32, i32)>,
) -> PriorityLevelConfigurationSpec {
    let queuing = queues.map(|(queues, hand_size)| QueuingConfiguration {
        queues: Some(queues),
        hand_size: Some(hand_size),
        queue_length_limit: Some(50),
    });
    PriorityLevelConfigurationSpec {
        type_: "Limited".to_owned(),
        limited: Some(LimitedPriorityLevelConfiguration {
            nominal_concurrency_shares: Some(shares),
            lendable_percent: Some(lendable_percent),
            borrowing_limit_percent: None,
            limit_response: Some(LimitResponse {
                type_: if queuing.is_some() { "Queue" } else { "Reject" }.to_owned(),
                queuing,
            }),
        }),
        exempt: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apf::objects::{defaults, validate};

    #[test]
    fn there_are_eleven_schemas_and_eight_levels_of_245_shares() {
        assert_eq!(flow_schemas().len(), 11);
        assert_eq!(priority_levels().len(), 8);
        let shares: i32 = priority_levels()
            .iter()
            .filter_map(|level| level.spec.as_ref()?.limited.as_ref())
            .filter_map(|limited| limited.nominal_concurrency_shares)
            .sum();
        assert_eq!(shares, 245);
    }

    #[test]
    fn the_levels_are_those_of_kube_apiserver() {
        type Queues = Option<(i32, i32, i32)>;
        let rows: [(&str, i32, i32, Queues); 7] = [
            ("catch-all", 5, 0, None),
            ("system", 30, 33, Some((64, 6, 50))),
            ("node-high", 40, 25, Some((64, 6, 50))),
            ("leader-election", 10, 0, Some((16, 4, 50))),
            ("workload-high", 40, 50, Some((128, 6, 50))),
            ("workload-low", 100, 90, Some((128, 6, 50))),
            ("global-default", 20, 50, Some((128, 6, 50))),
        ];
        for (name, shares, lendable, queuing) in rows {
            let spec = priority_level(name).unwrap().spec.as_ref().unwrap();
            let limited = spec.limited.as_ref().unwrap();
            let response = limited.limit_response.as_ref().unwrap();
            assert_eq!(limited.nominal_concurrency_shares, Some(shares), "{name}");
            assert_eq!(limited.lendable_percent, Some(lendable), "{name}");
            assert_eq!(limited.borrowing_limit_percent, None, "{name}");
            let found = response.queuing.as_ref().map(|queuing| {
                (
                    queuing.queues.unwrap(),
                    queuing.hand_size.unwrap(),
                    queuing.queue_length_limit.unwrap(),
                )
            });
            assert_eq!(found, queuing, "{name}");
        }
        let exempt = priority_level(EXEMPT).unwrap().spec.as_ref().unwrap();
        assert_eq!(exempt.type_, "Exempt");
        assert_eq!(
            exempt.exempt.as_ref().unwrap().nominal_concurrency_shares,
            Some(0)
        );
    }

    /// Name, precedence, level, distinguisher method; subjects, resource rules and non-resource rules.
    type Row = (
        &'static str,
        i32,
        &'static str,
        Option<&'static str>,
        [usize; 3],
    );

    /// The FlowSchemas of kube-apiserver.
    const SCHEMAS: [Row; 11] = [
        ("exempt", 1, "exempt", None, [1, 1, 1]),
        ("probes", 2, "exempt", None, [2, 0, 1]),
        (
            "system-leader-election",
            100,
            "leader-election",
            Some("ByUser"),
            [3, 1, 0],
        ),
        (
            "system-node-high",
            400,
            "node-high",
            Some("ByUser"),
            [1, 2, 0],
        ),
        ("system-nodes", 500, "system", Some("ByUser"), [1, 1, 1]),
        (
            "kube-controller-manager",
            800,
            "workload-high",
            Some("ByNamespace"),
            [1, 1, 1],
        ),
        (
            "kube-scheduler",
            800,
            "workload-high",
            Some("ByNamespace"),
            [1, 1, 1],
        ),
        (
            "kube-system-service-accounts",
            900,
            "workload-high",
            Some("ByNamespace"),
            [1, 1, 1],
        ),
        (
            "service-accounts",
            9000,
            "workload-low",
            Some("ByUser"),
            [1, 1, 1],
        ),
        (
            "global-default",
            9900,
            "global-default",
            Some("ByUser"),
            [2, 1, 1],
        ),
        ("catch-all", 10_000, "catch-all", Some("ByUser"), [2, 1, 1]),
    ];

    #[test]
    fn the_flow_schemas_are_those_of_kube_apiserver() {
        for (found, row) in flow_schemas().iter().zip(SCHEMAS) {
            let (name, precedence, level, method, [subjects, resource, non_resource]) = row;
            let spec = found.spec.as_ref().unwrap();
            let [rule] = spec.rules.as_deref().unwrap() else {
                panic!("{name} has one rule");
            };
            assert_eq!(found.metadata.name.as_deref(), Some(name));
            assert_eq!(spec.matching_precedence, Some(precedence), "{name}");
            assert_eq!(spec.priority_level_configuration.name, level, "{name}");
            assert_eq!(
                spec.distinguisher_method.as_ref().map(|m| m.type_.as_str()),
                method,
                "{name}"
            );
            assert_eq!(rule.subjects.len(), subjects, "{name}");
            assert_eq!(
                rule.resource_rules.as_ref().map_or(0, Vec::len),
                resource,
                "{name}"
            );
            assert_eq!(
                rule.non_resource_rules.as_ref().map_or(0, Vec::len),
                non_resource,
                "{name}"
            );
        }
    }

    #[test]
    fn the_built_in_objects_are_valid_and_complete() {
        for object in flow_schemas() {
            assert_eq!(validate::flow_schema(object), []);
            let mut defaulted = object.clone();
            defaults::flow_schema(&mut defaulted);
            assert_eq!(&defaulted, object, "nothing is left to default");
        }
        for object in priority_levels() {
            assert_eq!(validate::priority_level(object), []);
            let mut defaulted = object.clone();
            defaults::priority_level(&mut defaulted);
            assert_eq!(&defaulted, object, "nothing is left to default");
        }
    }

    #[test]
    fn the_annotation_or_else_the_generation_decides_whose_spec_applies() {
        for yes in ["1", "t", "T", "TRUE", "true", "True"] {
            for generation in [None, Some(1), Some(2)] {
                assert_eq!(spec_owner(Some(yes), generation), SpecOwner::BuiltIn);
            }
        }
        for no in ["0", "f", "F", "FALSE", "false", "False"] {
            for generation in [None, Some(1), Some(2)] {
                assert_eq!(spec_owner(Some(no), generation), SpecOwner::Author);
            }
        }
        for neither in [None, Some(""), Some("yes"), Some("tRUE"), Some(" true")] {
            assert_eq!(spec_owner(neither, Some(1)), SpecOwner::BuiltIn);
            assert_eq!(spec_owner(neither, Some(2)), SpecOwner::Author);
            assert_eq!(spec_owner(neither, None), SpecOwner::Author);
        }
    }

    #[test]
    fn built_in_objects_ask_to_be_kept_up_to_date() {
        let schemas = flow_schemas().iter().map(|schema| &schema.metadata);
        let levels = priority_levels().iter().map(|level| &level.metadata);
        for metadata in schemas.chain(levels) {
            assert_eq!(autoupdate(metadata), Some("true"), "{:?}", metadata.name);
        }
    }
}
