//! OpenAPI v2 (Swagger): one document for all.
//!
//! Schemas are those of v3 without `allOf` around references and without defaults. kube-apiserver defines
//! frequent parameters once and refers to them; here they are written out, which is equivalent.

use serde_json::{Map, Value, json};

use super::{
    bearer_token,
    definitions::{self, reachable},
    info,
    names::meta,
    operations::{OpenApiV3Key, Operation, PATCHES, PathItem, RequestBody, sections},
    parameters::Parameter,
    shared::INT_OR_STRING,
};
use fairgate_objects::kind::Kind;

const REFERENCE: &str = "#/definitions/";

/// The document at `/openapi/v2`. `version` is the server's, such as `v1.36.3`.
pub(crate) fn document(kinds: &[&Kind], version: &str) -> Value {
    let sections = sections(kinds);
    let paths: Value = sections
        .iter()
        .flat_map(|section| section.paths(kinds))
        .map(|path| (path.template.clone(), path_item(&path)))
        .collect::<Map<_, _>>()
        .into();
    let group_versions: Vec<_> = sections
        .iter()
        .filter_map(|section| match section {
            OpenApiV3Key::GroupVersion(gv) => Some(*gv),
            _ => None,
        })
        .collect();
    let schemas = reachable(definitions::of(kinds, &group_versions), &paths);
    let definitions: Map<String, Value> = schemas
        .into_iter()
        .map(|(name, schema)| {
            let schema = if name == INT_OR_STRING {
                int_or_string(&schema)
            } else {
                older(schema)
            };
            (name, schema)
        })
        .collect();
    json!({
        "swagger": "2.0",
        "info": info(version),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": bearer_token(),
        "security": [{ "BearerToken": [] }],
    })
}

/// Converts a schema of v3 to v2. The depth of recursion is that of the schema.
fn older(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    schema.remove("default");
    if let Some(Value::Array(mut parts)) = schema.remove("allOf")
        && let Some(Value::Object(part)) = parts.pop()
    {
        schema.extend(part);
    }
    if let Some(Value::String(text)) = schema.get_mut("$ref") {
        let name = text.rsplit('/').next().unwrap_or_default();
        *text = format!("{REFERENCE}{name}");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key) {
            *inner = older(inner.take());
        }
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            *property = older(property.take());
        }
    }
    schema.into()
}

/// v2 has no `oneOf`; the type is given by the format.
fn int_or_string(schema: &Value) -> Value {
    json!({
        "description": schema["description"],
        "type": "string",
        "format": "int-or-string",
    })
}

fn path_item(path: &PathItem) -> Value {
    let mut item = Map::new();
    for operation in &path.operations {
        item.insert(operation.method.into(), self::operation(operation));
    }
    if !path.parameters.is_empty() {
        let parameters = path.parameters.iter().map(parameter).collect();
        item.insert("parameters".into(), parameters);
    }
    item.into()
}

fn operation(operation: &Operation) -> Value {
    let consumes: &[&str] = match (&operation.body, &operation.target) {
        (RequestBody::Patch, _) => PATCHES,
        (_, Some(_)) => &["*/*"],
        (_, None) => operation.produces,
    };
    let mut entry = json!({
        "consumes": consumes,
        "produces": operation.produces,
        "schemes": ["https"],
        "tags": [operation.tag],
        "description": operation.doc,
        "operationId": operation.id,
        "responses": responses(operation),
    });
    let parameters: Vec<Value> = body(&operation.body)
        .into_iter()
        .chain(operation.parameters.iter().map(parameter))
        .collect();
    if !parameters.is_empty() {
        entry["parameters"] = parameters.into();
    }
    if let Some(target) = &operation.target {
        entry["x-kubernetes-action"] = target.action.into();
        entry["x-kubernetes-group-version-kind"] = target.kind();
    }
    entry
}

fn responses(operation: &Operation) -> Value {
    let mut responses = Map::new();
    for &(code, description) in operation.codes {
        let response =
            json!({ "description": description, "schema": reference(&operation.answer) });
        responses.insert(code.into(), response);
    }
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    responses.into()
}

fn body(body: &RequestBody) -> Option<Value> {
    let (schema, required) = match body {
        RequestBody::None => return None,
        RequestBody::Object(schema) => (schema.clone(), true),
        RequestBody::Options => (meta("DeleteOptions"), false),
        RequestBody::Patch => (meta("Patch"), true),
    };
    let mut entry = json!({ "name": "body", "in": "body", "schema": reference(&schema) });
    if required {
        entry["required"] = true.into();
    }
    Some(entry)
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{REFERENCE}{name}") })
}

fn parameter(parameter: &Parameter) -> Value {
    let mut entry = json!({
        "name": parameter.name,
        "in": parameter.place.name(),
        "description": parameter.doc,
        "type": parameter.ty,
        "uniqueItems": true,
    });
    if parameter.is_required() {
        entry["required"] = true.into();
    }
    entry
}
