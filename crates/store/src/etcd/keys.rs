//! The layout of keys in etcd, below a configurable prefix.
//!
//! | key | meaning |
//! |---|---|
//! | `<prefix>/<group>/flowschemas/catch-all` | an object |
//! | `<prefix>/.format` | the marker: the keys belong to fairgate, and have this format |
//! | `<prefix>/.migrating` | instead of the marker while keys of an older format are migrated |
//! | `<prefix>/.compaction` | which replica compacts next |
//!
//! No segment of an object's key begins with a dot, so internal keys cannot collide with objects.

use std::sync::Arc;

use crate::{
    entry::{check_key, check_prefix},
    error::StoreError,
};

/// The value of the marker.
pub(super) const FORMAT: &str = "fairgate 2";
/// The value of the marker of an older version, whose keys have no API group.
pub(super) const FORMAT_1: &str = "fairgate 1";

/// The keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Begins with a slash, does not end with one.
    prefix: String,
}

/// The kind of a key below the prefix.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Object(Arc<str>),
    Marker,
    /// Ignored by readers.
    Internal,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Result<Self, StoreError> {
        let prefix = prefix.trim_end_matches('/');
        check_key(prefix)?;
        Ok(Self {
            prefix: prefix.to_owned(),
        })
    }

    pub(super) fn marker(&self) -> String {
        format!("{}/.format", self.prefix)
    }

    pub(super) fn migrating(&self) -> String {
        format!("{}/.migrating", self.prefix)
    }

    pub(super) fn compaction(&self) -> String {
        format!("{}/.compaction", self.prefix)
    }

    /// The key in etcd of an object, or of a prefix of objects.
    pub(super) fn full(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.prefix).into()
    }

    /// The end of the range of keys that begin with `below`, exclusive. `below` ends with a slash.
    pub(super) fn end(&self, below: &str) -> Result<Vec<u8>, StoreError> {
        check_prefix(below)?;
        let mut end = self.full(below);
        end.pop();
        end.push(b'/' + 1);
        Ok(end)
    }

    /// The kind of `key`, an etcd key below the prefix.
    pub(super) fn kind(&self, key: &[u8]) -> Result<KeyKind, StoreError> {
        let foreign = || StoreError::Foreign {
            what: format!(
                "the key {} below {} in etcd does not belong to fairgate",
                String::from_utf8_lossy(key),
                self.prefix
            ),
        };
        let text = std::str::from_utf8(key).map_err(|_| foreign())?;
        let key = text.strip_prefix(&self.prefix).ok_or_else(foreign)?;
        match key {
            "/.format" => Ok(KeyKind::Marker),
            "/.compaction" | "/.migrating" => Ok(KeyKind::Internal),
            object => match check_key(object) {
                Ok(()) => Ok(KeyKind::Object(object.into())),
                Err(_) => Err(foreign()),
            },
        }
    }

    /// The error for keys below the prefix without a marker, or with an unknown one.
    pub(super) fn foreign(&self, marker: Option<&[u8]>) -> StoreError {
        let prefix = &self.prefix;
        StoreError::Foreign {
            what: match marker {
                None => {
                    format!("there are keys below {prefix} in etcd that do not belong to fairgate")
                }
                Some(found) => format!(
                    "{prefix}/.format in etcd has the format {:?}, but this fairgate supports {FORMAT_1:?} and {FORMAT:?} only",
                    String::from_utf8_lossy(found)
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_below_the_prefix() {
        let keys = Keys::new("/fairgate/").unwrap();
        let full = keys.full("/g/flowschemas/catch-all");
        assert_eq!(full, b"/fairgate/g/flowschemas/catch-all");
        let object = KeyKind::Object("/g/flowschemas/catch-all".into());
        assert_eq!(keys.kind(&full).unwrap(), object);
        assert_eq!(
            keys.kind(keys.marker().as_bytes()).unwrap(),
            KeyKind::Marker
        );
        let internal = keys.kind(keys.compaction().as_bytes()).unwrap();
        assert_eq!(internal, KeyKind::Internal);
        assert_eq!(keys.end("/").unwrap(), b"/fairgate0");
        assert_eq!(keys.end("/pods/").unwrap(), b"/fairgate/pods0");
    }

    #[test]
    fn other_keys_are_foreign() {
        let keys = Keys::new("/fairgate").unwrap();
        for key in [
            &b"/fairgate/\xff"[..],
            b"/fairgate//a",
            b"/fairgate/.other",
            b"/else/a",
        ] {
            let kind = keys.kind(key);
            assert!(matches!(kind, Err(StoreError::Foreign { .. })), "{kind:?}");
        }
        for prefix in ["", "/", "fairgate", "/a//b"] {
            assert!(Keys::new(prefix).is_err(), "{prefix:?}");
        }
    }
}
