//! Which resources are served here, where an upstream has the rest of the API.

use fairgate_objects::kind::{Kind, Storage};

/// A subresource of the upstream's resource that the gateway serves, such as `pods/eviction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSubresource {
    /// The API group of the resource; empty for the core group.
    pub group: &'static str,
    /// The version of that group.
    pub version: &'static str,
    /// The resource, plural.
    pub resource: &'static str,
    /// The subresource.
    pub subresource: &'static str,
    /// Whether objects of the resource have namespaces.
    pub namespaced: bool,
    /// Group, version and kind of the object in requests.
    pub kind: [&'static str; 3],
    /// The verbs, sorted.
    pub verbs: &'static [&'static str],
}

impl ServedSubresource {
    /// `resource/subresource`, the name in lists of resources.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.resource, self.subresource)
    }
}

/// The resources that are served here.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedResources {
    /// Kinds with objects in the store.
    kinds: Vec<&'static Kind>,
    subresources: Vec<ServedSubresource>,
}

impl OwnedResources {
    pub(crate) fn new(kinds: &[&'static Kind], subresources: &[ServedSubresource]) -> Self {
        let stored = kinds.iter().filter(|kind| kind.storage == Storage::Stored);
        Self {
            kinds: stored.copied().collect(),
            subresources: subresources.to_vec(),
        }
    }

    /// Whether a resource is served here, with all its subresources and in all its versions.
    pub(crate) fn has(&self, group: &str, resource: &str) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|kind| kind.group == group && kind.plural == resource)
    }

    /// The same for an entry of a list of resources, which may be a subresource.
    pub(crate) fn has_entry(&self, group: &str, name: &str) -> bool {
        let resource = name.split('/').next().unwrap_or_default();
        let mut subresources = self.subresources.iter();
        self.has(group, resource)
            || subresources.any(|served| served.group == group && served.name() == name)
    }

    /// Whether the path is that of a resource that is served here.
    pub(crate) fn covers(&self, path: &str) -> bool {
        resource_of(path).is_some_and(|(group, resource)| self.has(group, resource))
    }

    /// Whether there are resources of a group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group)
    }

    /// The subresources of a group.
    pub(crate) fn subresources<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = &'a ServedSubresource> {
        let all = self.subresources.iter();
        all.filter(move |served| served.group == group)
    }
}

/// The API group and resource of a path, which may be a template such as
/// `/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets`.
pub(crate) fn resource_of(path: &str) -> Option<(&str, &str)> {
    let (group, rest) = match path.strip_prefix("/apis/") {
        Some(rest) => rest.split_once('/')?,
        None => ("", path.strip_prefix("/api/")?),
    };
    let (_, rest) = rest.split_once('/')?;
    let mut rest = rest.strip_prefix("watch/").unwrap_or(rest);
    if let Some((_, below)) = rest
        .strip_prefix("namespaces/")
        .and_then(|named| named.split_once('/'))
        && !below.is_empty()
    {
        rest = below;
    }
    let resource = rest.split('/').next().unwrap_or_default();
    (!resource.is_empty()).then_some((group, resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_objects::kinds::FLOW_CONTROL as KINDS;

    #[test]
    fn the_resource_of_a_path_is_found_below_namespaces_and_watches() {
        for (path, resource) in [
            ("/apis/policy/v1/pdbs", Some(("policy", "pdbs"))),
            ("/apis/policy/v1/watch/pdbs/x", Some(("policy", "pdbs"))),
            (
                "/apis/policy/v1/namespaces/n/pdbs/x/status",
                Some(("policy", "pdbs")),
            ),
            (
                "/apis/policy/v1/watch/namespaces/n/pdbs",
                Some(("policy", "pdbs")),
            ),
            (
                "/apis/policy/v1/namespaces/n",
                Some(("policy", "namespaces")),
            ),
            (
                "/apis/policy/v1/namespaces/n/",
                Some(("policy", "namespaces")),
            ),
            ("/api/v1/namespaces/n/pods/p/eviction", Some(("", "pods"))),
            ("/api/v1/nodes", Some(("", "nodes"))),
            ("/apis/policy/v1/", None),
            ("/apis/policy/v1", None),
            ("/apis/policy", None),
            ("/api", None),
            ("/version", None),
        ] {
            assert_eq!(resource_of(path), resource, "{path}");
        }
    }

    #[test]
    fn a_resource_is_owned_in_all_versions_and_its_neighbours_are_not() {
        let owned = OwnedResources::new(&KINDS, &[]);
        let group = "/apis/flowcontrol.apiserver.k8s.io";
        for (path, is_owned) in [
            (format!("{group}/v1/flowschemas/x/status"), true),
            (format!("{group}/v9/flowschemas"), true),
            (format!("{group}/v1/watch/flowschemas"), true),
            (format!("{group}/v1/others"), false),
            (format!("{group}/v1"), false),
            (format!("{group}.example.com/v1/flowschemas"), false),
        ] {
            assert_eq!(owned.covers(&path), is_owned, "{path}");
        }
    }
}
