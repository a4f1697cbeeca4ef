//! What an authorizer decides on: the attributes of a request.

use fairgate_core::digest::{RequestInfo, readable};

/// What a user wants to do, as a `SubjectAccessReview` names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The verb, such as `get`.
    pub verb: String,
    /// Whether the request is for a resource.
    pub is_resource: bool,
    /// The resource's group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The resource, plural.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace; empty for none.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The path, if the request is not for a resource.
    pub path: String,
    /// The field selector that limits the objects, as text; empty for none. It need not be valid.
    pub field_selector: String,
    /// The label selector that limits the objects, as text; empty for none. It need not be valid.
    pub label_selector: String,
}

impl Attributes {
    /// The attributes of a request, without the selectors of a list.
    pub fn of(info: &RequestInfo) -> Self {
        let text = |part: &[u8]| readable(part).into_owned();
        Self {
            verb: info.verb.to_string(),
            is_resource: info.is_resource,
            group: text(info.group()),
            version: text(info.version()),
            resource: text(info.resource()),
            subresource: text(info.subresource()),
            namespace: text(info.namespace()),
            name: text(info.name()),
            path: text(info.path()),
            ..Self::default()
        }
    }
}
