//! OpenAPI v3: an index, and a document for each group version and for each path above them.
//!
//! The index names each document by the hash of its text, so that clients can keep it forever.

use serde_json::{Map, Value, json};

use super::{
    bearer_token,
    definitions::{self, reachable, reference},
    info,
    names::meta,
    operations::{OpenApiV3Key, Operation, PATCHES, PathItem, RequestBody, sections},
    parameters::Parameter,
};
use crate::discovery::hash;
use fairgate_objects::kind::Kind;

/// A document as it is served.
#[derive(Clone, Debug)]
pub(crate) struct OpenApiV3Document {
    /// The path of the document below `/openapi/v3/`, such as `apis/policy/v1`.
    pub key: String,
    /// The text, JSON.
    pub json: String,
    /// SHA-512 of the text, in upper-case hexadecimal digits; quoted, it is the entity tag.
    pub hash: String,
}

/// All documents of `kinds`, sorted by key. `version` is the server's, such as `v1.36.3`.
pub(crate) fn documents(kinds: &[&Kind], version: &str) -> Vec<OpenApiV3Document> {
    let mut documents: Vec<_> = sections(kinds)
        .into_iter()
        .map(|section| {
            let json = of_section(kinds, section, version).to_string();
            OpenApiV3Document {
                key: section.key(),
                hash: hash(&json),
                json,
            }
        })
        .collect();
    documents.sort_by(|a, b| a.key.cmp(&b.key));
    documents
}

/// The document at `/openapi/v3`.
pub(crate) fn index(documents: &[OpenApiV3Document]) -> Value {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|OpenApiV3Document { key, hash, .. }| {
            let url = format!("/openapi/v3/{key}?hash={hash}");
            (key.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

fn of_section(kinds: &[&Kind], section: OpenApiV3Key<'_>, version: &str) -> Value {
    let paths: Value = section
        .paths(kinds)
        .into_iter()
        .map(|path| (path.template.clone(), path_item(&path)))
        .collect::<Map<_, _>>()
        .into();
    let group_versions = match section {
        OpenApiV3Key::GroupVersion(gv) => vec![gv],
        _ => Vec::new(),
    };
    let schemas = reachable(definitions::of(kinds, &group_versions), &paths);
    json!({
        "openapi": "3.0.0",
        "info": info(version),
        "paths": paths,
        "components": { "schemas": schemas, "securitySchemes": bearer_token() },
    })
}

fn path_item(path: &PathItem) -> Value {
    let mut item = Map::new();
    for operation in &path.operations {
        item.insert(operation.method.into(), self::operation(operation));
    }
    if !path.parameters.is_empty() {
        item.insert("parameters".into(), parameters(&path.parameters));
    }
    item.into()
}

fn operation(operation: &Operation) -> Value {
    let mut entry = json!({
        "tags": [operation.tag],
        "description": operation.doc,
        "operationId": operation.id,
        "responses": responses(operation),
    });
    if !operation.parameters.is_empty() {
        entry["parameters"] = parameters(&operation.parameters);
    }
    if let Some(body) = body(&operation.body) {
        entry["requestBody"] = body;
    }
    if let Some(target) = &operation.target {
        entry["x-kubernetes-action"] = target.action.into();
        entry["x-kubernetes-group-version-kind"] = target.kind();
    }
    entry
}

fn responses(operation: &Operation) -> Value {
    let content = content(operation.produces, &operation.answer);
    let mut responses = Map::new();
    for &(code, description) in operation.codes {
        let response = json!({ "description": description, "content": content });
        responses.insert(code.into(), response);
    }
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    responses.into()
}

fn body(body: &RequestBody) -> Option<Value> {
    let (types, schema, required): (&[&str], _, _) = match body {
        RequestBody::None => return None,
        RequestBody::Object(schema) => (&["*/*"], schema.clone(), true),
        RequestBody::Options => (&["*/*"], meta("DeleteOptions"), false),
        RequestBody::Patch => (PATCHES, meta("Patch"), true),
    };
    let mut body = json!({ "content": content(types, &schema) });
    if required {
        body["required"] = true.into();
    }
    Some(body)
}

fn content(types: &[&str], schema: &str) -> Value {
    types
        .iter()
        .map(|&ty| (ty.to_owned(), json!({ "schema": reference(schema) })))
        .collect::<Map<_, _>>()
        .into()
}

fn parameters(parameters: &[Parameter]) -> Value {
    parameters.iter().map(parameter).collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut entry = json!({
        "name": parameter.name,
        "in": parameter.place.name(),
        "description": parameter.doc,
        "schema": { "type": parameter.ty, "uniqueItems": true },
    });
    if parameter.is_required() {
        entry["required"] = true.into();
    }
    entry
}
