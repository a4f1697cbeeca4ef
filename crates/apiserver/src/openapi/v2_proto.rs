//! OpenAPI v2 as protobuf: the message `openapi.v2.OpenApiV3Document` of gnostic.
//!
//! It encodes any document, also that of an upstream. What the tables below do not name is omitted: OAuth,
//! parameters in headers and forms, files, examples. None of it occurs in documents of Kubernetes.
//!
//! Source: `OpenAPIv2.proto` of gnostic-models.

use serde_json::Value;

use super::proto::{
    DEPTH,
    ProtoField::{Any, Anys, Flag, Many, Number, One, Text, Texts, Whole},
    ProtoMessage, bytes, extensible_map, json_reference, map, message, one_or_many, only,
    only_flag,
};

/// Encodes a document. The cost is its size times its depth.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document, DEPTH).unwrap_or_default()
}

static DOCUMENT: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "swagger", Text),
        (2, "info", One(|value, depth| message(&INFO, value, depth))),
        (3, "host", Text),
        (4, "basePath", Text),
        (5, "schemes", Texts),
        (6, "consumes", Texts),
        (7, "produces", Texts),
        (8, "paths", One(paths)),
        (
            9,
            "definitions",
            One(|value, depth| map(value, schema, depth)),
        ),
        (
            10,
            "parameters",
            One(|value, depth| map(value, parameter, depth)),
        ),
        (
            12,
            "security",
            Many(|value, depth| map(value, texts, depth)),
        ),
        (
            13,
            "securityDefinitions",
            One(|value, depth| map(value, security, depth)),
        ),
    ],
    extensions: 16,
};

static INFO: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "title", Text),
        (2, "version", Text),
        (3, "description", Text),
        (4, "termsOfService", Text),
    ],
    extensions: 7,
};

static PATH_ITEM: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "$ref", Text),
        (2, "get", One(operation)),
        (3, "put", One(operation)),
        (4, "post", One(operation)),
        (5, "delete", One(operation)),
        (6, "options", One(operation)),
        (7, "head", One(operation)),
        (8, "patch", One(operation)),
        (9, "parameters", Many(parameters_item)),
    ],
    extensions: 10,
};

static OPERATION: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "tags", Texts),
        (2, "summary", Text),
        (3, "description", Text),
        (4, "externalDocs", One(external_docs)),
        (5, "operationId", Text),
        (6, "produces", Texts),
        (7, "consumes", Texts),
        (8, "parameters", Many(parameters_item)),
        (9, "responses", One(responses)),
        (10, "schemes", Texts),
        (11, "deprecated", Flag),
        (
            12,
            "security",
            Many(|value, depth| map(value, texts, depth)),
        ),
    ],
    extensions: 13,
};

static EXTERNAL_DOCS: ProtoMessage = ProtoMessage {
    fields: &[(1, "description", Text), (2, "url", Text)],
    extensions: 3,
};

static BODY_PARAMETER: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "description", Text),
        (2, "name", Text),
        (3, "in", Text),
        (4, "required", Flag),
        (5, "schema", One(schema)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "required", Flag),
        (2, "in", Text),
        (3, "description", Text),
        (4, "name", Text),
        (5, "allowEmptyValue", Flag),
        (6, "type", Text),
        (7, "format", Text),
        (8, "items", One(primitives_items)),
        (9, "collectionFormat", Text),
        (10, "default", Any),
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
        (21, "enum", Anys),
        (22, "multipleOf", Number),
    ],
    extensions: 23,
};

static PATH_PARAMETER: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "required", Flag),
        (2, "in", Text),
        (3, "description", Text),
        (4, "name", Text),
        (5, "type", Text),
        (6, "format", Text),
        (7, "items", One(primitives_items)),
        (8, "collectionFormat", Text),
        (9, "default", Any),
        (10, "maximum", Number),
        (11, "exclusiveMaximum", Flag),
        (12, "minimum", Number),
        (13, "exclusiveMinimum", Flag),
        (14, "maxLength", Whole),
        (15, "minLength", Whole),
        (16, "pattern", Text),
        (17, "maxItems", Whole),
        (18, "minItems", Whole),
        (19, "uniqueItems", Flag),
        (20, "enum", Anys),
        (21, "multipleOf", Number),
    ],
    extensions: 22,
};

static PRIMITIVES_ITEMS: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "type", Text),
        (2, "format", Text),
        (3, "items", One(primitives_items)),
        (4, "collectionFormat", Text),
        (5, "default", Any),
    ],
    extensions: 0,
};

static RESPONSE: ProtoMessage = ProtoMessage {
    fields: &[(1, "description", Text), (2, "schema", One(schema_item))],
    extensions: 5,
};

static API_KEY_SECURITY: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "type", Text),
        (2, "name", Text),
        (3, "in", Text),
        (4, "description", Text),
    ],
    extensions: 5,
};

static SCHEMA: ProtoMessage = ProtoMessage {
    fields: &[
        (1, "$ref", Text),
        (2, "format", Text),
        (3, "title", Text),
        (4, "description", Text),
        (5, "default", Any),
        (6, "multipleOf", Number),
        (7, "maximum", Number),
        (8, "exclusiveMaximum", Flag),
        (9, "minimum", Number),
        (10, "exclusiveMinimum", Flag),
        (11, "maxLength", Whole),
        (12, "minLength", Whole),
        (13, "pattern", Text),
        (14, "maxItems", Whole),
        (15, "minItems", Whole),
        (16, "uniqueItems", Flag),
        (17, "maxProperties", Whole),
        (18, "minProperties", Whole),
        (19, "required", Texts),
        (20, "enum", Anys),
        (21, "additionalProperties", One(additional_properties)),
        (22, "type", One(one_or_many_texts)),
        (23, "items", One(items_item)),
        (24, "allOf", Many(schema)),
        (
            25,
            "properties",
            One(|value, depth| map(value, schema, depth)),
        ),
        (26, "discriminator", Text),
        (27, "readOnly", Flag),
        (29, "externalDocs", One(external_docs)),
        (30, "example", Any),
    ],
    extensions: 31,
};

fn schema(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&SCHEMA, value, depth)
}

fn operation(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&OPERATION, value, depth)
}

fn external_docs(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&EXTERNAL_DOCS, value, depth)
}

fn primitives_items(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&PRIMITIVES_ITEMS, value, depth)
}

fn path_item(value: &Value, depth: u32) -> Option<Vec<u8>> {
    message(&PATH_ITEM, value, depth)
}

fn paths(value: &Value, depth: u32) -> Option<Vec<u8>> {
    extensible_map(value, path_item, 2, 1, depth)
}

fn responses(value: &Value, depth: u32) -> Option<Vec<u8>> {
    extensible_map(value, response_value, 1, 2, depth)
}

fn response_value(value: &Value, depth: u32) -> Option<Vec<u8>> {
    if let Some(reference) = json_reference(value) {
        return Some(only(2, &reference));
    }
    message(&RESPONSE, value, depth).map(|response| only(1, &response))
}

fn schema_item(value: &Value, depth: u32) -> Option<Vec<u8>> {
    schema(value, depth).map(|schema| only(1, &schema))
}

fn parameters_item(value: &Value, depth: u32) -> Option<Vec<u8>> {
    if let Some(reference) = json_reference(value) {
        return Some(only(2, &reference));
    }
    parameter(value, depth).map(|parameter| only(1, &parameter))
}

fn parameter(value: &Value, depth: u32) -> Option<Vec<u8>> {
    let (number, table) = match value.get("in")?.as_str()? {
        "body" => return message(&BODY_PARAMETER, value, depth).map(|body| only(1, &body)),
        "query" => (3, &QUERY_PARAMETER),
        "path" => (4, &PATH_PARAMETER),
        _ => return None,
    };
    // A parameter is a body (1) or anything else (2), which is told apart by its place.
    message(table, value, depth).map(|parameter| only(2, &only(number, &parameter)))
}

fn security(value: &Value, depth: u32) -> Option<Vec<u8>> {
    if value.get("type")?.as_str()? != "apiKey" {
        return None;
    }
    message(&API_KEY_SECURITY, value, depth).map(|key| only(2, &key))
}

fn additional_properties(value: &Value, depth: u32) -> Option<Vec<u8>> {
    match value {
        Value::Bool(flag) => Some(only_flag(2, *flag)),
        _ => schema(value, depth).map(|schema| only(1, &schema)),
    }
}

fn items_item(value: &Value, depth: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for item in one_or_many(value) {
        bytes(&mut out, 1, &schema(item, depth)?);
    }
    Some(out)
}

fn one_or_many_texts(value: &Value, _depth: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for item in one_or_many(value) {
        bytes(&mut out, 1, item.as_str()?.as_bytes());
    }
    Some(out)
}

fn texts(value: &Value, depth: u32) -> Option<Vec<u8>> {
    value.is_array().then(|| one_or_many_texts(value, depth))?
}
