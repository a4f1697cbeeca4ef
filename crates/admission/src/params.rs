//! Which params a binding gives its policy.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/generic`, `CollectParams`.

use fairgate_cel::CelJson;
use smallvec::{SmallVec, smallvec};

use crate::inputs::{ClusterInputs, InputFailure, ParamScope, PolicyParamKind};
use crate::policy::{BindingParams, CompiledPolicy};

/// The params of a binding: the policy is evaluated once with each; `None` is `null`.
pub(crate) type Params<'a> = SmallVec<[Option<&'a CelJson<'a>>; 1]>;

/// The params of a binding for a request in `namespace`; none if their absence is allowed.
///
/// # Errors
///
/// What is wrong with the binding.
pub(crate) fn collect<'a>(
    policy: &CompiledPolicy,
    scope: Option<ParamScope>,
    params: Option<&BindingParams>,
    namespace: &str,
    inputs: &'a dyn ClusterInputs,
) -> Result<Params<'a>, String> {
    let (Some(kind), Some(scope), Some(params)) = (&policy.param_kind, scope, params) else {
        return Ok(smallvec![None]);
    };
    let namespace = match scope {
        ParamScope::Cluster => "",
        ParamScope::Namespaced if !params.namespace.is_empty() => &params.namespace,
        ParamScope::Namespaced if namespace.is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned());
        }
        ParamScope::Namespaced => namespace,
    };
    if !inputs.params_known(kind) {
        return Err(format!(
            "paramKind kind `{}` not yet synced to use for admission",
            go_text(kind)
        ));
    }
    if scope == ParamScope::Cluster && !params.namespace.is_empty() {
        return Err(
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned(),
        );
    }
    let found = select(kind, namespace, params, inputs)?;
    if found.is_empty() && params.deny_absence {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
        );
    }
    Ok(found)
}

fn select<'a>(
    kind: &PolicyParamKind,
    namespace: &str,
    params: &BindingParams,
    inputs: &'a dyn ClusterInputs,
) -> Result<Params<'a>, String> {
    match (&*params.name, &params.selector) {
        ("", None) => Err("one of name or selector must be provided".to_owned()),
        ("", Some(Err(error))) => Err(error.clone()),
        ("", Some(Ok(rule))) => {
            let all = inputs.params(kind, namespace).into_iter();
            let selected = all.filter(|param| rule.selects(param.at(&["metadata", "labels"])));
            Ok(selected.map(Some).collect())
        }
        (_, Some(_)) => {
            Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned())
        }
        (name, None) => match inputs.param(kind, namespace, name) {
            Ok(param) => Ok(smallvec![Some(param)]),
            Err(InputFailure::NotFound) => Ok(Params::new()),
            Err(InputFailure::Failed(why)) => Err(why),
            Err(InputFailure::Lacking(lack)) => Err(lack.to_string()),
        },
    }
}

/// The kind as Go prints the message.
fn go_text(kind: &PolicyParamKind) -> String {
    let PolicyParamKind { api_version, kind } = kind;
    format!("&ParamKind{{APIVersion:{api_version},Kind:{kind},}}")
}
