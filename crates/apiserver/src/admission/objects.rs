//! The namespaces and params of a write to a hosted object.
//!
//! Params of kinds that are hosted are read from the store, when a policy asks for them. Everything else is the upstream's.
//! Without an upstream there are no other kinds, and every namespace exists.

use std::{fmt, sync::Arc};

use fairgate_admission::{
    ClusterObjects, InputFailure, KnownFuture, ListFuture, LookupFuture, LookupLack, ParamScope,
    PolicyParamKind, SharedObject, object_bytes, unknown_param_kind,
};
use fairgate_base::account::ByteShare;
use fairgate_cel::CelJson;
use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::kind::{Kind, KindVersion};
use fairgate_store::Store;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{policies, writes::text_in};
use crate::objects::stored;
use fairgate_apihttp::status_error::StatusError;

/// What one write is evaluated by besides its own objects.
pub(super) struct HostedObjects {
    pub(super) store: Arc<dyn Store>,
    /// The hosted kinds.
    pub(super) kinds: Arc<[&'static Kind]>,
    pub(super) upstream: Option<Arc<dyn ClusterObjects>>,
    /// The params of hosted kinds that have been read, by kind.
    pub(super) read: Mutex<Vec<(PolicyParamKind, Vec<SharedObject>)>>,
    /// Counts what is read for the write.
    pub(super) share: Mutex<ByteShare>,
}

impl fmt::Debug for HostedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedObjects").finish_non_exhaustive()
    }
}

impl HostedObjects {
    /// The hosted kind and version that a policy names.
    fn hosted(&self, wanted: &PolicyParamKind) -> Option<(&'static Kind, &'static KindVersion)> {
        let kinds = self.kinds.iter().copied();
        let named = kinds.filter(|kind| kind.kind == wanted.kind);
        let mut versions =
            named.flat_map(|kind| kind.versions.iter().map(move |version| (kind, version)));
        versions.find(|(kind, version)| kind.api_version(version.name) == wanted.api_version)
    }

    /// The upstream, if it has the objects of this kind.
    fn elsewhere(&self, kind: &PolicyParamKind) -> Option<&Arc<dyn ClusterObjects>> {
        let is_hosted = self.hosted(kind).is_some();
        self.upstream.as_ref().filter(|_| !is_hosted)
    }

    /// The params of a hosted kind that are `wanted`; none until they have been read.
    fn of_hosted(
        &self,
        kind: &PolicyParamKind,
        wanted: impl Fn(&CelJson<'_>) -> bool,
    ) -> Vec<SharedObject> {
        let read = lock(&self.read);
        let of_kind = read.iter().filter(|(of, _)| of == kind);
        let all = of_kind.flat_map(|(_, params)| params);
        all.filter(|param| wanted(param)).cloned().collect()
    }

    /// Takes room for so many bytes that are read for the write. Returns `false` if there is none.
    pub(super) fn take_room(&self, bytes: usize) -> bool {
        lock(&self.share).take(bytes)
    }

    /// Reads all objects of a hosted kind. If that fails, they stay unknown.
    async fn read(
        &self,
        wanted: &PolicyParamKind,
        (kind, version): (&'static Kind, &'static KindVersion),
    ) -> Result<(), LookupLack> {
        let unread = |error: StatusError| LookupLack::Server(error.to_string());
        let entries = policies::entries(&*self.store, kind).await;
        let mut params = Vec::new();
        for entry in entries.map_err(unread)? {
            let object = stored::object(kind, &entry).map_err(unread)?;
            let param = shared(&text_in(kind, version, object.stored()));
            if !self.take_room(object_bytes(&param)) {
                return Err(LookupLack::Room);
            }
            params.push(param);
        }
        lock(&self.read).push((wanted.clone(), params));
        Ok(())
    }
}

/// An object from its JSON.
fn shared(text: &[u8]) -> SharedObject {
    let value = serde_json::from_slice::<Value>(text).unwrap_or_default();
    // Any JSON value can be read as one.
    Arc::new(CelJson::deserialize(value).unwrap_or(CelJson::Null))
}

/// A namespace where there is no upstream that has it: with the label that every namespace has.
fn made_up_namespace(name: &str) -> SharedObject {
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"}
    });
    Arc::new(CelJson::deserialize(namespace).unwrap_or(CelJson::Null))
}

impl ClusterObjects for HostedObjects {
    fn namespace(&self, name: &str) -> Option<SharedObject> {
        match &self.upstream {
            Some(upstream) => upstream.namespace(name),
            None => Some(made_up_namespace(name)),
        }
    }

    fn read_namespace<'a>(&'a self, user: &'a str, name: &'a str) -> LookupFuture<'a> {
        match &self.upstream {
            Some(upstream) => upstream.read_namespace(user, name),
            None => Box::pin(std::future::ready(Ok(made_up_namespace(name)))),
        }
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        match (self.hosted(kind), &self.upstream) {
            (Some((hosted, _)), _) if hosted.namespaced => Ok(ParamScope::Namespaced),
            (Some(_), _) => Ok(ParamScope::Cluster),
            (None, Some(upstream)) => upstream.param_scope(kind),
            (None, None) => Err(unknown_param_kind(kind)),
        }
    }

    fn are_params_known(&self, kind: &PolicyParamKind) -> bool {
        match self.elsewhere(kind) {
            Some(upstream) => upstream.are_params_known(kind),
            None => lock(&self.read).iter().any(|(of, _)| of == kind),
        }
    }

    fn params_known<'a>(&'a self, kind: &'a PolicyParamKind) -> KnownFuture<'a> {
        if let Some(upstream) = self.elsewhere(kind) {
            return upstream.params_known(kind);
        }
        Box::pin(async move {
            let Some(hosted) = self.hosted(kind) else {
                return Ok(());
            };
            self.read(kind, hosted).await
        })
    }

    fn param(&self, kind: &PolicyParamKind, namespace: &str, name: &str) -> Option<SharedObject> {
        if let Some(upstream) = self.elsewhere(kind) {
            return upstream.param(kind, namespace, name);
        }
        let is_this = |param: &CelJson<'_>| {
            param.text_at(&["metadata", "namespace"]) == namespace
                && param.text_at(&["metadata", "name"]) == name
        };
        self.of_hosted(kind, is_this).into_iter().next()
    }

    fn read_param<'a>(
        &'a self,
        user: &'a str,
        kind: &'a PolicyParamKind,
        namespace: &'a str,
        name: &'a str,
    ) -> LookupFuture<'a> {
        match self.elsewhere(kind) {
            Some(upstream) => upstream.read_param(user, kind, namespace, name),
            // All of them have been read.
            None => Box::pin(std::future::ready(Err(InputFailure::NotFound))),
        }
    }

    fn lists_params(&self, kind: &PolicyParamKind) -> bool {
        self.elsewhere(kind)
            .is_some_and(|upstream| upstream.lists_params(kind))
    }

    fn list_params<'a>(
        &'a self,
        user: &'a str,
        kind: &'a PolicyParamKind,
        namespace: &'a str,
    ) -> ListFuture<'a> {
        match self.elsewhere(kind) {
            Some(upstream) => upstream.list_params(user, kind, namespace),
            None => Box::pin(std::future::ready(Ok(self.params(kind, namespace)))),
        }
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<SharedObject> {
        match self.elsewhere(kind) {
            Some(upstream) => upstream.params(kind, namespace),
            None => self.of_hosted(kind, |param| {
                param.text_at(&["metadata", "namespace"]) == namespace
            }),
        }
    }
}
