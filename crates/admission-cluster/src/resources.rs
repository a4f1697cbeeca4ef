//! The resources that the upstream serves.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use fairgate_admission::{CheckedKind, ParamScope, PolicyParamKind, built_in_resources};
use fairgate_admission_layer::{ResourceKind, ServedResource};
use fairgate_upstream::informer::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// How many resources are kept, over all versions, with their subresources.
const MAX_RESOURCES: usize = 50_000;

/// Resources that have the same objects in two groups: the resource, its former group, and its group now.
const MOVED: [(&str, &str, &str); 7] = [
    ("daemonsets", "extensions", "apps"),
    ("deployments", "extensions", "apps"),
    ("events", "", "events.k8s.io"),
    ("ingresses", "extensions", "networking.k8s.io"),
    ("networkpolicies", "extensions", "networking.k8s.io"),
    ("podsecuritypolicies", "extensions", "policy"),
    ("replicasets", "extensions", "apps"),
];

/// A resource or subresource, as a discovery document lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedResource {
    pub(crate) resource: ResourceKind,
    /// The name of the resource in the singular, if it has one.
    pub(crate) singular: String,
    /// The subresource, or empty.
    pub(crate) subresource: String,
    pub(crate) is_namespaced: bool,
}

/// The resource of a kind, and where its objects are.
pub(crate) type ServedKind = (ApiResource, ParamScope);

/// The resources that the upstream serves.
#[derive(Debug, Default)]
pub(crate) struct ResourceTable {
    /// By the name of the resource: its versions, groups and subresources, in the order of discovery.
    by_name: HashMap<Box<str>, Vec<TableEntry>>,
    /// Resources, without subresources, by the kind of their objects.
    kinds: HashMap<PolicyParamKind, ServedKind>,
    /// The names in the plural by those in the singular.
    singulars: HashMap<Box<str>, Vec<Box<str>>>,
    /// Changes with what is in the table.
    fingerprint: u64,
}

#[derive(Debug)]
struct TableEntry {
    subresource: Box<str>,
    served: Arc<ServedResource>,
}

impl ResourceTable {
    /// The table of these resources.
    pub(crate) fn new(mut discovered: Vec<ListedResource>) -> Self {
        discovered.truncate(MAX_RESOURCES);
        let mut fingerprint = DefaultHasher::new();
        let mut families: BTreeMap<(String, String, String), Vec<ResourceKind>> = BTreeMap::new();
        for one in &discovered {
            let family = families.entry(family(one)).or_default();
            family.push(one.resource.clone());
            let ResourceKind { group, version, .. } = &one.resource;
            let resource = (group, version, &one.resource.resource, &one.resource.kind);
            (resource, &one.singular, &one.subresource, one.is_namespaced).hash(&mut fingerprint);
        }
        let mut table = Self {
            fingerprint: fingerprint.finish(),
            ..Self::default()
        };
        for one in discovered {
            let equivalents = families.get(&family(&one)).cloned().unwrap_or_default();
            table.insert(one, equivalents);
        }
        table
    }

    fn insert(&mut self, one: ListedResource, equivalents: Vec<ResourceKind>) {
        let ListedResource {
            resource,
            singular,
            subresource,
            is_namespaced,
        } = one;
        if subresource.is_empty() && !singular.is_empty() && singular != resource.resource {
            let plurals = self.singulars.entry(singular.into()).or_default();
            if !plurals.iter().any(|one| **one == *resource.resource) {
                plurals.push(resource.resource.as_str().into());
            }
        }
        if let (true, Some([group, version, kind])) = (subresource.is_empty(), &resource.kind) {
            let kind = GroupVersionKind::gvk(group, version, kind);
            let api = ApiResource::from_gvk_with_plural(&kind, &resource.resource);
            let scope = scope(is_namespaced);
            let kind = PolicyParamKind {
                api_version: api.api_version.clone(),
                kind: api.kind.clone(),
            };
            // Of two resources with the same kind, the first is preferred.
            self.kinds.entry(kind).or_insert((api, scope));
        }
        let name = resource.resource.as_str().into();
        let entries = self.by_name.entry(name).or_default();
        entries.push(TableEntry {
            subresource: subresource.into(),
            served: Arc::new(ServedResource {
                resource,
                is_namespaced,
                equivalents,
            }),
        });
    }

    /// A resource, or a subresource of it if `subresource` is not empty. Allocates nothing.
    pub(crate) fn resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        subresource: &str,
    ) -> Option<&Arc<ServedResource>> {
        let entries = self.by_name.get(resource)?;
        let found = entries.iter().find(|entry| {
            let served = &entry.served.resource;
            *entry.subresource == *subresource && served.group == group && served.version == version
        });
        found.map(|entry| &entry.served)
    }

    /// The resource whose objects are of this kind.
    pub(crate) fn of_kind(&self, kind: &PolicyParamKind) -> Option<&ServedKind> {
        self.kinds.get(kind)
    }

    /// Changes with what is in the table.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The kinds of a resource, which is named in the plural or singular; an empty group counts as any.
    pub(crate) fn named(&self, group: &str, version: &str, resource: &str) -> Vec<CheckedKind> {
        let resource = resource.to_lowercase();
        let singular = self.singulars.get(&*resource);
        let names = singular.into_iter().flatten().map(|name| &**name);
        let entries = names
            .chain([&*resource])
            .filter_map(|name| self.by_name.get(name));
        let found = entries.flatten().filter(|entry| {
            let of = &entry.served.resource;
            entry.subresource.is_empty()
                && (group.is_empty() || of.group == group)
                && of.version == version
        });
        let kinds = found.filter_map(|entry| {
            let of = &entry.served.resource;
            Some(CheckedKind {
                group: of.group.clone(),
                version: of.version.clone(),
                kind: of.kind.as_ref()?[2].clone(),
            })
        });
        kinds.collect()
    }

    /// The number of resources and subresources in all versions.
    pub(crate) fn len(&self) -> usize {
        self.by_name.values().map(Vec::len).sum()
    }
}

/// The resource of a kind of Kubernetes itself.
pub(crate) fn built_in_kind(kind: &PolicyParamKind) -> Option<ServedKind> {
    let whole = &*kind.api_version;
    let (group, version) = whole.split_once('/').unwrap_or(("", whole));
    let mut all = built_in_resources().iter();
    let found =
        all.find(|one| (one.group, one.version, one.kind) == (group, version, &*kind.kind))?;
    let names = GroupVersionKind::gvk(group, version, found.kind);
    let resource = ApiResource::from_gvk_with_plural(&names, found.plural);
    Some((resource, scope(found.namespaced)))
}

fn scope(is_namespaced: bool) -> ParamScope {
    if is_namespaced {
        ParamScope::Namespaced
    } else {
        ParamScope::Cluster
    }
}

/// What resources with the same objects have in common: group (the present one, where it has moved), name, subresource.
fn family(one: &ListedResource) -> (String, String, String) {
    let ResourceKind {
        group, resource, ..
    } = &one.resource;
    let moved = MOVED
        .iter()
        .find(|(name, former, _)| name == resource && former == group);
    let group = moved.map_or(group.as_str(), |(_, _, now)| now);
    (group.to_owned(), resource.clone(), one.subresource.clone())
}

/// The resources of an `APIGroupDiscoveryList`, in `apidiscovery.k8s.io` `v2` or `v2beta1`.
pub(crate) fn of_groups(list: &Value) -> Vec<ListedResource> {
    let mut found = Vec::new();
    for group in items(&list["items"]) {
        let name = text(&group["metadata"]["name"]);
        for version in items(&group["versions"]) {
            let of = (name, text(&version["version"]));
            for resource in items(&version["resources"]) {
                let (plural, scope) = (text(&resource["resource"]), text(&resource["scope"]));
                let mut push = |subresource: &str, kind: &Value| {
                    found.push(ListedResource {
                        resource: ResourceKind {
                            group: of.0.to_owned(),
                            version: of.1.to_owned(),
                            resource: plural.to_owned(),
                            kind: response_kind(kind, of),
                        },
                        singular: text(&resource["singularResource"]).to_owned(),
                        subresource: subresource.to_owned(),
                        is_namespaced: scope == "Namespaced",
                    });
                };
                push("", &resource["responseKind"]);
                for one in items(&resource["subresources"]) {
                    push(text(&one["subresource"]), &one["responseKind"]);
                }
            }
        }
    }
    found
}

/// A kind; group and version are those of the resource if both are empty.
fn response_kind(kind: &Value, of: (&str, &str)) -> Option<[String; 3]> {
    let (group, version) = match (text(&kind["group"]), text(&kind["version"])) {
        ("", "") => of,
        given => given,
    };
    let kind = text(&kind["kind"]);
    let named = !kind.is_empty();
    named.then(|| [group.to_owned(), version.to_owned(), kind.to_owned()])
}

/// The resources of an `APIResourceList`, of which `group` and `version` are known.
pub(crate) fn of_version(list: &Value, group: &str, version: &str) -> Vec<ListedResource> {
    let resources = items(&list["resources"]);
    let found = resources.map(|one| {
        let name = text(&one["name"]);
        let (resource, subresource) = name.split_once('/').unwrap_or((name, ""));
        // A group that is absent is that of the list, also where the version is given.
        let or = |given: &Value, default: &str| match text(given) {
            "" => default.to_owned(),
            given => given.to_owned(),
        };
        let kind = text(&one["kind"]);
        let kind = (!kind.is_empty()).then(|| {
            [
                or(&one["group"], group),
                or(&one["version"], version),
                kind.to_owned(),
            ]
        });
        ListedResource {
            resource: ResourceKind {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.to_owned(),
                kind,
            },
            singular: text(&one["singularName"]).to_owned(),
            subresource: subresource.to_owned(),
            is_namespaced: one["namespaced"] == true,
        }
    });
    found.collect()
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn aggregated() -> Value {
        json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "singularResource": "pod", "responseKind": {"group": "", "version": "v1", "kind": "Pod"}, "scope": "Namespaced",
                 "subresources": [
                    {"subresource": "exec", "responseKind": {"group": "", "version": "v1", "kind": "PodExecOptions"}},
                    {"subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"}}]},
                {"resource": "events", "responseKind": {"version": "v1", "kind": "Event"}, "scope": "Namespaced"},
                {"resource": "odd", "scope": "Cluster"}]}]},
            {"metadata": {"name": "events.k8s.io"}, "versions": [{"version": "v1", "resources": [
                {"resource": "events", "responseKind": {"group": "events.k8s.io", "version": "v1", "kind": "Event"},
                 "scope": "Namespaced"}]}]},
            {"metadata": {"name": "rules.example.com"}, "versions": [
                {"version": "v2", "resources": [{"resource": "limits", "scope": "Cluster",
                    "responseKind": {"group": "rules.example.com", "version": "v2", "kind": "Limit"}}]},
                {"version": "v1", "resources": [{"resource": "limits", "scope": "Cluster",
                    "responseKind": {"group": "rules.example.com", "version": "v1", "kind": "Limit"}}]}]}]})
    }

    fn names(resources: &[ResourceKind]) -> Vec<String> {
        let name = |one: &ResourceKind| format!("{}/{}", one.group, one.version);
        resources.iter().map(name).collect()
    }

    #[test]
    fn aggregated_documents_give_resources_subresources_and_their_kinds() {
        let table = ResourceTable::new(of_groups(&aggregated()));
        assert_eq!(table.len(), 8);
        let pods = table.resource("", "v1", "pods", "").unwrap();
        assert!(pods.is_namespaced);
        assert_eq!(names(&pods.equivalents), ["/v1"]);
        let kind = |sub: &str| {
            let found = table.resource("", "v1", "pods", sub)?;
            found.resource.kind.as_ref().map(|kind| kind.join(" "))
        };
        assert_eq!(kind("").as_deref(), Some(" v1 Pod"));
        assert_eq!(kind("exec").as_deref(), Some(" v1 PodExecOptions"));
        assert_eq!(kind("eviction").as_deref(), Some("policy v1 Eviction"));
        assert_eq!(kind("log"), None);
        assert_eq!(
            table.resource("", "v1", "odd", "").unwrap().resource.kind,
            None
        );
        assert!(table.resource("", "v2", "pods", "").is_none());
        assert!(table.resource("apps", "v1", "pods", "").is_none());
    }

    #[test]
    fn kinds_are_found_by_both_names_of_their_resources() {
        let table = ResourceTable::new(of_groups(&aggregated()));
        let named = |group, version, resource| {
            let found = table.named(group, version, resource).into_iter();
            let shown = found.map(|one| format!("{} {} {}", one.group, one.version, one.kind));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(named("", "v1", "pods"), [" v1 Pod"]);
        assert_eq!(named("", "v1", "Pod"), [" v1 Pod"]);
        // The core group counts as any.
        let events = [" v1 Event", "events.k8s.io v1 Event"];
        assert_eq!(named("", "v1", "events"), events);
        let limit = ["rules.example.com v2 Limit"];
        assert_eq!(named("rules.example.com", "v2", "LIMITS"), limit);
        assert_eq!(named("rules.example.com", "v3", "limits").len(), 0);
        assert_eq!(named("x.io", "v1", "pods").len(), 0);
        assert_eq!(named("", "v1", "odd").len(), 0);
    }

    #[test]
    fn resources_are_equivalent_across_versions_and_where_they_have_moved() {
        let table = ResourceTable::new(of_groups(&aggregated()));
        let of = |group, version, resource| {
            let found = table.resource(group, version, resource, "").unwrap();
            names(&found.equivalents)
        };
        let limits = ["rules.example.com/v2", "rules.example.com/v1"];
        assert_eq!(of("rules.example.com", "v1", "limits"), limits);
        assert_eq!(of("", "v1", "events"), ["/v1", "events.k8s.io/v1"]);
        assert_eq!(
            of("events.k8s.io", "v1", "events"),
            ["/v1", "events.k8s.io/v1"]
        );
    }

    #[test]
    fn kinds_of_params_have_a_resource_and_a_scope() {
        let table = ResourceTable::new(of_groups(&aggregated()));
        let kind = |api_version: &str, kind: &str| PolicyParamKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let (api, scope) = table
            .of_kind(&kind("rules.example.com/v1", "Limit"))
            .unwrap();
        assert_eq!(
            (api.plural.as_str(), *scope),
            ("limits", ParamScope::Cluster)
        );
        let (api, scope) = table.of_kind(&kind("v1", "Pod")).unwrap();
        assert_eq!(
            (api.plural.as_str(), *scope),
            ("pods", ParamScope::Namespaced)
        );
        // The kind of a subresource is none of params.
        assert!(table.of_kind(&kind("policy/v1", "Eviction")).is_none());
        assert!(table.of_kind(&kind("v1", "PodExecOptions")).is_none());
    }

    #[test]
    fn lists_of_one_version_give_the_same() {
        let list = json!({"groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "namespaced": true, "kind": "Deployment"},
            {"name": "deployments/scale", "namespaced": true, "kind": "Scale", "group": "autoscaling", "version": "v1"},
            {"name": "deployments/status", "namespaced": true, "kind": "Deployment"}]});
        let table = ResourceTable::new(of_version(&list, "apps", "v1"));
        let kind = |sub: &str| {
            let found = table.resource("apps", "v1", "deployments", sub).unwrap();
            found.resource.kind.clone().unwrap().join(" ")
        };
        assert_eq!(kind(""), "apps v1 Deployment");
        assert_eq!(kind("scale"), "autoscaling v1 Scale");
        assert_eq!(kind("status"), "apps v1 Deployment");
    }

    #[test]
    fn strange_documents_give_nothing() {
        for strange in [
            json!(null),
            json!({"items": 5}),
            json!({"items": [null, {"versions": [7]}]}),
        ] {
            assert_eq!(of_groups(&strange), []);
            assert_eq!(of_version(&strange, "", "v1"), []);
        }
    }
}
