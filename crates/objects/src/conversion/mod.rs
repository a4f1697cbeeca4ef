//! Conversion between versions of built-in kinds.
//!
//! [`BuiltInConversion`] knows each kind that a server of Kubernetes 1.36 can serve in more than one version, alpha and beta
//! versions among them, and `SelfSubjectReview`, which earlier releases served in two. Of most, all versions have the same fields.
//! Conversion sets no defaults, as in a server: an object has those of the version that it was sent in.
//!
//! Not here: policies and webhooks of admission, which no policy is about, and versions that 1.36 has types
//! for and does not serve.
//!
//! Source: the files `conversion.go` and `zz_generated.conversion.go` in Kubernetes `pkg/apis`, those of `resource/v1beta1` and
//! `autoscaling/v1` above all.

pub mod autoscalers;
mod devices;
mod events;
mod metrics;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Value, json};

use crate::schema::{
    Struct, built_in,
    canonical::{self, MAX_OBJECTS, TypeError},
};

/// Why an object is not converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// It is not of the version that it is converted from.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// What a server reads in an annotation is not known here, though it may be able to read it.
    #[error("its annotation {0} has a field twice, or more than {MAX_OBJECTS} objects")]
    Annotation(&'static str),
}

/// How objects of one version become those of another.
#[derive(Clone, Copy)]
pub struct BuiltInConversion {
    kind: &'static str,
    from: VersionShape,
    to: VersionShape,
    /// Gives an object in canonical form the fields of the other version; those that it has no more may remain. None if both
    /// versions have the same fields.
    convert: Option<Convert>,
}

#[derive(Clone, Copy)]
enum Convert {
    Always(fn(Value) -> Value),
    /// Some objects cannot be converted.
    Fallible(fn(Value) -> Result<Value, ConversionError>),
}

/// One version of a kind.
#[derive(Clone, Copy)]
struct VersionShape {
    group: &'static str,
    version: &'static str,
    shape: &'static Struct,
}

const AUTOSCALING: &str = "autoscaling";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const V1_AND_BETA: &[&str] = &["v1", "v1beta1"];
const DEVICE_VERSIONS: &[&str] = &["v1", "v1beta1", "v1beta2"];

/// The kinds that have several versions within their group, and these versions.
const KINDS: &[(&str, &str, &[&str])] = &[
    ("authentication.k8s.io", "SelfSubjectReview", V1_AND_BETA),
    (AUTOSCALING, "HorizontalPodAutoscaler", &["v1", "v2"]),
    (CERTIFICATES, "ClusterTrustBundle", &["v1alpha1", "v1beta1"]),
    (COORDINATION, "LeaseCandidate", &["v1alpha2", "v1beta1"]),
    (NETWORKING, "IPAddress", V1_AND_BETA),
    (NETWORKING, "ServiceCIDR", V1_AND_BETA),
    (RESOURCE, "DeviceClass", DEVICE_VERSIONS),
    (RESOURCE, "DeviceTaintRule", &["v1alpha3", "v1beta2"]),
    (RESOURCE, "ResourceClaim", DEVICE_VERSIONS),
    (RESOURCE, "ResourceClaimTemplate", DEVICE_VERSIONS),
    (RESOURCE, "ResourceSlice", DEVICE_VERSIONS),
    (STORAGE, "VolumeAttributesClass", V1_AND_BETA),
];

/// What converts a kind of a group from one version to another; none if both have the same fields.
fn conversion_of(group: &str, kind: &str, from: &str, to: &str) -> Option<Convert> {
    let convert: fn(Value) -> Value = match (group, kind, from, to) {
        (AUTOSCALING, _, "v1", "v2") => return Some(Convert::Fallible(autoscalers::to_v2)),
        (AUTOSCALING, _, "v2", "v1") => autoscalers::to_v1,
        (RESOURCE, "ResourceClaim", "v1beta1", _) => devices::claim_of_v1beta1,
        (RESOURCE, "ResourceClaim", _, "v1beta1") => devices::claim_to_v1beta1,
        (RESOURCE, "ResourceClaimTemplate", "v1beta1", _) => devices::template_of_v1beta1,
        (RESOURCE, "ResourceClaimTemplate", _, "v1beta1") => devices::template_to_v1beta1,
        (RESOURCE, "ResourceSlice", "v1beta1", _) => devices::slice_of_v1beta1,
        (RESOURCE, "ResourceSlice", _, "v1beta1") => devices::slice_to_v1beta1,
        _ => return None,
    };
    Some(Convert::Always(convert))
}

impl VersionShape {
    fn new(group: &'static str, version: &'static str, kind: &str) -> Option<Self> {
        Some(Self {
            group,
            version,
            shape: built_in(group, version, kind)?,
        })
    }

    fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

impl fmt::Debug for BuiltInConversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = [self.from, self.to].map(|version| version.api_version());
        write!(f, "{} from {from} to {to}", self.kind)
    }
}

impl BuiltInConversion {
    /// The conversion between two versions of a kind, each given by group, version and kind; `None` if there is none here.
    pub fn between(from: [&str; 3], to: [&str; 3]) -> Option<Self> {
        if from[2] != to[2] {
            return None;
        }
        match (from, to) {
            (["", "v1", "Event"], [EVENTS, "v1", _]) => Self::of_events(true),
            ([EVENTS, "v1", "Event"], ["", "v1", _]) => Self::of_events(false),
            ([from_group, ..], [to_group, ..]) if from_group == to_group => {
                Self::within(from_group, from[2], from[1], to[1])
            }
            _ => None,
        }
    }

    /// Events are in two groups.
    fn of_events(from_core: bool) -> Option<Self> {
        let core = VersionShape::new("", "v1", "Event")?;
        let other = VersionShape::new(EVENTS, "v1", "Event")?;
        let (from, to, convert): (_, _, fn(_) -> _) = if from_core {
            (core, other, events::of_core)
        } else {
            (other, core, events::to_core)
        };
        Some(Self {
            kind: "Event",
            from,
            to,
            convert: Some(Convert::Always(convert)),
        })
    }

    fn within(group: &str, kind: &str, from: &str, to: &str) -> Option<Self> {
        let mut kinds = KINDS.iter();
        let (group, kind, versions) =
            kinds.find(|(one_group, one_kind, _)| *one_group == group && *one_kind == kind)?;
        let version = |name: &str| {
            let known = versions.iter().find(|version| **version == name)?;
            VersionShape::new(group, known, kind)
        };
        if from == to {
            return None;
        }
        Some(Self {
            kind,
            from: version(from)?,
            to: version(to)?,
            convert: conversion_of(group, kind, from, to),
        })
    }

    /// Whether what a server stores may have lost something when it is read in the version that this converts from. Version 1 of
    /// an autoscaler does not have the place of the metric of processors among the others. What else differs, validation refuses.
    pub fn is_from_narrower(&self) -> bool {
        self.from.group == AUTOSCALING && self.from.version == "v1"
    }

    /// The object in the other version, in canonical form. No defaults are applied.
    ///
    /// Costs time and memory linear in the size of the object.
    ///
    /// # Errors
    ///
    /// [`ConversionError::Type`] if it is not of the version that it is converted from, [`ConversionError::Annotation`] if a server
    /// may convert it in a way that is not known.
    pub fn convert(&self, object: &Value) -> Result<Value, ConversionError> {
        let Self { from, convert, .. } = self;
        let object = canonical::decode_version(from.shape, from.version, object)?.value;
        let converted = match convert {
            Some(Convert::Always(convert)) => convert(object),
            Some(Convert::Fallible(convert)) => convert(object)?,
            None => return Ok(self.typed(object)),
        };
        Ok(self.read(&converted)?)
    }

    /// An object that is of the other version already, in canonical form.
    ///
    /// # Errors
    ///
    /// It is not of that version.
    pub fn read(&self, object: &Value) -> Result<Value, TypeError> {
        let to = &self.to;
        let decoded = canonical::decode_version(to.shape, to.version, object)?;
        Ok(self.typed(decoded.value))
    }

    fn typed(&self, object: Value) -> Value {
        let mut object = object;
        object["apiVersion"] = json!(self.to.api_version());
        object["kind"] = json!(self.kind);
        object
    }
}
