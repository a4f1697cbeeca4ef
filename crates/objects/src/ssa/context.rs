//! What the caller says of a write: the kind, the manager, the endpoint, the time.

use serde_json::Value;

use super::shape::ObjectType;
use crate::codec::json::MAX_DEPTH;

/// What field ownership needs of a kind.
pub trait ManagedKind {
    /// The type of the kind's objects in a version such as `flowcontrol.apiserver.k8s.io/v1`; `None` if
    /// that is not served.
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>>;

    /// An object of the kind as it is in another version, without defaults; `None` if that is not
    /// served.
    ///
    /// `apiVersion` says which version the object is in. It need not be canonical: after an apply was
    /// merged, nulls and empty values are still in it and fields that are always there may be
    /// missing. The result must be canonical.
    fn convert(&self, object: &Value, to: &str) -> Option<Value>;

    /// The fields of the object that a writer of an endpoint cannot own, such as `status` on the main
    /// endpoint; for entries of this version. Those within others have dots between the names.
    fn reset_fields(&self, api_version: &str, subresource: &str) -> &'static [&'static str];

    /// The levels that the fields of an entry may have. An entry with more is not well-formed.
    fn deepest_fields(&self) -> usize {
        MAX_DEPTH
    }
}

/// The manager, endpoint and time of a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The field manager; an empty one is recorded as `unknown`.
    pub manager: &'a str,
    /// The subresource written to; empty for the object itself.
    pub subresource: &'a str,
    /// The version of the endpoint.
    pub api_version: &'a str,
    /// The time, RFC 3339 in whole seconds of UTC.
    pub now: &'a str,
}

impl<'a> WriteContext<'a> {
    /// The name in the manager's entry, never empty.
    pub(super) fn manager_name(&self) -> &'a str {
        if self.manager.is_empty() {
            "unknown"
        } else {
            self.manager
        }
    }
}
