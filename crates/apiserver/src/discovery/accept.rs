//! The form of discovery that a client requests in its `Accept` header.
//!
//! As in kube-apiserver, the aggregated form is chosen if any clause requests it, even after
//! `application/json`, because the plain form has another handler. Clauses are ordered by `q`, then exact
//! types before wildcards; names are case-sensitive; a `q` of 0 excludes nothing.
//!
//! `v2beta1`, which kube-apiserver no longer serves, is served for clients older than `v2`.
//!
//! Not here: YAML and protobuf. A clause that requests the aggregated form in one of these is ignored.

use fairgate_apihttp::negotiate::LONGEST_ACCEPT;

/// A form of aggregated discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AggregatedVersion {
    /// `apidiscovery.k8s.io/v2`.
    V2,
    /// `apidiscovery.k8s.io/v2beta1`: the same, except for the name.
    V2Beta1,
}

impl AggregatedVersion {
    /// The `Content-Type` of the response, by which clients recognise the form.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    /// The form that an `Accept` header requests; `None` for the plain documents.
    pub(crate) fn accepted(accept: &str) -> Option<Self> {
        if accept.len() > LONGEST_ACCEPT {
            return None;
        }
        let mut clauses: Vec<(f64, u8, Self)> = accept.split(',').filter_map(clause).collect();
        // Both sorts are stable: equal clauses stay in the order of the header.
        clauses.sort_by_key(|(_, wildcards, _)| *wildcards);
        clauses.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
        clauses.first().map(|(_, _, form)| *form)
    }

    /// The `apiVersion` of the document.
    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// One clause that requests the aggregated form: its `q`, its number of wildcards, and the form.
fn clause(text: &str) -> Option<(f64, u8, AggregatedVersion)> {
    let mut parts = text.split(';');
    let wildcards = match parts.next()?.trim_matches(' ') {
        "application/json" => 0,
        "application/*" => 1,
        "*/*" | "*" => 2,
        _ => return None,
    };
    let (mut q, mut group, mut version, mut convert) = (1.0, "", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        let value = value.trim_matches(' ');
        match name.trim_matches(' ') {
            "q" => q = value.parse().unwrap_or(0.0),
            "g" => group = value,
            "v" => version = value,
            "as" => convert = value,
            _ => {}
        }
    }
    let form = match (group, version, convert) {
        ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => AggregatedVersion::V2,
        ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => AggregatedVersion::V2Beta1,
        _ => return None,
    };
    Some((q, wildcards, form))
}
