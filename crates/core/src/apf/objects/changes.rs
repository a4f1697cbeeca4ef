//! Which objects of a set are new, changed or gone, for the log.

use std::{collections::BTreeMap, sync::Arc};

use super::{Located, ObjectSet, PolicyObject};

/// What is different between two sets. Each object is named as `FlowSchema name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectChanges {
    /// Objects that only the new set has.
    pub added: Vec<String>,
    /// Objects that are different.
    pub changed: Vec<String>,
    /// Objects that only the old set had.
    pub gone: Vec<String>,
}

impl ObjectChanges {
    /// What is different in `new`. Built-in objects count only if they are given. Costs `O(n log n)`.
    pub fn between(old: &ObjectSet, new: &ObjectSet) -> Self {
        let mut changes = Self::default();
        changes.compare(&old.priority_levels, &new.priority_levels);
        changes.compare(&old.flow_schemas, &new.flow_schemas);
        changes
    }

    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.gone.is_empty()
    }

    fn compare<T: PolicyObject>(&mut self, old: &[Arc<Located<T>>], new: &[Arc<Located<T>>]) {
        let (old, new) = (by_name(old), by_name(new));
        let named = |name: &&str| format!("{} {name}", T::KIND);
        for (name, object) in &new {
            match old.get(name) {
                None => self.added.push(named(name)),
                Some(before) if !before.has_same_spec(object) => self.changed.push(named(name)),
                Some(_) => {}
            }
        }
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        self.gone.extend(gone.map(named));
    }
}

fn by_name<T: PolicyObject>(objects: &[Arc<Located<T>>]) -> BTreeMap<&str, &T> {
    let objects = objects.iter().map(|located| &located.object);
    objects.map(|object| (object.name(), object)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Levels with these names and shares, and a schema of the same name for each.
    fn set(levels: &[(&str, i32)]) -> ObjectSet {
        let version = "flowcontrol.apiserver.k8s.io/v1";
        let documents = levels.iter().flat_map(|(name, shares)| {
            let level = json!({
                "apiVersion": version, "kind": "PriorityLevelConfiguration", "metadata": {"name": name},
                "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"}}},
            });
            let schema = json!({
                "apiVersion": version, "kind": "FlowSchema", "metadata": {"name": name},
                "spec": {"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 7},
            });
            [("a.yaml", level), ("a.yaml", schema)]
        });
        let set = ObjectSet::read(documents);
        assert!(set.findings().is_empty(), "{:?}", set.findings());
        set
    }

    #[test]
    fn objects_are_named_by_what_became_of_them() {
        let (old, new) = (
            set(&[("a", 1), ("b", 2), ("c", 3)]),
            set(&[("b", 20), ("c", 3), ("d", 4)]),
        );
        let changes = ObjectChanges::between(&old, &new);
        assert_eq!(
            changes.added,
            ["PriorityLevelConfiguration d", "FlowSchema d"]
        );
        assert_eq!(changes.changed, ["PriorityLevelConfiguration b"]);
        assert_eq!(
            changes.gone,
            ["PriorityLevelConfiguration a", "FlowSchema a"]
        );
        assert!(ObjectChanges::between(&new, &new).is_empty());
    }
}
