//! What expressions of policies see: the environments of the language.
//!
//! Stored policies are compiled with everything that the release knows. The types of `request` and `namespaceObject`
//! are declared as the original declares them, with its mistakes: the static field is `UID`, the value has `uid`; times
//! are declared as timestamps and arrive as text.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/cel/compile.go` and `apiserver/pkg/cel/environment/base.go`.

use std::sync::OnceLock;

use fairgate_cel::library::authorizer::{authorizer_type, resource_check_type};
use fairgate_cel::library::{
    AuthorizerLibrary, AuthorizerSelectors, CidrLibrary, FormatLibrary, IpLibrary, ListsExtension,
    ListsLibrary, OptionalTypes, QuantityLibrary, RegexLibrary, SemverLibrary, SetsLibrary,
    StringsLibrary, TwoVariableComprehensions, UrlLibrary,
};
use fairgate_cel::{
    CelEnvironment, CelEnvironmentBuilder, CelLibrary, CelObjectType, CelType, CelVariable,
};

/// The variable for checks of whether the user may make the request.
pub(crate) const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// Words that have a meaning in expressions.
pub(crate) const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The variable whose members are the variables of the policy.
pub(crate) const VARIABLES: &str = "variables";

/// The name of its type.
const VARIABLES_TYPE: &str = "kubernetes.variables";

/// The environments of one policy. `variables` has the fields that were added.
pub(crate) struct PolicyEnvironment {
    /// With and without `authorizer`; the variables that both have are numbered alike.
    full: CelEnvironment,
    unauthorized: CelEnvironment,
}

impl PolicyEnvironment {
    pub(crate) fn new(has_params: bool) -> Self {
        Self::of(has_params, true)
    }

    /// With or without `variables`: while a policy is validated, only one that has variables may name them.
    pub(crate) fn of(has_params: bool, has_variables: bool) -> Self {
        Self {
            full: declared(has_params, true, has_variables).clone(),
            unauthorized: declared(has_params, false, has_variables).clone(),
        }
    }

    /// With `authorizer`.
    pub(crate) fn full(&self) -> &CelEnvironment {
        &self.full
    }

    /// Without `authorizer`, for messages.
    pub(crate) fn unauthorized(&self) -> &CelEnvironment {
        &self.unauthorized
    }

    /// The environment to bind values for expressions with or without params. It is the same for all policies: that of a
    /// policy has more fields of `variables`, which are not bound.
    pub(crate) fn for_bindings(has_params: bool) -> &'static CelEnvironment {
        declared(has_params, true, true)
    }

    /// Adds a variable of the policy.
    pub(crate) fn add_variable(&mut self, name: &str, of: &CelType) {
        let of = field_type(of);
        self.full.declare_field(VARIABLES_TYPE, name, of.clone());
        self.unauthorized.declare_field(VARIABLES_TYPE, name, of);
    }
}

/// The variables that expressions of a policy use; those that it does not use need no value and are absent.
#[derive(Clone, Copy, Default)]
pub(crate) struct PolicyVariableNumbers {
    pub(crate) object: Option<CelVariable>,
    pub(crate) old_object: Option<CelVariable>,
    pub(crate) namespace: Option<CelVariable>,
    pub(crate) request: Option<CelVariable>,
    pub(crate) variables: Option<CelVariable>,
    pub(crate) params: Option<CelVariable>,
    pub(crate) authorizer: Option<CelVariable>,
    pub(crate) resource_check: Option<CelVariable>,
}

impl PolicyVariableNumbers {
    /// Those of the environment's variables whose name `is_used`.
    pub(crate) fn of(environment: &CelEnvironment, is_used: impl Fn(&str) -> bool) -> Self {
        let number = |name| environment.variable(name).filter(|_| is_used(name));
        Self {
            object: number("object"),
            old_object: number("oldObject"),
            namespace: number("namespaceObject"),
            request: number("request"),
            variables: number(VARIABLES),
            params: number("params"),
            authorizer: number("authorizer"),
            resource_check: number(REQUEST_RESOURCE),
        }
    }
}

/// The types of values that a policy's own environment does not know.
pub(crate) struct TypedValues {
    /// Of `object` and `oldObject`.
    pub(crate) object: CelType,
    /// Of `params`, if there are any.
    pub(crate) params: Option<CelType>,
    /// The types with fields that these have.
    pub(crate) types: Vec<CelObjectType>,
}

/// The environment of the type checker. As in the original, it has no `authorizer.requestResource`.
pub(crate) fn typed(values: TypedValues) -> CelEnvironment {
    let mut builder = request_types(namespace_types(base()))
        .object_type(CelObjectType::new(VARIABLES_TYPE))
        .variable("object", values.object.clone())
        .variable("oldObject", values.object)
        .variable("namespaceObject", CelType::object("kubernetes.Namespace"))
        .variable("request", CelType::object("kubernetes.AdmissionRequest"))
        .variable(VARIABLES, CelType::object(VARIABLES_TYPE))
        // Declared for all expressions, although those of messages are evaluated without it.
        .variable("authorizer", authorizer_type());
    if let Some(params) = values.params {
        builder = builder.variable("params", params);
    }
    for object in values.types {
        builder = builder.object_type(object);
    }
    builder.build()
}

/// Adds a variable of a policy to an environment.
pub(crate) fn declare_variable(environment: &mut CelEnvironment, name: &str, of: &CelType) {
    environment.declare_field(VARIABLES_TYPE, name, field_type(of));
}

/// The type that a variable is declared with. Any type but simple ones, lists and maps is checked only when the variable
/// is used.
fn field_type(of: &CelType) -> CelType {
    match of {
        CelType::List(_) => CelType::list(field_type(&of.parameters()[0])),
        CelType::Map(_) => {
            let [key, value] = [0, 1].map(|at| field_type(&of.parameters()[at]));
            CelType::map(key, value)
        }
        CelType::Bool
        | CelType::Int
        | CelType::Uint
        | CelType::Double
        | CelType::String
        | CelType::Bytes
        | CelType::Duration
        | CelType::Timestamp
        | CelType::Null => of.clone(),
        _ => CelType::Dyn,
    }
}

/// The environment of policies without variables; each is built once in the life of the process.
fn declared(
    has_params: bool,
    has_authorizer: bool,
    has_variables: bool,
) -> &'static CelEnvironment {
    static KNOWN: [OnceLock<CelEnvironment>; 8] = [const { OnceLock::new() }; 8];
    let bit = usize::from;
    let at = bit(has_params) * 4 + bit(has_authorizer) * 2 + bit(has_variables);
    KNOWN[at].get_or_init(|| {
        let mut builder = request_types(namespace_types(base()))
            .object_type(CelObjectType::new(VARIABLES_TYPE))
            .variable("object", CelType::Dyn)
            .variable("oldObject", CelType::Dyn)
            .variable("namespaceObject", CelType::object("kubernetes.Namespace"))
            .variable("request", CelType::object("kubernetes.AdmissionRequest"));
        if has_variables {
            builder = builder.variable(VARIABLES, CelType::object(VARIABLES_TYPE));
        }
        if has_params {
            builder = builder.variable("params", CelType::Dyn);
        }
        if has_authorizer {
            builder = builder
                .variable("authorizer", authorizer_type())
                .variable(REQUEST_RESOURCE, resource_check_type());
        }
        builder.build()
    })
}

/// The libraries and settings of Kubernetes 1.36 for stored expressions.
fn base() -> CelEnvironmentBuilder {
    let libraries: [&dyn CelLibrary; 15] = [
        &UrlLibrary,
        &RegexLibrary,
        &ListsLibrary,
        &AuthorizerLibrary,
        &OptionalTypes,
        &QuantityLibrary,
        &StringsLibrary { version: 2 },
        &SetsLibrary,
        &IpLibrary,
        &CidrLibrary,
        &FormatLibrary,
        &AuthorizerSelectors,
        &TwoVariableComprehensions,
        &SemverLibrary { version: 1 },
        &ListsExtension,
    ];
    let builder = CelEnvironment::builder()
        .homogeneous_literals(true)
        .cross_type_comparison(true)
        .basic_types_are_objects(true)
        .literal_validators(true);
    libraries
        .into_iter()
        .fold(builder, CelEnvironmentBuilder::library)
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

fn request_types(builder: CelEnvironmentBuilder) -> CelEnvironmentBuilder {
    let kind = || CelType::object("kubernetes.GroupVersionKind");
    let resource = || CelType::object("kubernetes.GroupVersionResource");
    let texts_only = [
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
    ];
    let request = named("kubernetes.AdmissionRequest", &texts_only)
        .field("kind", kind())
        .field("requestKind", kind())
        .field("resource", resource())
        .field("requestResource", resource())
        .field("userInfo", CelType::object("kubernetes.UserInfo"))
        .field("dryRun", CelType::Bool)
        .field("options", CelType::Dyn);
    let user = named("kubernetes.UserInfo", &["username", "uid"])
        .field("groups", texts())
        .field("extra", CelType::map(CelType::String, texts()));
    builder
        .object_type(named(
            "kubernetes.GroupVersionKind",
            &["group", "version", "kind"],
        ))
        .object_type(named(
            "kubernetes.GroupVersionResource",
            &["group", "version", "resource"],
        ))
        .object_type(user)
        .object_type(request)
}

fn namespace_types(builder: CelEnvironmentBuilder) -> CelEnvironmentBuilder {
    let condition = named(
        "kubernetes.NamespaceCondition",
        &["status", "type", "message", "reason"],
    );
    let conditions = CelType::list(CelType::object("kubernetes.NamespaceCondition"));
    builder
        .object_type(namespace_metadata())
        .object_type(CelObjectType::new("kubernetes.NamespaceSpec").field("finalizers", texts()))
        .object_type(condition.field("lastTransitionTime", CelType::Timestamp))
        .object_type(
            named("kubernetes.NamespaceStatus", &["phase"]).field("conditions", conditions),
        )
        .object_type(
            CelObjectType::new("kubernetes.Namespace")
                .field("metadata", CelType::object("kubernetes.NamespaceMetadata"))
                .field("spec", CelType::object("kubernetes.NamespaceSpec"))
                .field("status", CelType::object("kubernetes.NamespaceStatus")),
        )
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
