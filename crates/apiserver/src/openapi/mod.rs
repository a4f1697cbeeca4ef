//! OpenAPI: the documents that tell clients which operations there are and what objects consist of.
//!
//! kubectl reads them before it creates, applies or explains anything. Both are generated, from the
//! table of kinds and the tables of their fields: [`v3`] has a document per group version, [`v2`] one
//! for all. [`v2_proto`] and [`v3_proto`] write them as protobuf, which some clients insist on.
//! [`merge_v2`] and [`merge_v3_index`] put ours into those of an upstream server.
//!
//! All functions are pure, and expensive enough (up to some milliseconds) that whoever serves the
//! documents makes each once.
//!
//! Inside: `operations` is the model of paths and methods, with `parameters`; `definitions` makes the
//! schemas, in the dialect of v3; `names` names all of it; `shared` holds the types that belong to no
//! kind; `proto` is what both protobuf forms are written with.
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

pub(crate) use merge::{merge_v2, merge_v3_index};

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

/// What every document says of itself. `version` is the server's, such as `v1.36.3`.
fn info(version: &str) -> Value {
    json!({ "title": "Kubernetes", "version": version })
}

/// How clients make themselves known.
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
