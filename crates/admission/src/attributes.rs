//! What is evaluated: the attributes of a request.

use std::fmt;

use fairgate_cel::{CelJson, equal_texts};
use fairgate_core::digest::User;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdmissionOperation {
    /// POST, and PUT or PATCH that creates.
    Create,
    /// PUT and PATCH of an object that exists.
    Update,
    /// DELETE; also each object of a `deletecollection`.
    Delete,
    /// Requests that connect to the object: exec, attach, portforward, proxy. Called upgrades here.
    Connect,
}

impl AdmissionOperation {
    /// The name in rules and in `request.operation`, such as `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// The operation of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Create, Self::Update, Self::Delete, Self::Connect];
        all.into_iter().find(|one| one.name() == name)
    }
}

/// A resource in a version. Prints as `apps/v1, Resource=deployments`.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct GroupVersionResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version, such as `v1`.
    pub version: &'a str,
    /// The resource in the plural, such as `pods`.
    pub resource: &'a str,
}

impl fmt::Display for GroupVersionResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            version,
            resource,
        } = self;
        write!(f, "{group}/{version}, Resource={resource}")
    }
}

impl PartialEq for GroupVersionResource<'_> {
    fn eq(&self, other: &Self) -> bool {
        equal_texts(self.group, other.group)
            && equal_texts(self.version, other.version)
            && equal_texts(self.resource, other.resource)
    }
}

/// A kind in a version.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct GroupVersionKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version, such as `v1`.
    pub version: &'a str,
    /// The kind, such as `Pod`.
    pub kind: &'a str,
}

impl PartialEq for GroupVersionKind<'_> {
    fn eq(&self, other: &Self) -> bool {
        equal_texts(self.group, other.group)
            && equal_texts(self.version, other.version)
            && equal_texts(self.kind, other.kind)
    }
}

/// A write or an upgrade, as policies see it, without the objects.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionAttributes<'a> {
    /// What the request does to the object.
    pub operation: AdmissionOperation,
    /// The resource in the version that the client asked for.
    pub resource: GroupVersionResource<'a>,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The kind of the object in that version; for subresources their own, such as `autoscaling/v1 Scale`.
    pub kind: GroupVersionKind<'a>,
    /// The namespace, or empty; a request for a namespace object has its name here, too.
    pub namespace: &'a str,
    /// The name in the path, or the one of the object; empty for objects of a `deletecollection`.
    pub name: &'a str,
    /// The user who makes the request.
    pub user: &'a User,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`, with `apiVersion` and `kind`; none for upgrades.
    pub options: Option<&'a CelJson<'a>>,
}

impl AdmissionAttributes<'_> {
    /// Whether policies that were created through the API do not apply to the request: reviews of access and tokens,
    /// which store nothing, and policies themselves, so that nobody is locked out.
    ///
    /// Source: the admission plugin's list of excluded resources.
    pub fn is_exempt(&self) -> bool {
        let GroupVersionResource {
            group, resource, ..
        } = self.resource;
        match group {
            "authentication.k8s.io" => matches!(resource, "selfsubjectreviews" | "tokenreviews"),
            "authorization.k8s.io" => matches!(
                resource,
                "localsubjectaccessreviews"
                    | "selfsubjectaccessreviews"
                    | "selfsubjectrulesreviews"
                    | "subjectaccessreviews"
            ),
            "admissionregistration.k8s.io" => matches!(
                resource,
                "validatingadmissionpolicies"
                    | "validatingadmissionpolicybindings"
                    | "mutatingadmissionpolicies"
                    | "mutatingadmissionpolicybindings"
            ),
            _ => false,
        }
    }

    /// Whether the request is for a namespace object; it then counts as having no namespace.
    pub(crate) fn is_namespace_kind(&self) -> bool {
        let GroupVersionKind {
            group,
            version,
            kind,
        } = self.kind;
        group.is_empty() && version == "v1" && kind == "Namespace"
    }
}

/// The objects of a request, in one version.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionObjects<'a> {
    /// The object as it is to be stored; the options object of an upgrade; none for a deletion.
    pub object: Option<&'a CelJson<'a>>,
    /// The object as it is stored; none for a creation or an upgrade.
    pub old_object: Option<&'a CelJson<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_and_policies_are_exempt() {
        let user = User::new("u", ["g"]);
        let exempt = |group, resource| {
            let attributes = AdmissionAttributes {
                operation: AdmissionOperation::Create,
                resource: GroupVersionResource {
                    group,
                    version: "v1",
                    resource,
                },
                subresource: "",
                kind: GroupVersionKind::default(),
                namespace: "",
                name: "",
                user: &user,
                dry_run: false,
                options: None,
            };
            attributes.is_exempt()
        };
        assert!(exempt("authentication.k8s.io", "tokenreviews"));
        assert!(exempt("authorization.k8s.io", "subjectaccessreviews"));
        assert!(exempt(
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies"
        ));
        assert!(!exempt(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations"
        ));
        assert!(!exempt("", "tokenreviews"));
    }

    #[test]
    fn operations_have_the_names_of_rules() {
        let create = AdmissionOperation::of_name("CREATE");
        assert_eq!(create, Some(AdmissionOperation::Create));
        assert_eq!(AdmissionOperation::of_name("create"), None);
    }
}
