//! Sources of policies, of flow control and of admission: files, the store of the hosted API, the upstream's API.
//!
//! A [`PolicySource`] yields complete sets of objects, each with a revision, as documents with their origin. It
//! compiles nothing: its caller compiles a policy from a set or rejects the set as a whole, and reports the
//! outcome by [`PolicySource::report`]. For sets the size of a policy; large sets such as pods need a reflector
//! of their own.
//!
//! Sets that came into force can be kept in a file ([`LastGoodFile`]), for a start at which the source has errors.
//!
//! Not here: what the objects mean, when a kept set is used, and applying a policy (`src/app`).

mod admission_files;
mod admission_store;
mod document;
mod document_set;
mod file_stamps;
pub mod files;
pub mod kube;
mod last_good;
mod logging;
pub mod policy_in_force;
pub mod store;
mod stored_documents;

pub use admission_files::AdmissionFiles;
pub use admission_store::AdmissionStore;
pub use document::PolicyDocument;
pub use document_set::{
    DocumentSet, LastGoodOrigin, Originals, PolicyDocuments, PolicySource, Revision,
};
pub use last_good::{LastGoodError, LastGoodFile, LastGoodSet, PolicyArea, documents_digest};
pub use logging::log_finding;
