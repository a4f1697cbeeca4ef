//! Maps a path to a resource or a document of the hosted API.

use fairgate_objects::kind::{Kind, KindVersion, Storage};

/// What a path refers to.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/`
    Root,
    /// `/version`
    Version,
    /// `/api`
    Api,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/apis/GROUP/VERSION`, or `/api/v1` with an empty group.
    GroupVersion(String, String),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3Index,
    /// `/openapi/v3/…`
    OpenApiV3(String),
    /// `/metrics`, health and the debug dumps.
    Admin,
    /// Objects of a kind.
    Objects(ResourcePath),
    /// A kind whose objects are returned and not stored: reviews.
    Answered(&'static Kind),
    /// Below the core group or a served group, but not a resource that exists. Answered with a `Status`.
    Nothing,
    /// Not a path of this API. Answered with plain text.
    Unknown,
}

/// A path of a resource: a collection, an object, or a subresource.
#[derive(Debug)]
pub(crate) struct ResourcePath {
    /// The kind of the objects below the path.
    pub kind: &'static Kind,
    /// The version in the path.
    pub version: &'static KindVersion,
    /// The namespace; empty for cluster-scoped kinds, and for all namespaces.
    pub namespace: String,
    /// The name; empty for the collection.
    pub name: String,
    /// Whether it is the subresource `status`.
    pub status: bool,
    /// Whether it begins with `watch/`, the deprecated way to watch.
    pub watch: bool,
}

/// Routes `path` among `kinds`.
pub(crate) fn route(kinds: &[&'static Kind], path: &str) -> Route {
    if !path.is_empty() && !path.starts_with('/') {
        // What is authorized would not be the object that the rest of the path names.
        return Route::Unknown;
    }
    let trimmed = path.trim_end_matches('/');
    // As in kube-apiserver: some of its handlers accept trailing slashes, others do not.
    let slashes = path.len() - trimmed.len();
    let mut segments = trimmed.split('/').skip(1);
    match segments.next() {
        None if slashes <= 1 => Route::Root,
        Some("index.html") if slashes == 0 => only(segments, Route::Root),
        Some("metrics" | "livez" | "readyz" | "healthz" | "debug") if slashes == 0 => Route::Admin,
        Some("openapi") => openapi(segments, slashes),
        Some("version") if segments.next().is_none() => Route::Version,
        Some("version") => Route::Nothing,
        Some("api") => match segments.next() {
            None => Route::Api,
            Some("v1") => below(kinds, "", "v1", segments),
            Some(_) => Route::Nothing,
        },
        Some("apis") => match (segments.next(), segments.next()) {
            (None, _) if slashes <= 1 => Route::Groups,
            (Some(group), None) if serves(kinds, group, None) => Route::Group(group.to_owned()),
            (Some(group), Some(version)) if serves(kinds, group, Some(version)) => {
                below(kinds, group, version, segments)
            }
            (Some(group), _) if serves(kinds, group, None) => Route::Nothing,
            _ => Route::Unknown,
        },
        _ => Route::Unknown,
    }
}

/// Whether `path` is served here if there is an upstream: documents, reviews, and everything below a group
/// with stored kinds.
pub(crate) fn knows(kinds: &[&'static Kind], path: &str) -> bool {
    match route(kinds, path) {
        Route::Unknown => false,
        Route::Nothing => covers(kinds, path),
        _ => true,
    }
}

/// Whether `path` is below a group with stored kinds, or is its part of OpenAPI v3.
fn covers(kinds: &[&'static Kind], path: &str) -> bool {
    let below = |root: &str| {
        path.strip_prefix(root)
            .and_then(|rest| rest.split('/').next())
    };
    let group = below("/apis/").or_else(|| below("/openapi/v3/apis/"));
    group.is_some_and(|group| {
        let mut stored = kinds.iter().filter(|kind| kind.storage == Storage::Stored);
        stored.any(|kind| kind.group == group)
    })
}

fn only<'p>(mut rest: impl Iterator<Item = &'p str>, route: Route) -> Route {
    if rest.next().is_none() {
        route
    } else {
        Route::Unknown
    }
}

fn openapi<'p>(mut rest: impl Iterator<Item = &'p str>, slashes: usize) -> Route {
    match rest.next() {
        Some("v2") if slashes == 0 => only(rest, Route::OpenApiV2),
        Some("v3") => {
            let mut key: Vec<&str> = rest.collect();
            if key.is_empty() && slashes == 0 {
                return Route::OpenApiV3Index;
            }
            key.extend(std::iter::repeat_n("", slashes));
            Route::OpenApiV3(key.join("/"))
        }
        _ => Route::Unknown,
    }
}

fn serves(kinds: &[&'static Kind], group: &str, version: Option<&str>) -> bool {
    kinds.iter().any(|kind| {
        kind.group == group && version.is_none_or(|version| kind.version(version).is_some())
    })
}

/// Routes the part of a path below a group version.
fn below<'p>(
    kinds: &[&'static Kind],
    group: &str,
    version: &str,
    rest: impl Iterator<Item = &'p str>,
) -> Route {
    let rest: Vec<&str> = rest.collect();
    if rest.is_empty() {
        return Route::GroupVersion(group.to_owned(), version.to_owned());
    }
    place(kinds, group, version, &rest).unwrap_or(Route::Nothing)
}

fn place(kinds: &[&'static Kind], group: &str, version: &str, mut rest: &[&str]) -> Option<Route> {
    let watch = rest.first() == Some(&"watch");
    if watch {
        rest = &rest[1..];
    }
    let mut namespace = "";
    if let ["namespaces", named, more @ ..] = rest
        && !more.is_empty()
    {
        namespace = named;
        rest = more;
    }
    let (resource, rest) = rest.split_first()?;
    let kind = kinds
        .iter()
        .find(|kind| kind.group == group && kind.plural == *resource)?;
    let kind_version = kind.version(version)?;
    if kind.storage == Storage::CreateOnly {
        return (rest.is_empty() && !watch && namespace.is_empty())
            .then_some(Route::Answered(kind));
    }
    let (name, status) = match rest {
        [] => ("", false),
        [name] => (*name, false),
        [name, "status"] if kind.has_status && !watch => (*name, true),
        _ => return None,
    };
    let fits = if kind.namespaced {
        !namespace.is_empty() || name.is_empty()
    } else {
        namespace.is_empty()
    };
    (fits && (rest.is_empty() || !name.is_empty())).then(|| {
        Route::Objects(ResourcePath {
            kind,
            version: kind_version,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status,
            watch,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_objects::kinds::FLOW_CONTROL as KINDS;

    const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io";

    fn place(path: &str) -> Option<(String, bool, bool)> {
        match route(&KINDS, &format!("{GROUP}{path}")) {
            Route::Objects(place) => Some((place.name, place.status, place.watch)),
            _ => None,
        }
    }

    #[test]
    fn objects_collections_statuses_and_watches_are_routed() {
        let at = |name: &str, status, watch| Some((name.to_owned(), status, watch));
        assert_eq!(place("/v1/flowschemas"), at("", false, false));
        assert_eq!(place("/v1beta3/flowschemas/a"), at("a", false, false));
        assert_eq!(place("/v1/flowschemas/a/status"), at("a", true, false));
        assert_eq!(place("/v1/watch/flowschemas"), at("", false, true));
        assert_eq!(place("/v1/watch/flowschemas/a"), at("a", false, true));
        for path in [
            "/v1/flowschemas/a/scale",
            "/v1/watch/flowschemas/a/status",
            "/v1/namespaces/x/flowschemas",
            "/v1/pods",
            "/v2/flowschemas",
        ] {
            assert_eq!(place(path), None, "{path}");
        }
    }

    #[test]
    fn an_unserved_group_is_unknown_and_an_unserved_resource_is_nothing() {
        let of = |path: &str| route(&KINDS, path);
        assert!(matches!(of(&format!("{GROUP}/v1/pods")), Route::Nothing));
        assert!(matches!(of(&format!("{GROUP}/v2/pods")), Route::Nothing));
        assert!(matches!(of("/apis/policy/v1/pods"), Route::Unknown));
        assert!(matches!(of(&format!("{GROUP}/v2")), Route::Nothing));
        assert!(matches!(of("/api/v2/pods"), Route::Nothing));
        assert!(matches!(of("/apis/nope/v1"), Route::Unknown));
        assert!(matches!(of("/apis/"), Route::Groups));
        assert!(matches!(of("/api/v1"), Route::GroupVersion(_, _)));
        assert!(matches!(of("/api/v1/pods"), Route::Nothing));
        assert!(matches!(of("/"), Route::Root));
        assert!(matches!(of("/nope"), Route::Unknown));
        assert!(matches!(of("//version"), Route::Unknown));
        assert!(matches!(of("/version/x"), Route::Nothing));
    }

    #[test]
    fn trailing_slashes_count_where_kube_apiserver_counts_them() {
        let of = |path: &str| route(&KINDS, path);
        assert_eq!(
            place("/v1/flowschemas/a///"),
            Some(("a".to_owned(), false, false))
        );
        assert!(matches!(of(&format!("{GROUP}//")), Route::Group(_)));
        assert!(matches!(of("/version//"), Route::Version));
        assert!(matches!(of("/api//"), Route::Api));
        assert!(matches!(of("/apis/"), Route::Groups));
        for path in ["//", "/apis//", "/index.html/", "/healthz/", "/openapi/v2/"] {
            assert!(matches!(of(path), Route::Unknown), "{path}");
        }
        for path in ["/openapi/v3/", "/openapi/v3/version/"] {
            assert!(
                matches!(of(path), Route::OpenApiV3(key) if key.ends_with('/') || key.is_empty()),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_that_is_not_hosted_may_be_served_by_the_upstream() {
        let mut kinds = KINDS.to_vec();
        kinds.extend(crate::reviews::REVIEWS);
        let reviews = "/apis/authorization.k8s.io/v1";
        for (path, known) in [
            (format!("{GROUP}/v1/flowschemas"), true),
            (format!("{GROUP}/v1/pods"), true),
            (format!("{GROUP}/v9"), true),
            (format!("{reviews}/selfsubjectaccessreviews"), true),
            (format!("{reviews}/subjectaccessreviews"), false),
            ("/apis".to_owned(), true),
            ("/api/v1/pods".to_owned(), false),
            ("/apis/apps/v1/deployments".to_owned(), false),
        ] {
            assert_eq!(knows(&kinds, &path), known, "{path}");
        }
        for (path, covered) in [
            (GROUP.to_owned(), true),
            (format!("{GROUP}/"), true),
            (format!("/openapi/v3{GROUP}/v1"), true),
            (format!("{GROUP}.example.com/v1"), false),
            (format!("{reviews}/selfsubjectaccessreviews"), false),
            ("/apis".to_owned(), false),
            ("/openapi/v3".to_owned(), false),
        ] {
            assert_eq!(covers(&kinds, &path), covered, "{path}");
        }
    }
}
