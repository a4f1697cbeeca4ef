//! Sets of policy documents, and what yields them.

use std::{future::Future, sync::Arc};

use crate::last_good::{KeptDocument, LastGoodSet};
use fairgate_core::{
    apf::objects::{ObjectSet, ParsedDocument},
    finding::Finding,
};

/// A complete set of documents at one moment.
///
/// Documents are parsed one by one, so that of a large set only the changed ones are parsed again.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentSet {
    /// The revision of the source.
    pub revision: Revision,
    /// All documents, in a stable order.
    pub documents: Vec<Arc<ParsedDocument>>,
    /// Documents that cannot be read. With an error the whole set is invalid.
    pub findings: Vec<Finding>,
    /// The documents as they were, if the source was asked for them.
    pub originals: Option<Arc<Vec<KeptDocument>>>,
}

impl DocumentSet {
    /// The documents of a set that was kept. They are validated as those of a source are.
    pub fn of_last_good(set: LastGoodSet) -> Self {
        let parsed = set.documents.into_iter().map(|document| {
            let origin = format!("{} (last good)", document.origin);
            Arc::new(ParsedDocument::parse(&origin, document.object))
        });
        Self {
            documents: parsed.collect(),
            revision: Revision(set.digest),
            findings: Vec::new(),
            originals: None,
        }
    }

    /// The objects of all documents; errors are among the findings of the result.
    pub fn objects(&self) -> ObjectSet {
        ObjectSet::of(self.documents.iter().map(|document| &**document))
    }
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
