//! Critical resources of a cluster and of the gateway, and the policies whose errors can deny writes of them.

use fairgate_objects::selector::LabelSelector;
use serde_json::Value;

use crate::{documents::items, rules};

const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const EVENTS_LOST: &str = "what controllers report is lost";
const OVERLOAD_STAYS: &str = "an overload cannot be corrected";

/// The namespaces of what keeps the cluster alive.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// A resource of which writes must not fail.
struct Vital {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    operations: &'static [&'static str],
    has_namespace: bool,
    /// What happens if they fail.
    danger: &'static str,
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];

const fn vital(of: [&'static str; 3], has_namespace: bool, danger: &'static str) -> Vital {
    let [group, resource, subresource] = of;
    Vital {
        group,
        resource,
        subresource,
        operations: WRITES,
        has_namespace,
        danger,
    }
}

const VITAL: [Vital; 13] = [
    vital(
        ["coordination.k8s.io", "leases", ""],
        true,
        "controllers lose their leadership, and nodes count as dead",
    ),
    vital(["", "nodes", "status"], false, "nodes count as dead"),
    vital(
        ["", "pods", "status"],
        true,
        "no pod becomes ready, and evictions fail",
    ),
    Vital {
        operations: &["DELETE"],
        ..vital(
            ["", "pods", ""],
            true,
            "evicted pods stay, and nodes cannot be drained",
        )
    },
    vital(["", "events", ""], true, EVENTS_LOST),
    vital(["events.k8s.io", "events", ""], true, EVENTS_LOST),
    vital(
        ["", "serviceaccounts", "token"],
        true,
        "pods get no credentials",
    ),
    vital(["", "pods", "eviction"], true, "nodes cannot be drained"),
    vital(
        ["policy", "poddisruptionbudgets", "status"],
        true,
        "budgets are not computed, and nothing is evicted",
    ),
    vital([FLOW_CONTROL, "flowschemas", ""], false, OVERLOAD_STAYS),
    vital(
        [FLOW_CONTROL, "flowschemas", "status"],
        false,
        "what is wrong with a FlowSchema is not reported",
    ),
    vital(
        [FLOW_CONTROL, "prioritylevelconfigurations", ""],
        false,
        OVERLOAD_STAYS,
    ),
    vital(
        [
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            "status",
        ],
        false,
        "type errors of policies are not reported",
    ),
];

/// The resources whose writes an error in an expression of this policy refuses, each with what happens then. Conditions
/// are taken to leave them out, unless all are `true`: what they say about a request is known only when there is one.
pub(super) fn endangered(spec: &Value) -> Vec<String> {
    let constraints = &spec["matchConstraints"];
    let limits = |condition: &Value| {
        let expression = condition["expression"].as_str().unwrap_or_default();
        expression.trim() != "true"
    };
    // With `Ignore`, an error in an expression refuses nothing.
    if spec["failurePolicy"] == "Ignore"
        || items(&spec["matchConditions"]).any(limits)
        || !selects_unlabelled(&constraints["objectSelector"])
    {
        return Vec::new();
    }
    let in_system = selects_system_namespaces(&constraints["namespaceSelector"]);
    let takes = |list: &str, of: &Vital| items(&constraints[list]).any(|rule| of.is_in(rule));
    VITAL
        .iter()
        .filter(|of| in_system || !of.has_namespace)
        .filter(|of| takes("resourceRules", of) && !takes("excludeResourceRules", of))
        .map(|of| format!("{} ({})", of.shown(), of.danger))
        .collect()
}

/// Whether an object without labels is selected. Wrong selectors are reported elsewhere.
fn selects_unlabelled(selector: &Value) -> bool {
    matches(selector, |_| None)
}

/// Whether any of the namespaces is selected. A selector never leaves out what is in no namespace.
fn selects_system_namespaces(selector: &Value) -> bool {
    SYSTEM_NAMESPACES.iter().any(|namespace| {
        matches(selector, |label| {
            (label == "kubernetes.io/metadata.name").then_some(namespace)
        })
    })
}

fn matches(selector: &Value, label: impl Fn(&str) -> Option<&'static str>) -> bool {
    selector.is_null()
        || LabelSelector::from_value(selector).is_ok_and(|selector| selector.matches_by(label))
}

impl Vital {
    /// The resource as kubectl names it: `poddisruptionbudgets.policy/status`.
    fn shown(&self) -> String {
        let mut shown = String::new();
        if self.operations != WRITES {
            shown = format!("{} ", self.operations.join(" "));
        }
        shown.push_str(self.resource);
        for (before, part) in [(".", self.group), ("/", self.subresource)] {
            if !part.is_empty() {
                shown.push_str(before);
                shown.push_str(part);
            }
        }
        shown
    }

    /// Whether a rule is for writes of it, whatever the name.
    fn is_in(&self, rule: &Value) -> bool {
        let resource = [self.group, self.resource, self.subresource];
        rules::takes(rule, self.operations, resource)
            && items(&rule["resourceNames"]).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A policy about everything, with further members of its matchConstraints.
    fn about_all(more: &Value) -> Value {
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]},
            ]},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec["matchConstraints"][key] = value.clone();
        }
        spec
    }

    /// How many of the resources are endangered.
    fn count(more: &Value) -> usize {
        endangered(&about_all(more)).len()
    }

    #[test]
    fn what_is_in_no_namespace_is_in_danger_whatever_the_namespace_selector() {
        let cluster = VITAL.iter().filter(|of| !of.has_namespace).count();
        let named = |operator: &str, values: &[&str]| {
            json!({"namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": operator, "values": values},
            ]}})
        };
        assert_eq!(count(&json!({})), VITAL.len());
        assert_eq!(count(&json!({"namespaceSelector": {}})), VITAL.len());
        assert_eq!(count(&named("NotIn", &["kube-system"])), VITAL.len());
        let system = ["kube-system", "kube-node-lease"];
        assert_eq!(count(&named("NotIn", &system)), cluster);
        assert_eq!(count(&named("In", &["shop"])), cluster);
        let tenants = json!({"namespaceSelector": {"matchLabels": {"tenant": "a"}}});
        assert_eq!(count(&tenants), cluster);
    }

    #[test]
    fn an_object_selector_helps_if_it_needs_a_label() {
        let absent = json!({"key": "a", "operator": "DoesNotExist"});
        assert_eq!(
            count(&json!({"objectSelector": {"matchLabels": {"a": "b"}}})),
            0
        );
        let without = json!({"objectSelector": {"matchExpressions": [absent]}});
        assert_eq!(count(&without), VITAL.len());
    }

    #[test]
    fn conditions_help_unless_they_are_always_true() {
        let with = |expression: &str| {
            let mut spec = about_all(&json!({}));
            spec["matchConditions"] = json!([{"name": "c", "expression": expression}]);
            endangered(&spec).len()
        };
        assert_eq!(with(" true "), VITAL.len());
        assert_eq!(with("request.resource.resource != 'leases'"), 0);
    }

    #[test]
    fn rules_are_for_operations_and_resources() {
        let rules = |rules: Value| {
            let mut spec = about_all(&json!({}));
            spec["matchConstraints"]["resourceRules"] = rules;
            endangered(&spec)
        };
        let rule = |operation: &str, group: &str, resource: &str| json!([{"operations": [operation], "apiGroups": [group], "resources": [resource]}]);
        assert_eq!(
            rules(rule("DELETE", "", "pods")),
            ["DELETE pods (evicted pods stay, and nodes cannot be drained)"]
        );
        assert_eq!(rules(rule("CREATE", "", "pods")), [""; 0]);
        assert_eq!(
            rules(rule("UPDATE", "", "nodes/status")),
            ["nodes/status (nodes count as dead)"]
        );
        assert_eq!(rules(rule("*", "coordination.k8s.io", "*")).len(), 1);
        let mut ignored = about_all(&json!({}));
        ignored["failurePolicy"] = json!("Ignore");
        assert_eq!(endangered(&ignored), [""; 0]);
    }
}
