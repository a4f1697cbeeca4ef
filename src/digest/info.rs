//! RequestInfo: what method, path and query ask for.
//!
//! Follows the API server's own reading to the letter, because a request must be classified as the
//! server behind us will understand it: the path is decoded once and never cleaned, and split after
//! decoding. Everything is bytes: a decoded path need not be UTF-8.

use std::{ops::Range, time::Duration};

/// What a request asks for. Cheap to clone; one allocation for the decoded path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the request addresses an API resource.
    pub is_resource: bool,
    /// The verb; the lower-cased method for non-resource requests.
    pub verb: Verb,
    path: Box<[u8]>,
    api_prefix: Span,
    group: Span,
    version: Span,
    namespace: Span,
    resource: Span,
    subresource: Span,
    name: Span,
    parts: Span,
    /// The name a `metadata.name` field selector requires, when the path has none.
    selector_name: Option<Box<str>>,
    /// List options, for requests that can have them (`list`, `watch`, `deletecollection`).
    pub list: Option<Box<ListOptions>>,
    /// The client's own deadline (`?timeout=`), for requests that have one.
    pub timeout: Option<Result<Duration, Box<str>>>,
}

/// A byte range of the decoded path. Paths are below 64 KiB, so 32 bits are plenty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The verb of a request, in the API's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// An unknown method on a resource.
    #[default]
    Empty,
    /// Read one object, or `GET` of a non-resource path.
    Get,
    /// Read a collection.
    List,
    /// Follow changes.
    Watch,
    /// `POST` to a resource.
    Create,
    /// `PUT`.
    Update,
    /// `PATCH`.
    Patch,
    /// `DELETE` of one object.
    Delete,
    /// `DELETE` of a collection.
    DeleteCollection,
    /// The old `/proxy/` path form.
    Proxy,
    /// Any other lower-cased method, of a non-resource request.
    Other(Box<str>),
}

/// The options of a list or watch, as far as classification and cost depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether all options decode; if not, only the watch flag was honoured.
    pub decodes: bool,
    /// `limit`; 0 when absent.
    pub limit: i64,
    /// `resourceVersion`; empty when absent.
    pub resource_version: Box<str>,
    /// `resourceVersionMatch`; empty when absent.
    pub resource_version_match: Box<str>,
    /// Whether a `continue` token is given.
    pub has_continue: bool,
    /// `sendInitialEvents`, if given.
    pub send_initial_events: Option<bool>,
    /// Raw decoded first value; `None` when absent.
    pub label_selector: Option<Box<str>>,
    /// Raw decoded first value; `None` when absent.
    pub field_selector: Option<Box<str>>,
    /// The value a `spec.nodeName` field selector requires, if it does and decodes.
    pub node_name: Option<Box<str>>,
}

/// Why a request cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// A `%` that is not followed by two hex digits.
    #[error("the path has a malformed percent escape")]
    BadEscape,
    /// More than 10 000 query parameters; servers disagree on such a query.
    #[error("the query has more than 10000 parameters")]
    TooManyParameters,
    /// `/api/v1/watch` and the like.
    #[error("unable to determine kind and namespace from url")]
    Unclassifiable,
}

impl RequestInfo {
    /// The decoded path, as received.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// `api` or `apis`; empty otherwise.
    pub fn api_prefix(&self) -> &[u8] {
        self.at(self.api_prefix)
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &[u8] {
        self.at(self.group)
    }

    /// The API version.
    pub fn version(&self) -> &[u8] {
        self.at(self.version)
    }

    /// The namespace; empty for cluster scope and all namespaces.
    pub fn namespace(&self) -> &[u8] {
        self.at(self.namespace)
    }

    /// The resource, plural.
    pub fn resource(&self) -> &[u8] {
        self.at(self.resource)
    }

    /// The subresource.
    pub fn subresource(&self) -> &[u8] {
        self.at(self.subresource)
    }

    /// The object's name, from the path or a field selector.
    pub fn name(&self) -> &[u8] {
        match &self.selector_name {
            Some(name) => name.as_bytes(),
            None => self.at(self.name),
        }
    }

    fn at(&self, span: Span) -> &[u8] {
        &self.path[span.range()]
    }
}
