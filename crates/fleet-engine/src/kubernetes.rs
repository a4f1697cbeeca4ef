//! Keeps reports and the ledger in `Lease` objects of Kubernetes, as annotations, and the hash key in a `Secret`.
//!
//! Leases are small, are written often anyway, and a role can allow them in one namespace without allowing anything else. Reads
//! name no `resourceVersion`, so they are consistent. Revisions are resource versions: numbers that rise over all objects of a
//! cluster whose API server keeps them in one etcd.
//!
//! Not here: how requests are sent, which is the caller's ([`ObjectApi`]).

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use fairgate_election::LeaseCallError;
use fairgate_fleet::identity::KeyRevision;
use http::Method;
use serde_json::{Value, json};

use crate::engine::{
    EngineError, FleetEngine, FleetKey, StoreOutcome, StoredRecord, hash_key_of_text,
    hash_key_to_text,
};

/// The annotation that has the record.
const RECORD: &str = "fairgate.dev/record";
/// The label with the name of the fleet.
const FLEET: &str = "fairgate.dev/fleet";
/// The label that tells reports from other leases.
const ROLE: &str = "fairgate.dev/fleet-record";
/// The key of the secret.
const HASH_KEY: &str = "hashKey";

/// Sends requests to an API server, in the gateway's own name.
pub trait ObjectApi: Send + Sync + 'static {
    /// Sends a request with a body of JSON, if there is one. Returns the object of a successful response. It ends by itself when the
    /// server does not respond.
    fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> impl Future<Output = Result<Value, LeaseCallError>> + Send;
}

/// The objects of one fleet in one namespace.
#[derive(Debug)]
pub struct KubernetesEngine<A> {
    api: A,
    namespace: String,
    fleet: String,
}

impl<A: ObjectApi> KubernetesEngine<A> {
    /// The fleet of this name. Both names are valid names of objects.
    pub fn new(api: A, namespace: String, fleet: String) -> Self {
        Self {
            api,
            namespace,
            fleet,
        }
    }

    /// The name of the object of a key.
    fn object_name(&self, key: &FleetKey) -> String {
        match key {
            FleetKey::Report(gateway) => format!("{}-report-{gateway}", self.fleet),
            FleetKey::Ledger => format!("{}-ledger", self.fleet),
        }
    }

    fn leases(&self, name: &str) -> String {
        let namespace = &self.namespace;
        let mut path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        if !name.is_empty() {
            let _ = write!(path, "/{name}");
        }
        path
    }

    fn secrets(&self, name: &str) -> String {
        let namespace = &self.namespace;
        let mut path = format!("/api/v1/namespaces/{namespace}/secrets");
        if !name.is_empty() {
            let _ = write!(path, "/{name}");
        }
        path
    }

    fn lease(&self, key: &FleetKey, expected: KeyRevision, value: &str) -> Value {
        let role = match key {
            FleetKey::Report(_) => "report",
            FleetKey::Ledger => "ledger",
        };
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.object_name(key),
                "namespace": self.namespace,
                "labels": {FLEET: self.fleet, ROLE: role},
                "annotations": {RECORD: value},
            },
            "spec": {},
        });
        if expected != KeyRevision(0) {
            lease["metadata"]["resourceVersion"] = json!(expected.0.to_string());
        }
        lease
    }

    async fn stored_hash_key(&self, name: &str) -> Result<Option<[u8; 16]>, EngineError> {
        let path = self.secrets(name);
        let secret = found(self.api.call(Method::GET, &path, None).await)?;
        let Some(secret) = secret else {
            return Ok(None);
        };
        let encoded = secret["data"][HASH_KEY].as_str().unwrap_or_default();
        let text = BASE64.decode(encoded).unwrap_or_default();
        let text = String::from_utf8(text).unwrap_or_default();
        hash_key_of_text(text.trim()).map(Some)
    }
}

impl<A: ObjectApi> FleetEngine for KubernetesEngine<A> {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    async fn read(&self, key: &FleetKey) -> Result<Option<StoredRecord>, EngineError> {
        let path = self.leases(&self.object_name(key));
        let lease = found(self.api.call(Method::GET, &path, None).await)?;
        lease.as_ref().map(record).transpose()
    }

    async fn read_reports(&self) -> Result<Vec<StoredRecord>, EngineError> {
        let leases = self.leases("");
        let path = format!(
            "{leases}?labelSelector={FLEET}%3D{},{ROLE}%3Dreport",
            self.fleet
        );
        let list = self.api.call(Method::GET, &path, None).await;
        let list = list.map_err(EngineError::from)?;
        let items = list["items"].as_array();
        items.into_iter().flatten().map(record).collect()
    }

    async fn write(
        &self,
        key: &FleetKey,
        expected: KeyRevision,
        value: Vec<u8>,
    ) -> Result<StoreOutcome, EngineError> {
        let text = String::from_utf8(value);
        let text = text.map_err(|_| EngineError::new("the record is not UTF-8"))?;
        let lease = self.lease(key, expected, &text);
        let (method, path) = if expected == KeyRevision(0) {
            (Method::POST, self.leases(""))
        } else {
            (Method::PUT, self.leases(&self.object_name(key)))
        };
        match self.api.call(method, &path, Some(&lease)).await {
            Ok(stored) => Ok(StoreOutcome::Stored(revision(&stored)?)),
            // Without the object, a PUT with a version is answered with 404 or 409, depending on the server.
            Err(error) if matches!(error.code, Some(409)) => Ok(StoreOutcome::Conflict),
            Err(error) if error.code == Some(404) && expected != KeyRevision(0) => {
                Ok(StoreOutcome::Conflict)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn lease_call(
        &self,
        method: Method,
        lease: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let name = format!("{}-coordinator", self.fleet);
        let is_new = method == Method::POST;
        let path = self.leases(if is_new { "" } else { &name });
        let Some(lease) = lease else {
            return self.api.call(method, &path, None).await;
        };
        let mut lease = lease.clone();
        lease["metadata"]["name"] = json!(name);
        lease["metadata"]["namespace"] = json!(self.namespace);
        lease["metadata"]["labels"] = json!({FLEET: self.fleet});
        self.api.call(method, &path, Some(&lease)).await
    }

    async fn hash_key(&self, proposal: [u8; 16]) -> Result<[u8; 16], EngineError> {
        let name = format!("{}-hash-key", self.fleet);
        if let Some(key) = self.stored_hash_key(&name).await? {
            return Ok(key);
        }
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {FLEET: self.fleet}},
            "stringData": {HASH_KEY: hash_key_to_text(proposal)},
        });
        let path = self.secrets("");
        match self.api.call(Method::POST, &path, Some(&secret)).await {
            Ok(_) => Ok(proposal),
            Err(error) if error.code == Some(409) => {
                let stored = self.stored_hash_key(&name).await?;
                stored.ok_or_else(|| EngineError::new("the secret of the hash key was deleted"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The object, or `None` if there is none.
fn found(called: Result<Value, LeaseCallError>) -> Result<Option<Value>, EngineError> {
    match called {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn record(lease: &Value) -> Result<StoredRecord, EngineError> {
    let value = lease["metadata"]["annotations"][RECORD].as_str();
    Ok(StoredRecord {
        // Without the annotation it is no record, which whoever reads it finds out.
        value: value.unwrap_or_default().as_bytes().to_vec(),
        revision: revision(lease)?,
    })
}

fn revision(object: &Value) -> Result<KeyRevision, EngineError> {
    let version = object["metadata"]["resourceVersion"].as_str();
    let number = version.and_then(|version| version.parse().ok());
    number.map(KeyRevision).ok_or_else(|| {
        EngineError::new("the resourceVersion of a lease is no number; this server cannot be used")
    })
}
