//! The keys of stores that an older version of fairgate wrote.
//!
//! In format 1 a key was `/<resource>/<name>`: all objects belonged to one API group. Since format 2 the
//! group comes first: `/<group>/<resource>/<name>`, or `/<group>/<resource>/<namespace>/<name>`. Both stores
//! are migrated when they are opened. An older version refuses the new format.

/// The API group of all objects in stores of format 1.
const FORMAT_1_GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The present key of an object that format 1 had at `key`.
pub(crate) fn key_from_format_1(key: &str) -> String {
    format!("/{FORMAT_1_GROUP}{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_comes_first() {
        assert_eq!(
            key_from_format_1("/flowschemas/catch-all"),
            "/flowcontrol.apiserver.k8s.io/flowschemas/catch-all"
        );
    }
}
