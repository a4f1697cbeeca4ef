//! From a body to an object of the expected kind, or to the error with which kube-apiserver
//! responds.

use std::fmt;

use serde_json::Value;

use super::{
    envelope::{self, OpenedEnvelope},
    json, protobuf,
    registered::{BodyFormat, DecodeError, RegisteredType},
    tape::JsonTape,
    type_meta::{Gvk, TypeMeta, no_type_meta, type_meta, unknown_conversion, unrecognized},
    yaml,
};
use crate::schema::{
    Struct, UnreadParts,
    canonical::{self, Decoded, EmptyValues},
    meta_v1::{DELETE_OPTIONS, STATUS},
};
use fairgate_gotext::utf8_text;

/// Kinds that are known in every version: those of responses.
const EVERYWHERE: [&str; 5] = [
    "Status",
    "APIVersions",
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
];

/// Kinds that every version of every group has: options and watch events.
const OF_EVERY_VERSION: [&str; 7] = [
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// Further kinds of `meta.k8s.io/v1`.
const OF_META: [&str; 4] = [
    "Table",
    "TableOptions",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
];

/// What a body is expected to be.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedType<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version of the URL.
    pub version: &'a str,
    /// The kind of the URL.
    pub kind: &'a str,
    /// The field table of the kind in that version.
    pub shape: &'static Struct,
    /// Other versions and kinds that the upstream knows. They are refused with another message than
    /// unknown ones.
    pub scheme: &'a [RegisteredType<'a>],
    /// What happens to empty lists and maps.
    pub empty: EmptyValues,
}

/// A decoded body of the expected kind.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedObject {
    /// The object in canonical form, with `apiVersion` and `kind` as expected.
    pub value: Value,
    /// `apiVersion` of the body; empty if absent.
    pub api_version: String,
    /// `kind` of the body; empty if absent.
    pub kind: String,
    /// Problems that strict decoding refuses, in kube-apiserver's order; a warning each. Empty for protobuf.
    pub problems: Vec<String>,
}

/// Reads `bytes` as an object of the `expect`ed kind. With `strict` set, a strict problem is an
/// error.
///
/// Costs time and memory linear in the length of `bytes`.
///
/// # Errors
///
/// [`DecodeError`], with the message of the first of: a syntax error, no kind, an unknown kind, a value of the
/// wrong type, another kind, a strict problem, another version.
pub fn decode_body(
    format: BodyFormat,
    bytes: &[u8],
    expect: &ExpectedType<'_>,
    strict: bool,
) -> Result<DecodedObject, DecodeError> {
    let raw = Raw::read(format, bytes).map_err(|error| unrecognized(&error, bytes, expect.kind))?;
    decode_raw(&raw, bytes, expect, strict, UnreadParts::NONE)
}

/// [`decode_body`] of JSON that has been read and has no key twice, for callers that are not strict, and do not read some parts.
pub(super) fn decode_tape(
    tape: JsonTape<'_>,
    bytes: &[u8],
    expect: &ExpectedType<'_>,
    unread: UnreadParts,
) -> Result<DecodedObject, DecodeError> {
    decode_raw(&Raw::Json(tape), bytes, expect, false, unread)
}

fn decode_raw(
    raw: &Raw<'_>,
    bytes: &[u8],
    expect: &ExpectedType<'_>,
    strict: bool,
    unread: UnreadParts,
) -> Result<DecodedObject, DecodeError> {
    let found = raw
        .type_meta()
        .map_err(|error| unrecognized(&error, bytes, expect.kind))?;
    let default = Gvk {
        group: expect.group,
        version: expect.version,
        kind: expect.kind,
    };
    let gvk = found
        .gvk()
        .map_err(|error| unrecognized(&error, bytes, expect.kind))?
        .or(&default);
    let refuse = |error: &dyn fmt::Display| -> DecodeError { gvk.refused(expect.kind, error) };
    if gvk.version.is_empty() {
        let shown = utf8_text(bytes);
        return Err(refuse(&format_args!(
            "Object 'apiVersion' is missing in '{shown}'"
        )));
    }
    let (shape, package) = expect.type_of(&gvk).map_err(|error| refuse(&error))?;
    let decoded = match shape {
        Some(shape) => raw
            .decode(shape, gvk.version, expect.empty, unread)
            .map_err(|error| refuse(&error))?,
        None => Decoded::default(),
    };
    if gvk.kind != expect.kind || gvk.group != expect.group {
        return Err(refuse(&unknown_conversion(
            package,
            gvk.kind,
            expect.group,
            expect.kind,
        )));
    }
    let problems = raw.problems(decoded.problems);
    if strict && !problems.is_empty() {
        return Err(refuse(&strict_error(raw, &problems)));
    }
    if gvk.version != expect.version {
        return Err(DecodeError {
            message: format!(
                "the API version in the data ({gvk}) does not match the expected API version \
                 ({default})"
            ),
            problems,
        });
    }
    let mut value = decoded.value;
    if let Value::Object(object) = &mut value {
        object.insert("apiVersion".to_owned(), Value::from(default.to_string()));
        object.insert("kind".to_owned(), Value::from(expect.kind));
    }
    Ok(DecodedObject {
        value,
        api_version: found.api_version,
        kind: found.kind,
        problems,
    })
}

/// Reads `bytes` as the options of a deletion: `DeleteOptions` of any group and version, in
/// canonical form. Unknown fields are ignored.
///
/// # Errors
///
/// [`DecodeError`], if the body is something else.
pub fn decode_options(format: BodyFormat, bytes: &[u8]) -> Result<Value, DecodeError> {
    const DEFAULT: Gvk<'_> = Gvk {
        group: "meta.k8s.io",
        version: "v1",
        kind: "DeleteOptions",
    };
    let raw = Raw::read(format, bytes)?;
    let found = raw.type_meta()?;
    let gvk = found.gvk()?.or(&DEFAULT);
    if gvk.kind != DEFAULT.kind {
        let of_meta = OF_EVERY_VERSION.contains(&gvk.kind) || OF_META.contains(&gvk.kind);
        let is_meta = gvk.group == DEFAULT.group && gvk.version == DEFAULT.version;
        let is_known = EVERYWHERE.contains(&gvk.kind) || is_meta && of_meta;
        if !is_known {
            return Err(gvk.unknown().into());
        }
        if gvk.kind == STATUS.name {
            raw.decode(&STATUS, "v1", EmptyValues::Null, UnreadParts::NONE)?;
        }
        let error = format!(
            "converting (v1.{}) to (v1.DeleteOptions): unknown conversion",
            gvk.kind
        );
        return Err(error.into());
    }
    let decoded = raw.decode(&DELETE_OPTIONS, "v1", EmptyValues::Null, UnreadParts::NONE)?;
    Ok(decoded.value)
}

impl ExpectedType<'_> {
    /// The table for the body's version and kind, if fairgate has it, and the Go package of its
    /// type.
    fn type_of<'g>(&self, gvk: &Gvk<'g>) -> Result<(Option<&'static Struct>, &'g str), String> {
        let same = |group: &str, version: &str, kind: &str| {
            gvk.group == group && gvk.version == version && gvk.kind == kind
        };
        if same(self.group, self.version, self.kind) {
            return Ok((Some(self.shape), gvk.version));
        }
        let known = |known: &&RegisteredType<'_>| same(known.group, known.version, known.kind);
        if let Some(known) = self.scheme.iter().find(known) {
            return Ok((known.shape, gvk.version));
        }
        let everywhere = EVERYWHERE.contains(&gvk.kind);
        if everywhere || OF_EVERY_VERSION.contains(&gvk.kind) && self.has_version(gvk) {
            let shape = [&STATUS, &DELETE_OPTIONS]
                .into_iter()
                .find(|shape| shape.name == gvk.kind);
            return Ok((shape, "v1"));
        }
        Err(gvk.unknown())
    }

    /// Whether the upstream knows the version of a body.
    fn has_version(&self, gvk: &Gvk<'_>) -> bool {
        let named = (gvk.group, gvk.version);
        let mut known = self.scheme.iter().map(|known| (known.group, known.version));
        named == ("", "v1") || named == (self.group, self.version) || known.any(|one| one == named)
    }
}

fn strict_error(raw: &Raw<'_>, problems: &[String]) -> String {
    let duplicates = raw.yaml_duplicates();
    let mut parts = Vec::with_capacity(problems.len());
    if !duplicates.is_empty() {
        let lines = duplicates.join("\n  ");
        parts.push(format!("yaml: unmarshal errors:\n  {lines}"));
    }
    parts.extend_from_slice(&problems[duplicates.len()..]);
    format!("strict decoding error: {}", parts.join(", "))
}

/// A body without syntax errors.
enum Raw<'a> {
    Json(JsonTape<'a>),
    Yaml(json::ParsedText),
    Protobuf(OpenedEnvelope<'a>),
}

impl<'a> Raw<'a> {
    fn read(format: BodyFormat, bytes: &'a [u8]) -> Result<Self, String> {
        match format {
            BodyFormat::Json => json::read_tape(bytes)
                .map(Raw::Json)
                .map_err(|error| no_type_meta(&error)),
            BodyFormat::Yaml => yaml::parse(bytes)
                .map(Raw::Yaml)
                .map_err(|error| error.to_string()),
            BodyFormat::Protobuf => envelope::open(bytes)
                .map(Raw::Protobuf)
                .map_err(|error| error.to_string()),
        }
    }

    fn type_meta(&self) -> Result<TypeMeta, String> {
        match self {
            Raw::Json(tape) => type_meta(tape.root()),
            Raw::Yaml(parsed) => type_meta(&parsed.value),
            Raw::Protobuf(opened) => Ok(TypeMeta {
                // In an envelope, an `apiVersion` with two slashes is not an error, but counts as
                // empty.
                api_version: Some(&opened.api_version)
                    .filter(|text| text.matches('/').count() < 2)
                    .cloned()
                    .unwrap_or_default(),
                kind: opened.kind.clone(),
            }),
        }
    }

    fn decode(
        &self,
        shape: &'static Struct,
        version: &str,
        empty: EmptyValues,
        unread: UnreadParts,
    ) -> Result<Decoded, String> {
        match self {
            Raw::Json(tape) => canonical::decode_read(shape, version, tape.root(), empty, unread)
                .map_err(|error| error.to_string()),
            Raw::Yaml(parsed) => canonical::decode_with(shape, version, &parsed.value, empty)
                .map_err(|error| error.to_string()),
            Raw::Protobuf(opened) => protobuf::decode(shape, opened.raw)
                .map(|value| Decoded {
                    value,
                    problems: Vec::new(),
                })
                .map_err(|error| error.to_string()),
        }
    }

    fn yaml_duplicates(&self) -> &[String] {
        match self {
            Raw::Yaml(parsed) => &parsed.duplicates,
            _ => &[],
        }
    }

    /// All strict problems: of the text, then of the object.
    fn problems(&self, decoded: Vec<String>) -> Vec<String> {
        let mut problems = self.yaml_duplicates().to_vec();
        problems.extend(decoded);
        problems
    }
}
