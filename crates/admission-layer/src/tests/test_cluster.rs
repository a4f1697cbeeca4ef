//! What is known of a cluster in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fairgate_admission::{
    ClusterObjects, InputFailure, KnownFuture, ListFuture, LookupFuture, LookupLack, ParamScope,
    PolicyParamKind, SharedObject, unknown_param_kind,
};
use fairgate_cel::CelJson;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{ClusterState, ResourceKind, ResourcesRead, ServedResource};

/// What is known of the cluster.
#[derive(Debug)]
pub(super) struct TestCluster {
    resources: Mutex<Vec<(Arc<ServedResource>, &'static str)>>,
    /// Whether the resources were never read.
    are_unread: AtomicBool,
    /// How the resources were read the last time.
    pub(super) reading: watch::Sender<Result<(), String>>,
    pub(super) namespaces: Mutex<BTreeMap<String, SharedObject>>,
    /// Namespaces that are not known, but can be read.
    pub(super) unknown: Mutex<BTreeMap<String, Value>>,
    pub(super) params: Mutex<Vec<Value>>,
    /// The params as they are, if nothing is known.
    pub(super) params_now: Mutex<Vec<Value>>,
    /// Whether nothing is known that can be read.
    pub(super) reads_now: AtomicBool,
    /// What is lacking to read namespaces and params.
    pub(super) lack: Mutex<Option<LookupLack>>,
}

impl TestCluster {
    fn lists(&self) -> bool {
        self.reads_now.load(Ordering::SeqCst)
    }

    /// Makes a namespace one that is known.
    pub(super) fn know(&self, name: &str, namespace: SharedObject) {
        let mut known = self.namespaces.lock().unwrap();
        known.insert(name.to_owned(), namespace);
    }

    fn lacking(&self) -> Result<(), LookupLack> {
        self.lack.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

pub(super) fn shared(value: &Value) -> SharedObject {
    fn owned(value: &Value) -> CelJson<'static> {
        match value {
            Value::Null => CelJson::Null,
            Value::Bool(flag) => CelJson::Bool(*flag),
            Value::Number(number) => number.as_i64().map_or(CelJson::Null, CelJson::Int),
            Value::String(text) => CelJson::String(text.clone().into()),
            Value::Array(items) => CelJson::Array(items.iter().map(owned).collect()),
            Value::Object(members) => {
                let members = members.iter();
                let members = members.map(|(key, value)| (key.clone().into(), owned(value)));
                CelJson::Object(fairgate_cel::JsonObject::new(members.collect()))
            }
        }
    }
    Arc::new(owned(value))
}

impl Default for TestCluster {
    fn default() -> Self {
        let resource = |[group, resource, subresource]: [&'static str; 3], kind: [&str; 3]| {
            let one = ResourceKind {
                group: group.to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                kind: Some(kind.map(str::to_owned)),
            };
            let served = ServedResource {
                resource: one.clone(),
                is_namespaced: resource != "namespaces",
                equivalents: vec![one],
            };
            (Arc::new(served), subresource)
        };
        // One version of a resource that has several.
        let one_of = |[group, resource, kind]: [&str; 3], versions: &[&str], version: &str| {
            let of = |version: &str| ResourceKind {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.to_owned(),
                kind: Some([group, version, kind].map(str::to_owned)),
            };
            let served = ServedResource {
                resource: of(version),
                is_namespaced: true,
                equivalents: versions.iter().map(|version| of(version)).collect(),
            };
            (Arc::new(served), "")
        };
        let gadget = |version| one_of(["x.io", "gadgets", "Gadget"], &["v1", "v2"], version);
        let claims = ["resource.k8s.io", "resourceclaims", "ResourceClaim"];
        let claim = |version| one_of(claims, &["v1", "v1beta1"], version);
        let scalers = [
            "autoscaling",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
        ];
        let scaler = |version| one_of(scalers, &["v1", "v2"], version);
        let deployment = ["apps", "v1", "Deployment"];
        Self {
            are_unread: AtomicBool::new(false),
            reading: watch::Sender::new(Ok(())),
            resources: Mutex::new(vec![
                resource(["apps", "deployments", ""], deployment),
                resource(["apps", "deployments", "status"], deployment),
                resource(["", "pods", ""], ["", "v1", "Pod"]),
                resource(["", "pods", "exec"], ["", "v1", "PodExecOptions"]),
                resource(["", "pods", "eviction"], ["policy", "v1", "Eviction"]),
                resource(["", "configmaps", ""], ["", "v1", "ConfigMap"]),
                resource(["", "secrets", ""], ["", "v1", "Secret"]),
                resource(["", "namespaces", ""], ["", "v1", "Namespace"]),
                resource(["x.io", "widgets", ""], ["x.io", "v1", "Widget"]),
                resource(["x.io", "widgets", "status"], ["x.io", "v1", "Widget"]),
                gadget("v1"),
                gadget("v2"),
                claim("v1"),
                claim("v1beta1"),
                scaler("v1"),
                scaler("v2"),
            ]),
            namespaces: Mutex::default(),
            unknown: Mutex::default(),
            params: Mutex::default(),
            params_now: Mutex::default(),
            reads_now: AtomicBool::new(false),
            lack: Mutex::default(),
        }
    }
}

impl TestCluster {
    /// Makes the cluster one whose resources were never read.
    pub(super) fn forget_resources(&self) {
        self.resources.lock().unwrap().clear();
        self.are_unread.store(true, Ordering::SeqCst);
    }

    /// The resources have been read.
    pub(super) fn read_resources(&self) {
        *self.resources.lock().unwrap() = Self::default().resources.into_inner().unwrap();
        self.are_unread.store(false, Ordering::SeqCst);
    }

    /// Another version of `gadgets`, which is known from now on.
    pub(super) fn define_gadget(&self, version: &str) {
        let mut resources = self.resources.lock().unwrap();
        let is_gadget = |one: &ServedResource| one.resource.resource == "gadgets";
        let known = resources.iter().find(|(one, _)| is_gadget(one)).unwrap();
        let mut equivalents = known.0.equivalents.clone();
        let mut resource = equivalents[0].clone();
        version.clone_into(&mut resource.version);
        resource.kind = Some(["x.io", version, "Gadget"].map(str::to_owned));
        equivalents.push(resource.clone());
        let served = ServedResource {
            resource,
            is_namespaced: true,
            equivalents,
        };
        resources.push((Arc::new(served), ""));
    }
}

impl ClusterState for TestCluster {
    fn resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        subresource: &str,
    ) -> Option<Arc<ServedResource>> {
        let is_this = |(one, sub): &&(Arc<ServedResource>, &str)| {
            let of = &one.resource;
            (&*of.group, &*of.version, &*of.resource, *sub)
                == (group, version, resource, subresource)
        };
        let resources = self.resources.lock().unwrap();
        let found = resources.iter().find(is_this);
        found.map(|(found, _)| Arc::clone(found))
    }

    fn are_resources_known(&self) -> bool {
        !self.are_unread.load(Ordering::SeqCst)
    }

    fn resources_read(&self) -> ResourcesRead<'_> {
        let mut reading = self.reading.subscribe();
        Box::pin(async move {
            reading.changed().await.map_err(|error| error.to_string())?;
            reading.borrow().clone()
        })
    }
}

impl ClusterObjects for TestCluster {
    fn namespace(&self, name: &str) -> Option<SharedObject> {
        if self.lists() {
            return None;
        }
        self.namespaces.lock().unwrap().get(name).cloned()
    }

    fn read_namespace<'a>(&'a self, _: &'a str, name: &'a str) -> LookupFuture<'a> {
        let found = self.unknown.lock().unwrap().get(name).map(shared);
        let lack = self.lacking().map_err(InputFailure::Lacking);
        let found = lack.and_then(|()| found.ok_or(InputFailure::NotFound));
        Box::pin(std::future::ready(found))
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        let is_built_in = kind.api_version == "v1";
        if is_built_in || self.are_resources_known() {
            Ok(ParamScope::Namespaced)
        } else {
            Err(unknown_param_kind(kind))
        }
    }

    fn are_params_known(&self, _: &PolicyParamKind) -> bool {
        self.lists() || self.lacking().is_ok()
    }

    fn params_known<'a>(&'a self, _: &'a PolicyParamKind) -> KnownFuture<'a> {
        Box::pin(std::future::ready(self.lacking()))
    }

    fn param(&self, _: &PolicyParamKind, namespace: &str, name: &str) -> Option<SharedObject> {
        let params = self.params.lock().unwrap();
        let metadata = json!({"namespace": namespace, "name": name});
        let found = params.iter().find(|param| param["metadata"] == metadata);
        found.map(shared)
    }

    fn lists_params(&self, _: &PolicyParamKind) -> bool {
        self.lists()
    }

    fn list_params<'a>(&'a self, _: &'a str, _: &'a PolicyParamKind, _: &'a str) -> ListFuture<'a> {
        let now = self.params_now.lock().unwrap();
        let listed = now.iter().map(shared).collect();
        Box::pin(std::future::ready(self.lacking().map(|()| listed)))
    }

    fn params(&self, _: &PolicyParamKind, _: &str) -> Vec<SharedObject> {
        self.params.lock().unwrap().iter().map(shared).collect()
    }
}
