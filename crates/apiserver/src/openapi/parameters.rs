//! The parameters of operations, in paths and queries.

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: ParameterLocation,
    /// `string`, `integer` or `boolean`.
    pub(super) ty: &'static str,
    pub(super) doc: &'static str,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterLocation {
    /// In the path; always required.
    PathItem,
    /// In the query; never required.
    Query,
}

impl Parameter {
    pub(super) fn is_required(&self) -> bool {
        self.place == ParameterLocation::PathItem
    }
}

impl ParameterLocation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PathItem => "path",
            Self::Query => "query",
        }
    }
}

const fn query(name: &'static str, ty: &'static str, doc: &'static str) -> Parameter {
    Parameter {
        name,
        place: ParameterLocation::Query,
        ty,
        doc,
    }
}

const fn path(name: &'static str, doc: &'static str) -> Parameter {
    Parameter {
        name,
        place: ParameterLocation::PathItem,
        ty: "string",
        doc,
    }
}

pub(super) const NAME: Parameter = path("name", "Name of the object.");
pub(super) const NAMESPACE: Parameter = path("namespace", "Namespace of the object.");

pub(super) const PRETTY: Parameter = query(
    "pretty",
    "string",
    "If true, JSON in the response is indented.",
);

const CONTINUE: Parameter = query(
    "continue",
    "string",
    "The continue token of the previous page; returns the next page.",
);
const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "All: the request is validated, but nothing is stored.",
);
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "The name of the field manager in metadata.managedFields: at most 128 printable characters.",
);
const FIELD_MANAGER_OF_PATCH: Parameter = query(
    "fieldManager",
    "string",
    "The name of the field manager in metadata.managedFields: at most 128 printable characters. \
     Required for an apply patch.",
);
const FIELD_SELECTOR: Parameter = query(
    "fieldSelector",
    "string",
    "Selects objects by their fields, such as metadata.name=x.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "How unknown and duplicate fields are handled. Ignore: they are dropped. Warn: they are dropped, \
     with a warning. Strict: the request fails. The default is Warn.",
);
const FORCE: Parameter = query(
    "force",
    "boolean",
    "Whether an apply patch takes over fields of other managers. Not allowed for other patches.",
);
const GRACE_PERIOD_SECONDS: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "The grace period of the deletion in seconds.",
);
const IGNORE_STORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Has no effect.",
);
const LABEL_SELECTOR: Parameter = query(
    "labelSelector",
    "string",
    "Selects objects by their labels, such as a=b or a in (b,c).",
);
const LIMIT: Parameter = query(
    "limit",
    "integer",
    "The maximum number of objects in the response; a continue token returns the rest.",
);
const ORPHAN_DEPENDENTS: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated: use propagationPolicy.",
);
const PROPAGATION_POLICY: Parameter = query(
    "propagationPolicy",
    "string",
    "How dependents are deleted: Orphan, Background or Foreground.",
);
const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "The version that a watch starts from, or that the response must not be older than.",
);
const RESOURCE_VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "How a list interprets resourceVersion: Exact or NotOlderThan.",
);
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "Whether a watch begins with the existing objects, followed by a bookmark. Requires \
     resourceVersionMatch=NotOlderThan.",
);
const SHARD_SELECTOR: Parameter = query("shardSelector", "string", "Has no effect.");
const TIMEOUT_SECONDS: Parameter = query(
    "timeoutSeconds",
    "integer",
    "The maximum duration of the request in seconds.",
);
const ALLOW_WATCH_BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "boolean",
    "Whether a watch may send bookmarks, which contain the current resource version.",
);
const WATCH: Parameter = query(
    "watch",
    "boolean",
    "Whether to return a stream of changes instead of a list.",
);

/// The parameters of a list or a watch, sorted.
pub(super) const LIST: &[Parameter] = &[
    ALLOW_WATCH_BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT_SECONDS,
    WATCH,
];
/// The parameters of a creation or a replacement, sorted.
pub(super) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
/// The parameters of a patch, sorted.
pub(super) const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER_OF_PATCH, FIELD_VALIDATION, FORCE];
/// The parameters of a deletion, sorted.
pub(super) const DELETE: &[Parameter] = &[
    DRY_RUN,
    GRACE_PERIOD_SECONDS,
    IGNORE_STORE_READ_ERROR,
    ORPHAN_DEPENDENTS,
    PROPAGATION_POLICY,
];
/// The parameters of a deletion of a collection, sorted.
pub(super) const DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD_SECONDS,
    IGNORE_STORE_READ_ERROR,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN_DEPENDENTS,
    PROPAGATION_POLICY,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT_SECONDS,
];
