//! The hosted kinds, and what distinguishes each from the others.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    field_error::ApiFieldError,
    internal_form,
    kind::{Deprecation, Kind, KindRules, KindVersion, Storage, TableColumn},
    metadata,
    schema::{Field, Struct, Type, flowcontrol_v1, flowcontrol_v1beta3},
    table,
};
use fairgate_core::apf::objects::{
    GROUP, bootstrap, defaults, v1beta3::PRESERVE_ZERO_SHARES, validate,
};
use fairgate_gotext::names;

mod policy;

pub use policy::POD_DISRUPTION_BUDGET;

/// All kinds that can be hosted with their objects in the store.
pub static KINDS: [&Kind; 3] = [&FLOW_SCHEMA, &PRIORITY_LEVEL, &POD_DISRUPTION_BUDGET];

/// The kinds of API Priority and Fairness.
pub static FLOW_CONTROL: [&Kind; 2] = [&FLOW_SCHEMA, &PRIORITY_LEVEL];

/// FlowSchemas.
pub static FLOW_SCHEMA: Kind = Kind {
    group: GROUP,
    kind: "FlowSchema",
    list_kind: "FlowSchemaList",
    plural: "flowschemas",
    singular: "flowschema",
    short_names: &[],
    categories: &[],
    namespaced: false,
    has_status: true,
    storage: Storage::Stored,
    versions: &[
        KindVersion {
            name: "v1",
            shape: &flowcontrol_v1::FLOW_SCHEMA,
            deprecated: None,
            default: default_flow_schema,
            to_storage: same,
            from_storage: same,
        },
        KindVersion {
            name: "v1beta3",
            shape: &flowcontrol_v1beta3::FLOW_SCHEMA,
            deprecated: V1BETA3,
            default: default_flow_schema,
            to_storage: same,
            from_storage: same,
        },
    ],
    rules: &KindRules {
        name: Some(names::object_name),
        validate: check_flow_schema,
        slow_validation: false,
        validate_status: check_conditions,
        warnings: warn_of_flow_schema,
        unconditional_update: true,
        status_writes_metadata: false,
        columns: &[
            TableColumn {
                name: "PriorityLevel",
                ty: "string",
                doc: "The priority level of the schema's requests.",
                cell: |object, _| object["spec"]["priorityLevelConfiguration"]["name"].clone(),
            },
            TableColumn {
                name: "MatchingPrecedence",
                ty: "string",
                doc: "Of the schemas that match a request the one with the lowest number catches it.",
                cell: |object, _| object["spec"]["matchingPrecedence"].clone(),
            },
            TableColumn {
                name: "DistinguisherMethod",
                ty: "string",
                doc: "What splits the schema's requests into flows.",
                cell: |object, _| or_none(&object["spec"]["distinguisherMethod"]["type"]),
            },
            AGE,
            TableColumn {
                name: "MissingPL",
                ty: "string",
                doc: "Whether the priority level does not exist.",
                cell: |object, _| dangling(object),
            },
        ],
        row_order: Some(by_precedence),
    },
};

/// Priority levels.
pub static PRIORITY_LEVEL: Kind = Kind {
    group: GROUP,
    kind: "PriorityLevelConfiguration",
    list_kind: "PriorityLevelConfigurationList",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    short_names: &[],
    categories: &[],
    namespaced: false,
    has_status: true,
    storage: Storage::Stored,
    versions: &[
        KindVersion {
            name: "v1",
            shape: &flowcontrol_v1::PRIORITY_LEVEL_CONFIGURATION,
            deprecated: None,
            default: default_level,
            to_storage: same,
            from_storage: same,
        },
        KindVersion {
            name: "v1beta3",
            shape: &flowcontrol_v1beta3::PRIORITY_LEVEL_CONFIGURATION,
            deprecated: V1BETA3,
            default: default_level_v1beta3,
            to_storage: level_from_v1beta3,
            from_storage: level_to_v1beta3,
        },
    ],
    rules: &KindRules {
        name: Some(names::object_name),
        validate: check_level,
        slow_validation: false,
        validate_status: check_conditions,
        warnings: warn_of_level,
        unconditional_update: true,
        status_writes_metadata: false,
        columns: &[
            TableColumn {
                name: "Type",
                ty: "string",
                doc: "Whether its requests are limited, or exempt.",
                cell: |object, _| object["spec"]["type"].clone(),
            },
            TableColumn {
                name: "NominalConcurrencyShares",
                ty: "string",
                doc: "The level's share of the server's seats.",
                cell: |object, _| or_none(&object["spec"]["limited"]["nominalConcurrencyShares"]),
            },
            TableColumn {
                name: "Queues",
                ty: "string",
                doc: "How many queues the level has.",
                cell: |object, _| or_none(&queuing(object)["queues"]),
            },
            TableColumn {
                name: "HandSize",
                ty: "string",
                doc: "How many queues a flow may use.",
                cell: |object, _| or_none(&queuing(object)["handSize"]),
            },
            TableColumn {
                name: "QueueLengthLimit",
                ty: "string",
                doc: "How many requests may wait in one queue.",
                cell: |object, _| or_none(&queuing(object)["queueLengthLimit"]),
            },
            AGE,
        ],
        row_order: None,
    },
};

const V1BETA3: Option<Deprecation> = Some(Deprecation {
    since: "1.29",
    removed: "1.32",
});

const AGE: TableColumn = TableColumn {
    name: "Age",
    ty: "string",
    doc: "How long ago the object was made.",
    cell: table::age,
};

fn same(_: &mut Value) {}

fn or_none(value: &Value) -> Value {
    if value.is_null() {
        json!("<none>")
    } else {
        value.clone()
    }
}

fn queuing(level: &Value) -> &Value {
    &level["spec"]["limited"]["limitResponse"]["queuing"]
}

fn dangling(schema: &Value) -> Value {
    let conditions = schema["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Dangling")
        // As kubectl shows it until a controller has decided.
        .map_or_else(|| json!("?"), |condition| condition["status"].clone())
}

fn by_precedence(schema: &Value) -> (i64, String) {
    let precedence = schema["spec"]["matchingPrecedence"].as_i64();
    (
        precedence.unwrap_or_default(),
        metadata::name(schema).to_owned(),
    )
}

fn zero_or_absent(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || value.as_i64() == Some(0))
}

fn default_flow_schema(schema: &mut Value) {
    if zero_or_absent(schema["spec"].get("matchingPrecedence")) {
        schema["spec"]["matchingPrecedence"] = json!(defaults::DEFAULT_PRECEDENCE);
    }
}

fn default_level(level: &mut Value) {
    // In v1 the field is a pointer, so that a zero is meant. In v1beta3 it is a number: there, an annotation says
    // so.
    if level["spec"]["limited"].is_object()
        && level["spec"]["limited"]["nominalConcurrencyShares"].is_null()
    {
        level["spec"]["limited"]["nominalConcurrencyShares"] = json!(defaults::DEFAULT_SHARES);
    }
    default_rest_of_level(level);
}

fn default_level_v1beta3(level: &mut Value) {
    let zero_is_meant = metadata::entry(level, "annotations", PRESERVE_ZERO_SHARES).is_some();
    if level["spec"]["limited"].is_object()
        && !zero_is_meant
        && zero_or_absent(level["spec"]["limited"].get("nominalConcurrencyShares"))
    {
        level["spec"]["limited"]["nominalConcurrencyShares"] = json!(defaults::DEFAULT_SHARES);
    }
    default_rest_of_level(level);
}

fn default_rest_of_level(level: &mut Value) {
    let spec = &mut level["spec"];
    if let Some(limited) = spec.get_mut("limited").filter(|it| it.is_object()) {
        if limited["lendablePercent"].is_null() {
            limited["lendablePercent"] = json!(0);
        }
        if let Some(queuing) = limited["limitResponse"]
            .get_mut("queuing")
            .filter(|it| it.is_object())
        {
            for (field, default) in [
                ("queues", defaults::DEFAULT_QUEUES),
                ("handSize", defaults::DEFAULT_HAND_SIZE),
                ("queueLengthLimit", defaults::DEFAULT_QUEUE_LENGTH_LIMIT),
            ] {
                if zero_or_absent(queuing.get(field)) {
                    queuing[field] = json!(default);
                }
            }
        }
    }
    if let Some(exempt) = spec.get_mut("exempt").filter(|it| it.is_object()) {
        for field in ["nominalConcurrencyShares", "lendablePercent"] {
            if exempt[field].is_null() {
                exempt[field] = json!(0);
            }
        }
    }
}

/// In the stored version zero shares mean zero, so the annotation that preserved the zero is
/// removed.
fn level_from_v1beta3(level: &mut Value) {
    let Some(annotations) = metadata::of_mut(level)
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.remove(PRESERVE_ZERO_SHARES);
    if annotations.is_empty() {
        metadata::set(level, "annotations", Value::Null);
    }
}

fn level_to_v1beta3(level: &mut Value) {
    if level["spec"]["limited"]["nominalConcurrencyShares"].as_i64() != Some(0) {
        return;
    }
    let annotations = metadata::of_mut(level)
        .entry("annotations")
        .or_insert_with(|| json!({}));
    annotations[PRESERVE_ZERO_SHARES] = json!("");
}

fn check_flow_schema(object: &Value, _: Option<&Value>) -> Vec<ApiFieldError> {
    check(&flowcontrol_v1::FLOW_SCHEMA, object, validate::flow_schema)
}

fn check_level(object: &Value, _: Option<&Value>) -> Vec<ApiFieldError> {
    check(
        &flowcontrol_v1::PRIORITY_LEVEL_CONFIGURATION,
        object,
        validate::priority_level,
    )
}

fn check<T: DeserializeOwned>(
    shape: &'static Struct,
    object: &Value,
    validate: impl FnOnce(&T) -> Vec<validate::FieldError>,
) -> Vec<ApiFieldError> {
    let mut errors = metadata::check_finalizers_qualified(object);
    match T::deserialize(object) {
        Ok(parsed) => errors.extend(beyond_metadata(shape, object, validate(&parsed))),
        Err(error) => errors.push(unreadable(&error)),
    }
    errors
}

/// Drops the errors about metadata, which is validated the same way for every kind, and prints specs as kube-apiserver
/// does.
fn beyond_metadata(
    shape: &'static Struct,
    object: &Value,
    errors: Vec<validate::FieldError>,
) -> Vec<ApiFieldError> {
    let spec = |error: ApiFieldError| match (error.field.as_str(), shape.field("spec")) {
        ("spec", Some(field)) => shown(error, &field.ty, &object["spec"]),
        (
            "spec.distinguisherMethod.type",
            Some(Field {
                ty: Type::Object(spec),
                ..
            }),
        ) => {
            let method = &object["spec"]["distinguisherMethod"];
            match spec.field("distinguisherMethod") {
                Some(field) => shown(error, &field.ty, method),
                None => error,
            }
        }
        _ => error,
    };
    errors
        .into_iter()
        .filter(|error| error.field != "metadata.name")
        .map(|error| spec(ApiFieldError::from(error)))
        .collect()
}

fn shown(error: ApiFieldError, ty: &Type, value: &Value) -> ApiFieldError {
    match ty {
        Type::Object(shape) => error.showing(internal_form::printed(shape, value)),
        _ => error,
    }
}

/// A canonical object can always be deserialized. If not, it must not be stored.
fn unreadable(error: &serde_json::Error) -> ApiFieldError {
    ApiFieldError::invalid("spec", &Value::Null, error.to_string())
}

fn check_conditions(object: &Value) -> Vec<ApiFieldError> {
    let conditions = object["status"]["conditions"].as_array();
    let mut seen = HashSet::new();
    let mut errors = Vec::new();
    for (index, condition) in conditions.into_iter().flatten().enumerate() {
        let field = format!("status.conditions[{index}].type");
        let ty = condition["type"].as_str().unwrap_or_default();
        if !seen.insert(ty) {
            errors.push(ApiFieldError::duplicate(&field, &json!(ty)));
        }
        if ty.is_empty() {
            errors.push(ApiFieldError::required(&field, ""));
        }
    }
    errors
}

fn warn_of_flow_schema(schema: &Value) -> Vec<String> {
    warn_of_autoupdate(
        schema,
        bootstrap::flow_schema(metadata::name(schema)).is_some(),
    )
}

fn warn_of_level(level: &Value) -> Vec<String> {
    warn_of_autoupdate(
        level,
        bootstrap::priority_level(metadata::name(level)).is_some(),
    )
}

/// A copy of a built-in object may contain the annotation with which fairgate maintains built-in objects.
/// fairgate would remove the copy.
fn warn_of_autoupdate(object: &Value, is_built_in: bool) -> Vec<String> {
    let annotation = metadata::entry(object, "annotations", bootstrap::AUTOUPDATE);
    let maintained = annotation.and_then(bootstrap::parse_bool) == Some(true);
    if maintained && !is_built_in {
        vec![format!(
            "annotation {} is true on an object that is not built in: it will be removed; set it to \
             false or leave it out",
            bootstrap::AUTOUPDATE
        )]
    } else {
        Vec::new()
    }
}
