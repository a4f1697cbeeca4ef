//! The CEL environments of Kubernetes: which libraries each compatibility version has.

use fairgate_cel::library::authorizer::{authorizer_type, resource_check_type};
use fairgate_cel::library::{
    AuthorizerLibrary, AuthorizerSelectors, CidrLibrary, FormatLibrary, IpLibrary, ListsExtension,
    ListsLibrary, OptionalTypes, QuantityLibrary, RegexLibrary, SemverLibrary, SetsLibrary,
    StringsLibrary, TwoVariableComprehensions, UrlLibrary,
};
use fairgate_cel::{CelEnvironment, CelEnvironmentBuilder, CelLibrary, CelObjectType, CelType};

/// A minor version that has all libraries.
pub(crate) const NEWEST: u32 = u32::MAX;

/// The libraries and settings of Kubernetes 1.`minor`.
pub(crate) fn base(minor: u32) -> CelEnvironmentBuilder {
    let libraries: [(u32, &dyn CelLibrary); 16] = [
        (0, &UrlLibrary),
        (0, &RegexLibrary),
        (0, &ListsLibrary),
        (27, &AuthorizerLibrary),
        (28, &OptionalTypes),
        (28, &QuantityLibrary),
        (0, &StringsLibrary { version: 0 }),
        (29, &StringsLibrary { version: 2 }),
        (29, &SetsLibrary),
        (30, &IpLibrary),
        (30, &CidrLibrary),
        (31, &FormatLibrary),
        // Controlled by a feature gate that is on, so it is in every version.
        (0, &AuthorizerSelectors),
        (32, &TwoVariableComprehensions),
        (33, &SemverLibrary { version: 1 }),
        (34, &ListsExtension),
    ];
    let mut builder = CelEnvironment::builder()
        .homogeneous_literals(true)
        .cross_type_comparison(minor >= 28)
        .basic_types_are_objects(true)
        .literal_validators(minor >= 29);
    for (introduced, library) in libraries {
        if minor >= introduced {
            builder = builder.library(library);
        }
    }
    builder
}

/// The environment of a policy with params, in a server with an authorizer.
pub(crate) fn policies(minor: u32) -> CelEnvironment {
    base(minor)
        .object_type(named(
            "kubernetes.GroupVersionKind",
            &["group", "version", "kind"],
        ))
        .object_type(named(
            "kubernetes.GroupVersionResource",
            &["group", "version", "resource"],
        ))
        .object_type(user_info())
        .object_type(request())
        .object_type(namespace_metadata())
        .object_type(CelObjectType::new("kubernetes.NamespaceSpec").field("finalizers", texts()))
        .object_type(
            named(
                "kubernetes.NamespaceCondition",
                &["status", "type", "message", "reason"],
            )
            .field("lastTransitionTime", CelType::Timestamp),
        )
        .object_type(named("kubernetes.NamespaceStatus", &["phase"]).field(
            "conditions",
            CelType::list(CelType::object("kubernetes.NamespaceCondition")),
        ))
        .object_type(
            CelObjectType::new("kubernetes.Namespace")
                .field("metadata", CelType::object("kubernetes.NamespaceMetadata"))
                .field("spec", CelType::object("kubernetes.NamespaceSpec"))
                .field("status", CelType::object("kubernetes.NamespaceStatus")),
        )
        .object_type(CelObjectType::new("kubernetes.variables"))
        .variable("object", CelType::Dyn)
        .variable("oldObject", CelType::Dyn)
        .variable("params", CelType::Dyn)
        .variable("request", CelType::object("kubernetes.AdmissionRequest"))
        .variable("namespaceObject", CelType::object("kubernetes.Namespace"))
        .variable("variables", CelType::object("kubernetes.variables"))
        .variable("authorizer", authorizer_type())
        .variable("authorizer.requestResource", resource_check_type())
        .build()
}

fn texts() -> CelType {
    CelType::list(CelType::String)
}

/// A type with fields that are strings.
fn named(name: &str, fields: &[&str]) -> CelObjectType {
    let object = CelObjectType::new(name);
    fields
        .iter()
        .fold(object, |object, field| object.field(field, CelType::String))
}

fn user_info() -> CelObjectType {
    named("kubernetes.UserInfo", &["username", "uid"])
        .field("groups", texts())
        .field("extra", CelType::map(CelType::String, texts()))
}

fn request() -> CelObjectType {
    let kind = || CelType::object("kubernetes.GroupVersionKind");
    let resource = || CelType::object("kubernetes.GroupVersionResource");
    let texts = [
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
    ];
    named("kubernetes.AdmissionRequest", &texts)
        .field("kind", kind())
        .field("requestKind", kind())
        .field("resource", resource())
        .field("requestResource", resource())
        .field("userInfo", CelType::object("kubernetes.UserInfo"))
        .field("dryRun", CelType::Bool)
        .field("options", CelType::Dyn)
}

fn namespace_metadata() -> CelObjectType {
    let texts_only = [
        "name",
        "generateName",
        "namespace",
        "UID",
        "resourceVersion",
    ];
    let map = || CelType::map(CelType::String, CelType::String);
    named("kubernetes.NamespaceMetadata", &texts_only)
        .field("labels", map())
        .field("annotations", map())
        .field("creationTimestamp", CelType::Timestamp)
        .field("deletionTimestamp", CelType::Timestamp)
        .field("deletionGracePeriodSeconds", CelType::Int)
        .field("generation", CelType::Int)
        .field("finalizers", texts())
}
