//! `authorizer`: authorization checks in expressions, which the host decides.
//!
//! A host implements [`CelAuthorizer`] and binds a variable to [`authorizer`], or to [`resource_check`] for the
//! resource of the request. The host receives selectors as text and has to parse them.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/authz.go` and `cost.go`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use fairgate_gotext::names;

use super::go_text::{fixed, text};
use super::opaque_types::opaque;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelResult, CelValue, work_of_bytes};

/// Decides the authorization checks of expressions.
pub trait CelAuthorizer: Send + Sync {
    /// Decides a check. It is called once for each call of `check()` that is evaluated.
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer;
}

/// An authorization check: who wants to do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationCheck {
    /// Namespace and name of the service account that the check is about; `None`: the user of the request.
    pub service_account: Option<(String, String)>,
    /// The verb, such as `get`: the argument of `check()`.
    pub verb: String,
    /// The path, for a check of a non-resource path. The fields below are then empty.
    pub path: Option<String>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource; empty if there is none.
    pub subresource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// The name of the object; empty if the check is not about a single object.
    pub name: String,
    /// The field selector, unparsed; empty if there is none.
    pub field_selector: String,
    /// The label selector, unparsed; empty if there is none.
    pub label_selector: String,
}

/// The host's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationAnswer {
    /// Whether it is allowed. Expressions cannot distinguish a denial from no opinion.
    pub allowed: bool,
    /// The reason, as `reason()` returns it; may be empty.
    pub reason: String,
    /// The error of a check that failed, for `errored()` and `error()`.
    pub error: Option<String>,
}

/// The host that decides, and the check as built so far.
#[derive(Clone)]
struct CheckBuilder {
    host: Arc<dyn CelAuthorizer>,
    check: AuthorizationCheck,
}

impl CheckBuilder {
    /// The bytes that are copied with it.
    fn text_len(&self) -> usize {
        let of = &self.check;
        let account = of.service_account.as_ref();
        [
            of.path.as_ref().map_or(0, String::len),
            account.map_or(0, |(namespace, name)| namespace.len() + name.len()),
            of.group.len() + of.resource.len() + of.subresource.len(),
            of.namespace.len() + of.name.len(),
            of.field_selector.len() + of.label_selector.len(),
        ]
        .iter()
        .sum()
    }
}

impl AuthorizationAnswer {
    fn text_len(&self) -> usize {
        self.reason.len() + self.error.as_ref().map_or(0, String::len)
    }
}

/// Declares an opaque type whose values only have member functions.
macro_rules! receiver {
    ($name:ident, $inside:ty, $text:literal, $go:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone)]
        struct $name($inside);

        impl $name {
            const NAME: &str = concat!("kubernetes.authorization.", $text);

            fn of<'v>(args: &'v [CelValue<'_>]) -> Result<&'v $inside, CelError> {
                opaque(args, 0).map(|value: &Self| &value.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Self::NAME)
            }
        }

        impl CelOpaque for $name {
            fn type_name(&self) -> &str {
                Self::NAME
            }

            fn go_type(&self) -> &'static str {
                concat!("library.", $go)
            }

            fn as_any(&self) -> &dyn Any {
                self
            }

            fn equals(&self, _: &dyn CelOpaque) -> Option<bool> {
                None
            }

            fn work(&self) -> u64 {
                4 + work_of_bytes(self.0.text_len())
            }

            fn conversion_error(&self) -> Option<String> {
                Some("no such overload".to_owned())
            }
        }
    };
}

receiver!(
    Authorizer,
    CheckBuilder,
    "Authorizer",
    "authorizerVal",
    "The user or service account that checks are about."
);
receiver!(
    PathCheck,
    CheckBuilder,
    "PathCheck",
    "pathCheckVal",
    "A check of a path, without a verb yet."
);
receiver!(
    GroupCheck,
    CheckBuilder,
    "GroupCheck",
    "groupCheckVal",
    "A check of an API group, without a resource yet."
);
receiver!(
    ResourceCheck,
    CheckBuilder,
    "ResourceCheck",
    "resourceCheckVal",
    "A check of a resource, without a verb yet."
);
receiver!(
    Decision,
    AuthorizationAnswer,
    "Decision",
    "decisionVal",
    "The decision about a check."
);

/// The value of the variable `authorizer`, whose checks are about the user of the request.
pub fn authorizer(host: Arc<dyn CelAuthorizer>) -> CelValue<'static> {
    let check = AuthorizationCheck::default();
    CelValue::opaque(Authorizer(CheckBuilder { host, check }))
}

/// The value of a variable for a resource, such as `authorizer.requestResource`: a check that begins as `check`, in
/// which the host sets group, resource, subresource, namespace and name.
pub fn resource_check(
    host: Arc<dyn CelAuthorizer>,
    check: AuthorizationCheck,
) -> CelValue<'static> {
    CelValue::opaque(ResourceCheck(CheckBuilder { host, check }))
}

/// The type of the variable `authorizer`.
pub fn authorizer_type() -> CelType {
    CelType::object(Authorizer::NAME)
}

/// The type of `authorizer.requestResource`.
pub fn resource_check_type() -> CelType {
    CelType::object(ResourceCheck::NAME)
}

/// The functions of `authorizer`, of checks and of decisions, without selectors.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizerLibrary;

/// The functions `fieldSelector` and `labelSelector` of checks of a resource.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizerSelectors;

impl CelLibrary for AuthorizerLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let text = CelType::String;
        let path = CelType::object(PathCheck::NAME);
        let group = CelType::object(GroupCheck::NAME);
        let args = [authorizer_type(), text.clone()];
        member(to, "path", "authorizer_path", &args, path, make_path);
        member(
            to,
            "group",
            "authorizer_group",
            &args,
            group.clone(),
            make_group,
        );
        let account = [authorizer_type(), text.clone(), text.clone()];
        let (name, id) = ("serviceAccount", "authorizer_serviceaccount");
        member(to, name, id, &account, authorizer_type(), service_account);
        let args = [group, text.clone()];
        let (name, id) = ("resource", "groupcheck_resource");
        member(to, name, id, &args, resource_check_type(), make_resource);
        attribute(to, "subresource", "resourcecheck_subresource", |of| {
            &mut of.subresource
        });
        attribute(to, "namespace", "resourcecheck_namespace", |of| {
            &mut of.namespace
        });
        attribute(to, "name", "resourcecheck_name", |of| &mut of.name);
        declare_check(to);
        declare_decision(to);
    }
}

impl CelLibrary for AuthorizerSelectors {
    fn declare(&self, to: &mut CelDeclarations) {
        // In the original, too, these identifiers begin with `authorizer_`, although a check of a resource has them.
        attribute(to, "fieldSelector", "authorizer_fieldselector", |of| {
            &mut of.field_selector
        });
        attribute(to, "labelSelector", "authorizer_labelselector", |of| {
            &mut of.label_selector
        });
        for name in ["fieldSelector", "labelSelector"] {
            to.function(CelFunctionDecl::new(name).cost(selector_cost));
        }
    }
}

/// The original's estimate for parsing a selector: a tenth of its length, 10 for a list of requirements, and for every
/// two characters a requirement of 50, which is a struct (40) with a list (10).
#[expect(clippy::unnecessary_wraps, reason = "the signature of cost functions")]
fn selector_cost(args: &[CelValue<'_>], _: &CelValue<'_>) -> Option<u64> {
    let length = args[1].cost_size();
    let requirements = length.div_ceil(2).saturating_mul(50);
    Some(
        length
            .div_ceil(10)
            .saturating_add(requirements)
            .saturating_add(10),
    )
}

type Member = for<'a> fn(&[CelValue<'a>]) -> CelResult<'a>;

fn member(
    to: &mut CelDeclarations,
    name: &str,
    id: &str,
    args: &[CelType],
    result: CelType,
    function: Member,
) {
    let overload = CelOverload::member(id, args, result, function);
    to.function(CelFunctionDecl::new(name).overload(overload));
}

/// Declares a member function that sets a field of a check of a resource.
fn attribute(
    to: &mut CelDeclarations,
    name: &str,
    id: &str,
    field: fn(&mut AuthorizationCheck) -> &mut String,
) {
    to.function(CelFunctionDecl::new(name).overload(CelOverload::member(
        id,
        [resource_check_type(), CelType::String],
        resource_check_type(),
        fixed(move |args| {
            let mut builder = ResourceCheck::of(args)?.clone();
            text(args, 1)?.clone_into(field(&mut builder.check));
            Ok(CelValue::opaque(ResourceCheck(builder)))
        }),
    )));
}

fn declare_check(to: &mut CelDeclarations) {
    let decision = || CelType::object(Decision::NAME);
    to.function(
        CelFunctionDecl::new("check")
            // The original's cost, which lets an expression make two checks.
            .cost(|_, _| Some(350_000))
            .overload(CelOverload::member(
                "pathcheck_check",
                [CelType::object(PathCheck::NAME), CelType::String],
                decision(),
                fixed(|args| Ok(ask(PathCheck::of(args)?, text(args, 1)?))),
            ))
            .overload(CelOverload::member(
                "resourcecheck_check",
                [resource_check_type(), CelType::String],
                decision(),
                fixed(|args| Ok(ask(ResourceCheck::of(args)?, text(args, 1)?))),
            )),
    );
}

fn declare_decision(to: &mut CelDeclarations) {
    let (args, bool) = ([CelType::object(Decision::NAME)], CelType::Bool);
    member(
        to,
        "errored",
        "decision_errored",
        &args,
        bool.clone(),
        |args| Ok(Decision::of(args)?.error.is_some().into()),
    );
    member(
        to,
        "error",
        "decision_error",
        &args,
        CelType::String,
        |args| Ok(Decision::of(args)?.error.clone().unwrap_or_default().into()),
    );
    member(to, "allowed", "decision_allowed", &args, bool, |args| {
        Ok(Decision::of(args)?.allowed.into())
    });
    member(
        to,
        "reason",
        "decision_reason",
        &args,
        CelType::String,
        |args| Ok(Decision::of(args)?.reason.clone().into()),
    );
}

fn ask(builder: &CheckBuilder, verb: &str) -> CelValue<'static> {
    let mut check = builder.check.clone();
    verb.clone_into(&mut check.verb);
    CelValue::opaque(Decision(builder.host.authorize(&check)))
}

fn make_path<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (mut builder, path) = (Authorizer::of(args)?.clone(), text(args, 1)?);
    if path.trim().is_empty() {
        return Err(CelError::new("path must not be empty"));
    }
    builder.check.path = Some(path.to_owned());
    Ok(CelValue::opaque(PathCheck(builder)))
}

fn make_group<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let mut builder = Authorizer::of(args)?.clone();
    text(args, 1)?.clone_into(&mut builder.check.group);
    Ok(CelValue::opaque(GroupCheck(builder)))
}

fn make_resource<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (mut builder, resource) = (GroupCheck::of(args)?.clone(), text(args, 1)?);
    if resource.trim().is_empty() {
        return Err(CelError::new("resource must not be empty"));
    }
    resource.clone_into(&mut builder.check.resource);
    Ok(CelValue::opaque(ResourceCheck(builder)))
}

fn service_account<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (namespace, name) = (text(args, 1)?, text(args, 2)?);
    let mut builder = Authorizer::of(args)?.clone();
    if !names::is_subdomain(name.as_bytes()) {
        return Err(CelError::new("Invalid service account name"));
    }
    if !names::is_label(namespace.as_bytes()) {
        return Err(CelError::new("Invalid service account namespace"));
    }
    builder.check.service_account = Some((namespace.to_owned(), name.to_owned()));
    Ok(CelValue::opaque(Authorizer(builder)))
}
