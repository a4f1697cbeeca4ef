//! Kinds to test with: those that are hosted, and some with lists and maps that those lack.

use serde_json::{Value, json};

use super::super::{ManagedKind, ObjectType};
use crate::schema::{
    Field, List, MapType, Struct, Type, TypePackage, canonical, field,
    flowcontrol_v1::{FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL},
    meta_v1::OBJECT_META,
};

const fn table(name: &'static str, fields: &'static [Field]) -> Struct {
    Struct::new(name, TypePackage::GroupVersion, fields)
}

const fn any(name: &'static str, ty: Type) -> Field {
    field(name, 0, ty)
}

const METADATA: Field = any("metadata", Type::Object(&OBJECT_META)).always();

static CONDITION: Struct = table(
    "Condition",
    &[
        any("type", Type::Text).always(),
        any("status", Type::Text).always(),
        any("observedGeneration", Type::Int64),
        any("lastTransitionTime", Type::Time).always(),
        any("reason", Type::Text).always(),
        any("message", Type::Text).always(),
    ],
);
static CONDITIONS: List = List::map(Type::Object(&CONDITION), &["type"]);

static BUDGET: Struct = table(
    "PodDisruptionBudget",
    &[
        METADATA,
        any("spec", Type::Object(&BUDGET_SPEC)).always(),
        any("status", Type::Object(&BUDGET_STATUS)).always(),
    ],
);
static BUDGET_SPEC: Struct = table(
    "PodDisruptionBudgetSpec",
    &[
        any("minAvailable", Type::IntOrString).pointer(),
        any("selector", Type::Object(&SELECTOR)).pointer(),
        any("maxUnavailable", Type::IntOrString).pointer(),
        any("unhealthyPodEvictionPolicy", Type::Text).pointer(),
    ],
);
static SELECTOR: Struct = table(
    "LabelSelector",
    &[
        any("matchLabels", Type::Map(&MapType::of(Type::Text))),
        any("matchExpressions", Type::List(&RAW_LIST)),
    ],
)
.atomic();
static RAW_LIST: List = List::atomic(Type::Raw);
static BUDGET_STATUS: Struct = table(
    "PodDisruptionBudgetStatus",
    &[
        any("observedGeneration", Type::Int64),
        any("disruptedPods", Type::Map(&MapType::of(Type::Time))),
        any("disruptionsAllowed", Type::Int32).always(),
        any("currentHealthy", Type::Int32).always(),
        any("desiredHealthy", Type::Int32).always(),
        any("expectedPods", Type::Int32).always(),
        any("conditions", Type::List(&CONDITIONS)),
    ],
);

static POLICY: Struct = table(
    "ValidatingAdmissionPolicy",
    &[
        METADATA,
        any("spec", Type::Object(&POLICY_SPEC)).always(),
        any("status", Type::Object(&POLICY_STATUS)).always(),
    ],
);
static POLICY_SPEC: Struct = table(
    "ValidatingAdmissionPolicySpec",
    &[
        any("paramKind", Type::Raw).pointer(),
        any("matchConstraints", Type::Raw).pointer(),
        any("validations", Type::List(&RAW_LIST)),
        any("failurePolicy", Type::Text).pointer(),
        any("auditAnnotations", Type::List(&RAW_LIST)),
        any("matchConditions", Type::List(&MATCH_CONDITIONS)),
        any("variables", Type::List(&VARIABLES)),
    ],
);
const NAMED: &[Field] = &[
    any("name", Type::Text).always(),
    any("expression", Type::Text).always(),
];
static MATCH_CONDITION: Struct = table("MatchCondition", NAMED);
static MATCH_CONDITIONS: List = List::map(Type::Object(&MATCH_CONDITION), &["name"]);
static VARIABLE: Struct = table("Variable", NAMED).atomic();
static VARIABLES: List = List::map(Type::Object(&VARIABLE), &["name"]);
static POLICY_STATUS: Struct = table(
    "ValidatingAdmissionPolicyStatus",
    &[
        any("observedGeneration", Type::Int64),
        any("typeChecking", Type::Object(&TYPE_CHECKING)).pointer(),
        any("conditions", Type::List(&CONDITIONS)),
    ],
);
static TYPE_CHECKING: Struct = table(
    "TypeChecking",
    &[any("expressionWarnings", Type::List(&RAW_LIST))],
);

static BINDING: Struct = table(
    "ValidatingAdmissionPolicyBinding",
    &[METADATA, any("spec", Type::Object(&BINDING_SPEC)).always()],
);
static BINDING_SPEC: Struct = table(
    "ValidatingAdmissionPolicyBindingSpec",
    &[
        any("policyName", Type::Text),
        any("paramRef", Type::Raw).pointer(),
        any("matchResources", Type::Raw).pointer(),
        any("validationActions", Type::List(&TEXT_SET)),
    ],
);
static TEXT_SET: List = List::set(Type::Text);

/// A kind with two versions, the second of which has another name for one field, and with whatever
/// the others lack.
static WIDGET: Struct = table(
    "Widget",
    &[METADATA, any("spec", Type::Object(&WIDGET_SPEC)).always()],
);
static WIDGET_OLD: Struct = table(
    "Widget",
    &[
        METADATA,
        any("spec", Type::Object(&WIDGET_SPEC_OLD)).always(),
    ],
);
static WIDGET_SPEC: Struct = table(
    "WidgetSpec",
    &[
        any("size", Type::Int32).pointer(),
        any("ports", Type::List(&PORTS)),
        any("numbers", Type::List(&NUMBERS)),
        any(
            "groups",
            Type::Map(&MapType::of(Type::Object(&GROUP_TABLE))),
        ),
    ],
);
static WIDGET_SPEC_OLD: Struct = table(
    "WidgetSpec",
    &[
        any("oldSize", Type::Int32).pointer(),
        any("ports", Type::List(&PORTS)),
        any("numbers", Type::List(&NUMBERS)),
        any(
            "groups",
            Type::Map(&MapType::of(Type::Object(&GROUP_TABLE))),
        ),
    ],
);
static PORT: Struct = table(
    "Port",
    &[
        any("protocol", Type::Text),
        any("port", Type::Int32),
        any("name", Type::Text),
    ],
);
static PORTS: List = List::map(Type::Object(&PORT), &["protocol", "port"]);
static NUMBERS: List = List::set(Type::Int32);
static GROUP_TABLE: Struct = table(
    "Group",
    &[
        any("a", Type::Text).pointer(),
        any("b", Type::Text).pointer(),
    ],
);

/// One kind in the versions that are served, newest first.
pub(super) struct Served {
    versions: Vec<(&'static str, &'static Struct)>,
    /// What writers of the main endpoint and of the status cannot own.
    reset: [&'static [&'static str]; 2],
    /// What the endpoints do not store.
    ignored: [&'static [&'static str]; 2],
}

impl Served {
    /// The kind of this name.
    pub(super) fn of_kind(name: &str) -> Self {
        let one = |version, table, status_resets| Self {
            versions: vec![(version, table)],
            reset: [&["status"], status_resets],
            ignored: [&["status"], status_resets],
        };
        match name {
            "FlowSchema" => one(
                "flowcontrol.apiserver.k8s.io/v1",
                &FLOW_SCHEMA,
                &["metadata", "spec"],
            ),
            "PriorityLevelConfiguration" => one(
                "flowcontrol.apiserver.k8s.io/v1",
                &PRIORITY_LEVEL,
                &["metadata", "spec"],
            ),
            "PodDisruptionBudget" => one("policy/v1", &BUDGET, &["spec"]),
            "ValidatingAdmissionPolicy" => one(
                "admissionregistration.k8s.io/v1",
                &POLICY,
                &["metadata", "spec"],
            ),
            "ValidatingAdmissionPolicyBinding" => Self {
                versions: vec![("admissionregistration.k8s.io/v1", &BINDING)],
                reset: [&[], &[]],
                ignored: [&[], &[]],
            },
            "Widget" => Self {
                versions: vec![("example.com/v2", &WIDGET), ("example.com/v1", &WIDGET_OLD)],
                reset: [&[], &[]],
                ignored: [&[], &[]],
            },
            other => panic!("no table for {other}"),
        }
    }

    /// The newest version.
    pub(super) fn newest(&self) -> &'static str {
        self.versions[0].0
    }

    /// The table of a version that is served.
    pub(super) fn shape_of(&self, version: &str) -> &'static Struct {
        self.table(version).unwrap()
    }

    fn table(&self, api_version: &str) -> Option<&'static Struct> {
        let mut versions = self.versions.iter();
        let served = versions.find(|(version, _)| *version == api_version);
        served.map(|(_, table)| *table)
    }

    /// What an endpoint does not store.
    pub(super) fn ignored(&self, subresource: &str) -> &'static [&'static str] {
        self.ignored[usize::from(!subresource.is_empty())]
    }

    /// Sets the defaults that the recorded sequences need.
    pub(super) fn set_defaults(&self, object: &mut Value) {
        match self.shape_of(self.newest()).name {
            "FlowSchema" => default(&mut object["spec"], "matchingPrecedence", json!(1000)),
            "PriorityLevelConfiguration" => {
                let limited = &mut object["spec"]["limited"];
                if limited.is_object() {
                    default(limited, "nominalConcurrencyShares", json!(30));
                    default(limited, "lendablePercent", json!(0));
                    let response = &mut limited["limitResponse"];
                    if response["type"] == "Queue" {
                        default(response, "queuing", json!({}));
                        for (name, value) in
                            [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)]
                        {
                            default(&mut response["queuing"], name, json!(value));
                        }
                    }
                }
            }
            "ValidatingAdmissionPolicy" => {
                default(&mut object["spec"], "failurePolicy", json!("Fail"));
            }
            _ => {}
        }
    }
}

fn default(object: &mut Value, name: &str, value: Value) {
    if object[name].is_null() || object[name] == 0 && name != "nominalConcurrencyShares" {
        object[name] = value;
    }
}

impl ManagedKind for Served {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        self.table(api_version).map(ObjectType::Table)
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        let shape = self.table(to)?;
        let mut object = object.clone();
        object["apiVersion"] = json!(to);
        let names = match to {
            "example.com/v1" => ["size", "oldSize"],
            "example.com/v2" => ["oldSize", "size"],
            _ => return None,
        };
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(size) = spec.remove(names[0])
        {
            spec.insert(names[1].to_owned(), size);
        }
        canonical::decode(shape, &object)
            .ok()
            .map(|decoded| decoded.value)
    }

    fn reset_fields(&self, api_version: &str, subresource: &str) -> &'static [&'static str] {
        assert!(self.table(api_version).is_some());
        self.reset[usize::from(!subresource.is_empty())]
    }
}
