//! The request document: what the body of a write describes, decoded once, as the one JSON text that is evaluated and forwarded.
//!
//! A gateway that evaluates a body and forwards it lets the server read it again. Wherever both would read differently, such
//! as a key that occurs twice or a tag of YAML, a client could show the gateway one object and have another one stored. So
//! [`read`] makes plain JSON of a body: no key occurs twice in it, all text is UTF-8, and numbers are as they were written.
//! What it removes, it reports as kube-apiserver does. What YAML may mean otherwise to Go's library is refused.
//!
//! A body in protobuf stays as it is. [`check_protobuf`] refuses messages of which a part could be read in another way.
//!
//! Not here: what the object is ([`decode_body`]), and how a patch applies.

mod any_order;
mod duplicates;
mod insert;
mod json_as_yaml;
mod numbers;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;

use serde_json::json;

pub use self::insert::{enclose, insert_text};
use self::{
    duplicates::{KeyDuplicates, remove_duplicates},
    json_as_yaml::DeepYaml,
    numbers::{has_long_number, infinite_number},
};
use super::{
    BodyFormat, DecodedObject, ExpectedType, FieldValidation, decode::decode_tape, decode_body,
    decode_options, envelope, json, protobuf, tape::JsonTape, tree::JsonNode,
    type_meta::unreadable, yaml,
};
use crate::schema::{
    UnreadParts,
    canonical::{Source, View},
    meta_v1,
};
use fairgate_gotext::{Quoted, utf8_text};

/// What a body describes.
#[derive(Clone, Copy, Debug)]
pub enum DocumentType<'a> {
    /// An object of a kind with a table.
    Object(ExpectedType<'a>),
    /// An object of another kind, of this version.
    Unstructured {
        /// The version of the URL, without the group.
        version: &'a str,
        /// The kind, if it is known.
        kind: &'a str,
    },
    /// The options of a deletion.
    DeleteOptions,
    /// A JSON patch.
    JsonPatch,
    /// A merge patch.
    MergePatch,
    /// A strategic merge patch.
    StrategicPatch,
    /// A server-side apply, in YAML.
    Apply,
}

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestDocument<'a> {
    /// JSON that every reader reads alike, also one of YAML. It is the body itself, or most of it, where that is such JSON already.
    pub text: Cow<'a, [u8]>,
    /// What strict decoding would have said of the body if it had been forwarded: a warning each. Empty if validation ignores it.
    pub problems: Vec<String>,
    /// Why strict validation refuses the body for these. The server comes to that once the body was read as what it describes, and names unknown
    /// fields, too.
    pub refusal: Option<DocumentError>,
    /// What `text` says, if it is that of a body in JSON without duplicate fields.
    tape: Option<JsonTape<'a>>,
}

impl RequestDocument<'_> {
    /// What [`decode_body`] makes of the text, without reading it again; `None` if that is to be asked: about an error, or because what
    /// was read of the body was not kept. A second call returns `None`. The `unread` parts are checked, and may be left out.
    pub fn take_object(
        &mut self,
        expect: &ExpectedType<'_>,
        unread: UnreadParts,
    ) -> Option<DecodedObject> {
        decode_tape(self.tape.take()?, &self.text, expect, unread).ok()
    }
}

/// Why a body is refused. The text is the message of the response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// 400.
    #[error("{0}")]
    BadRequest(String),
    /// 422: strict validation refuses the patch in the second text.
    #[error("{0}")]
    InvalidPatch(String, String),
}

impl From<String> for DocumentError {
    fn from(message: String) -> Self {
        Self::BadRequest(message)
    }
}

/// Reads a body in JSON or YAML.
///
/// Costs time and memory linear in the length of `body`.
///
/// # Errors
///
/// [`DocumentError`]: the body is no document, an object of a kind with a table that strict validation refuses, or may be read in another way.
pub fn read<'a>(
    ty: &DocumentType<'_>,
    format: BodyFormat,
    body: &'a [u8],
    validation: FieldValidation,
) -> Result<RequestDocument<'a>, DocumentError> {
    // Patches other than an apply are JSON, whatever the format.
    let is_patch = ty.is_json_patch();
    let is_yaml = format == BodyFormat::Yaml && !is_patch || matches!(ty, DocumentType::Apply);
    if is_yaml {
        return read_yaml(ty, body, validation);
    }
    let scanned =
        json::scan(body).map_err(|error| ty.unreadable(format, body, validation, &error))?;
    let tape = scanned.tape;
    check_type_keys(ty, tape.root())?;
    // Patches are applied to values whose numbers are no longer text.
    if is_patch && has_long_number(&tape) {
        return Err(
            "a number of the patch has more than 15 digits and is no 64-bit integer"
                .to_owned()
                .into(),
        );
    }
    // A directive begins with `$`, which may be escaped.
    let may_have_any = || body.iter().any(|byte| matches!(byte, b'$' | b'\\'));
    if matches!(ty, DocumentType::StrategicPatch)
        && may_have_any()
        && let Some(list) = any_order::list_in_any_order(&tape.root().to_value())
    {
        return Err(format!(
            "the patch sets and deletes a value of {list:?}, and kube-apiserver does that in any order: add \"$setElementOrder/{list}\""
        )
        .into());
    }
    // The server refuses one in any member, also in one that is removed here.
    if let (DocumentType::Unstructured { version, kind }, Some(number)) =
        (ty, infinite_number(&tape))
    {
        return Err(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: json: cannot unmarshal number {number} into Go value of type float64"
        )
        .into());
    }
    if !tape.has_duplicates() {
        return Ok(RequestDocument {
            text: scanned.plain.map_or_else(
                || write::text(tape.root()).into(),
                |plain| {
                    let written = || write::text(tape.root());
                    debug_assert_eq!(plain, written(), "it is what would be written");
                    plain.into()
                },
            ),
            problems: Vec::new(),
            refusal: None,
            tape: Some(tape),
        });
    }
    let mut node = tape.into_node();
    match remove_duplicates(&mut node, matches!(ty, DocumentType::JsonPatch)) {
        KeyDuplicates::Ambiguous => Err("a value of the JSON patch has duplicate fields"
            .to_owned()
            .into()),
        KeyDuplicates::Removed => ty.without_duplicates(&node, body, validation),
    }
}

fn read_yaml(
    ty: &DocumentType<'_>,
    body: &[u8],
    validation: FieldValidation,
) -> Result<RequestDocument<'static>, DocumentError> {
    let parsed = match yaml::parse_exactly(body) {
        Ok(parsed) => parsed,
        Err(error) if error.is_too_deep() => return read_deep_yaml(ty, body, validation, &error),
        Err(yaml::ExactBodyError::Yaml(error)) => {
            return Err(ty.unreadable(BodyFormat::Yaml, body, validation, &error));
        }
        Err(inexact @ yaml::ExactBodyError::Inexact(_)) => return Err(inexact.to_string().into()),
    };
    check_type_keys(ty, &parsed.value)?;
    let text = write::text(&parsed.value);
    let problems = parsed.duplicates;
    let mut refusal = None;
    if validation == FieldValidation::Strict && !problems.is_empty() {
        refusal = ty.strict_refusal(BodyFormat::Yaml, body, &yaml_problems(&problems))?;
    }
    Ok(RequestDocument {
        text: text.into(),
        problems: reported(problems, validation),
        refusal,
        tape: None,
    })
}

/// Reads a body that nests too deep for the library of YAML.
fn read_deep_yaml(
    ty: &DocumentType<'_>,
    body: &[u8],
    validation: FieldValidation,
    error: &yaml::ExactBodyError,
) -> Result<RequestDocument<'static>, DocumentError> {
    let why = match json_as_yaml::read(body) {
        DeepYaml::Json(tape, text) => {
            check_type_keys(ty, tape.root())?;
            return Ok(RequestDocument {
                text: text.to_owned().into(),
                problems: Vec::new(),
                refusal: None,
                tape: None,
            });
        }
        DeepYaml::TooDeep => format!("yaml: exceeded max depth of {}", json::MAX_DEPTH),
        DeepYaml::Other => error.to_string(),
    };
    Err(ty.unreadable(BodyFormat::Yaml, body, validation, &why))
}

/// How strict decoding lists duplicate keys of YAML.
pub fn yaml_problems(duplicates: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  "))
}

fn reported(problems: Vec<String>, validation: FieldValidation) -> Vec<String> {
    match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => problems,
    }
}

/// Refuses keys that Go's decoder takes for `apiVersion` or `kind` when it looks for the type of an object, and for unknown
/// fields when it decodes it.
fn check_type_keys<'a, S: Source<'a>>(
    ty: &DocumentType<'_>,
    document: S,
) -> Result<(), DocumentError> {
    if matches!(ty, DocumentType::JsonPatch) {
        return Ok(());
    }
    let View::Object(members) = document.view() else {
        return Ok(());
    };
    for (key, _) in members {
        for name in ["apiVersion", "kind"] {
            if key != name && folds_to(key, name) {
                let key = Quoted(key);
                return Err(format!("the field {key} differs from {name:?} only in case").into());
            }
        }
    }
    Ok(())
}

/// Whether Go's decoder takes `key` for the field `name`, which is ASCII.
fn folds_to(key: &str, name: &str) -> bool {
    let folded = key.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    });
    folded.eq(name.chars().map(|c| c.to_ascii_lowercase()))
}

impl DocumentType<'_> {
    /// Whether it is a patch in JSON.
    fn is_json_patch(&self) -> bool {
        matches!(
            self,
            Self::JsonPatch | Self::MergePatch | Self::StrategicPatch
        )
    }

    /// The document of a body in JSON with duplicate fields, which `node` no longer has.
    fn without_duplicates(
        &self,
        node: &JsonNode<'_>,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<RequestDocument<'static>, DocumentError> {
        let problems = json::read(body)
            .map(|read| read.duplicates())
            .unwrap_or_default();
        let text = match self {
            // Where a field is there twice, Go's decoder merges both values, and so does the table.
            Self::Object(expect) => {
                let strict = validation == FieldValidation::Strict;
                let decoded = decode_body(BodyFormat::Json, body, expect, strict);
                let decoded = decoded.map_err(|error| error.to_string())?;
                return Ok(RequestDocument {
                    text: write::text(&decoded.value).into(),
                    problems: reported(decoded.problems, validation),
                    refusal: None,
                    tape: None,
                });
            }
            Self::DeleteOptions => {
                let decoded = decode_options(BodyFormat::Json, body);
                let mut options = decoded.map_err(|error| error.to_string())?;
                options["apiVersion"] = json!("meta.k8s.io/v1");
                options["kind"] = json!("DeleteOptions");
                // No validation is about options.
                return Ok(RequestDocument {
                    text: write::text(&options).into(),
                    problems: Vec::new(),
                    refusal: None,
                    tape: None,
                });
            }
            _ => write::text(node),
        };
        let problems: Vec<String> = match self {
            Self::JsonPatch => problems
                .iter()
                .map(|text| format!("json patch {text}"))
                .collect(),
            _ => problems,
        };
        let mut refusal = None;
        if validation == FieldValidation::Strict {
            refusal = self.strict_refusal(BodyFormat::Json, body, &problems.join(", "))?;
        }
        Ok(RequestDocument {
            text: text.into(),
            problems: reported(problems, validation),
            refusal,
            tape: None,
        })
    }

    /// The refusal of strict validation, if it is about documents of this type.
    ///
    /// # Errors
    ///
    /// That refusal, where no more can be said than it does.
    fn strict_refusal(
        &self,
        format: BodyFormat,
        body: &[u8],
        problems: &str,
    ) -> Result<Option<DocumentError>, DocumentError> {
        Ok(Some(match self {
            Self::Object(expect) => {
                let refused = decode_body(format, body, expect, true);
                let refused = refused.map(|_| None);
                return refused.map_err(|error| error.to_string().into());
            }
            Self::Unstructured { version, kind } => format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {problems}"
            )
            .into(),
            Self::DeleteOptions => return Ok(None),
            Self::JsonPatch | Self::MergePatch | Self::StrategicPatch => {
                let problems = format!("strict decoding error: {problems}");
                DocumentError::InvalidPatch(problems, utf8_text(body).into_owned())
            }
            Self::Apply => format!(
                "error strict decoding YAML: error converting YAML to JSON: {problems}"
            )
            .into(),
        }))
    }

    /// The error for a body with a syntax error, in kube-apiserver's words.
    fn unreadable(
        &self,
        format: BodyFormat,
        body: &[u8],
        validation: FieldValidation,
        error: &dyn std::fmt::Display,
    ) -> DocumentError {
        let message = match self {
            Self::Object(expect) => match decode_body(format, body, expect, false) {
                Err(error) => error.to_string(),
                Ok(_) => error.to_string(),
            },
            Self::DeleteOptions => match decode_options(format, body) {
                Err(error) => error.to_string(),
                Ok(_) => error.to_string(),
            },
            Self::JsonPatch | Self::MergePatch if validation != FieldValidation::Ignore => {
                format!("error decoding patch: {error}")
            }
            Self::MergePatch => "Invalid JSON Patch".to_owned(),
            Self::Unstructured { kind, .. } => unreadable(format, error, body, kind),
            Self::JsonPatch | Self::StrategicPatch => error.to_string(),
            Self::Apply => {
                format!("error decoding YAML: error converting YAML to JSON: {error}")
            }
        };
        message.into()
    }
}

/// Checks that every field of a body in protobuf is known and that none is there twice, so that the server cannot read
/// more of it, or something else.
///
/// # Errors
///
/// 400: the body is no message of this type, or ambiguous.
pub fn check_protobuf(ty: &DocumentType<'_>, body: &[u8]) -> Result<(), DocumentError> {
    let shape = match ty {
        DocumentType::Object(expect) => expect.shape,
        DocumentType::DeleteOptions => &meta_v1::DELETE_OPTIONS,
        _ => {
            return Err("a message in protobuf of a kind without a table"
                .to_owned()
                .into());
        }
    };
    let checked = envelope::open_exactly(body).map_err(|error| error.to_string());
    let checked = checked.and_then(|message| {
        let checked = protobuf::check(shape, message);
        checked.map_err(|error| error.to_string())
    });
    checked.map_err(|error| {
        // What the server does not accept either is refused in its words.
        let read = match ty {
            DocumentType::Object(expect) => {
                decode_body(BodyFormat::Protobuf, body, expect, false).map(drop)
            }
            _ => decode_options(BodyFormat::Protobuf, body).map(drop),
        };
        read.err().map_or(error, |error| error.to_string()).into()
    })
}
