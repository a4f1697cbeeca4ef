//! A document parsed into objects, each checked by itself.
//!
//! Parsing is the expensive part of reading a set of objects, and depends on nothing but the document.
//! A caller that follows a large set keeps the parsed documents, and parses only those that changed.
//!
//! Not here: what objects mean to each other, such as two of one name ([`super::ObjectSet`]).

use std::sync::Arc;

use k8s_openapi::{
    api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    CompactFlowSchema, FLOW_SCHEMA, Located, PRIORITY_LEVEL, bootstrap, defaults,
    validate::{self, FieldError},
};
use crate::finding::{Finding, Severity};

/// The objects of one document, with defaults, and what is wrong with each of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedDocument {
    objects: Vec<ParsedObject>,
}

/// An object of a document; without a kind and a name, only findings about the document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParsedObject {
    pub(super) kind: &'static str,
    pub(super) name: Arc<str>,
    pub(super) origin: Arc<str>,
    pub(super) findings: Vec<Finding>,
    /// The object, unless one of the findings is an error.
    pub(super) usable: Option<UsableObject>,
}

/// An object without errors.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UsableObject {
    FlowSchema(Arc<Located<CompactFlowSchema>>),
    PriorityLevel(Arc<Located<PriorityLevelConfiguration>>),
}

impl ParsedDocument {
    /// What is wrong with the objects, each taken for itself.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.objects.iter().flat_map(|object| &object.findings)
    }

    /// Whether a policy is the same with this document as with `other`: status, labels, managed fields
    /// and origin do not count.
    pub fn has_same_policy(&self, other: &Self) -> bool {
        self.objects.len() == other.objects.len()
            && self
                .objects
                .iter()
                .zip(&other.objects)
                .all(|(one, other)| one.has_same_policy(other))
    }

    pub(super) fn objects(&self) -> &[ParsedObject] {
        &self.objects
    }

    /// Gives back the memory for further objects. Most documents have one.
    pub(super) fn shrink(&mut self) {
        self.objects.shrink_to_fit();
    }

    pub(super) fn add_flow_schema(&mut self, origin: &str, mut object: FlowSchema) {
        defaults::flow_schema(&mut object);
        let errors = validate::flow_schema(&object);
        let mut parsed = ParsedObject::new(origin, FLOW_SCHEMA, &object.metadata, errors);
        if parsed.findings.is_empty() {
            parsed.usable = Some(UsableObject::FlowSchema(Arc::new(Located {
                origin: Arc::clone(&parsed.origin),
                object: CompactFlowSchema::new(Arc::clone(&parsed.name), &object),
            })));
        }
        self.objects.push(parsed);
    }

    pub(super) fn add_level(&mut self, origin: &str, mut object: PriorityLevelConfiguration) {
        defaults::priority_level(&mut object);
        let errors = validate::priority_level(&object);
        let mut parsed = ParsedObject::new(origin, PRIORITY_LEVEL, &object.metadata, errors);
        keep_policy_metadata(&mut object.metadata);
        if parsed.findings.is_empty() {
            let origin = Arc::clone(&parsed.origin);
            parsed.usable = Some(UsableObject::PriorityLevel(Arc::new(Located {
                origin,
                object,
            })));
        }
        self.objects.push(parsed);
    }

    /// Adds a finding about the document, or about an object that could not be read.
    pub(super) fn push_finding(&mut self, finding: Finding) {
        self.objects.push(ParsedObject {
            kind: "",
            name: "".into(),
            origin: "".into(),
            findings: vec![finding],
            usable: None,
        });
    }
}

impl ParsedObject {
    /// An object that validation found these errors in, not usable yet.
    fn new(
        origin: &str,
        kind: &'static str,
        metadata: &ObjectMeta,
        errors: Vec<FieldError>,
    ) -> Self {
        let name = metadata.name.as_deref().unwrap_or_default();
        let findings = errors.into_iter().map(|error| Finding {
            severity: Severity::Error,
            origin: origin.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            message: error.to_string(),
            field: error.field,
            remedy: error.remedy,
        });
        Self {
            kind,
            name: name.into(),
            origin: origin.into(),
            findings: findings.collect(),
            usable: None,
        }
    }

    fn has_same_policy(&self, other: &Self) -> bool {
        let without_origin = |finding: &Finding| Finding {
            origin: String::new(),
            ..finding.clone()
        };
        let same_usable = match (&self.usable, &other.usable) {
            (Some(one), Some(other)) => one.has_same_policy(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_usable
            && (self.kind, &self.name) == (other.kind, &other.name)
            && self.findings.len() == other.findings.len()
            && self
                .findings
                .iter()
                .zip(&other.findings)
                .all(|(one, other)| without_origin(one) == without_origin(other))
    }
}

impl UsableObject {
    fn has_same_policy(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::FlowSchema(one), Self::FlowSchema(other)) => {
                one.object.has_same_policy(&other.object)
            }
            (Self::PriorityLevel(one), Self::PriorityLevel(other)) => {
                let (one, other) = (&one.object, &other.object);
                one.spec == other.spec && is_same_object(&one.metadata, &other.metadata)
            }
            _ => false,
        }
    }
}

/// Removes what no policy depends on, which can be a large part of an object.
fn keep_policy_metadata(metadata: &mut ObjectMeta) {
    metadata.labels = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| key == bootstrap::AUTOUPDATE);
    }
    metadata
        .annotations
        .take_if(|annotations| annotations.is_empty());
}

/// Whether the metadata that policies depend on is the same. A change of the generation alone
/// accompanies a change of the spec.
fn is_same_object(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.uid == other.uid && one.annotations == other.annotations
}
