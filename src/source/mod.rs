//! Sources of policy objects.
//!
//! A [`PolicySource`] yields complete sets of objects, each with a revision, as documents with their origin. It
//! compiles nothing: its caller compiles a policy from a set or rejects the set as a whole, and reports the
//! outcome by [`PolicySource::report`]. For sets the size of a policy; large sets such as pods need a reflector
//! of their own.

pub(crate) mod files;
pub mod kube;
pub(crate) mod store;
mod warnings;

use std::{future::Future, sync::Arc};

use serde_json::Value;

use fairgate_core::{
    apf::objects::ObjectSet,
    finding::{Finding, Severity},
};

/// A complete set of documents at one moment, not yet parsed as objects.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentSet {
    /// The revision of the source.
    pub revision: Revision,
    /// All documents, in a stable order.
    pub documents: Vec<PolicyDocument>,
    /// Documents that cannot be read. With an error the whole set is invalid.
    pub findings: Vec<Finding>,
}

impl DocumentSet {
    /// Parses the documents as objects; errors are among the findings of the result.
    pub fn objects(&self) -> ObjectSet {
        let documents = self.documents.iter();
        ObjectSet::read(documents.map(|document| (&document.origin, (*document.value).clone())))
    }
}

/// One document of a source: an object, or a list of objects.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDocument {
    /// Its origin, for findings: `policies/a.yaml, document 2`.
    pub origin: String,
    /// The document, at least the fields that a policy depends on.
    pub value: Arc<Value>,
}

/// The revision of a source; equal revisions have equal documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub String);

/// A source of policy objects.
///
/// Runs on the control runtime; it may use the blocking pool.
pub trait PolicySource: Send {
    /// The next set: the first call returns the current one, later calls wait for a change.
    ///
    /// Cancel-safe: a call that is dropped loses no change.
    fn next(&mut self) -> impl Future<Output = DocumentSet> + Send;

    /// Reports the outcome of the set at `revision`: `applied`, or rejected as a whole.
    fn report(
        &mut self,
        revision: &Revision,
        applied: bool,
        findings: &[Finding],
    ) -> impl Future<Output = ()> + Send;
}

/// Whether two states of an object lead to the same policy. Status and managed fields are ignored, so that
/// writing the status does not recompile the policy.
fn same_policy(before: &Value, after: &Value) -> bool {
    let differs = |field: &str| before["metadata"][field] != after["metadata"][field];
    before["spec"] == after["spec"] && !differs("uid") && !differs("annotations")
}

/// Logs a finding with its fields.
pub(crate) fn log(finding: &Finding) {
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
