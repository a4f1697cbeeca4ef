//! Reads YAML and JSON documents, and finds the lines of their keys for error messages.
//!
//! Configurations, policies, scenarios and bodies of requests are all read here ([`yaml`]), within bounds of size, depth and
//! expansion, because any of them may come from a stranger. It is the only crate that names the YAML library, so that this can
//! be replaced. [`manifest_files`] finds the files of a directory, without those of kustomize.
//!
//! Not here: what a document means, and watching files for changes.

mod files;
pub mod yaml;

pub use files::{FileText, file_texts, kustomize_files, manifest_files, read_bounded, read_files};
