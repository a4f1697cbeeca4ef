//! What a JSON patch makes of the version of its object, by its operations alone.
//!
//! Paths are read as the library of kube-apiserver does: what stands before the first slash does not count.
//!
//! Source: `evanphx/json-patch`, `findObject`.

use serde_json::Value;

/// The version after a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatchedVersion {
    /// That before the patch.
    Unchanged,
    /// None.
    Removed,
    /// This one.
    Set(String),
    /// It depends on the object, or it is no text.
    Unknown,
}

/// What an operation reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Elsewhere,
    Version,
    Metadata,
    Object,
}

impl PatchedVersion {
    /// The version after these operations.
    pub(crate) fn after(operations: &[Value]) -> Self {
        let mut version = Self::Unchanged;
        for operation in operations {
            version = version.then(operation);
        }
        version
    }

    fn then(self, operation: &Value) -> Self {
        let path = reached(&operation["path"]);
        match operation["op"].as_str() {
            Some("test") => self,
            Some("add" | "replace") => match path {
                Reached::Elsewhere => self,
                Reached::Version => Self::of(&operation["value"]),
                Reached::Metadata => Self::of(&operation["value"]["resourceVersion"]),
                Reached::Object => Self::of(&operation["value"]["metadata"]["resourceVersion"]),
            },
            Some("remove" | "copy") if path == Reached::Elsewhere => self,
            Some("remove") => Self::Removed,
            Some("move") if path == Reached::Elsewhere && reached(&operation["from"]) == path => {
                self
            }
            _ => Self::Unknown,
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Removed,
            Value::String(version) => Self::Set(version.clone()),
            _ => Self::Unknown,
        }
    }
}

fn reached(path: &Value) -> Reached {
    let Some(path) = path.as_str() else {
        return Reached::Object;
    };
    match path.split_once('/').map(|(_, rest)| rest) {
        None => Reached::Object,
        Some("metadata") => Reached::Metadata,
        Some("metadata/resourceVersion") => Reached::Version,
        Some(_) => Reached::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_operation_that_reaches_the_version_counts() {
        let set = |version: &str| PatchedVersion::Set(version.to_owned());
        let path = "/metadata/resourceVersion";
        for (operations, expected) in [
            (json!([]), PatchedVersion::Unchanged),
            (
                json!([{"op": "add", "path": "/metadata/labels/a", "value": "1"},
                {"op": "copy", "from": path, "path": "/data/v"}, {"op": "test", "path": path, "value": "6"}]),
                PatchedVersion::Unchanged,
            ),
            (json!([{"op": "add", "path": path, "value": "0"}]), set("0")),
            (
                json!([{"op": "add", "path": path, "value": "0"}, {"op": "replace", "path": path, "value": "7"}]),
                set("7"),
            ),
            (
                json!([{"op": "add", "path": "x/metadata/resourceVersion", "value": "5"}]),
                set("5"),
            ),
            (
                json!([{"op": "remove", "path": path}]),
                PatchedVersion::Removed,
            ),
            (
                json!([{"op": "replace", "path": "/metadata", "value": {"name": "m"}}]),
                PatchedVersion::Removed,
            ),
            (
                json!([{"op": "replace", "path": "", "value": {"metadata": {"resourceVersion": "3"}}}]),
                set("3"),
            ),
            (
                json!([{"op": "copy", "from": "/data/v", "path": path}]),
                PatchedVersion::Unknown,
            ),
            (
                json!([{"op": "move", "from": path, "path": "/data/v"}]),
                PatchedVersion::Unknown,
            ),
            (
                json!([{"op": "add", "path": path, "value": 0}]),
                PatchedVersion::Unknown,
            ),
            (json!([{"op": "odd", "path": 5}]), PatchedVersion::Unknown),
        ] {
            let found = PatchedVersion::after(operations.as_array().unwrap());
            assert_eq!(found, expected, "{operations}");
        }
    }
}
