//! The labels of a pod, stored compactly: the controller keeps those of every pod of the cluster.

use std::sync::Arc;

use fairgate_objects::selector::LabelSet;
use serde_json::Value;

use crate::read::{MalformedObject, ObjectField};

/// The labels of a pod, sorted by key. Clones share the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLabels(Arc<[(Box<str>, Box<str>)]>);

impl PodLabels {
    pub(crate) fn read(field: ObjectField<'_, '_>) -> Result<Self, MalformedObject> {
        let mut labels = Vec::new();
        for (key, value) in field.map()?.into_iter().flatten() {
            let Value::String(value) = value else {
                return Err(MalformedObject {
                    field: format!("{}[{key}]", field.path()),
                    expected: "a string",
                });
            };
            labels.push((key.as_str().into(), value.as_str().into()));
        }
        labels.sort();
        Ok(Self(labels.into()))
    }

    /// The value of the label `key`. It costs `O(log n)` comparisons.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(other, _)| (**other).cmp(key))
            .ok()?;
        Some(&self.0[at].1)
    }
}

impl LabelSet for PodLabels {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.get(key)
    }

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}
