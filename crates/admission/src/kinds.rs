//! Policies and bindings as hosted kinds: names, defaults, validation, table columns.
//!
//! They have one version: the pinned release serves `v1` alone.
//!
//! Source: Kubernetes `pkg/registry/admissionregistration`, `pkg/apis/admissionregistration/v1` and `pkg/printers`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::validate;
use fairgate_gotext::names;
use fairgate_objects::{
    field_error::ApiFieldError,
    kind::{Kind, KindRules, KindVersion, Storage, TableColumn},
    metadata,
    schema::admissionregistration_v1,
    table,
};

/// The API group of policies and bindings.
const GROUP: &str = "admissionregistration.k8s.io";

/// Names with this suffix are for policies in files of the server.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// What a cell shows if the field is absent.
const UNSET: &str = "<unset>";

/// Policies and bindings.
pub static ADMISSION_KINDS: [&Kind; 2] = [
    &VALIDATING_ADMISSION_POLICY,
    &VALIDATING_ADMISSION_POLICY_BINDING,
];

/// Policies.
pub static VALIDATING_ADMISSION_POLICY: Kind = Kind {
    group: GROUP,
    kind: "ValidatingAdmissionPolicy",
    list_kind: "ValidatingAdmissionPolicyList",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    short_names: &[],
    categories: &["api-extensions"],
    namespaced: false,
    has_status: true,
    storage: Storage::Stored,
    versions: &[KindVersion {
        name: "v1",
        shape: &admissionregistration_v1::VALIDATING_ADMISSION_POLICY,
        deprecated: None,
        default: default_policy,
        to_storage: unchanged,
        from_storage: unchanged,
    }],
    rules: &KindRules {
        name: Some(names::object_name),
        validate: validate::validate_policy,
        slow_validation: true,
        validate_status: validate::validate_policy_status,
        warnings: warn_of_suffix,
        unconditional_update: false,
        status_writes_metadata: false,
        columns: &[
            TableColumn {
                name: "Validations",
                ty: "integer",
                doc: "The number of validations.",
                cell: |policy, _| {
                    json!(policy["spec"]["validations"].as_array().map_or(0, Vec::len))
                },
            },
            TableColumn {
                name: "ParamKind",
                ty: "string",
                doc: "The kind of the objects that parameterize the policy.",
                cell: |policy, _| param_kind(&policy["spec"]["paramKind"]),
            },
            AGE,
        ],
        row_order: None,
    },
};

/// Bindings.
pub static VALIDATING_ADMISSION_POLICY_BINDING: Kind = Kind {
    group: GROUP,
    kind: "ValidatingAdmissionPolicyBinding",
    list_kind: "ValidatingAdmissionPolicyBindingList",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    short_names: &[],
    categories: &["api-extensions"],
    namespaced: false,
    has_status: false,
    storage: Storage::Stored,
    versions: &[KindVersion {
        name: "v1",
        shape: &admissionregistration_v1::VALIDATING_ADMISSION_POLICY_BINDING,
        deprecated: None,
        default: default_binding,
        to_storage: unchanged,
        from_storage: unchanged,
    }],
    rules: &KindRules {
        name: Some(names::object_name),
        validate: validate_binding,
        slow_validation: false,
        validate_status: |_| Vec::new(),
        warnings: warn_of_suffix,
        unconditional_update: false,
        status_writes_metadata: false,
        columns: &[
            TableColumn {
                name: "PolicyName",
                ty: "string",
                doc: "The policy that is bound.",
                cell: |binding, _| binding["spec"]["policyName"].clone(),
            },
            TableColumn {
                name: "ParamRef",
                ty: "string",
                doc: "The objects that parameterize the policy.",
                cell: |binding, _| param_ref(&binding["spec"]["paramRef"]),
            },
            AGE,
        ],
        row_order: None,
    },
};

const AGE: TableColumn = TableColumn {
    name: "Age",
    ty: "string",
    doc: "The time since the object was created.",
    cell: table::age,
};

fn unchanged(_: &mut Value) {}

fn validate_binding(binding: &Value, _: Option<&Value>) -> Vec<ApiFieldError> {
    validate::validate_binding(binding)
}

fn warn_of_suffix(object: &Value) -> Vec<String> {
    if !metadata::name(object).ends_with(STATIC_SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and \
         cannot be managed via the API"
    )]
}

fn default_policy(policy: &mut Value) {
    let spec = &mut policy["spec"];
    default_to(spec, "failurePolicy", &json!("Fail"));
    default_match_resources(&mut spec["matchConstraints"]);
}

fn default_binding(binding: &mut Value) {
    if let Some(resources) = binding["spec"].get_mut("matchResources") {
        default_match_resources(resources);
    }
}

fn default_match_resources(resources: &mut Value) {
    // Whoever leaves out the whole struct gets no defaults in it.
    if !resources.is_object() {
        return;
    }
    default_to(resources, "matchPolicy", &json!("Equivalent"));
    default_to(resources, "namespaceSelector", &json!({}));
    default_to(resources, "objectSelector", &json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        let rules = resources.get_mut(rules).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            default_to(rule, "scope", &json!("*"));
        }
    }
}

/// Sets an absent member.
fn default_to(object: &mut Value, member: &str, value: &Value) {
    if object[member].is_null() {
        object[member] = value.clone();
    }
}

fn param_kind(kind: &Value) -> Value {
    if kind.is_null() {
        return json!(UNSET);
    }
    let [api_version, kind] = ["apiVersion", "kind"].map(|member| text(&kind[member]));
    json!(format!("{api_version}/{kind}"))
}

fn param_ref(reference: &Value) -> Value {
    let [name, namespace] = ["name", "namespace"].map(|member| text(&reference[member]));
    let shown = match (name, namespace) {
        ("", _) if reference["selector"].is_object() => go_text(&reference["selector"]),
        ("", _) => UNSET.to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    json!(shown)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A label selector as Go prints it.
fn go_text(selector: &Value) -> String {
    let mut shown = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    // Sorted by key, as maps of serde_json are, and as Go prints them.
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let _ = write!(shown, "{key}: {},", text(value));
    }
    shown.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for one in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let values = one["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.map(text).collect();
        let [key, operator] = ["key", "operator"].map(|member| text(&one[member]));
        let _ = write!(
            shown,
            "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},",
            values.join(" ")
        );
    }
    shown.push_str("},}");
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_get_their_defaults_and_others_stay() {
        let mut policy = json!({"spec": {"matchConstraints": {
            "resourceRules": [{}, {"scope": "Cluster"}], "matchPolicy": "Exact",
            "namespaceSelector": {"matchLabels": {"a": "b"}}}}});
        default_policy(&mut policy);
        let expected = json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {
            "resourceRules": [{"scope": "*"}, {"scope": "Cluster"}], "matchPolicy": "Exact",
            "namespaceSelector": {"matchLabels": {"a": "b"}}, "objectSelector": {}}}});
        assert_eq!(policy, expected);
        let mut ignoring = json!({"spec": {"failurePolicy": "Ignore"}});
        default_policy(&mut ignoring);
        assert_eq!(ignoring["spec"]["failurePolicy"], "Ignore");
        assert!(ignoring["spec"]["matchConstraints"].is_null());

        let mut binding = json!({"spec": {"matchResources": {"excludeResourceRules": [{}]}}});
        default_binding(&mut binding);
        let expected = json!({"excludeResourceRules": [{"scope": "*"}], "matchPolicy": "Equivalent",
            "namespaceSelector": {}, "objectSelector": {}});
        assert_eq!(binding["spec"]["matchResources"], expected);
        let mut bare = json!({"spec": {"policyName": "a"}});
        default_binding(&mut bare);
        assert_eq!(bare, json!({"spec": {"policyName": "a"}}));
    }

    #[test]
    fn params_are_shown_as_the_server_prints_them() {
        assert_eq!(
            param_kind(&json!({"apiVersion": "v1", "kind": "ConfigMap"})),
            "v1/ConfigMap"
        );
        assert_eq!(param_kind(&Value::Null), UNSET);
        for (reference, shown) in [
            (Value::Null, UNSET),
            (json!({"name": "a", "namespace": "b"}), "b/a"),
            (json!({"name": "a"}), "*/a"),
            (
                json!({"selector": {}}),
                "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}",
            ),
            (
                json!({"selector": {"matchLabels": {"b": "c", "a": "d"}, "matchExpressions": [
                {"key": "k", "operator": "In", "values": ["x", "y"]}, {"key": "l", "operator": "Exists"}]}}),
                "&LabelSelector{MatchLabels:map[string]string{a: d,b: c,},MatchExpressions:[]LabelSelectorRequirement{\
                 LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},\
                 LabelSelectorRequirement{Key:l,Operator:Exists,Values:[],},},}",
            ),
        ] {
            assert_eq!(param_ref(&reference), shown, "{reference}");
        }
    }
}
