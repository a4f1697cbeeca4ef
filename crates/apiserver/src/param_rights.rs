//! Whether the author of an admission policy or binding may read the params that it refers to.
//!
//! Otherwise a policy could tell its author what is in them. As in kube-apiserver, a policy needs the right to read all
//! objects of its kind of params, and a binding that to read the params it names, or to list those it selects: also for
//! an update of the binding that changes something else. If the
//! resource of the kind is not known, the right to read all resources of its group is needed.
//!
//! Source: Kubernetes `pkg/registry/admissionregistration`, `authz.go` of both kinds.

use std::sync::Arc;

use fairgate_admission::kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING};
use fairgate_core::digest::User;
use fairgate_objects::{field_error::ApiFieldError, kind::Kind, metadata};
use fairgate_store::{ReadRevision, Store};
use fairgate_upstream::access_review::Attributes;
use serde_json::Value;

use crate::objects::stored;
use fairgate_apihttp::{authorize::Authorizer, status_error::StatusError};

/// Knows the resources of kinds.
pub trait ParamResources: Send + Sync {
    /// The resource, in the plural, whose objects are of a kind in a version such as `v1` or `apps/v1`.
    fn resource(&self, api_version: &str, kind: &str) -> Option<String>;
}

/// Checks the rights of authors.
pub(crate) struct ParamRights {
    pub(crate) authorizer: Authorizer,
    pub(crate) resources: Option<Arc<dyn ParamResources>>,
}

impl ParamRights {
    /// Checks the rights of `user`, who creates a valid `object`, or replaces `old` by it.
    ///
    /// # Errors
    ///
    /// 422, if one is missing.
    pub(crate) async fn check(
        &self,
        store: &dyn Store,
        kind: &'static Kind,
        object: &Value,
        old: Option<&Value>,
        user: &User,
    ) -> Result<(), StatusError> {
        // As `EscalationAllowed` of the original: who may do anything need not be asked about.
        if user.in_group(User::MASTERS) {
            return Ok(());
        }
        let missing = if kind.is_same_resource(&VALIDATING_ADMISSION_POLICY) {
            let missing = self.of_policy(object, old, user).await;
            missing.map(|why| ("spec.paramKind", why))
        } else if kind.is_same_resource(&VALIDATING_ADMISSION_POLICY_BINDING) {
            let missing = self.of_binding(store, object, old, user).await;
            missing.map(|why| ("spec.paramRef", why))
        } else {
            None
        };
        let Some((field, why)) = missing else {
            return Ok(());
        };
        let errors = [ApiFieldError::forbidden(field, why)];
        let name = metadata::name(object);
        Err(StatusError::invalid(kind.kind, kind.group, name, &errors))
    }

    /// Why the author of a policy may not refer to its kind of params.
    async fn of_policy(&self, policy: &Value, old: Option<&Value>, user: &User) -> Option<String> {
        let kind = &policy["spec"]["paramKind"];
        if kind.is_null() || old.is_some_and(|old| old["spec"]["paramKind"] == *kind) {
            return None;
        }
        let wanted = Attributes {
            name: "*".to_owned(),
            namespace: "*".to_owned(),
            ..self.reading(kind)
        };
        let named = format!(
            "kind={}, apiVersion={}",
            text(&kind["kind"]),
            text(&kind["apiVersion"])
        );
        let refused = format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind ({named})",
            shown(user)
        );
        self.refusal(user, &wanted, refused).await
    }

    /// Why the author of a binding may not refer to its params.
    async fn of_binding(
        &self,
        store: &dyn Store,
        binding: &Value,
        old: Option<&Value>,
        user: &User,
    ) -> Option<String> {
        let (spec, params) = (&binding["spec"], &binding["spec"]["paramRef"]);
        if params.is_null() || old.is_some_and(|old| refers_to_same(&old["spec"], spec)) {
            return None;
        }
        let policy = text(&spec["policyName"]);
        let kind = param_kind(store, policy).await;
        let reading = self.reading(kind.as_ref().unwrap_or(&Value::Null));
        let verb = match text(&params["name"]) {
            "" => "list",
            _ => "get",
        };
        let author = shown(user);
        let lacks = |on: &str| format!("user {author} does not have \"{verb}\" permission {on}");
        let needs_all = |what: String| {
            let lacks = lacks("for all groups, versions and resources");
            format!("unable to {what} to determine minimum required permissions and {lacks}")
        };
        let refused = match &kind {
            None => needs_all(format!("get policy {policy}")),
            Some(kind) if !kind.is_null() && reading.resource == "*" => {
                let (version, kind) = (text(&kind["apiVersion"]), text(&kind["kind"]));
                needs_all(format!("resolve paramKind &{{{version} {kind}}}"))
            }
            Some(_) => lacks("on the object referenced by paramRef"),
        };
        let wanted = Attributes {
            verb: verb.to_owned(),
            name: text(&params["name"]).to_owned(),
            namespace: text(&params["namespace"]).to_owned(),
            ..reading
        };
        self.refusal(user, &wanted, refused).await
    }

    /// Reading an object of a kind; of any kind if it is null.
    fn reading(&self, kind: &Value) -> Attributes {
        let (api_version, name) = (text(&kind["apiVersion"]), text(&kind["kind"]));
        let (group, version) = match api_version.split_once('/') {
            _ if kind.is_null() => ("*", "*"),
            Some(parts) => parts,
            None => ("", api_version),
        };
        let resources = self.resources.as_ref();
        let resource = resources.and_then(|known| known.resource(api_version, name));
        Attributes {
            verb: "get".to_owned(),
            is_resource: true,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.unwrap_or_else(|| "*".to_owned()),
            ..Attributes::default()
        }
    }

    /// `refused` if the user may not do what is `wanted`, or why that cannot be decided.
    async fn refusal(&self, user: &User, wanted: &Attributes, refused: String) -> Option<String> {
        match self.authorizer.decide(user, wanted).await {
            Ok(decision) if decision.allowed => None,
            Ok(_) => Some(refused),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Whether two specs of bindings refer to the same params of the same policy, as the original compares them.
///
/// It compares pointers to the selector and to `parameterNotFoundAction`, which never are those of the stored object. The
/// latter is required, so that every update of a valid binding with params needs the right to read them.
fn refers_to_same(old: &Value, new: &Value) -> bool {
    let params = &new["paramRef"];
    let has_pointers = ["selector", "parameterNotFoundAction"]
        .iter()
        .any(|field| !params[*field].is_null());
    !has_pointers && old["paramRef"] == *params && old["policyName"] == new["policyName"]
}

/// The kind of params of a policy, null if it has none; `None` if there is no such policy.
async fn param_kind(store: &dyn Store, policy: &str) -> Option<Value> {
    let kind = &VALIDATING_ADMISSION_POLICY;
    let key = format!("{}{policy}", kind.key_prefix());
    let found = store.get(&key, ReadRevision::Newest).await;
    let object = found
        .ok()
        .flatten()
        .map(|entry| stored::object(kind, &entry));
    let policy = object?.ok()?;
    Some(policy.stored()["spec"]["paramKind"].clone())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A user as Go prints one.
fn shown(user: &User) -> String {
    let extra = user.extra.iter();
    let extra: Vec<String> = extra
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}
