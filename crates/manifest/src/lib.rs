//! Reads YAML and JSON documents that people write, and finds the lines of their keys for error messages.

mod files;
pub mod yaml;

pub use files::{FileText, file_texts, kustomize_files, manifest_files, read_bounded, read_files};
