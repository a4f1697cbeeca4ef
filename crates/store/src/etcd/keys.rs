//! What lies where in etcd: Kubernetes' layout below a prefix of our own.
//!
//! | key | what |
//! |---|---|
//! | `<prefix>/flowschemas/catch-all` | an object, as Kubernetes names it below `/registry` |
//! | `<prefix>/.format` | the marker: these keys are fairgate's, and of which format |
//! | `<prefix>/.compaction` | whose turn it is to compact |
//!
//! No segment of an object's key begins with a dot, so the two cannot meet.

use std::sync::Arc;

use crate::{
    entry::{check_key, check_prefix},
    error::StoreError,
};

/// What the marker says.
pub(super) const FORMAT: &str = "fairgate 1";

/// The keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Begins with a slash, does not end with one.
    prefix: String,
}

/// What a key is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object(Arc<str>),
    Marker,
    /// Of no interest to readers.
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

    pub(super) fn compaction(&self) -> String {
        format!("{}/.compaction", self.prefix)
    }

    /// The key of an object, or a prefix of such, as etcd knows it.
    pub(super) fn full(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.prefix).into()
    }

    /// The first key after all that begin with `below`, which ends with a slash.
    pub(super) fn end(&self, below: &str) -> Result<Vec<u8>, StoreError> {
        check_prefix(below)?;
        let mut end = self.full(below);
        end.pop();
        end.push(b'/' + 1);
        Ok(end)
    }

    /// What `key`, of those below the prefix, is.
    pub(super) fn kind(&self, key: &[u8]) -> Result<Kind, StoreError> {
        let foreign = || StoreError::Foreign {
            what: format!(
                "{} below {} in etcd is no key of fairgate's",
                String::from_utf8_lossy(key),
                self.prefix
            ),
        };
        let text = std::str::from_utf8(key).map_err(|_| foreign())?;
        let key = text.strip_prefix(&self.prefix).ok_or_else(foreign)?;
        match key {
            "/.format" => Ok(Kind::Marker),
            "/.compaction" => Ok(Kind::Internal),
            object => match check_key(object) {
                Ok(()) => Ok(Kind::Object(object.into())),
                Err(_) => Err(foreign()),
            },
        }
    }

    /// What to say when there are keys below the prefix, but no marker, or one that is not ours.
    pub(super) fn foreign(&self, marker: Option<&[u8]>) -> StoreError {
        let prefix = &self.prefix;
        StoreError::Foreign {
            what: match marker {
                None => format!("below {prefix} in etcd lie keys that are not fairgate's"),
                Some(found) => format!(
                    "{prefix}/.format in etcd says {:?}, and this fairgate knows {FORMAT:?} alone",
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
    fn objects_lie_below_the_prefix_as_kubernetes_names_them() {
        let keys = Keys::new("/fairgate/").unwrap();
        let full = keys.full("/flowschemas/catch-all");
        assert_eq!(full, b"/fairgate/flowschemas/catch-all");
        let object = Kind::Object("/flowschemas/catch-all".into());
        assert_eq!(keys.kind(&full).unwrap(), object);
        assert_eq!(keys.kind(keys.marker().as_bytes()).unwrap(), Kind::Marker);
        let internal = keys.kind(keys.compaction().as_bytes()).unwrap();
        assert_eq!(internal, Kind::Internal);
        assert_eq!(keys.end("/").unwrap(), b"/fairgate0");
        assert_eq!(keys.end("/pods/").unwrap(), b"/fairgate/pods0");
    }

    #[test]
    fn what_is_no_key_of_ours_is_foreign() {
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
