//! OpenAPI v3 as protobuf: the message `openapi.v3.OpenApiV3Document` of gnostic.
//!
//! Few clients request it, but those accept nothing else. What the tables below do not name is omitted:
//! servers, callbacks, links, headers, examples of parameters, OAuth. None of it occurs in documents of
//! Kubernetes.
//!
//! A default can be a number, a boolean or a string; any other default becomes an empty message, as in
//! gnostic.
//!
//! Source: `OpenAPIv3.proto` of gnostic-models.

use serde_json::Value;

use super::proto::{
    DEPTH,
    ProtoField::{Any, Anys, Flag, Many, Number, One, Text, Texts, Whole},
    ProtoMessage, bytes, extensible_map, json_reference, map, message, one_or_many, only,
    only_flag, only_number,
};

/// Encodes a document. The cost is its size times its depth.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document, DEPTH).unwrap_or_default()
}

static DOCUMENT: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "openapi", Text),
        (2, "info", One(|value, depth| message(&INFO, value, depth))),
        (
            4,
            "paths",
            One(|value, depth| extensible_map(value, path_item, 1, 2, depth)),
        ),
        (
            5,
            "components",
            One(|value, depth| message(&COMPONENTS, value, depth)),
        ),
    ],
    extensions: 9,
};

static INFO: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "title", Text),
        (2, "description", Text),
        (3, "termsOfService", Text),
        (6, "version", Text),
        (8, "summary", Text),
    ],
    extensions: 7,
};

static PATH_ITEM: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "$ref", Text),
        (2, "summary", Text),
        (3, "description", Text),
        (4, "get", One(operation)),
        (5, "put", One(operation)),
        (6, "post", One(operation)),
        (7, "delete", One(operation)),
        (8, "options", One(operation)),
        (9, "head", One(operation)),
        (10, "patch", One(operation)),
        (11, "trace", One(operation)),
        (13, "parameters", Many(parameter)),
    ],
    extensions: 14,
};

static OPERATION: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "tags", Texts),
        (2, "summary", Text),
        (3, "description", Text),
        (4, "externalDocs", One(external_docs)),
        (5, "operationId", Text),
        (6, "parameters", Many(parameter)),
        (7, "requestBody", One(request_body)),
        (
            8,
            "responses",
            One(|value, depth| extensible_map(value, response, 2, 3, depth)),
        ),
        (10, "deprecated", Flag),
    ],
    extensions: 13,
};

static EXTERNAL_DOCS: ProtoMessage = ProtoMessage {
    fields: &[(1, "description", Text), (2, "url", Text)],
    extensions: 3,
};

static PARAMETER: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "name", Text),
        (2, "in", Text),
        (3, "description", Text),
        (4, "required", Flag),
        (5, "deprecated", Flag),
        (6, "allowEmptyValue", Flag),
        (7, "style", Text),
        (8, "explode", Flag),
        (9, "allowReserved", Flag),
        (10, "schema", One(schema_or_reference)),
    ],
    extensions: 14,
};

static REQUEST_BODY: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "description", Text),
        (2, "content", One(media_types)),
        (3, "required", Flag),
    ],
    extensions: 4,
};

static MEDIA_TYPE: ProtoMessage = ProtoMessage {
    fields: &[(1, "schema", One(schema_or_reference))],
    extensions: 5,
};

static RESPONSE: ProtoMessage = ProtoMessage {
    fields: &[(1, "description", Text), (3, "content", One(media_types))],
    extensions: 5,
};

static COMPONENTS: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "schemas", One(schemas)),
        (
            7,
            "securitySchemes",
            One(|value, depth| map(value, security_scheme, depth)),
        ),
    ],
    extensions: 10,
};

static SECURITY_SCHEME: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "type", Text),
        (2, "description", Text),
        (3, "name", Text),
        (4, "in", Text),
        (5, "scheme", Text),
        (6, "bearerFormat", Text),
        (8, "openIdConnectUrl", Text),
    ],
    extensions: 9,
};

static SCHEMA: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "nullable", Flag),
        (3, "readOnly", Flag),
        (4, "writeOnly", Flag),
        (6, "externalDocs", One(external_docs)),
        (7, "example", Any),
        (8, "deprecated", Flag),
        (9, "title", Text),
        (10, "multipleOf", Number),
        (11, "maximum", Number),
        (12, "exclusiveMaximum", Flag),
        (13, "minimum", Number),
        (14, "exclusiveMinimum", Flag),
        (15, "maxLength", Whole),
        (16, "minLength", Whole),
        (17, "pattern", Text),
        (18, "maxItems", Whole),
        (19, "minItems", Whole),
        (20, "uniqueItems", Flag),
        (21, "maxProperties", Whole),
        (22, "minProperties", Whole),
        (23, "required", Texts),
        (24, "enum", Anys),
        (25, "type", Text),
        (26, "allOf", Many(schema_or_reference)),
        (27, "oneOf", Many(schema_or_reference)),
        (28, "anyOf", Many(schema_or_reference)),
        (29, "not", One(schema)),
        (30, "items", One(items)),
        (31, "properties", One(schemas)),
        (32, "additionalProperties", One(additional_properties)),
        (33, "default", One(default)),
        (34, "description", Text),
        (35, "format", Text),
    ],
    extensions: 36,
};

fn schema(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&SCHEMA, value, depth)
}

fn schemas(value: &Value, depth: u32) -> Option<Vec<u8>> {
    map(value, schema_or_reference, depth)
}

fn schema_or_reference(value: &Value, depth: u32) -> Option<Vec<u8>> {
    or_reference(&SCHEMA, value, depth)
}

fn path_item(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&PATH_ITEM, value, depth)
}

fn operation(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&OPERATION, value, depth)
}

fn external_docs(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&EXTERNAL_DOCS, value, depth)
}

fn parameter(value: &Value, depth: u32) -> Option<Vec<u8>> {
    or_reference(&PARAMETER, value, depth)
}

fn request_body(value: &Value, depth: u32) -> Option<Vec<u8>> {
    or_reference(&REQUEST_BODY, value, depth)
}

fn response(value: &Value, depth: u32) -> Option<Vec<u8>> {
    or_reference(&RESPONSE, value, depth)
}

fn security_scheme(value: &Value, depth: u32) -> Option<Vec<u8>> {
    or_reference(&SECURITY_SCHEME, value, depth)
}

/// A value, or a reference to one.
fn or_reference(table: &ProtoMessage, value: &Value, depth: u32) -> Option<Vec<u8>> {
    if let Some(reference) = json_reference(value) {
        return Some(only(2, &reference));
    }
    message(table, value, depth).map(|inner| only(1, &inner))
}

fn media_types(value: &Value, depth: u32) -> Option<Vec<u8>> {
    map(
        value,
        |value, depth| message(&MEDIA_TYPE, value, depth),
        depth,
    )
}

fn items(value: &Value, depth: u32) -> Option<Vec<u8>> {
    // The message has a list for what is one schema in JSON.
    let mut out = Vec::new();
    for item in one_or_many(value) {
        bytes(&mut out, 1, &schema_or_reference(item, depth)?);
    }
    Some(out)
}

fn additional_properties(value: &Value, depth: u32) -> Option<Vec<u8>> {
    match value {
        Value::Bool(flag) => Some(only_flag(2, *flag)),
        _ => schema_or_reference(value, depth).map(|schema| only(1, &schema)),
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the signature of all functions that encode a field"
)]
fn default(value: &Value, _depth: u32) -> Option<Vec<u8>> {
    Some(match value {
        Value::Bool(flag) => only_flag(2, *flag),
        Value::String(text) => only(3, text.as_bytes()),
        Value::Number(number) => only_number(1, number.as_f64().unwrap_or_default()),
        _ => Vec::new(),
    })
}
