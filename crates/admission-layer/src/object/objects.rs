//! From the body of a request to the object that policies evaluate.
//!
//! Bodies of built-in kinds are read along their tables, so that policies see what kube-apiserver would read, also where a
//! body has a member twice. Other objects are taken as they are.

use std::borrow::Cow;

use fairgate_apihttp::{
    content_type::{PatchType, body_media, unsupported_custom_patch},
    negotiate::Media,
    status_error::StatusError,
};
use fairgate_core::digest::RequestInfo;
use fairgate_objects::{
    codec::{self, BodyFormat, EmptyValues, ExpectedType, FieldValidation, json, yaml},
    field_error::ApiFieldError,
    patch::{self, PatchError, Patched},
    schema::{Struct, built_in, canonical},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::request::facts::WriteFacts;
use fairgate_admission::Fidelity;
use fairgate_gotext::utf8_text;

/// The format of a body.
///
/// # Errors
///
/// 415.
pub(crate) fn body_format(content_type: &str) -> Result<BodyFormat, StatusError> {
    body_media(content_type).map(Media::format)
}

/// The object in a body.
///
/// # Errors
///
/// 400 if it cannot be read, and 415 for protobuf of a kind that is not built in.
pub(crate) fn decode(
    format: BodyFormat,
    body: &[u8],
    facts: &WriteFacts,
    fidelity: Fidelity,
) -> Result<Value, StatusError> {
    decode_strictly(format, body, facts, fidelity).map(|(value, _)| value)
}

/// The object in a body, and what strict decoding says of its fields. A body in JSON that is evaluated as it was sent, and kinds without a table
/// have no unknown fields.
///
/// # Errors
///
/// As [`decode`].
pub(crate) fn decode_strictly(
    format: BodyFormat,
    body: &[u8],
    facts: &WriteFacts,
    fidelity: Fidelity,
) -> Result<(Value, Vec<String>), StatusError> {
    let kind = facts.group_version_kind();
    let Some(shape) = built_in(kind.group, kind.version, kind.kind) else {
        return decode_plain(format, body, kind.kind).map(|value| (value, Vec::new()));
    };
    if fidelity == Fidelity::AsSent && format == BodyFormat::Json {
        // Where a member is there twice, kube-apiserver merges both values, and so does the table.
        if let Ok(read) = json::parse(body)
            && read.duplicates.is_empty()
            && read.value.is_object()
        {
            return Ok((read.value, Vec::new()));
        }
    }
    let decoded = decode_as(format, body, shape, [kind.group, kind.version, kind.kind]);
    let decoded = decoded.or_else(|error| {
        // The one subresource whose bodies may be of two versions.
        let other = built_in("policy", "v1beta1", "Eviction").filter(|_| kind.kind == "Eviction");
        let other = other.map(|shape| {
            let read = decode_as(format, body, shape, ["policy", "v1beta1", "Eviction"]);
            read.map(|(mut value, problems)| {
                value["apiVersion"] = json!(facts.api_version());
                (value, problems)
            })
        });
        other.and_then(Result::ok).ok_or(error)
    });
    decoded.map_err(StatusError::bad_request)
}

fn decode_as(
    format: BodyFormat,
    body: &[u8],
    shape: &'static Struct,
    [group, version, kind]: [&str; 3],
) -> Result<(Value, Vec<String>), String> {
    let expect = ExpectedType {
        group,
        version,
        kind,
        shape,
        scheme: codec::built_in_types(),
        empty: EmptyValues::Kept,
    };
    let decoded = codec::decode_body(format, body, &expect, false);
    decoded
        .map(|decoded| (decoded.value, decoded.problems))
        .map_err(|error| error.to_string())
}

/// An object of a kind without a table.
fn decode_plain(format: BodyFormat, body: &[u8], kind: &str) -> Result<Value, StatusError> {
    let value = match format {
        BodyFormat::Json => json::parse(body)
            .map(|read| read.value)
            .map_err(|error| error.to_string()),
        BodyFormat::Yaml => yaml::parse(body)
            .map(|read| read.value)
            .map_err(|error| error.to_string()),
        BodyFormat::Protobuf => {
            return Err(no_protobuf());
        }
    };
    let value = value
        .map_err(|error| StatusError::bad_request(codec::unreadable(format, &error, body, kind)))?;
    if value.is_object() {
        return Ok(value);
    }
    let checked = codec::check_custom_type(&value, body, ["", "", kind]);
    let error = checked.err().map(|error| error.to_string());
    let error = error.unwrap_or_else(|| "the body of the request is not an object".to_owned());
    Err(StatusError::bad_request(error))
}

/// 415 for protobuf of a kind without a table.
pub(crate) fn no_protobuf() -> StatusError {
    StatusError::unsupported_media_type(&[Media::Json.name(), Media::Yaml.name()])
}

/// The delete options in a body.
///
/// # Errors
///
/// 400 or 415.
pub(crate) fn delete_options(content_type: &str, body: &[u8]) -> Result<Value, StatusError> {
    let format = body_format(content_type)?;
    codec::decode_options(format, body).map_err(|error| StatusError::bad_request(error.to_string()))
}

/// The object that a patch makes of the stored one.
pub(crate) struct PatchedObject {
    pub(crate) value: Value,
    /// What strict decoding says of the patch, and then of the object.
    pub(crate) problems: Vec<String>,
    patched: Patched,
}

impl PatchedObject {
    /// The refusal of what the patch makes of the object.
    pub(crate) fn refused(&self, why: String) -> StatusError {
        refused_patch(&self.patched, why)
    }
}

fn refused_patch(patched: &Patched, why: String) -> StatusError {
    let error = ApiFieldError::patched(&patched.quoted(), why);
    StatusError::invalid("", "", "", &[error])
}

/// Applies a patch to the stored object.
///
/// # Errors
///
/// As kube-apiserver: 400, 413, 415, 422, 500.
pub(crate) fn patched(
    how: PatchType,
    old: &Value,
    body: &[u8],
    facts: &WriteFacts,
    validation: FieldValidation,
) -> Result<PatchedObject, StatusError> {
    let kind = facts.group_version_kind();
    let shape = built_in(kind.group, kind.version, kind.kind);
    let patched = match (how, shape) {
        (PatchType::Json, _) => patch::json_patch(old, body, validation),
        (PatchType::Merge, _) => patch::merge_patch(old, body, validation),
        (PatchType::Strategic, Some(shape)) => patch::strategic(shape, old, body, validation),
        (PatchType::Strategic | PatchType::Apply, _) => return Err(unsupported_custom_patch()),
    };
    let mut patched = patched.map_err(|error| match error {
        PatchError::BadRequest(text) => StatusError::bad_request(text),
        PatchError::TooLarge(text) => StatusError::too_large(&text),
        PatchError::Unprocessable => StatusError::unprocessable(),
        PatchError::TooDeep { patched, why } => {
            StatusError::invalid("", "", "", &[ApiFieldError::patched(&patched, why)])
        }
        PatchError::Internal(text) => StatusError::internal(text),
    })?;
    let mut problems = std::mem::take(&mut patched.problems);
    let value = if let Some(shape) = shape {
        let (value, unknown) = decode_patched(how, shape, &patched, facts)?;
        problems.extend(unknown);
        value
    } else {
        let value = patched.value.clone();
        if !value.is_object() {
            let checked = codec::check_type(&value, &facts.api_version(), kind.kind);
            checked.map_err(|why| refused_patch(&patched, why))?;
        }
        value
    };
    Ok(PatchedObject {
        value,
        problems,
        patched,
    })
}

fn decode_patched(
    how: PatchType,
    shape: &'static Struct,
    patched: &Patched,
    facts: &WriteFacts,
) -> Result<(Value, Vec<String>), StatusError> {
    let refuse = |text: String| refused_patch(patched, text);
    let mut value = patched.value.clone();
    if how == PatchType::Strategic {
        codec::unstructured::restore(shape, &mut value).map_err(refuse)?;
    }
    let [group, version, kind] = &facts.kind;
    if how != PatchType::Strategic {
        codec::check_patched_type(&value, [group, version, kind]).map_err(refuse)?;
    }
    let decoded = canonical::decode_version(shape, version, &value);
    let decoded = decoded.map_err(|error| refuse(error.to_string()))?;
    let mut value = decoded.value;
    value["apiVersion"] = json!(facts.api_version());
    value["kind"] = json!(kind);
    Ok((value, decoded.problems))
}

/// Adds version and kind to an object that states none.
pub(crate) fn complete(object: &mut Value, facts: &WriteFacts) {
    let Value::Object(members) = object else {
        return;
    };
    let [_, version, kind] = &facts.kind;
    for (key, text) in [("apiVersion", facts.api_version()), ("kind", kind.clone())] {
        let is_missing = members.get(key).is_none_or(|value| value == "");
        if is_missing && !version.is_empty() {
            members.insert(key.to_owned(), json!(text));
        }
    }
}

/// Gives an object the namespace of the URL if it has none, and takes it from one that has no namespace, as the server does before
/// it asks its policies, of patched objects too. Another namespace is an error that is found elsewhere.
pub(crate) fn settle_namespace(object: &mut Value, facts: &WriteFacts) {
    let Value::Object(members) = object else {
        return;
    };
    if facts.namespace.is_empty() || facts.is_namespace() {
        if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
            metadata.remove("namespace");
        }
        return;
    }
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    if let Value::Object(metadata) = metadata {
        let namespace = metadata.entry("namespace").or_insert(Value::Null);
        if namespace.is_null() || namespace == "" {
            *namespace = json!(facts.namespace);
        }
    }
}

/// The name of an object; empty if it has none.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// A header of a request; empty if it has none. Bytes that are not UTF-8 are U+FFFD, as for Go.
pub(crate) fn header<'h>(headers: &'h http::HeaderMap, name: &http::HeaderName) -> Cow<'h, str> {
    let value = headers.get(name);
    value.map_or_else(Cow::default, |value| utf8_text(value.as_bytes()))
}

/// The path of the object that a request changes.
pub(crate) fn stored_path(path: &str, info: &RequestInfo) -> String {
    // The one subresource that can be written but not read.
    match info.subresource() {
        b"finalize" => path.strip_suffix("/finalize").unwrap_or(path).to_owned(),
        _ => path.to_owned(),
    }
}
/// When a manager has last changed a stored object by an apply, in seconds since 1970; none if it never has.
pub(crate) fn applied_at(stored: &Value, manager: &str) -> Option<i64> {
    let entries = stored["metadata"]["managedFields"].as_array();
    let mut applies = entries.into_iter().flatten().filter(|entry| {
        entry["operation"] == "Apply"
            && entry["manager"] == manager
            && entry["subresource"].is_null()
    });
    let time = applies.next()?["time"].as_str()?;
    Some(time.parse::<Timestamp>().ok()?.as_second())
}
