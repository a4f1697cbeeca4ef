//! Server-side apply and field ownership (KEP-555), for any kind that has a schema table, and for custom
//! resources by the schema of their definition.
//!
//! Every write is tracked: `metadata.managedFields` says which manager set which fields, and by what kind of
//! write. An apply may only change fields that no other manager owns, unless it is forced. This behaves like
//! kube-apiserver's field manager with structured-merge-diff v6, including its quirks.
//!
//! There are two entry points: [`apply()`], and [`track_update`] for all other writes. Both work on
//! an object in one version (`versioned_object`), and update the other managers in the same way
//! (`updater`). They use sets of paths (`path_set`, `fields_v1`) and functions that follow a type
//! (`shape`): validation (`validate`), the paths of an object (`field_set`), the differences of two
//! objects (`compare`), and merging (`merge`).
//!
//! Everything is pure: objects and time come in, objects go out. Recursion follows a schema table,
//! a stored set of bounded depth, or, in custom resources, a value, whose depth is bounded where it is parsed.
//!
//! Not here: decoding the result of an apply and its defaults, other patches, which fields an
//! endpoint ignores, and admission.

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
    conflict::{ApplyError, Conflict, ConflictList},
    context::{ManagedKind, WriteContext},
    empty_lists::{carry_empty_lists, drop_empty_lists},
    shape::ObjectType,
    times::keep_times_if_unchanged,
    update::track_update,
};
