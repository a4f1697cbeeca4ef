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
mod compare;
mod conflict;
mod context;
mod empty_lists;
mod field_set;
mod fields_v1;
mod last_applied;
mod managers;
mod merge;
mod path;
mod path_set;
mod prune;
mod shape;
#[cfg(test)]
mod tests;
mod times;
mod update;
mod updater;
mod validate;
mod versioned_object;

pub use self::{
    apply::apply,
    conflict::{ApplyError, Conflict},
    context::{ManagedKind, WriteContext},
    empty_lists::{carry_empty_lists, drop_empty_lists},
    times::keep_times_if_unchanged,
    update::track_update,
};
