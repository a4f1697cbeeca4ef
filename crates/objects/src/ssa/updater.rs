//! The effect of a write on the other managers.
//!
//! Each entry is compared in its own version: a path it owns that was set to another value is lost,
//! or in conflict; a path that was removed is lost in any case.

use super::{
    conflict::ConflictSet,
    context::{ManagedKind, WriteContext},
    managers::{ManagerKey, Managers},
    path::PathElement,
    path_set::PathSet,
    shape::reconciled,
    versioned_object::VersionedObject,
};

/// What ownership tracking needs of a write.
#[derive(Clone, Copy)]
pub(super) struct Updater<'a> {
    pub(super) kinds: &'a dyn ManagedKind,
    pub(super) context: &'a WriteContext<'a>,
}

impl<'a> Updater<'a> {
    /// The paths that a writer of the endpoint cannot own.
    pub(super) fn reset_fields(&self, version: &str) -> PathSet {
        PathSet::of_names(self.kinds.reset_fields(version, self.context.subresource))
    }

    /// Takes what changed from `live` to `new` from all managers except `own`, and drops managers
    /// that own nothing any more or used a version that is not served.
    ///
    /// Returns what changed in the version of the two objects.
    ///
    /// # Errors
    ///
    /// Without `force`, the changed paths that others own.
    pub(super) fn settle(
        &self,
        live: &VersionedObject<'a>,
        new: &VersionedObject<'a>,
        managers: &mut Managers,
        own: Option<&ManagerKey>,
        force: bool,
    ) -> Result<TrackedWrite, ConflictSet> {
        let mut changes = Changes {
            request: *self,
            live,
            new,
            by_version: Vec::new(),
        };
        let mut conflicts = ConflictSet::default();
        managers.retain(|identity, entry| {
            if own == Some(identity) {
                return true;
            }
            let Some(change) = changes.in_version(&entry.version) else {
                return false;
            };
            let lost = entry.set.intersection(&change.set);
            for gone in [&lost, &change.removed] {
                if !gone.is_empty() {
                    entry.set = entry.set.difference(gone);
                }
            }
            // Under force nothing is reported, so nothing is kept to report.
            if !force && !lost.is_empty() {
                conflicts.push(identity.clone(), lost);
            }
            true
        });
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        managers.retain(|_, entry| !entry.set.is_empty());
        Ok(changes.into_version(live.version()))
    }

    /// Drops entries of versions that are not served, and shortens paths into values that are
    /// atomic by now.
    pub(super) fn reconcile(&self, managers: &mut Managers) {
        managers.retain(|_, entry| {
            let Some(shape) = self.kinds.object_type(&entry.version) else {
                return false;
            };
            entry.set = reconciled(&entry.set, shape.root());
            true
        });
    }
}

/// What changed between two objects, as far as writers of the endpoint can own it.
#[derive(Clone, Debug, Default)]
pub(super) struct TrackedWrite {
    /// The paths whose value was changed or added.
    pub(super) set: PathSet,
    /// The paths that were removed.
    pub(super) removed: PathSet,
}

/// What changed between two objects in each version, computed once.
struct Changes<'a> {
    request: Updater<'a>,
    live: &'a VersionedObject<'a>,
    new: &'a VersionedObject<'a>,
    by_version: Vec<(String, Option<TrackedWrite>)>,
}

impl Changes<'_> {
    /// `None` if the version is not served.
    fn in_version(&mut self, version: &str) -> Option<&TrackedWrite> {
        let known = self
            .by_version
            .iter()
            .position(|(known, _)| known == version);
        let index = known.unwrap_or_else(|| {
            let change = self.find(version);
            self.by_version.push((version.to_owned(), change));
            self.by_version.len() - 1
        });
        self.by_version[index].1.as_ref()
    }

    /// Empty if the version is not served.
    fn into_version(mut self, version: &str) -> TrackedWrite {
        let known = self
            .by_version
            .iter()
            .position(|(known, _)| known == version);
        let change = match known {
            Some(index) => self.by_version.swap_remove(index).1,
            None => self.find(version),
        };
        change.unwrap_or_default()
    }

    fn find(&self, version: &str) -> Option<TrackedWrite> {
        let kinds = self.request.kinds;
        let (live, new) = (self.live.to(kinds, version)?, self.new.to(kinds, version)?);
        let reset = self.request.reset_fields(version);
        let comparison = live.compare(&new);
        Some(TrackedWrite {
            removed: comparison.removed.without_trees(&reset),
            set: comparison.into_set_now().without_trees(&reset),
        })
    }
}

/// Removes the paths that no manager can own from the acting manager's entry, and the entry if that
/// was all.
pub(super) fn strip(managers: &mut Managers, identity: &ManagerKey) {
    let Some(entry) = managers.get_mut(identity) else {
        return;
    };
    entry.set = entry.set.difference(&unowned());
    if entry.set.is_empty() {
        managers.remove(identity);
    }
}

/// The paths that no manager can own.
pub(super) fn unowned() -> PathSet {
    let mut unowned = PathSet::of_names(&["apiVersion", "kind", "metadata"]);
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    for name in metadata {
        unowned.insert(&[PathElement::name("metadata"), PathElement::name(name)]);
    }
    unowned
}
