//! An engine in memory, for tests with several gateways in one process. It can be switched off, as in an outage, and be as far away as a
//! real one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fairgate_core::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use fairgate_election::LeaseCallError;
use fairgate_fleet::identity::KeyRevision;
use http::Method;
use serde_json::{Value, json};

use crate::engine::{
    EngineError, EngineFailure, FleetEngine, FleetKey, StoreOutcome, StoredRecord,
};

/// All keys of a fleet. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryEngine(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    keys: Mutex<Keys>,
    is_down: AtomicBool,
    /// How long a call takes, in milliseconds.
    latency: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Keys {
    revision: u64,
    records: BTreeMap<FleetKey, StoredRecord>,
    lease: Option<Value>,
    hash_key: Option<[u8; 16]>,
}

/// What an engine held at some time.
#[derive(Clone, Debug)]
pub struct EngineBackup(Keys);

impl MemoryEngine {
    /// A copy of all that it holds.
    pub fn backup(&self) -> EngineBackup {
        EngineBackup(lock(&self.0.keys).clone())
    }

    /// Goes back to what it held then, revisions included.
    pub fn restore(&self, backup: EngineBackup) {
        *lock(&self.0.keys) = backup.0;
    }

    /// Whether it answers every call with an error from now on.
    pub fn set_down(&self, is_down: bool) {
        self.0.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Deletes a key, as somebody does who should not.
    pub fn delete(&self, key: &FleetKey) {
        lock(&self.0.keys).records.remove(key);
    }

    /// How long each call takes from now on, half of it before it acts.
    pub fn set_latency(&self, latency: Duration) {
        let millis = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        self.0.latency.store(millis, Ordering::Relaxed);
    }

    async fn with<T>(&self, act: impl FnOnce(&mut Keys) -> T) -> Result<T, EngineError> {
        let latency = Duration::from_millis(self.0.latency.load(Ordering::Relaxed));
        if !latency.is_zero() {
            tokio::time::sleep(latency / 2).await;
        }
        if self.0.is_down.load(Ordering::Relaxed) {
            return Err(EngineError::of(
                EngineFailure::NoAnswer,
                "the engine is switched off",
            ));
        }
        let done = act(&mut lock(&self.0.keys));
        if !latency.is_zero() {
            tokio::time::sleep(latency / 2).await;
        }
        Ok(done)
    }
}

impl Keys {
    fn next(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn call_lease(&mut self, method: &Method, lease: Option<&Value>) -> Result<Value, u16> {
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let Some(new) = lease else {
            return self.lease.clone().ok_or(404);
        };
        match &self.lease {
            Some(_) if *method == Method::POST => return Err(409),
            None if *method == Method::PUT => return Err(404),
            Some(stored) if version(stored) != version(new) => return Err(409),
            _ => {}
        }
        let mut new = new.clone();
        new["metadata"]["resourceVersion"] = json!(self.next().to_string());
        self.lease = Some(new.clone());
        Ok(new)
    }
}

impl FleetEngine for MemoryEngine {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn read(&self, key: &FleetKey) -> Result<Option<StoredRecord>, EngineError> {
        self.with(|keys| keys.records.get(key).cloned()).await
    }

    async fn read_reports(&self) -> Result<Vec<StoredRecord>, EngineError> {
        self.with(|keys| {
            let records = keys.records.iter();
            let reports = records.filter(|(key, _)| matches!(key, FleetKey::Report(_)));
            reports.map(|(_, record)| record.clone()).collect()
        })
        .await
    }

    async fn write(
        &self,
        key: &FleetKey,
        expected: KeyRevision,
        value: Vec<u8>,
    ) -> Result<StoreOutcome, EngineError> {
        self.with(|keys| {
            let known = keys.records.get(key);
            if known.map_or(KeyRevision(0), |record| record.revision) != expected {
                return StoreOutcome::Conflict;
            }
            let revision = KeyRevision(keys.next());
            let record = StoredRecord { value, revision };
            keys.records.insert(key.clone(), record);
            StoreOutcome::Stored(revision)
        })
        .await
    }

    async fn lease_call(
        &self,
        method: Method,
        lease: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let called = self.with(|keys| keys.call_lease(&method, lease)).await;
        let error = |code, why: String| LeaseCallError { code, why };
        match called {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(code)) => Err(error(Some(code), format!("status {code}"))),
            Err(refused) => Err(error(None, refused.why)),
        }
    }

    async fn hash_key(&self, proposal: [u8; 16]) -> Result<[u8; 16], EngineError> {
        self.with(|keys| *keys.hash_key.get_or_insert(proposal))
            .await
    }
}
