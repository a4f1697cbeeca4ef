//! What evaluating asks the host for.

use std::sync::Arc;

use fairgate_cel::CelJson;
use fairgate_cel::library::authorizer::CelAuthorizer;
use fairgate_core::time::Time;

use crate::attributes::{AdmissionObjects, GroupVersionKind, GroupVersionResource};
use crate::observer::EvaluationObserver;

/// Why the objects of a request are not available in another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionFailure {
    /// They cannot be converted, not by the server either; the text says why.
    #[error("{0}")]
    Failed(String),
    /// The host cannot convert them, though the server may; the text says why. A client can bring that about by the version that it
    /// chooses, so no failure policy makes it an error to be ignored.
    #[error("{0}")]
    Unsupported(String),
}

/// Why a namespace or a param is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputFailure {
    /// There is none of this name.
    NotFound,
    /// It cannot be looked up, as the policy or the rights of the host are; the text says why.
    Failed(String),
    /// Something is lacking to look it up now.
    Lacking(LookupLack),
}

/// What is lacking to look something up. A client can bring that about, so the request cannot be evaluated, whatever the failure policies
/// are: they apply to evaluation errors only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupLack {
    /// Time.
    Time,
    /// A place among the lookups that wait: the user of the request has too many of them.
    Place,
    /// Memory for what has been looked up for this request.
    Room,
    /// The server that has it; the text says why.
    Server(String),
}

impl std::fmt::Display for LookupLack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Time => f.write_str("the lookup took too long"),
            Self::Place => {
                f.write_str("too many namespaces and params are being read for this user")
            }
            Self::Room => {
                f.write_str("the namespaces and params that the policies need take too much memory")
            }
            Self::Server(why) => f.write_str(why),
        }
    }
}

/// The kind of objects that a policy takes as params.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyParamKind {
    /// Group and version, such as `v1` or `rules.example.com/v1`.
    pub api_version: String,
    /// The kind, such as `ConfigMap`.
    pub kind: String,
}

impl PolicyParamKind {
    /// Whether params are Secrets, of which no values may be written anywhere.
    pub fn is_secret(&self) -> bool {
        self.api_version == "v1" && self.kind == "Secret"
    }
}

/// Where the objects of a kind of params are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamScope {
    /// In namespaces.
    Namespaced,
    /// In the cluster, without a namespace.
    Cluster,
}

/// A resource that has the same objects as the requested one, in another version or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EquivalentResource<'a> {
    /// The resource.
    pub resource: GroupVersionResource<'a>,
    /// The kind of its objects, or of the requested subresource of it; `None` if the server does not know it.
    pub kind: Option<GroupVersionKind<'a>>,
}

/// What evaluating needs besides the attributes. It asks only for what the matching policies use.
///
/// Nothing here may block: a host answers from what it knows. If an answer needs I/O the host notes that, answers with
/// a failure, gets what is missing and evaluates again; it drops the first verdict. The authorizer of a host that
/// has to ask a server works in the same way.
pub trait AdmissionInputs {
    /// The objects of the request, converted to `kind`, with `apiVersion` and `kind`. It is asked for the request's own
    /// kind and for those of equivalent resources that policies match.
    ///
    /// # Errors
    ///
    /// Why they cannot be converted.
    fn objects(
        &self,
        kind: GroupVersionKind<'_>,
    ) -> Result<AdmissionObjects<'_>, ConversionFailure>;

    /// The resources that are the same as `resource` in storage, itself among them, in the server's order.
    fn equivalents(
        &self,
        resource: GroupVersionResource<'_>,
        subresource: &str,
    ) -> &[EquivalentResource<'_>];

    /// The namespaces and params of the cluster.
    fn cluster(&self) -> &dyn ClusterInputs;

    /// Who answers `authorizer.….check(…)`. It is asked for once per request, if at all.
    fn authorizer(&self) -> Arc<dyn CelAuthorizer>;

    /// Whether to stop: asked now and then by comprehensions, and between two expressions. The expression ends with
    /// `operation interrupted`, and evaluating with [`AdmissionAbort::Interrupted`](crate::AdmissionAbort::Interrupted) unless
    /// it was the last one.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// The present time, by which evaluations are timed. A host that does not need their durations need not tell it.
    fn now(&self) -> Time {
        Time::ZERO
    }

    /// Who sees how the verdict comes about, if anybody does.
    fn observer(&self) -> Option<&dyn EvaluationObserver> {
        None
    }
}

/// The part of [`AdmissionInputs`] that does not depend on the request: namespaces and params. The same rules apply.
pub trait ClusterInputs {
    /// The namespace object.
    ///
    /// # Errors
    ///
    /// When there is none, or it could not be looked up.
    fn namespace(&self, name: &str) -> Result<&CelJson<'_>, InputFailure>;

    /// Whether the kind has namespaces.
    ///
    /// # Errors
    ///
    /// That the server does not know the kind: a configuration error of the policy.
    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String>;

    /// Whether all objects of the kind are known, so that absence means something.
    fn params_known(&self, kind: &PolicyParamKind) -> bool;

    /// An object of the kind by namespace (empty for kinds without) and name. Searches all that
    /// [`params`](Self::params) returns; a host that has an index overrides it.
    ///
    /// # Errors
    ///
    /// When there is none, or it could not be looked up.
    fn param(
        &self,
        kind: &PolicyParamKind,
        namespace: &str,
        name: &str,
    ) -> Result<&CelJson<'_>, InputFailure> {
        let mut all = self.params(kind, namespace).into_iter();
        let found = all.find(|param| param.text_at(&["metadata", "name"]) == name);
        found.ok_or(InputFailure::NotFound)
    }

    /// All objects of the kind in the namespace (empty for kinds without), in the order in which they are to be used.
    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<&CelJson<'_>>;
}
