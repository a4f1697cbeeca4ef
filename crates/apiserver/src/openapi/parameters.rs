//! The parameters of operations: what may stand in a path or a query.

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: ParameterLocation,
    /// `string`, `integer` or `boolean`.
    pub(super) ty: &'static str,
    pub(super) doc: &'static str,
}

/// Where a parameter stands.
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
    "If true, the answer is indented for people to read.",
);

const CONTINUE: Parameter = query(
    "continue",
    "string",
    "The token that came with the last part of a list; brings the next part.",
);
const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "All: the request is checked and answered, but nothing is kept.",
);
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "Who makes the change, for metadata.managedFields: at most 128 printable characters.",
);
const FIELD_MANAGER_OF_PATCH: Parameter = query(
    "fieldManager",
    "string",
    "Who makes the change, for metadata.managedFields: at most 128 printable characters. An apply \
     patch must have one.",
);
const FIELD_SELECTOR: Parameter = query(
    "fieldSelector",
    "string",
    "Only objects whose fields are as told, such as metadata.name=x.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields. Ignore: they are dropped. Warn: they are \
     dropped, with a warning. Strict: the request fails. Warn if not given.",
);
const FORCE: Parameter = query(
    "force",
    "boolean",
    "Whether an apply patch takes fields over from other managers. Not for other patches.",
);
const GRACE_PERIOD_SECONDS: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "Seconds the object has to end by itself.",
);
const IGNORE_STORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Has no effect.",
);
const LABEL_SELECTOR: Parameter = query(
    "labelSelector",
    "string",
    "Only objects whose labels are as told, such as a=b or a in (b,c).",
);
const LIMIT: Parameter = query(
    "limit",
    "integer",
    "How many objects the answer may have at most; the rest is had by the continue token.",
);
const ORPHAN_DEPENDENTS: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated: use propagationPolicy.",
);
const PROPAGATION_POLICY: Parameter = query(
    "propagationPolicy",
    "string",
    "What happens to dependents: Orphan, Background or Foreground.",
);
const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "The version that the answer starts from, or is at least as new as.",
);
const RESOURCE_VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "How a list takes resourceVersion: Exact or NotOlderThan.",
);
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "Whether a watch begins with all objects there are, ended by a bookmark. Needs \
     resourceVersionMatch=NotOlderThan.",
);
const SHARD_SELECTOR: Parameter = query("shardSelector", "string", "Has no effect.");
const TIMEOUT_SECONDS: Parameter = query(
    "timeoutSeconds",
    "integer",
    "Seconds after which the request ends, whatever goes on.",
);
const ALLOW_WATCH_BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "boolean",
    "Whether a watch may send bookmarks, which tell how far it is.",
);
const WATCH: Parameter = query(
    "watch",
    "boolean",
    "Whether to answer with a stream of changes instead of a list.",
);

/// Of a list or a watch, sorted.
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
/// Of a creation or a replacement, sorted.
pub(super) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
/// Of a patch, sorted.
pub(super) const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER_OF_PATCH, FIELD_VALIDATION, FORCE];
/// Of a deletion, sorted.
pub(super) const DELETE: &[Parameter] = &[
    DRY_RUN,
    GRACE_PERIOD_SECONDS,
    IGNORE_STORE_READ_ERROR,
    ORPHAN_DEPENDENTS,
    PROPAGATION_POLICY,
];
/// Of a deletion of many, sorted.
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
