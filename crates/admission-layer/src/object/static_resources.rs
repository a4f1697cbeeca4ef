//! The resources of Kubernetes itself, for requests that come before the upstream's discovery could be read, or that are about what it does not
//! list.
//!
//! Their kinds and scopes are the same on all servers. Which versions a server has is not: only discovery knows what a policy about
//! another version is about.
//!
//! Source: the storage maps in Kubernetes `pkg/registry/*/rest`.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use fairgate_admission::{BuiltInResource, built_in_resources};

use crate::{
    cluster::cluster_state::{ResourceKind, ServedResource},
    object::evaluated_object,
};

/// Subresources that requests connect to: resource, subresource, kind of the options.
const CONNECTED: [(&str, &str, &str); 6] = [
    ("nodes", "proxy", "NodeProxyOptions"),
    ("pods", "attach", "PodAttachOptions"),
    ("pods", "exec", "PodExecOptions"),
    ("pods", "portforward", "PodPortForwardOptions"),
    ("pods", "proxy", "PodProxyOptions"),
    ("services", "proxy", "ServiceProxyOptions"),
];
/// Resources that have the same objects in two groups.
const IN_TWO_GROUPS: [(&str, &str, &str); 2] =
    [("", "v1", "events"), ("events.k8s.io", "v1", "events")];

struct StaticResource {
    subresource: &'static str,
    served: Arc<ServedResource>,
}

/// By the name of the resource.
static RESOURCES: LazyLock<HashMap<&'static str, Vec<StaticResource>>> = LazyLock::new(|| {
    let mut all: HashMap<&'static str, Vec<StaticResource>> = HashMap::new();
    for one in built_in_resources() {
        let connected = CONNECTED.iter().filter(|(resource, ..)| {
            one.group.is_empty() && one.version == "v1" && one.plural == *resource
        });
        let connected = connected.map(|(_, subresource, kind)| (*subresource, ["", "v1", kind]));
        let written = evaluated_object::subresources(one.group, one.plural)
            .map(|subresource| (subresource, kind_of(one, subresource)));
        let itself = std::iter::once(("", [one.group, one.version, one.kind]));
        let found = itself
            .chain(written)
            .chain(connected)
            .map(|(subresource, kind)| StaticResource {
                subresource,
                served: Arc::new(served(one, subresource, kind)),
            });
        all.entry(one.plural).or_default().extend(found);
    }
    all
});

/// A resource of Kubernetes, or a subresource of one. Other versions are not among its equivalents.
pub(crate) fn static_resource(
    group: &str,
    version: &str,
    resource: &str,
    subresource: &str,
) -> Option<Arc<ServedResource>> {
    let found = RESOURCES.get(resource)?.iter().find(|one| {
        let of = &one.served.resource;
        one.subresource == subresource && of.group == group && of.version == version
    });
    found.map(|one| Arc::clone(&one.served))
}

/// The kind of the objects of a subresource.
fn kind_of(of: &BuiltInResource, subresource: &str) -> [&'static str; 3] {
    match subresource {
        "scale" => ["autoscaling", "v1", "Scale"],
        "binding" => ["", "v1", "Binding"],
        "eviction" => ["policy", "v1", "Eviction"],
        "token" => ["authentication.k8s.io", "v1", "TokenRequest"],
        _ => [of.group, of.version, of.kind],
    }
}

fn served(of: &BuiltInResource, subresource: &str, kind: [&str; 3]) -> ServedResource {
    let resource = ResourceKind {
        group: of.group.to_owned(),
        version: of.version.to_owned(),
        resource: of.plural.to_owned(),
        kind: Some(kind.map(str::to_owned)),
    };
    let is_in_two =
        subresource.is_empty() && IN_TWO_GROUPS.contains(&(of.group, of.version, of.plural));
    let equivalents = if is_in_two {
        let of = |(group, version, resource): (&str, &str, &str)| ResourceKind {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            kind: Some([group, version, of.kind].map(str::to_owned)),
        };
        IN_TWO_GROUPS.map(of).to_vec()
    } else {
        vec![resource.clone()]
    };
    ServedResource {
        resource,
        is_namespaced: of.namespaced,
        equivalents,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, version: &str, resource: &str, subresource: &str) -> Option<String> {
        let found = static_resource(group, version, resource, subresource)?;
        found.resource.kind.as_ref().map(|kind| kind.join(" "))
    }

    #[test]
    fn resources_and_subresources_have_the_kinds_of_their_objects() {
        for (resource, expected) in [
            (["", "v1", "pods", ""], " v1 Pod"),
            (["", "v1", "pods", "status"], " v1 Pod"),
            (["", "v1", "pods", "resize"], " v1 Pod"),
            (["", "v1", "pods", "binding"], " v1 Binding"),
            (["", "v1", "pods", "eviction"], "policy v1 Eviction"),
            (["", "v1", "pods", "exec"], " v1 PodExecOptions"),
            (["", "v1", "nodes", "proxy"], " v1 NodeProxyOptions"),
            (["", "v1", "namespaces", "finalize"], " v1 Namespace"),
            (
                ["", "v1", "replicationcontrollers", "scale"],
                "autoscaling v1 Scale",
            ),
            (
                ["", "v1", "serviceaccounts", "token"],
                "authentication.k8s.io v1 TokenRequest",
            ),
            (
                ["apps", "v1", "deployments", "scale"],
                "autoscaling v1 Scale",
            ),
            (
                ["autoscaling", "v1", "horizontalpodautoscalers", "status"],
                "autoscaling v1 HorizontalPodAutoscaler",
            ),
            (
                ["resource.k8s.io", "v1beta1", "deviceclasses", ""],
                "resource.k8s.io v1beta1 DeviceClass",
            ),
            (
                [
                    "apiextensions.k8s.io",
                    "v1",
                    "customresourcedefinitions",
                    "status",
                ],
                "apiextensions.k8s.io v1 CustomResourceDefinition",
            ),
        ] {
            let [group, version, name, subresource] = resource;
            let found = kind(group, version, name, subresource);
            assert_eq!(found.as_deref(), Some(expected), "{resource:?}");
        }
    }

    #[test]
    fn others_are_not_known() {
        for [group, version, name, subresource] in [
            ["", "v2", "pods", ""],
            ["apps", "v1", "pods", ""],
            ["", "v1", "configmaps", "status"],
            ["x.io", "v1", "widgets", ""],
            ["apps", "v1", "deployments", "exec"],
        ] {
            assert_eq!(kind(group, version, name, subresource), None);
        }
    }

    #[test]
    fn events_are_the_same_in_both_groups() {
        let core = static_resource("", "v1", "events", "").unwrap();
        let groups: Vec<&str> = core.equivalents.iter().map(|one| &*one.group).collect();
        assert_eq!(groups, ["", "events.k8s.io"]);
        let other = static_resource("events.k8s.io", "v1", "events", "").unwrap();
        assert_eq!(core.equivalents, other.equivalents);
        let pods = static_resource("", "v1", "pods", "").unwrap();
        assert_eq!(pods.equivalents, std::slice::from_ref(&pods.resource));
    }
}
