//! Keeps reports, the ledger, the coordinator's lease and the hash key in an etcd, each under a key of its own.
//!
//! The lease is a document as Kubernetes has it, so that one election serves all engines: its `resourceVersion` is the revision
//! of its key. Nothing relies on etcd's own leases, which a new leader prolongs.

use fairgate_election::LeaseCallError;
use fairgate_fleet::identity::KeyRevision;
use fairgate_store::{
    StoreError,
    etcd::{EtcdRecord, EtcdRecords},
};
use http::Method;
use serde_json::{Value, json};

use crate::engine::{
    EngineError, EngineFailure, FleetEngine, FleetKey, StoreOutcome, StoredRecord,
    hash_key_of_text, hash_key_to_text,
};

/// The name of the coordinator's lease.
const COORDINATOR: &str = "coordinator";
/// The name of the hash key.
const HASH_KEY: &str = "hash-key";
/// What the names of reports begin with.
const REPORTS: &str = "reports/";

/// The records of one fleet, below a prefix that nobody else uses.
pub struct EtcdEngine {
    records: EtcdRecords,
}

impl EtcdEngine {
    /// The fleet whose records these are.
    pub fn new(records: EtcdRecords) -> Self {
        Self { records }
    }

    async fn stored_hash_key(&self) -> Result<Option<[u8; 16]>, EngineError> {
        let stored = self.records.get(HASH_KEY).await?;
        let text = stored.map(|stored| String::from_utf8_lossy(&stored.value).into_owned());
        text.map(|text| hash_key_of_text(text.trim())).transpose()
    }

    async fn read_lease(&self) -> Result<Value, LeaseCallError> {
        match self.records.get(COORDINATOR).await {
            Ok(Some(EtcdRecord { value, revision })) => {
                let lease = serde_json::from_slice(&value);
                let lease = lease.map_err(|error| {
                    call_error(None, format!("the coordinator's lease: {error}"))
                })?;
                Ok(at_revision(lease, revision))
            }
            Ok(None) => Err(call_error(Some(404), "there is no lease".to_owned())),
            Err(error) => Err(refused_lease(&error)),
        }
    }

    async fn write_lease(&self, expected: u64, lease: &Value) -> Result<Value, LeaseCallError> {
        let value = lease.to_string().into_bytes();
        match self.records.write(COORDINATOR, expected, value).await {
            Ok(Some(revision)) => Ok(at_revision(lease.clone(), revision)),
            Ok(None) => Err(call_error(
                Some(409),
                "the lease has another version".to_owned(),
            )),
            Err(error) => Err(refused_lease(&error)),
        }
    }
}

impl FleetEngine for EtcdEngine {
    fn name(&self) -> &'static str {
        "etcd"
    }

    async fn read(&self, key: &FleetKey) -> Result<Option<StoredRecord>, EngineError> {
        let stored = self.records.get(&record_name(key)).await;
        Ok(stored?.map(stored_record))
    }

    async fn read_reports(&self) -> Result<Vec<StoredRecord>, EngineError> {
        let stored = self.records.list(REPORTS).await?;
        Ok(stored.into_iter().map(stored_record).collect())
    }

    async fn write(
        &self,
        key: &FleetKey,
        expected: KeyRevision,
        value: Vec<u8>,
    ) -> Result<StoreOutcome, EngineError> {
        let name = record_name(key);
        let written = self.records.write(&name, expected.0, value).await;
        let revision = written?;
        Ok(revision.map_or(StoreOutcome::Conflict, |revision| {
            StoreOutcome::Stored(KeyRevision(revision))
        }))
    }

    async fn lease_call(
        &self,
        method: Method,
        lease: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let Some(lease) = lease else {
            return self.read_lease().await;
        };
        // Revision 0: the key must not exist.
        if method == Method::POST {
            return self.write_lease(0, lease).await;
        }
        let version = lease["metadata"]["resourceVersion"].as_str();
        match version.and_then(|version| version.parse().ok()) {
            Some(version) if version > 0 => self.write_lease(version, lease).await,
            _ => Err(call_error(
                Some(422),
                "the lease has no resourceVersion".to_owned(),
            )),
        }
    }

    async fn hash_key(&self, proposal: [u8; 16]) -> Result<[u8; 16], EngineError> {
        if let Some(key) = self.stored_hash_key().await? {
            return Ok(key);
        }
        let text = hash_key_to_text(proposal).into_bytes();
        let created = self.records.write(HASH_KEY, 0, text).await;
        if created?.is_some() {
            return Ok(proposal);
        }
        // Another gateway was faster: all of a fleet must hash alike, so its key counts.
        let stored = self.stored_hash_key().await?;
        stored.ok_or_else(|| EngineError::new("the hash key was deleted"))
    }
}

fn record_name(key: &FleetKey) -> String {
    match key {
        FleetKey::Report(gateway) => format!("{REPORTS}{gateway}"),
        FleetKey::Ledger => "ledger".to_owned(),
    }
}

fn stored_record(EtcdRecord { value, revision }: EtcdRecord) -> StoredRecord {
    StoredRecord {
        value,
        revision: KeyRevision(revision),
    }
}

fn at_revision(mut lease: Value, revision: u64) -> Value {
    lease["metadata"]["resourceVersion"] = json!(revision.to_string());
    lease
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        let failure = match error {
            StoreError::Unavailable(_) => EngineFailure::NoAnswer,
            StoreError::Denied(_) => EngineFailure::Forbidden,
            _ => EngineFailure::Failed,
        };
        Self::of(failure, error.to_string())
    }
}

/// An error of the store as the election knows it: with a status, if etcd refuses.
fn refused_lease(error: &StoreError) -> LeaseCallError {
    let code = matches!(error, StoreError::Denied(_)).then_some(403);
    call_error(code, error.to_string())
}

fn call_error(code: Option<u16>, why: String) -> LeaseCallError {
    LeaseCallError { code, why }
}
