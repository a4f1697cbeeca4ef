//! Where policy objects come from.
//!
//! A [`PolicySource`] yields complete sets of objects, each at a revision, as plain documents with a word
//! on where each came from. It compiles nothing: whoever follows it makes a policy of a set or
//! refuses the set as a whole, and tells the source by [`PolicySource::report`] what came of it. For sets
//! the size of a policy; pods and the like need a reflector of their own.

pub mod files;
pub mod kube;
pub mod store;
mod warnings;

use std::{future::Future, sync::Arc};

use serde_json::Value;

use fairgate_core::{
    apf::objects::ObjectSet,
    finding::{Finding, Severity},
};

/// A complete set of objects, as found at one moment and not yet read as objects.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentSet {
    /// Which state of the source this is.
    pub revision: Revision,
    /// Every object there is, in an order that does not change by itself.
    pub documents: Vec<PolicyDocument>,
    /// What kept documents from being read. With an error among it the set cannot be used.
    pub findings: Vec<Finding>,
}

impl DocumentSet {
    /// The documents, read as objects; what is wrong with them is among the findings of the result.
    pub fn objects(&self) -> ObjectSet {
        let documents = self.documents.iter();
        ObjectSet::read(documents.map(|document| (&document.origin, (*document.value).clone())))
    }
}

/// One document of a source: an object, or a list of objects.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDocument {
    /// Where it came from, for findings: `policies/a.yaml, document 2`.
    pub origin: String,
    /// The document as it stands, or what a policy can depend on of it.
    pub value: Arc<Value>,
}

/// A state of a source; equal revisions have equal documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub String);

/// Something that policy objects come from.
///
/// Belongs on the control runtime; it may use the blocking pool.
pub trait PolicySource: Send {
    /// The next set: the first call yields what is there, later ones wait for a change.
    ///
    /// Cancel-safe: a call that is dropped loses no change.
    fn next(&mut self) -> impl Future<Output = DocumentSet> + Send;

    /// Takes back what came of the set at `revision`: `applied`, or refused as a whole.
    fn report(
        &mut self,
        revision: &Revision,
        applied: bool,
        findings: &[Finding],
    ) -> impl Future<Output = ()> + Send;
}

/// Whether the same policy follows from two states of an object. What only tells of it (its status,
/// who manages which field) makes no difference, lest every status written makes a policy anew.
fn same_policy(before: &Value, after: &Value) -> bool {
    let differs = |field: &str| before["metadata"][field] != after["metadata"][field];
    before["spec"] == after["spec"] && !differs("uid") && !differs("annotations")
}

/// Logs a finding with its parts.
fn log(finding: &Finding) {
    let Finding {
        severity,
        origin,
        kind,
        name,
        field,
        message,
        remedy,
    } = finding;
    match severity {
        Severity::Error => tracing::error!(origin, kind, name, field, remedy, "{message}"),
        Severity::Warning => tracing::warn!(origin, kind, name, field, remedy, "{message}"),
    }
}
