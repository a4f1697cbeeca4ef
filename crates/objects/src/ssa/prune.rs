//! Removing what an applier no longer applies.
//!
//! A path is removed if the applier owned it last time and no manager, including the applier, owns
//! it now. What no manager ever owned stays, unless what contains it is removed.
//!
//! The last applied set may be of another version than the new one, and those of other managers of
//! further versions.

use super::{
    context::ManagedKind,
    field_set::field_set,
    managers::{ManagerEntry, Managers},
    merge,
    path_set::PathSet,
    versioned_object::VersionedObject,
};

/// The merged object without the paths that only the last applied set has.
pub(super) fn prune<'a>(
    kinds: &'a dyn ManagedKind,
    merged: VersionedObject<'a>,
    managers: &Managers,
    last: &ManagerEntry,
) -> VersionedObject<'a> {
    if last.set.is_empty() {
        return merged;
    }
    let Some(then) = merged.to(kinds, &last.version) else {
        return merged;
    };
    let stripped = without(&then, &then.with_struct_fields(&last.set));
    let pruned = add_back_owned(kinds, &then, stripped, managers);
    let pruned = add_back_unclaimed(kinds, &then, &pruned, &last.set);
    match pruned.to(kinds, merged.version()) {
        Some(pruned) => pruned.into_owned(),
        None => merged,
    }
}

/// Adds back what any manager owns now.
fn add_back_owned<'a>(
    kinds: &'a dyn ManagedKind,
    merged: &VersionedObject<'a>,
    pruned: VersionedObject<'a>,
    managers: &Managers,
) -> VersionedObject<'a> {
    let mut versions: Vec<(&str, PathSet)> = vec![(merged.version(), PathSet::default())];
    for (_, entry) in managers.iter() {
        match versions
            .iter_mut()
            .find(|(version, _)| *version == entry.version)
        {
            Some((_, set)) => set.unite(entry.set.clone()),
            None => versions.push((&entry.version, entry.set.clone())),
        }
    }
    let mut pruned = pruned;
    for (version, owned) in versions {
        let (Some(merged), Some(before)) = (merged.to(kinds, version), pruned.to(kinds, version))
        else {
            continue;
        };
        let mut kept = members(&before);
        kept.unite(merged.with_struct_fields(&owned));
        pruned = without(&merged, &members(&merged).difference(&kept));
    }
    pruned
}

/// Adds back what the last applied set did not have.
fn add_back_unclaimed<'a>(
    kinds: &'a dyn ManagedKind,
    merged: &VersionedObject<'a>,
    pruned: &VersionedObject<'a>,
    last: &PathSet,
) -> VersionedObject<'a> {
    let Some(pruned) = pruned.to(kinds, merged.version()) else {
        return merged.clone();
    };
    let lost = members(merged).difference(&members(&pruned));
    without(merged, &lost.intersection(&merged.with_struct_fields(last)))
}

fn members(body: &VersionedObject<'_>) -> PathSet {
    body.with_struct_fields(&field_set(body.ty(), body.value()))
}

fn without<'a>(body: &VersionedObject<'a>, gone: &PathSet) -> VersionedObject<'a> {
    body.with(merge::remove(body.ty(), body.value(), gone))
}
