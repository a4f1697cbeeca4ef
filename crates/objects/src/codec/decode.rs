//! From a body to an object of the expected kind, or to the error with which kube-apiserver
//! responds.

use std::fmt::{self, Write};
use std::sync::LazyLock;

use serde_json::Value;

use super::{
    envelope::{self, OpenedEnvelope},
    json, protobuf,
    tree::JsonNode,
    yaml,
};
use crate::go::Quoted;
use crate::schema::{
    BuiltInKind, Struct, built_in_kinds,
    canonical::{self, Decoded, Source, View},
    meta_v1::{DELETE_OPTIONS, STATUS},
};

/// The number of bytes of a body that an error message contains.
const SHOWN: usize = 30;

/// The name of the registry of kinds in kube-apiserver's messages.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

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

/// The version that stands for kube-apiserver's internal form of the objects of a group.
const INTERNAL: &str = "__internal";

/// The Go type from which kind and version are read, as messages print it.
const TYPE_META: &str = concat!(
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; "#,
    r#"Kind string "json:\"kind,omitempty\"" }"#
);

/// Checks `apiVersion` and `kind` of a value, where they are given.
///
/// # Errors
///
/// The message for a value of another version or kind.
pub fn check_type(value: &Value, api_version: &str, kind: &str) -> Result<(), String> {
    let found = type_meta(value)?;
    let or = |found: &str, default: &str| -> String {
        if found.is_empty() { default } else { found }.to_owned()
    };
    let (found_version, found_kind) = (or(&found.api_version, api_version), or(&found.kind, kind));
    if found_version == api_version && found_kind == kind {
        return Ok(());
    }
    Err(unregistered_kind(&found_kind, &found_version))
}

/// The message about a kind that kube-apiserver does not know in a version such as `policy/v1`.
pub(crate) fn unregistered_kind(kind: &str, version: &str) -> String {
    let kind = Quoted(kind);
    match version.rsplit_once('/').unwrap_or(("", version)) {
        (group, INTERNAL) => format!(
            "no kind {kind} is registered for the internal version of group {} in scheme \"{SCHEME}\"",
            Quoted(group)
        ),
        _ => format!(
            "no kind {kind} is registered for version {} in scheme \"{SCHEME}\"",
            Quoted(version)
        ),
    }
}

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

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
}

/// A kind in a version that is known, but not expected here.
#[derive(Clone, Copy, Debug)]
pub struct RegisteredType<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version, such as `v1`.
    pub version: &'a str,
    /// The name of the kind.
    pub kind: &'a str,
    /// The field table of the kind, against which a body is checked first, if fairgate has it.
    pub shape: Option<&'static Struct>,
}

/// All kinds of Kubernetes in all their versions. kube-apiserver, which registers them, answers otherwise about kinds that
/// it knows than about others.
pub fn built_in_types() -> &'static [RegisteredType<'static>] {
    static TYPES: LazyLock<Vec<RegisteredType<'static>>> = LazyLock::new(|| {
        let registered = |kind: &BuiltInKind| RegisteredType {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            shape: Some(kind.shape),
        };
        built_in_kinds().iter().map(registered).collect()
    });
    &TYPES
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

/// Why a body is refused, always with 400 `BadRequest`. Its text is the message of the response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    message: String,
    /// Strict problems of an object that was decoded, but is of another version: a warning each,
    /// unless field validation is off.
    pub problems: Vec<String>,
}

impl From<String> for DecodeError {
    fn from(message: String) -> Self {
        Self {
            message,
            problems: Vec::new(),
        }
    }
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
        let shown = protobuf::text(bytes);
        return Err(refuse(&format_args!(
            "Object 'apiVersion' is missing in '{shown}'"
        )));
    }
    let (shape, package) = expect.type_of(&gvk).map_err(|error| refuse(&error))?;
    let decoded = match shape {
        Some(shape) => raw
            .decode(shape, gvk.version)
            .map_err(|error| refuse(&error))?,
        None => Decoded::default(),
    };
    if gvk.kind != expect.kind || gvk.group != expect.group {
        return Err(refuse(&format_args!(
            "converting ({package}.{}) to ({}.{}): unknown conversion",
            gvk.kind,
            internal_package(expect.group),
            expect.kind
        )));
    }
    let problems = raw.problems(decoded.problems);
    if strict && !problems.is_empty() {
        return Err(refuse(&strict_error(&raw, &problems)));
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
            raw.decode(&STATUS, "v1")?;
        }
        let error = format!(
            "converting (v1.{}) to (v1.DeleteOptions): unknown conversion",
            gvk.kind
        );
        return Err(error.into());
    }
    Ok(raw.decode(&DELETE_OPTIONS, "v1")?.value)
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

/// The Go package of a group's internal types.
fn internal_package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
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

/// The error for a body without a kind.
fn unrecognized(error: &str, body: &[u8], kind: &str) -> DecodeError {
    let summary = summary(body);
    format!("the object provided is unrecognized (must be of type {kind}): {error} ({summary})")
        .into()
}

/// The beginning of a body: as text if it may be JSON, otherwise in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    let shown = &body[..body.len().min(SHOWN)];
    let mut summary = match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => protobuf::text(shown),
        Some(_) => shown.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
            hex
        }),
    };
    if body.len() > SHOWN {
        summary.push_str(" ...");
    }
    summary
}

/// A group, a version and a kind. It is printed as `apiVersion`.
#[derive(Clone, Copy)]
struct Gvk<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl fmt::Display for Gvk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

impl<'a> Gvk<'a> {
    /// Missing parts are taken from `default`.
    fn or(mut self, default: &Gvk<'a>) -> Self {
        if self.kind.is_empty() {
            self.kind = default.kind;
        }
        if self.version.is_empty() && (self.group.is_empty() || self.group == default.group) {
            self.group = default.group;
            self.version = default.version;
        }
        self
    }

    fn unknown(&self) -> String {
        unregistered_kind(self.kind, &self.to_string())
    }

    fn refused(&self, expected: &str, error: &dyn fmt::Display) -> DecodeError {
        format!(
            "{} in version {} cannot be handled as a {expected}: {error}",
            self.kind,
            Quoted(self.version)
        )
        .into()
    }
}

/// `apiVersion` and `kind` of a body.
#[derive(Default)]
struct TypeMeta {
    api_version: String,
    kind: String,
}

impl TypeMeta {
    fn gvk(&self) -> Result<Gvk<'_>, String> {
        let api_version = self.api_version.as_str();
        let (group, version) = match api_version.split_once('/') {
            Some((_, rest)) if rest.contains('/') => {
                return Err(format!("unexpected GroupVersion string: {api_version}"));
            }
            Some(parts) => parts,
            None => ("", api_version),
        };
        Ok(Gvk {
            group,
            version,
            kind: &self.kind,
        })
    }
}

/// A body without syntax errors.
enum Raw<'a> {
    Json(JsonNode),
    Yaml(json::ParsedText),
    Protobuf(OpenedEnvelope<'a>),
}

impl<'a> Raw<'a> {
    fn read(format: BodyFormat, bytes: &'a [u8]) -> Result<Self, String> {
        match format {
            BodyFormat::Json => json::read(bytes)
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
            Raw::Json(node) => type_meta(node),
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

    fn decode(&self, shape: &'static Struct, version: &str) -> Result<Decoded, String> {
        match self {
            Raw::Json(node) => {
                canonical::decode_version(shape, version, node).map_err(|error| error.to_string())
            }
            Raw::Yaml(parsed) => canonical::decode_version(shape, version, &parsed.value)
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

fn no_type_meta(error: &dyn fmt::Display) -> String {
    format!("couldn't get version/kind; json parse error: {error}")
}

/// Kind and version of a body. As in Go, the case of their keys does not matter, and the error
/// names the first that is not a string.
fn type_meta<S: Source>(node: &S) -> Result<TypeMeta, String> {
    let mut found = TypeMeta::default();
    let mut wrong = None;
    match node.view() {
        View::Null => {}
        View::Object(members) => {
            for (key, node) in members {
                let (name, place) = if key.eq_ignore_ascii_case("apiVersion") {
                    ("apiVersion", &mut found.api_version)
                } else if key.eq_ignore_ascii_case("kind") {
                    ("kind", &mut found.kind)
                } else {
                    continue;
                };
                match node.view() {
                    View::Null => {}
                    View::Text(text) => text.clone_into(place),
                    other => {
                        wrong.get_or_insert_with(|| {
                            let what = canonical::found(&other);
                            format!("{what} into Go struct field .{name} of type string")
                        });
                    }
                }
            }
        }
        other => {
            let what = canonical::found(&other);
            wrong = Some(format!("{what} into Go value of type {TYPE_META}"));
        }
    }
    match wrong {
        None => Ok(found),
        Some(wrong) => Err(no_type_meta(&format_args!(
            "json: cannot unmarshal {wrong}"
        ))),
    }
}
