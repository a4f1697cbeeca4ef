//! Which resource the objects of a kind belong to, without a server that says so.

use serde_json::Value;

use crate::documents::FileObject;
use fairgate_admission::{BuiltInResource, built_in_resource, built_in_resources};

/// Kinds of built-in subresources: group, kind, resource, subresource. The resources are in the core group.
const SUBRESOURCES: [(&str, &str, &str, &str); 8] = [
    ("policy", "Eviction", "pods", "eviction"),
    (
        "authentication.k8s.io",
        "TokenRequest",
        "serviceaccounts",
        "token",
    ),
    ("", "PodExecOptions", "pods", "exec"),
    ("", "PodAttachOptions", "pods", "attach"),
    ("", "PodPortForwardOptions", "pods", "portforward"),
    ("", "PodProxyOptions", "pods", "proxy"),
    ("", "ServiceProxyOptions", "services", "proxy"),
    ("", "NodeProxyOptions", "nodes", "proxy"),
];

/// A resource, or a subresource, with the kind of the objects that requests for it contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TestedResource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    /// Empty for the resource itself.
    pub(super) subresource: String,
    /// Group, version and kind of the objects.
    pub(super) kind: [String; 3],
    pub(super) namespaced: bool,
    /// Whether the plural is a guess.
    pub(super) is_guess: bool,
}

impl TestedResource {
    /// The resource as messages show it, such as `deployments.apps/scale`.
    pub(super) fn shown(&self) -> String {
        let mut shown = self.plural.clone();
        for (before, part) in [(".", &self.group), ("/", &self.subresource)] {
            if !part.is_empty() {
                shown.push_str(before);
                shown.push_str(part);
            }
        }
        shown
    }
}

/// What the user says about the resource of a kind: `Scale=deployments.apps/scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceOverride {
    kind: String,
    resource: String,
}

impl ResourceOverride {
    /// The resource of a kind.
    pub(super) fn new(kind: &str, resource: &str) -> Self {
        let (kind, resource) = (kind.to_owned(), resource.to_owned());
        Self { kind, resource }
    }

    /// Reads `KIND=RESOURCE[.GROUP][/SUBRESOURCE]`.
    ///
    /// # Errors
    ///
    /// That the text has another form.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((kind, resource)) if !kind.is_empty() && !resource.is_empty() => {
                Ok(Self::new(kind, resource))
            }
            _ => Err(
                "write KIND=RESOURCE, such as Goose=geese or Scale=deployments.apps/scale"
                    .to_owned(),
            ),
        }
    }
}

/// A kind that a `CustomResourceDefinition` among the files defines.
#[derive(Clone, Debug)]
struct CustomKind {
    group: String,
    kind: String,
    plural: String,
    namespaced: bool,
    versions: Vec<String>,
}

/// What is known of resources.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownResources {
    overrides: Vec<ResourceOverride>,
    custom: Vec<CustomKind>,
}

impl KnownResources {
    /// Those of Kubernetes, and those that the user names, which come first.
    pub(super) fn new(overrides: Vec<ResourceOverride>) -> Self {
        let custom = Vec::new();
        Self { overrides, custom }
    }

    /// Adds what the user says about a kind; it counts for more than what was said before.
    pub(super) fn override_kind(&mut self, one: ResourceOverride) {
        self.overrides.insert(0, one);
    }

    /// Learns the kinds that these objects define, if they are `CustomResourceDefinitions`.
    pub(super) fn learn(&mut self, objects: &[FileObject]) {
        for object in objects {
            let spec = &object.value["spec"];
            if object.kind() != "CustomResourceDefinition" {
                continue;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let versions = spec["versions"].as_array().into_iter().flatten();
            self.custom.push(CustomKind {
                group: text(&spec["group"]),
                kind: text(&spec["names"]["kind"]),
                plural: text(&spec["names"]["plural"]),
                namespaced: spec["scope"] == "Namespaced",
                versions: versions.map(|one| text(&one["name"])).collect(),
            });
        }
    }

    /// The resource of objects of a kind. If the kind is unknown, its plural is guessed, and it is namespaced if this
    /// object has a namespace.
    ///
    /// # Errors
    ///
    /// When the user has to name the resource; the text says how.
    pub(super) fn of_kind(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        has_namespace: bool,
    ) -> Result<TestedResource, String> {
        let mut resource = TestedResource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: [group, version, kind].map(str::to_owned),
            ..TestedResource::default()
        };
        let named = self.overrides.iter().find(|one| one.kind == kind);
        if let Some(named) = named {
            self.apply(&named.resource, has_namespace, &mut resource);
            return Ok(resource);
        }
        if let Some(known) = built_in_resource(group, kind) {
            known.plural.clone_into(&mut resource.plural);
            resource.namespaced = known.namespaced;
            return Ok(resource);
        }
        let own = |one: &&(&str, &str, &str, &str)| (one.0, one.1) == (group, kind);
        if let Some((_, _, plural, subresource)) = SUBRESOURCES.iter().find(own) {
            self.apply(&format!("{plural}/{subresource}"), true, &mut resource);
            return Ok(resource);
        }
        if kind == "Scale" {
            return Err("several resources have the subresource scale".to_owned());
        }
        let own = |one: &&CustomKind| one.group == group && one.kind == kind;
        if let Some(custom) = self.custom.iter().find(own) {
            resource.plural.clone_from(&custom.plural);
            resource.namespaced = custom.namespaced;
            return Ok(resource);
        }
        resource.plural = plural(kind);
        resource.namespaced = has_namespace;
        resource.is_guess = true;
        Ok(resource)
    }

    /// Reads `RESOURCE[.GROUP][/SUBRESOURCE]`.
    fn apply(&self, named: &str, has_namespace: bool, resource: &mut TestedResource) {
        let (whole, subresource) = named.split_once('/').unwrap_or((named, ""));
        let (plural, group) = match whole.split_once('.') {
            Some((plural, group)) => (plural, Some(group)),
            None => (whole, None),
        };
        plural.clone_into(&mut resource.plural);
        subresource.clone_into(&mut resource.subresource);
        let group = group.unwrap_or(&resource.group).to_owned();
        let own = |one: &&BuiltInResource| one.plural == plural;
        let built_in = built_in_resources();
        let mut in_group = built_in.iter().filter(own);
        // A subresource has a group of its own, so that of its object says nothing.
        let known = in_group.find(|one| one.group == group).or_else(|| {
            let is_elsewhere = !subresource.is_empty() && !whole.contains('.');
            built_in.iter().filter(own).find(|_| is_elsewhere)
        });
        let own = |one: &&CustomKind| one.group == group && one.plural == plural;
        let custom = self.custom.iter().find(own);
        if let Some(known) = known {
            if known.group != resource.group || !subresource.is_empty() {
                known.version.clone_into(&mut resource.version);
            }
            known.group.clone_into(&mut resource.group);
            resource.namespaced = known.namespaced;
        } else if let Some(custom) = custom {
            resource.group = group;
            resource.namespaced = custom.namespaced;
        } else {
            resource.group = group;
            resource.namespaced = has_namespace;
        }
    }

    /// The versions in which a server has the resource, and the kind in each: those of other groups, too.
    pub(super) fn equivalents(&self, of: &TestedResource) -> Vec<TestedResource> {
        let mut all = Vec::new();
        let mut add = |group: &str, version: &str, kind: &str| {
            let mut one = of.clone();
            group.clone_into(&mut one.group);
            version.clone_into(&mut one.version);
            // The objects of most subresources are those of the resource.
            if of.subresource.is_empty() || of.kind[2] == kind {
                one.kind = [group, version, kind].map(str::to_owned);
            }
            if !all.contains(&one) {
                all.push(one);
            }
        };
        let is_event = of.plural == "events" && ["", "events.k8s.io"].contains(&&*of.group);
        for one in built_in_resources() {
            let same_group = one.group == of.group || (is_event && one.kind == "Event");
            if same_group && one.plural == of.plural {
                add(one.group, one.version, one.kind);
            }
        }
        for one in &self.custom {
            if one.group == of.group && one.plural == of.plural {
                for version in &one.versions {
                    add(&one.group, version, &one.kind);
                }
            }
        }
        add(&of.group, &of.version, &of.kind[2]);
        all
    }

    /// Whether objects of a kind of params are in namespaces, if that is known.
    pub(super) fn is_namespaced(&self, group: &str, kind: &str) -> Option<bool> {
        let own = |one: &&CustomKind| one.group == group && one.kind == kind;
        let built_in = built_in_resource(group, kind).map(|one| one.namespaced);
        built_in.or_else(|| self.custom.iter().find(own).map(|one| one.namespaced))
    }
}

/// The plural of a kind as Kubernetes guesses it.
fn plural(kind: &str) -> String {
    let mut plural = kind.to_lowercase();
    if plural.ends_with('s') {
        plural.push_str("es");
    } else if plural.ends_with('y') {
        plural.pop();
        plural.push_str("ies");
    } else {
        plural.push('s');
    }
    plural
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(known: &KnownResources, group: &str, kind: &str) -> TestedResource {
        known.of_kind((group, "v1"), kind, false).unwrap()
    }

    #[test]
    fn kinds_of_kubernetes_have_their_resources() {
        let known = KnownResources::default();
        let deployment = of(&known, "apps", "Deployment");
        assert_eq!(deployment.shown(), "deployments.apps");
        assert!(deployment.namespaced && !deployment.is_guess);
        assert!(!of(&known, "", "Namespace").namespaced);
        let eviction = of(&known, "policy", "Eviction");
        assert_eq!(eviction.shown(), "pods/eviction");
        assert_eq!(eviction.kind, ["policy", "v1", "Eviction"]);
        assert_eq!(eviction.version, "v1");
        assert!(known.of_kind(("autoscaling", "v1"), "Scale", true).is_err());
    }

    #[test]
    fn what_the_user_says_comes_first_and_the_rest_is_guessed() {
        let overrides = ["Goose=geese", "Scale=deployments.apps/scale"];
        let overrides = overrides.map(|text| ResourceOverride::parse(text).unwrap());
        let known = KnownResources::new(overrides.to_vec());
        assert_eq!(
            of(&known, "farm.example", "Goose").shown(),
            "geese.farm.example"
        );
        let scale = of(&known, "autoscaling", "Scale");
        assert_eq!(scale.shown(), "deployments.apps/scale");
        assert!(scale.namespaced);
        let guesses = [
            ("Policy", "policies.x"),
            ("Bus", "buses.x"),
            ("Cow", "cows.x"),
        ];
        for (kind, plural) in guesses {
            let guess = of(&known, "x", kind);
            assert!(guess.is_guess);
            assert_eq!(guess.shown(), plural);
        }
        assert!(ResourceOverride::parse("geese").is_err());
        let elsewhere = ResourceOverride::parse("Scale=deployments/scale").unwrap();
        let known = KnownResources::new(vec![elsewhere]);
        assert_eq!(
            of(&known, "autoscaling", "Scale").shown(),
            "deployments.apps/scale"
        );
    }

    #[test]
    fn other_versions_and_groups_are_equivalent() {
        let known = KnownResources::default();
        let of = |group, version, kind| {
            let resource = known.of_kind((group, version), kind, true).unwrap();
            let all = known.equivalents(&resource).into_iter();
            all.map(|one| format!("{}/{}", one.group, one.version))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("", "v1", "Event"), ["/v1", "events.k8s.io/v1"]);
        let scalers = of("autoscaling", "v1", "HorizontalPodAutoscaler");
        assert_eq!(scalers, ["autoscaling/v2", "autoscaling/v1"]);
        assert_eq!(
            of("apps", "v1beta2", "Deployment"),
            ["apps/v1", "apps/v1beta2"]
        );
    }
}
