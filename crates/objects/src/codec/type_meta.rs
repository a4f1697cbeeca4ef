//! `apiVersion` and `kind` of a body, and what kube-apiserver says if they are not those that it expects.

use std::fmt::{self, Write};

use serde_json::Value;

use super::registered::{BodyFormat, DecodeError, RegisteredType, built_in_types};
use crate::schema::canonical::{self, Source, View};
use fairgate_gotext::{Quoted, utf8_text};

/// The number of bytes of a body that an error message contains.
const SHOWN: usize = 30;

/// The name of the registry of kinds in kube-apiserver's messages.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

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

/// [`check_type`] for an object that a patch was applied to: of another kind that kube-apiserver knows, it says that it cannot be converted.
///
/// # Errors
///
/// The message for a value of another version or kind.
pub fn check_patched_type(value: &Value, [group, version, kind]: [&str; 3]) -> Result<(), String> {
    let expected = Gvk {
        group,
        version,
        kind,
    };
    let checked = check_type(value, &expected.to_string(), kind);
    let Err(message) = checked else {
        return Ok(());
    };
    let found = type_meta(value)?;
    let gvk = found.gvk()?.or(&expected);
    let same = |known: &RegisteredType<'_>| {
        known.group == gvk.group && known.version == gvk.version && known.kind == gvk.kind
    };
    // Of another version of the same kind, the server says the same as of a kind that it does not know.
    let is_other = gvk.kind != kind || gvk.group != group;
    if is_other && built_in_types().iter().any(same) {
        return Err(unknown_conversion(gvk.version, gvk.kind, group, kind));
    }
    Err(message)
}

pub(super) fn unknown_conversion(package: &str, found: &str, group: &str, kind: &str) -> String {
    let group = internal_package(group);
    format!("converting ({package}.{found}) to ({group}.{kind}): unknown conversion")
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

/// Checks `apiVersion` and `kind` of a body that describes a custom resource: unlike those of other kinds, it has to have them. `value` is what
/// `bytes` say.
///
/// # Errors
///
/// [`DecodeError`], as kube-apiserver words it.
pub fn check_custom_type(
    value: &Value,
    bytes: &[u8],
    [group, version, kind]: [&str; 3],
) -> Result<(), DecodeError> {
    let refuse = |error: String| unrecognized(&error, bytes, kind);
    let found = type_meta(value).map_err(refuse)?;
    let gvk = found.gvk().map_err(refuse)?;
    if gvk.kind.is_empty() {
        let shown = utf8_text(bytes);
        return Err(refuse(format!("Object 'Kind' is missing in '{shown}'")));
    }
    let expected = Gvk {
        group,
        version,
        kind,
    };
    if (gvk.group, gvk.version) != (group, version) {
        let message = format!(
            "the API version in the data ({gvk}) does not match the expected API version ({expected})"
        );
        return Err(message.into());
    }
    Ok(())
}

/// The message of kube-apiserver about a body with a syntax error, if it is to describe an object of a kind without a table; the error itself
/// if not even the kind is known.
pub fn unreadable(format: BodyFormat, error: &dyn fmt::Display, body: &[u8], kind: &str) -> String {
    if kind.is_empty() {
        return error.to_string();
    }
    let error = match format {
        BodyFormat::Json => no_type_meta(error),
        BodyFormat::Yaml | BodyFormat::Protobuf => error.to_string(),
    };
    unrecognized(&error, body, kind).to_string()
}

/// The error for a body without a kind.
pub(super) fn unrecognized(error: &str, body: &[u8], kind: &str) -> DecodeError {
    let summary = summary(body);
    format!("the object provided is unrecognized (must be of type {kind}): {error} ({summary})")
        .into()
}

/// The beginning of a body: as text if it may be JSON, otherwise in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    let shown = &body[..body.len().min(SHOWN)];
    let mut summary = match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => utf8_text(shown).into_owned(),
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
pub(super) struct Gvk<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
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
    pub(super) fn or(mut self, default: &Gvk<'a>) -> Self {
        if self.kind.is_empty() {
            self.kind = default.kind;
        }
        // As `gvkWithDefaults` in apimachinery: a version is never put beside a group that is not its own.
        if self.version.is_empty() && (self.group.is_empty() || self.group == default.group) {
            self.group = default.group;
            self.version = default.version;
        }
        self
    }

    pub(super) fn unknown(&self) -> String {
        unregistered_kind(self.kind, &self.to_string())
    }

    pub(super) fn refused(&self, expected: &str, error: &dyn fmt::Display) -> DecodeError {
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
pub(super) struct TypeMeta {
    pub(super) api_version: String,
    pub(super) kind: String,
}

impl TypeMeta {
    pub(super) fn gvk(&self) -> Result<Gvk<'_>, String> {
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

/// The Go package of a group's internal types.
fn internal_package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    }
}

pub(crate) fn no_type_meta(error: &dyn fmt::Display) -> String {
    format!("couldn't get version/kind; json parse error: {error}")
}

/// Kind and version of a body. As in Go, the case of their keys does not matter, and the error
/// names the first that is not a string.
pub(super) fn type_meta<'a, S: Source<'a>>(node: S) -> Result<TypeMeta, String> {
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
