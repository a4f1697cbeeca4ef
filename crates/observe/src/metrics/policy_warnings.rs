//! Warnings about the policy in force, by what they are about.
//!
//! The text of a warning names objects and fields, of which there are as many as somebody writes. A metric has only the reason, out of
//! few; the log and `fairgate check` have the text.

use fairgate_core::finding::Finding;
use metrics::{Gauge, gauge};

use super::catalogue;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarningReason {
    /// A level that no schema names.
    UnusedLevel,
    /// A level with too few seats for its requests, or with none of its own.
    Seats,
    /// A level with far more queues than any load needs.
    Queues,
    /// A schema that names a level which does not exist.
    MissingLevel,
    /// A schema that no request reaches, or hardly any.
    Unreached,
    /// A resource, or a group, that matches no request.
    Resources,
    /// An annotation that has no effect, or another one than it seems.
    Annotation,
    /// A field that does not exist, or anything else.
    Other,
}

impl WarningReason {
    const ALL: [Self; 8] = [
        Self::UnusedLevel,
        Self::Seats,
        Self::Queues,
        Self::MissingLevel,
        Self::Unreached,
        Self::Resources,
        Self::Annotation,
        Self::Other,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::UnusedLevel => "level-unused",
            Self::Seats => "level-seats",
            Self::Queues => "level-queues",
            Self::MissingLevel => "schema-level-missing",
            Self::Unreached => "schema-unreached",
            Self::Resources => "schema-resources",
            Self::Annotation => "annotation",
            Self::Other => "other",
        }
    }

    /// What a finding is about: its field tells.
    fn of(finding: &Finding) -> Self {
        let is_level = finding.kind == "PriorityLevelConfiguration";
        match &*finding.field {
            "" if is_level => Self::UnusedLevel,
            "spec.limited.nominalConcurrencyShares" => Self::Seats,
            "spec.limited.limitResponse.queuing.queues" => Self::Queues,
            "spec.priorityLevelConfiguration.name" => Self::MissingLevel,
            "spec.rules" | "spec.matchingPrecedence" => Self::Unreached,
            field if field.starts_with("spec.rules[") && is_about_resources(field) => {
                Self::Resources
            }
            field if field.starts_with("metadata.annotations[") => Self::Annotation,
            _ => Self::Other,
        }
    }
}

/// Whether a field of a rule has the names of resources or groups, or is one of them.
fn is_about_resources(field: &str) -> bool {
    field.contains("].resources[")
        || field.ends_with("].resources")
        || field.ends_with("].apiGroups")
}

/// The gauges of the warnings by reason.
#[derive(Debug)]
pub(super) struct WarningGauges([Gauge; WarningReason::ALL.len()]);

impl WarningGauges {
    /// All at zero. To be called with the recorder at hand.
    pub(super) fn new() -> Self {
        Self(WarningReason::ALL.map(|reason| {
            let name = catalogue::POLICY_WARNING_REASONS.name;
            gauge!(name, "reason" => reason.as_str())
        }))
    }

    /// Shows these findings instead of those before.
    pub(super) fn set(&self, findings: &[Finding]) {
        let mut counts = [0_u32; WarningReason::ALL.len()];
        for finding in findings {
            counts[WarningReason::of(finding) as usize] += 1;
        }
        for (gauge, count) in self.0.iter().zip(counts) {
            gauge.set(f64::from(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_core::apf::{ObjectSet, Policy, PolicySettings, objects::Bootstrap};
    use serde_json::{Value, json};

    /// What a policy's own warnings are about, with the numbers.
    fn reasons(objects: Vec<Value>) -> Vec<(&'static str, u32)> {
        let objects = objects.into_iter().map(|object| ("test", object));
        let set = ObjectSet::read(objects.collect::<Vec<_>>()).with_bootstrap(Bootstrap::Mandatory);
        let settings = PolicySettings {
            total_seats: 100,
            semantics: fairgate_core::apf::Semantics::Improved,
            hash_key: [7; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        let findings = Policy::compile(&set, &settings).unwrap().findings;
        let count = |reason: WarningReason| {
            let of = findings
                .iter()
                .filter(|finding| WarningReason::of(finding) == reason);
            (reason.as_str(), u32::try_from(of.count()).unwrap())
        };
        let counts = WarningReason::ALL.map(count).into_iter();
        counts.filter(|(_, count)| *count > 0).collect()
    }

    fn level(name: &str, shares: u32, queues: u32) -> Value {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": name},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares,
                "limitResponse": {"type": "Queue", "queuing": {"queues": queues, "handSize": 2, "queueLengthLimit": 50}},
            }},
        })
    }

    fn schema(level: &str, precedence: u32, resource: &str, annotations: &Value) -> Value {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": format!("s{precedence}"), "annotations": annotations},
            "spec": {
                "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level},
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": "ann"}}],
                    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": [resource], "namespaces": ["*"]}],
                }],
            },
        })
    }

    #[test]
    fn each_warning_has_the_reason_that_its_text_gives() {
        let none = json!({});
        assert_eq!(
            reasons(vec![level("a", 30, 64), schema("a", 2, "pods", &none)]),
            []
        );
        assert_eq!(reasons(vec![level("a", 30, 64)]), [("level-unused", 1)]);
        assert_eq!(
            reasons(vec![level("a", 30, 200_000), schema("a", 2, "pods", &none)]),
            [("level-queues", 1)]
        );
        assert_eq!(
            reasons(vec![schema("gone", 2, "pods", &none)]),
            [("schema-level-missing", 1)]
        );
        assert_eq!(
            reasons(vec![level("a", 30, 64), schema("a", 2, "po*", &none)]),
            [("schema-resources", 1)]
        );
        assert_eq!(
            reasons(vec![
                level("a", 30, 64),
                schema("a", 2, "pods", &none),
                schema("a", 3, "pods", &none)
            ]),
            [("schema-unreached", 1)]
        );
        let autoupdate = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
        assert_eq!(
            reasons(vec![
                level("a", 30, 64),
                schema("a", 2, "pods", &none),
                schema("a", 3, "nodes", &autoupdate)
            ]),
            [("annotation", 1)]
        );
    }
}
