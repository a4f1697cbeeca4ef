//! The cluster in which the requests of the corpus are evaluated, as `oracle/world.go` has it.

use std::sync::Arc;

use fairgate_admission::{
    AdmissionAttributes, AdmissionInputs, AdmissionObjects, AdmissionOperation, ClusterInputs,
    ConversionFailure, EquivalentResource, GroupVersionKind, GroupVersionResource, InputFailure,
    ParamScope, PolicyParamKind,
};
use fairgate_cel::library::authorizer::{AuthorizationAnswer, AuthorizationCheck, CelAuthorizer};
use fairgate_cel::{CelJson, JsonObject};
use fairgate_core::digest::User;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct World<'a> {
    #[serde(borrow)]
    namespaces: Vec<CelJson<'a>>,
    param_kinds: Vec<ParamKindRecord>,
    #[serde(borrow)]
    params: Vec<CelJson<'a>>,
    #[serde(borrow)]
    equivalents: Vec<Equivalence<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ParamKindRecord {
    api_version: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    not_synced: bool,
}

#[derive(Deserialize)]
struct Equivalence<'a> {
    #[serde(default)]
    subresource: &'a str,
    resources: Vec<ResourceRecord<'a>>,
}

#[derive(Deserialize)]
struct ResourceRecord<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    kind: KindRecord<'a>,
}

#[derive(Deserialize)]
struct KindRecord<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// A request of the corpus.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    #[serde(rename = "request")]
    pub(crate) case_name: String,
    operation: &'a str,
    group: &'a str,
    version: &'a str,
    kind_group: &'a str,
    kind: &'a str,
    resource: &'a str,
    subresource: &'a str,
    name: &'a str,
    namespace: &'a str,
    dry_run: bool,
    #[serde(borrow)]
    options: Option<CelJson<'a>>,
    user: UserRecord,
    #[serde(borrow)]
    object: Option<CelJson<'a>>,
    #[serde(borrow)]
    old_object: Option<CelJson<'a>>,
}

#[derive(Deserialize)]
struct UserRecord {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<std::collections::BTreeMap<String, Vec<String>>>,
}

impl<'a> World<'a> {
    /// The resources that are equivalent to that of a request.
    fn equivalents(&self, request: &Request<'a>) -> Vec<EquivalentResource<'a>> {
        let convert = |of: &ResourceRecord<'a>| EquivalentResource {
            resource: GroupVersionResource {
                group: of.group,
                version: of.version,
                resource: of.resource,
            },
            kind: (!of.kind.kind.is_empty()).then_some(GroupVersionKind {
                group: of.kind.group,
                version: of.kind.version,
                kind: of.kind.kind,
            }),
        };
        let with_subresource = self
            .equivalents
            .iter()
            .filter(|one| one.subresource == request.subresource);
        let mut all = with_subresource.map(|one| one.resources.iter().map(convert).collect());
        let requested = request.requested();
        all.find(|all: &Vec<_>| all.iter().any(|one| one.resource == requested))
            .unwrap_or_default()
    }
}

impl<'a> Request<'a> {
    fn requested(&self) -> GroupVersionResource<'a> {
        GroupVersionResource {
            group: self.group,
            version: self.version,
            resource: self.resource,
        }
    }

    pub(crate) fn user(&self) -> User {
        User {
            name: self.user.username.clone(),
            uid: self.user.uid.clone(),
            groups: self.user.groups.clone().unwrap_or_default(),
            extra: self.user.extra.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn attributes<'s>(&'s self, user: &'s User) -> AdmissionAttributes<'s> {
        AdmissionAttributes {
            operation: AdmissionOperation::of_name(self.operation).expect("an operation"),
            resource: self.requested(),
            subresource: self.subresource,
            kind: GroupVersionKind {
                group: self.kind_group,
                version: self.version,
                kind: self.kind,
            },
            namespace: self.namespace,
            name: self.name,
            user,
            dry_run: self.dry_run,
            options: self.options.as_ref(),
        }
    }

    pub(crate) fn objects(&self) -> AdmissionObjects<'_> {
        AdmissionObjects {
            object: self.object.as_ref(),
            old_object: self.old_object.as_ref(),
        }
    }
}

/// A world for one request.
pub(crate) struct Inputs<'w> {
    world: &'w World<'w>,
    request: &'w Request<'w>,
    equivalents: Vec<EquivalentResource<'w>>,
    /// The objects in the kinds of equivalent resources.
    converted: Vec<(GroupVersionKind<'w>, [Option<CelJson<'w>>; 2])>,
    user: User,
    cancelled: bool,
}

impl<'w> Inputs<'w> {
    pub(crate) fn new(world: &'w World<'w>, request: &'w Request<'w>, cancelled: bool) -> Self {
        let equivalents = world.equivalents(request);
        let kinds = equivalents.iter().filter_map(|one| one.kind);
        let kinds = kinds.filter(|kind| kind.kind != "Broken");
        let converted = kinds.map(|kind| {
            let objects = [&request.object, &request.old_object];
            (
                kind,
                objects.map(|of| of.as_ref().map(|of| with_kind(of, kind))),
            )
        });
        Self {
            world,
            request,
            converted: converted.collect(),
            equivalents,
            user: request.user(),
            cancelled,
        }
    }
}

fn with_kind<'a>(object: &CelJson<'a>, kind: GroupVersionKind<'a>) -> CelJson<'a> {
    let CelJson::Object(members) = object else {
        panic!("an object");
    };
    let api_version = match kind.group {
        "" => kind.version.to_owned(),
        group => format!("{group}/{}", kind.version),
    };
    let mut members = members.members().to_vec();
    members.push(("apiVersion".into(), CelJson::String(api_version.into())));
    members.push(("kind".into(), CelJson::String(kind.kind.into())));
    CelJson::Object(JsonObject::new(members))
}

impl AdmissionInputs for Inputs<'_> {
    fn objects(
        &self,
        kind: GroupVersionKind<'_>,
    ) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        if kind == self.request.attributes(&self.user).kind {
            return Ok(self.request.objects());
        }
        let found = self.converted.iter().find(|(of, _)| *of == kind);
        let (_, [object, old_object]) =
            found.ok_or_else(|| ConversionFailure::Failed("no such conversion".to_owned()))?;
        Ok(AdmissionObjects {
            object: object.as_ref(),
            old_object: old_object.as_ref(),
        })
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &self.equivalents
    }

    fn cluster(&self) -> &dyn ClusterInputs {
        self
    }

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        Arc::new(VerbAuthorizer {
            user: self.user.clone(),
        })
    }

    fn is_interrupted(&self) -> bool {
        self.cancelled
    }
}

impl ClusterInputs for Inputs<'_> {
    fn namespace(&self, name: &str) -> Result<&CelJson<'_>, InputFailure> {
        let mut all = self.world.namespaces.iter();
        let found = all.find(|one| one.text_at(&["metadata", "name"]) == name);
        found.ok_or(InputFailure::NotFound)
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        let mut all = self.world.param_kinds.iter();
        let found = all.find(|one| one.api_version == kind.api_version && one.kind == kind.kind);
        match found {
            Some(one) if one.namespaced => Ok(ParamScope::Namespaced),
            Some(_) => Ok(ParamScope::Cluster),
            None => Err(format!(
                "failed to find resource referenced by paramKind: '{}, Kind={}'",
                kind.api_version, kind.kind
            )),
        }
    }

    fn params_known(&self, kind: &PolicyParamKind) -> bool {
        let mut all = self.world.param_kinds.iter();
        all.any(|one| one.kind == kind.kind && !one.not_synced)
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<&CelJson<'_>> {
        let all = self.world.params.iter();
        let found = all.filter(|one| {
            one.text_at(&["apiVersion"]) == kind.api_version
                && one.text_at(&["kind"]) == kind.kind
                && one.text_at(&["metadata", "namespace"]) == namespace
        });
        // Shortens the lifetime of the documents.
        let found = found.map(|one| -> &CelJson<'_> { one });
        found.collect()
    }
}

/// Decides by the verb alone, as that of the oracle; its reason shows what it was asked.
struct VerbAuthorizer {
    user: User,
}

impl CelAuthorizer for VerbAuthorizer {
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer {
        let (user, groups) = match &check.service_account {
            Some((namespace, name)) => (
                format!("system:serviceaccount:{namespace}:{name}"),
                format!("system:serviceaccounts,system:serviceaccounts:{namespace}"),
            ),
            None => (self.user.name.clone(), self.user.groups.join(",")),
        };
        let version = if check.path.is_some() { "" } else { "*" };
        let path = check.path.as_deref().unwrap_or_default();
        let AuthorizationCheck {
            verb,
            group,
            resource,
            subresource,
            namespace,
            name,
            ..
        } = check;
        let reason = format!(
            "{user}|{groups}|{verb}|{path}|{group}|{version}|{resource}|{subresource}|{namespace}|{name}"
        );
        let error = (verb == "fail").then(|| "the authorizer failed".to_owned());
        AuthorizationAnswer {
            allowed: matches!(&**verb, "get" | "list" | "watch"),
            reason: if error.is_some() {
                String::new()
            } else {
                reason
            },
            error,
        }
    }
}
