//! Tracking a write that is not an apply.
//!
//! The writer becomes the only owner of what it changed, and keeps what it owned. A value sent
//! again unchanged changes nothing; the object itself is never altered here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    context::{ManagedKind, WriteContext},
    managers::{ManagerEntry, ManagerKey, ManagerOperation, Managers, set_managed_fields},
    updater::{Updater, unowned},
    validate::{DuplicateItems, SchemaErrors},
    versioned_object::VersionedObject,
};

/// Updaters beyond this number are merged into one, the oldest first.
const MAX_UPDATERS: usize = 10;

/// The manager that replaces old updaters.
const ANCIENT: &str = "ancient-changes";

/// Tracks a write that is not an apply: sets `new`'s `metadata.managedFields`.
///
/// `live` is the stored object, `None` on create. `new` is the object as it will be stored, in any
/// served version, with the request's own `managedFields` still in it: valid ones replace the
/// stored ones, `[]` and `[{}]` reset all ownership, and absent or invalid ones leave the stored
/// ones in place, as always on a subresource. So an empty list must still be in `new`.
///
/// A stored object without any entry stays untracked. If something does not fit the tables, such as
/// an item without its key, the object has no entries afterwards.
///
/// Linear in the sizes of both objects and of all entries, times the logarithm of the widest level;
/// once more for each version that entries are in.
pub fn track_update(
    kinds: &dyn ManagedKind,
    live: Option<&Value>,
    new: &mut Value,
    context: &WriteContext<'_>,
) {
    let request = Updater { kinds, context };
    let start = start_set(kinds, live, new, context);
    let managers = if start.is_empty() && live.is_some() {
        None
    } else {
        request.tracked(live, new, start)
    };
    set_managed_fields(new, managers.and_then(|managers| managers.encode()));
}

fn start_set(
    kinds: &dyn ManagedKind,
    live: Option<&Value>,
    new: &Value,
    context: &WriteContext<'_>,
) -> Managers {
    let stored = || {
        let stored = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
        Managers::decode(stored, kinds.deepest_fields()).unwrap_or_default()
    };
    if !context.subresource.is_empty() {
        return stored();
    }
    let sent = &new["metadata"]["managedFields"];
    if is_reset(sent) {
        return Managers::default();
    }
    match Managers::decode(sent, kinds.deepest_fields()) {
        Ok(managers) if !managers.is_empty() => managers,
        _ => stored(),
    }
}

fn is_reset(managed_fields: &Value) -> bool {
    match managed_fields.as_array().map(Vec::as_slice) {
        Some([] | [Value::Null]) => true,
        Some([Value::Object(entry)]) => entry.values().all(is_unset),
        _ => false,
    }
}

fn is_unset(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

impl<'a> Updater<'a> {
    /// The managers after the write; `None` if it cannot be tracked.
    fn tracked(
        &self,
        live: Option<&Value>,
        new: &Value,
        mut managers: Managers,
    ) -> Option<Managers> {
        let version = self.context.api_version;
        let new = VersionedObject::of(self.kinds, new, version)?;
        let live = match live {
            Some(live) => VersionedObject::of(self.kinds, live, version)?,
            None => VersionedObject::zero(self.kinds, version)?,
        };
        if new.is_custom() && !self.fits_all_versions([&live, &new], &managers) {
            return None;
        }
        self.track(&live, &new, &mut managers, self.context.manager_name())
            .ok()?;
        Some(managers)
    }

    /// Whether objects of a custom resource can be read in the versions of all entries: a server forgets all of them if not, where it would only
    /// forget some of a built-in kind.
    fn fits_all_versions(&self, objects: [&VersionedObject<'a>; 2], managers: &Managers) -> bool {
        // Each version once: clients send as many entries as they like.
        let versions: BTreeSet<&str> = managers
            .iter()
            .map(|(_, entry)| &*entry.version)
            .filter(|version| *version != self.context.api_version)
            .collect();
        versions.iter().all(|version| {
            objects.iter().all(|object| {
                let converted = object.to(self.kinds, version);
                converted.is_some_and(|object| object.validate(DuplicateItems::Refused).is_ok())
            })
        })
    }

    /// Makes the manager own what changed between two objects.
    ///
    /// # Errors
    ///
    /// The first value that does not fit the tables.
    pub(super) fn track(
        &self,
        live: &VersionedObject<'a>,
        new: &VersionedObject<'a>,
        managers: &mut Managers,
        manager: &str,
    ) -> Result<(), SchemaErrors> {
        new.validate(DuplicateItems::Allowed)?;
        live.validate(DuplicateItems::Allowed)?;
        self.reconcile(managers);
        // Under force there are no conflicts.
        let change = self
            .settle(live, new, managers, None, true)
            .unwrap_or_default();
        let taken = change.set.difference(&unowned());
        if !taken.is_empty() {
            let version = live.version();
            let subresource = self.context.subresource;
            let identity = ManagerKey::new(manager, ManagerOperation::Update, version, subresource);
            let mut set = taken;
            if let Some(earlier) = managers.remove(&identity) {
                set.unite(earlier.set);
            }
            let entry = ManagerEntry {
                version: version.to_owned(),
                set,
                time: Some(self.context.now.to_owned()),
            };
            managers.insert(identity, entry);
        }
        cap_updaters(managers);
        Ok(())
    }
}

/// Merges the oldest updaters of one version, until there are few enough, or no two of the same
/// version.
fn cap_updaters(managers: &mut Managers) {
    let updaters = managers.updaters_by_age();
    let mut count = updaters.len();
    let mut first_of_version: Vec<(String, ManagerKey)> = Vec::new();
    for updater in updaters {
        if count <= MAX_UPDATERS {
            break;
        }
        let Some(entry) = managers.get(&updater) else {
            continue;
        };
        let version = entry.version.clone();
        let known = first_of_version.iter().find(|(known, _)| *known == version);
        match known {
            Some((_, first)) => {
                merge_into_ancient(managers, first, &updater, &version);
                count -= 1;
            }
            None => first_of_version.push((version, updater)),
        }
    }
}

fn merge_into_ancient(
    managers: &mut Managers,
    first: &ManagerKey,
    updater: &ManagerKey,
    version: &str,
) {
    let bucket = ManagerKey::new(ANCIENT, ManagerOperation::Update, version, "");
    if managers.get(&bucket).is_none()
        && let Some(entry) = managers.remove(first)
    {
        managers.insert(bucket.clone(), entry);
    }
    let Some(entry) = managers.remove(updater) else {
        return;
    };
    match managers.get_mut(&bucket) {
        Some(ancient) => {
            ancient.set.unite(entry.set);
            ancient.time = entry.time;
        }
        None => managers.insert(bucket, entry),
    }
}
