//! `authorizer`: whether somebody may do something, which the host answers.
//!
//! A host implements [`CelAuthorizer`] and binds a variable to [`authorizer`], or to [`resource_check`] for the
//! resource of the request. Selectors reach the host as they were written.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/authz.go` and `cost.go`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::formats::{dns1123_label, dns1123_subdomain};
use super::go_text::{fixed, text};
use super::opaque_types::opaque;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelResult, CelValue};

/// Answers checks of an expression.
pub trait CelAuthorizer: Send + Sync {
    /// Whether this is allowed. It is asked once for each `check` that is evaluated.
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer;
}

/// What an expression asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationCheck {
    /// Namespace and name of the service account that is asked about; the user of the request without.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The path, for a check of a path. The other fields are for resources.
    pub path: Option<String>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name of the object, or empty.
    pub name: String,
    /// A field selector as it was written, or empty.
    pub field_selector: String,
    /// A label selector as it was written, or empty.
    pub label_selector: String,
}

/// What the host answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationAnswer {
    /// Whether it is allowed; not allowed and no opinion are the same to expressions.
    pub allowed: bool,
    /// Why, for `reason()`.
    pub reason: String,
    /// What went wrong, for `errored()` and `error()`.
    pub error: Option<String>,
}

/// Who is asked, and what about so far.
#[derive(Clone)]
struct Asking {
    host: Arc<dyn CelAuthorizer>,
    check: AuthorizationCheck,
}

/// Declares a type of values that only have members.
macro_rules! receiver {
    ($name:ident, $inside:ty, $text:literal, $doc:literal) => {
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

            fn as_any(&self) -> &dyn Any {
                self
            }

            fn equals(&self, _: &dyn CelOpaque) -> bool {
                false
            }

            /// The original compares them with their part that is a value, which fails.
            fn has_equality(&self) -> bool {
                false
            }
        }
    };
}

receiver!(Authorizer, Asking, "Authorizer", "Who asks.");
receiver!(PathCheck, Asking, "PathCheck", "A path.");
receiver!(GroupCheck, Asking, "GroupCheck", "An API group.");
receiver!(ResourceCheck, Asking, "ResourceCheck", "A resource.");
receiver!(Decision, AuthorizationAnswer, "Decision", "An answer.");

/// The value of the variable `authorizer`: asks about the user of the request.
pub fn authorizer(host: Arc<dyn CelAuthorizer>) -> CelValue<'static> {
    let check = AuthorizationCheck::default();
    CelValue::opaque(Authorizer(Asking { host, check }))
}

/// The value of a variable for a resource, such as `authorizer.requestResource`: group, resource, subresource,
/// namespace and name are taken from `check`.
pub fn resource_check(
    host: Arc<dyn CelAuthorizer>,
    check: AuthorizationCheck,
) -> CelValue<'static> {
    CelValue::opaque(ResourceCheck(Asking { host, check }))
}

/// The type of the variable `authorizer`.
pub fn authorizer_type() -> CelType {
    CelType::object(Authorizer::NAME)
}

/// The type of `authorizer.requestResource`.
pub fn resource_check_type() -> CelType {
    CelType::object(ResourceCheck::NAME)
}

/// The functions of authorizers.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizerLibrary;

/// `fieldSelector` and `labelSelector`.
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

/// A list, and for each two characters a requirement with a list and a struct.
#[expect(
    clippy::unnecessary_wraps,
    reason = "functions of cost may decline to say"
)]
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

/// A member that replaces a field of a check of a resource.
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
            let mut asking = ResourceCheck::of(args)?.clone();
            text(args, 1)?.clone_into(field(&mut asking.check));
            Ok(CelValue::opaque(ResourceCheck(asking)))
        }),
    )));
}

fn declare_check(to: &mut CelDeclarations) {
    let decision = || CelType::object(Decision::NAME);
    to.function(
        CelFunctionDecl::new("check")
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

fn ask(asking: &Asking, verb: &str) -> CelValue<'static> {
    let mut check = asking.check.clone();
    verb.clone_into(&mut check.verb);
    CelValue::opaque(Decision(asking.host.authorize(&check)))
}

fn make_path<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (mut asking, path) = (Authorizer::of(args)?.clone(), text(args, 1)?);
    if path.trim().is_empty() {
        return Err(CelError::new("path must not be empty"));
    }
    asking.check.path = Some(path.to_owned());
    Ok(CelValue::opaque(PathCheck(asking)))
}

fn make_group<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let mut asking = Authorizer::of(args)?.clone();
    text(args, 1)?.clone_into(&mut asking.check.group);
    Ok(CelValue::opaque(GroupCheck(asking)))
}

fn make_resource<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (mut asking, resource) = (GroupCheck::of(args)?.clone(), text(args, 1)?);
    if resource.trim().is_empty() {
        return Err(CelError::new("resource must not be empty"));
    }
    resource.clone_into(&mut asking.check.resource);
    Ok(CelValue::opaque(ResourceCheck(asking)))
}

fn service_account<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (namespace, name) = (text(args, 1)?, text(args, 2)?);
    let mut asking = Authorizer::of(args)?.clone();
    if !dns1123_subdomain(name).is_empty() {
        return Err(CelError::new("Invalid service account name"));
    }
    if !dns1123_label(namespace).is_empty() {
        return Err(CelError::new("Invalid service account namespace"));
    }
    asking.check.service_account = Some((namespace.to_owned(), name.to_owned()));
    Ok(CelValue::opaque(Authorizer(asking)))
}
