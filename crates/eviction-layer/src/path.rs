//! Recognizes the paths of evictions.

use fairgate_core::digest::{RequestInfo, normalized_path, readable};

/// The length in bytes of the longest name that an object can have.
pub(crate) const MAX_NAME: usize = 253;

/// Whether a path is that of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathMatch {
    /// It is not the path of an eviction.
    Other,
    /// It is the subresource of this pod.
    Eviction(PodPlace),
    /// It is the subresource only for a server that cleans paths. kube-apiserver does not.
    Disguised,
}

/// A pod's namespace and name, both not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodPlace {
    pub(crate) namespace: String,
    pub(crate) pod: String,
}

impl PathMatch {
    /// Classifies the path of a request. A path without `eviction` costs one substring search.
    pub(crate) fn of(info: &RequestInfo) -> Self {
        if memchr::memmem::find(info.path(), b"/eviction").is_none() {
            return Self::Other;
        }
        match std::str::from_utf8(info.path()) {
            Ok(path) => Self::of_path(path),
            // No object has a name that is not UTF-8. Different names of this sort may have the same readable form.
            Err(_) => match Self::of_path(&readable(info.path())) {
                Self::Other => Self::Other,
                Self::Eviction(_) | Self::Disguised => Self::Disguised,
            },
        }
    }

    fn of_path(path: &str) -> Self {
        let cleaned = normalized_path(path);
        let segments: Vec<&str> = cleaned.split('/').skip(1).collect();
        let [
            "api",
            "v1",
            "namespaces",
            namespace,
            "pods",
            pod,
            "eviction",
        ] = segments[..]
        else {
            return Self::Other;
        };
        // The router ignores slashes at the end.
        if path.trim_end_matches('/') == cleaned {
            Self::Eviction(PodPlace {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
            })
        } else {
            Self::Disguised
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subresource_of_a_pod_is_recognized_in_every_spelling() {
        let place = || {
            PathMatch::Eviction(PodPlace {
                namespace: "ns".to_owned(),
                pod: "p".to_owned(),
            })
        };
        for (target, expected) in [
            ("/api/v1/namespaces/ns/pods/p/eviction", place()),
            ("/api/v1/namespaces/ns/pods/p/eviction/", place()),
            (
                "/api/v1/namespaces/ns/pods/p/evict%69on?dryRun=All",
                place(),
            ),
            (
                "//api/v1/namespaces/ns/pods/p/eviction",
                PathMatch::Disguised,
            ),
            (
                "/api/v1/namespaces/ns//pods/p/eviction",
                PathMatch::Disguised,
            ),
            (
                "/x/../api/v1/namespaces/ns/pods/p/eviction",
                PathMatch::Disguised,
            ),
            (
                "/api/v1/namespaces/ns/pods/p/./eviction",
                PathMatch::Disguised,
            ),
            (
                "/api/v1/namespaces/ns/pods/p/x/%2e%2e/eviction",
                PathMatch::Disguised,
            ),
            (
                "/api/v1/namespaces/ns/pods/../pods/p/eviction",
                PathMatch::Disguised,
            ),
            (
                "/api/v1/namespaces/ns/pods/%ff/eviction",
                PathMatch::Disguised,
            ),
            ("/api/v1/namespaces/ns/pods/../eviction", PathMatch::Other),
            ("/api/v1/namespaces/ns/pods//eviction", PathMatch::Other),
            (
                "/api/v1/namespaces/ns/pods/a%2Fp/eviction",
                PathMatch::Other,
            ),
            ("/api/v1/namespaces/ns/pods/p/evictions", PathMatch::Other),
            ("/api/v1/namespaces/ns/pods/eviction", PathMatch::Other),
            ("/api/v1/namespaces/ns/pods/p", PathMatch::Other),
            (
                "/apis/policy/v1/namespaces/ns/pods/p/eviction",
                PathMatch::Other,
            ),
        ] {
            let info = RequestInfo::from_target("POST", target).unwrap();
            assert_eq!(PathMatch::of(&info), expected, "{target}");
        }
    }
}
