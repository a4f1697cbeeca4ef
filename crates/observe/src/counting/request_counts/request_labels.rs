//! The labels of a request: its kind, as the API server names it, and whether it was a dry run.

use std::time::Duration;

use http::Method;

use super::{NON_RESOURCE, OTHER};
use fairgate_core::digest::{RequestInfo, Verb, readable};

/// What a request says about a dry run, in the `dryRun` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DryRun {
    /// Nothing: its changes are to be made.
    #[default]
    No,
    /// `All`: nothing is to be stored.
    All,
    /// Another value.
    Invalid,
}

impl DryRun {
    /// Reads the query of a request.
    pub(crate) fn of(query: Option<&str>) -> Self {
        let mut values = query
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.strip_prefix("dryRun="));
        match values.next() {
            None => Self::No,
            Some("All") if values.all(|value| value == "All") => Self::All,
            Some(_) => Self::Invalid,
        }
    }

    /// The value of the `dry_run` label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::No => "",
            Self::All => "All",
            Self::Invalid => "invalid",
        }
    }
}

/// A request that has ended, as far as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRequest<'a> {
    /// The attributes of the request.
    pub(crate) info: &'a RequestInfo,
    /// The HTTP method.
    pub(crate) method: &'a Method,
    /// Whether it was a server-side apply.
    pub(crate) is_apply: bool,
    /// Whether it was a dry run.
    pub(crate) dry_run: DryRun,
    /// The status of its response.
    pub(crate) code: u16,
    /// Whether the gateway rejected or ended it to protect itself or the upstream.
    pub(crate) terminated: bool,
    /// Whether it came as far as to execute: it was not refused with 429 before. Others have no duration, as in kube-apiserver.
    pub(crate) executed: bool,
    /// Whether its response broke off.
    pub(crate) aborted: bool,
    /// Time until the end of the response.
    pub(crate) duration: Duration,
    /// The same, without the waits for seats and disruption budgets.
    pub(crate) took: Duration,
    /// Bytes of the response that were passed to the client's connection.
    pub(crate) bytes: u64,
}

/// A combination of labels that requests are counted by. The fields are the labels of the same names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestLabels {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) resource: Box<str>,
    pub(crate) subresource: Box<str>,
    pub(crate) scope: &'static str,
    pub(crate) verb: &'static str,
}

impl RequestLabels {
    pub(super) fn of(info: &RequestInfo, scope: &'static str, verb: &'static str) -> Self {
        let text = |part: &[u8]| readable(part).into();
        if !info.is_resource {
            return Self::fixed("", NON_RESOURCE, scope, verb);
        }
        Self {
            group: text(info.group()),
            version: text(info.version()),
            resource: text(info.resource()),
            subresource: text(info.subresource()),
            scope,
            verb,
        }
    }

    pub(super) fn other(scope: &'static str, verb: &'static str) -> Self {
        Self::fixed(OTHER, OTHER, scope, verb)
    }

    /// The labels that say what a request is for.
    pub(super) fn resource_labels(&self) -> [&str; 4] {
        [
            &self.group,
            &self.version,
            &self.resource,
            &self.subresource,
        ]
    }

    fn fixed(name: &str, subresource: &str, scope: &'static str, verb: &'static str) -> Self {
        Self {
            group: name.into(),
            version: name.into(),
            resource: name.into(),
            subresource: subresource.into(),
            scope,
            verb,
        }
    }
}

/// The `verb` label: the method as the API server reports it.
pub(super) fn verb_label(request: &FinishedRequest<'_>) -> &'static str {
    let info = request.info;
    match info.verb {
        Verb::Watch => return "WATCH",
        _ if info.is_resource && info.is_long_running() => return "CONNECT",
        Verb::List => return "LIST",
        Verb::Patch if request.is_apply => return "APPLY",
        _ => {}
    }
    match *request.method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => OTHER,
    }
}

/// The `verb` label of a long-running request in progress.
pub(super) fn running_verb_label(info: &RequestInfo) -> &'static str {
    match info.verb {
        Verb::Watch => "WATCH",
        _ if info.is_resource => "CONNECT",
        _ => OTHER,
    }
}

/// The `scope` label: what the request reaches.
pub(super) fn scope_label(info: &RequestInfo) -> &'static str {
    if !info.is_resource {
        ""
    } else if !info.name().is_empty() || info.verb == Verb::Create {
        "resource"
    } else if info.namespace().is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}
