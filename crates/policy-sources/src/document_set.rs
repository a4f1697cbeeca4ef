//! Sets of policy documents, and what yields them.

use std::{future::Future, sync::Arc};

use crate::{document::PolicyDocument, last_good::LastGoodSet, stored_documents};
use fairgate_core::{
    apf::objects::{ObjectSet, ParsedDocument},
    finding::Finding,
};
use fairgate_store::{Store, StoreError};

/// All admission policies and bindings of a source at one moment.
#[derive(Clone, Debug, Default)]
pub struct PolicyDocuments {
    /// The objects, in a stable order.
    pub documents: Vec<PolicyDocument>,
    /// Documents that cannot be read. With an error the whole set is invalid.
    pub findings: Vec<Finding>,
    /// Whether the documents are files: they have not been validated, and their policies may evaluate admission policies,
    /// too. Objects of an API are taken as they are.
    pub are_files: bool,
    /// When these were kept, if they are the last good ones of files that have errors now.
    pub last_good: Option<LastGoodOrigin>,
}

/// Which last good set documents are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastGoodOrigin {
    /// `sha256:` and the digest of the documents.
    pub digest: String,
    /// When the set last came into force, in seconds since 1970.
    pub saved_at: u64,
}

/// All `FlowSchema`s and levels of a source at one moment, parsed.
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
    pub originals: Option<Originals>,
}

/// The documents of a set as they were, or where they can be read again.
#[derive(Clone)]
pub enum Originals {
    /// The documents.
    Documents(Arc<Vec<PolicyDocument>>),
    /// Those of a store at the revision of the set. A store may have many, which are in memory once already.
    Stored(Arc<dyn Store>, u64),
}

impl Originals {
    /// The documents.
    ///
    /// # Errors
    ///
    /// The store does not respond, or no longer has the revision.
    pub async fn documents(&self) -> Result<Arc<Vec<PolicyDocument>>, StoreError> {
        match self {
            Self::Documents(documents) => Ok(Arc::clone(documents)),
            Self::Stored(store, revision) => {
                let documents = stored_documents::documents_at(&**store, *revision).await?;
                Ok(Arc::new(documents))
            }
        }
    }
}

impl PartialEq for Originals {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Documents(one), Self::Documents(other)) => one == other,
            (Self::Stored(one, at), Self::Stored(other, then)) => {
                Arc::ptr_eq(one, other) && at == then
            }
            _ => false,
        }
    }
}

impl std::fmt::Debug for Originals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Documents(documents) => f.debug_tuple("Documents").field(documents).finish(),
            Self::Stored(_, revision) => f.debug_tuple("Stored").field(revision).finish(),
        }
    }
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
        let has_unread = self.findings.iter().any(Finding::is_error);
        ObjectSet::of(self.documents.iter().map(|document| &**document))
            .with_unread_documents(has_unread)
    }
}

/// The revision of a source; equal revisions have equal documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub String);

/// A source of policy objects, for flow control or for admission.
///
/// Runs on the control runtime; it may use the blocking pool.
pub trait PolicySource: Send {
    /// All objects at one moment: a [`DocumentSet`], or [`PolicyDocuments`].
    type Set: Send;

    /// The next set: the first call returns the current one, later calls wait for a change.
    ///
    /// Cancel-safe: a call that is dropped loses no change.
    fn next(&mut self) -> impl Future<Output = Self::Set> + Send;

    /// Reports the outcome of the set at `revision`: `applied`, or rejected as a whole. A source whose caller tells by other
    /// means leaves it out.
    fn report(
        &mut self,
        _revision: &Revision,
        _applied: bool,
        _findings: &[Finding],
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
}
