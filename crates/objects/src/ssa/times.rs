//! Writes that change only the times of `managedFields`.

use serde_json::{Map, Value};

/// Whether `old` and `new` differ in nothing but times of `managedFields`; if so, `new` gets the old
/// times, and is then equal to `old`. Both are canonical and in one version.
///
/// Call it when `new` is otherwise as it would be stored. Linear in the objects' sizes.
pub fn keep_times_if_unchanged(old: &Value, new: &mut Value) -> bool {
    let (Some(old_fields), Some(new_fields)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let equal = equal_but(old_fields, new_fields, "metadata", |old, new| {
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
            return old == new;
        };
        equal_but(old, new, "managedFields", equal_entries)
    });
    if !equal || old == new {
        return false;
    }
    new.clone_from(old);
    true
}

/// Whether two objects are equal, with a separate comparison for one field.
fn equal_but(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    name: &str,
    equal: impl Fn(&Value, &Value) -> bool,
) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((key, old), (other, new))| {
            key == other
                && (if key == name {
                    equal(old, new)
                } else {
                    old == new
                })
        })
}

fn equal_entries(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_array(), new.as_array()) else {
        return old == new;
    };
    old.len() == new.len()
        && old
            .iter()
            .zip(new)
            .all(|(old, new)| timeless(old).eq(timeless(new)))
}

fn timeless(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = entry.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "time")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(time: Option<&str>, label: &str) -> Value {
        let mut entry = json!({"manager": "m", "operation": "Apply"});
        if let Some(time) = time {
            entry["time"] = json!(time);
        }
        json!({"metadata": {"labels": {"a": label}, "managedFields": [entry]}})
    }

    #[test]
    fn old_times_come_back_if_nothing_else_changed() {
        let old = object(Some("2026-01-01T00:00:00Z"), "x");
        for time in [Some("2026-01-02T00:00:00Z"), None] {
            let mut new = object(time, "x");
            assert!(keep_times_if_unchanged(&old, &mut new));
            assert_eq!(new, old);
        }
    }

    #[test]
    fn new_times_stay_if_anything_else_changed() {
        let old = object(Some("2026-01-01T00:00:00Z"), "x");
        let changed = object(Some("2026-01-02T00:00:00Z"), "y");
        let mut new = changed.clone();
        assert!(!keep_times_if_unchanged(&old, &mut new));
        assert_eq!(new, changed);
        let mut same = old.clone();
        assert!(!keep_times_if_unchanged(&old, &mut same));
    }
}
