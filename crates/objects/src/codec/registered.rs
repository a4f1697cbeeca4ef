//! What reading a body needs to know of kinds, and what it fails with.

use std::sync::LazyLock;

use crate::schema::{BuiltInKind, Struct, built_in_kinds};

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

/// Why a body is refused, always with 400 `BadRequest`. Its text is the message of the response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    pub(super) message: String,
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
