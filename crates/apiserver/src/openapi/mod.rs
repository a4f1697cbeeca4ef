//! OpenAPI: the documents that describe the operations and the schemas of objects.
//!
//! kubectl reads them for create, apply and explain. They are generated from the table of kinds and the
//! tables of their fields: [`v3`] has a document per group version, [`v2`] one for all. [`v2_proto`] and
//! [`v3_proto`] encode them as protobuf, which some clients require. [`merge_v2`] and [`merge_v3_index`]
//! merge them into those of an upstream.
//!
//! All functions are pure. Some take milliseconds, so the caller keeps the results.
//!
//! `operations` is the model of paths and methods, with `parameters`; `definitions` generates the schemas,
//! in the form of v3; `names` has the names of schemas and operations; `shared` has the types that belong
//! to no kind; `proto` encodes both protobuf forms.
//!
//! Not here: HTTP.
//!
//! Source: the documents of kube-apiserver 1.36.

mod definitions;
mod merge;
mod names;
mod operations;
mod parameters;
mod proto;
mod shared;
pub(crate) mod v2;
pub(crate) mod v2_proto;
pub(crate) mod v3;
pub(crate) mod v3_proto;

pub(crate) use merge::{merge_v2, merge_v3, merge_v3_index, merged_hash};

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

/// The member `info` of every document. `version` is that of the server, such as `v1.36.3`.
fn info(version: &str) -> Value {
    json!({ "title": "Kubernetes", "version": version })
}

/// The member `securityDefinitions`.
fn bearer_token() -> Value {
    json!({
        "BearerToken": {
            "type": "apiKey",
            "description": "A bearer token.",
            "name": "authorization",
            "in": "header",
        },
    })
}
