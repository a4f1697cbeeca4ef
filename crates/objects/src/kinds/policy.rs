//! The hosted kind of the group `policy`.

use serde_json::{Value, json};

use crate::{
    disruption_budget,
    field_error::ApiFieldError,
    kind::{Kind, KindRules, KindVersion, Storage, TableColumn},
    schema::policy_v1,
    table,
};

/// Disruption budgets.
pub static POD_DISRUPTION_BUDGET: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    list_kind: "PodDisruptionBudgetList",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    categories: &[],
    namespaced: true,
    has_status: true,
    storage: Storage::Stored,
    versions: &[KindVersion {
        name: "v1",
        shape: &policy_v1::POD_DISRUPTION_BUDGET,
        deprecated: None,
        default: unchanged,
        to_storage: unchanged,
        from_storage: unchanged,
    }],
    rules: &KindRules {
        name: None,
        validate: disruption_budget::validate_spec,
        slow_validation: false,
        validate_status,
        warnings: |_| Vec::new(),
        unconditional_update: false,
        status_writes_metadata: true,
        columns: &[
            TableColumn {
                name: "Min Available",
                ty: "string",
                doc: "The number or percentage of pods that must stay available.",
                cell: |budget, _| bound(&budget["spec"]["minAvailable"]),
            },
            TableColumn {
                name: "Max Unavailable",
                ty: "string",
                doc: "The number or percentage of pods that may be unavailable.",
                cell: |budget, _| bound(&budget["spec"]["maxUnavailable"]),
            },
            TableColumn {
                name: "Allowed Disruptions",
                ty: "integer",
                doc: "The number of pods that may be disrupted now.",
                cell: |budget, _| {
                    json!(budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0))
                },
            },
            TableColumn {
                name: "Age",
                ty: "string",
                doc: "The time since the object was created.",
                cell: table::age,
            },
        ],
        row_order: None,
    },
};

fn unchanged(_: &mut Value) {}

fn validate_status(budget: &Value) -> Vec<ApiFieldError> {
    disruption_budget::validate_status(budget, false)
}

/// A bound as text.
fn bound(bound: &Value) -> Value {
    match bound {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        number => json!(number.to_string()),
    }
}
