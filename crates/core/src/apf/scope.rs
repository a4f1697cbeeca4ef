//! The scope of an object count: a resource, in all namespaces or in one.
//!
//! Maps that are read for each request are keyed by the bytes of several names in sequence, which a
//! lookup assembles on its stack: a lookup allocates nothing.

use smallvec::SmallVec;

use crate::digest::RequestInfo;

/// No real object has a key whose names, with their lengths, take more bytes than this.
pub(super) const MAX_KEY_BYTES: usize = 1024;

/// A resource, in all namespaces or in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatsScope<'a> {
    /// The API group; empty for the core group.
    pub group: &'a [u8],
    /// The resource, plural.
    pub resource: &'a [u8],
    /// The namespace; `None` for the whole resource.
    pub namespace: Option<&'a [u8]>,
}

impl<'a> StatsScope<'a> {
    /// The scope that a request reads or writes in.
    pub fn of(info: &'a RequestInfo) -> Self {
        Self {
            group: info.group(),
            resource: info.resource(),
            namespace: Some(info.namespace()).filter(|namespace| !namespace.is_empty()),
        }
    }

    /// The same resource in all namespaces.
    #[must_use]
    pub const fn whole(self) -> Self {
        Self {
            namespace: None,
            ..self
        }
    }

    pub(super) fn key(&self) -> ScopeKey {
        key([
            self.group,
            self.resource,
            self.namespace.unwrap_or_default(),
        ])
    }
}

/// Several names as one sequence of bytes, on the stack if they are of usual length.
pub(super) type ScopeKey = SmallVec<[u8; 120]>;

/// Each name after its length, so that no two lists of names share a key.
pub(super) fn key<const N: usize>(names: [&[u8]; N]) -> ScopeKey {
    let mut key = ScopeKey::new();
    for name in names {
        key.extend_from_slice(&name.len().to_le_bytes());
        key.extend_from_slice(name);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_have_different_keys_whatever_bytes_they_hold() {
        assert_ne!(key([b"a\0b", b"c"]), key([b"a", b"b\0c"]));
        assert_ne!(key([b"ab", b""]), key([b"a", b"b"]));
        assert_eq!(key([b"ab", b"c"]), key([b"ab", b"c"]));
    }
}
