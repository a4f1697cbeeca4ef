//! Server-side apply and field ownership (KEP-555), for any kind that has a schema table.
//!
//! Every write is tracked: `metadata.managedFields` says which manager set which fields, and by what
//! kind of write. An apply may only change fields that belong to nobody else, unless it is forced.
//! Upstream's structured-merge-diff v6 and its field manager are what this does the same as, quirks
//! included.
//!
//! Two ways through it: [`track_update`] after any other write, and [`apply()`]. Both work on an
//! object in one version (`body`), and let the same step settle what becomes of the other managers
//! (`settle`). Below are sets of paths (`set`, `fields_v1`), and what a schema table makes of
//! values: whether they fit it (`validate`), the paths they set (`field_set`), what changed
//! between two (`compare`), and one put over another (`merge`).
//!
//! Everything is pure: objects and time come in, objects go out. What recurses follows a schema
//! table or a stored set of bounded depth; plain values are as deep as whoever read them allowed.
//!
//! Not here: decoding and defaulting what comes out of an apply, other patches, what an endpoint
//! keeps of a request, and admission.

mod apply;
mod body;
mod compare;
mod conflict;
mod field_set;
mod fields_v1;
mod go;
mod last_applied;
mod managers;
mod merge;
mod path;
mod prune;
mod set;
mod settle;
mod shape;
#[cfg(test)]
mod tests;
mod times;
mod update;
mod validate;

use serde_json::Value;

pub use self::{
    apply::apply,
    conflict::{ApplyError, Conflict},
    times::keep_times_if_unchanged,
    update::track_update,
};
use super::schema::Struct;

/// What ownership has to know about one kind.
pub trait Kinds {
    /// The schema table of the kind in a version such as `flowcontrol.apiserver.k8s.io/v1`; `None` if
    /// that is not served. The table's name is the kind's.
    fn shape(&self, api_version: &str) -> Option<&'static Struct>;

    /// An object of the kind as it is in another version, without defaults; `None` if that is not
    /// served.
    ///
    /// `apiVersion` says which version the object is in. It need not be canonical: after an apply was
    /// merged, nulls and empty values are still in it and fields that are always there may be
    /// missing. The result must be canonical.
    fn convert(&self, object: &Value, to: &str) -> Option<Value>;

    /// The fields of the object that a writer of an endpoint cannot own, such as `status` on the main
    /// endpoint; for entries of this version.
    fn reset_fields(&self, api_version: &str, subresource: &str) -> &'static [&'static str];
}

/// Who writes, where and when.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The field manager; an empty one is recorded as `unknown`.
    pub manager: &'a str,
    /// The subresource written to; empty for the object itself.
    pub subresource: &'a str,
    /// The version of the endpoint.
    pub api_version: &'a str,
    /// The time, RFC 3339 in whole seconds of UTC.
    pub now: &'a str,
}
