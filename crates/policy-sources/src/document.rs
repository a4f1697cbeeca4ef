//! One policy object as its source has it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A document as it is, with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyDocument {
    /// Where it comes from, such as `file.yaml, document 2`.
    pub origin: String,
    /// What it contains.
    pub object: Value,
}
