//! Which form of discovery a client wants, from its `Accept` header.
//!
//! As kube-apiserver does it: the aggregated form is given if any clause asks for it, even behind
//! `application/json`, because the plain form has another handler. Clauses are ordered by `q`, then
//! exact types before wildcards; names are compared as they are written; a `q` of 0 excludes nothing.
//!
//! `v2beta1`, which kube-apiserver no longer serves, is served for clients older than `v2`.
//!
//! Not here: YAML and protobuf. A clause that asks for the aggregated form in one of these is passed
//! over.

/// A form of aggregated discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregatedVersion {
    /// `apidiscovery.k8s.io/v2`.
    V2,
    /// `apidiscovery.k8s.io/v2beta1`: the same under another name.
    V2Beta1,
}

impl AggregatedVersion {
    /// The `Content-Type` of the answer, by which clients know the form.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    /// The `apiVersion` of the document.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// The form that a client's `Accept` header asks for; `None` for the plain documents.
pub fn wanted(accept: &str) -> Option<AggregatedVersion> {
    let mut clauses: Vec<(f64, u8, AggregatedVersion)> =
        accept.split(',').filter_map(clause).collect();
    // Both sorts are stable: what is equal stays in the header's order.
    clauses.sort_by_key(|(_, wildcards, _)| *wildcards);
    clauses.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    clauses.first().map(|(_, _, wanted)| *wanted)
}

/// One clause that asks for the aggregated form: its `q`, how many wildcards it has, and the form.
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
