//! The engine of the configured fleet: what keeps its reports and its ledger.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{
    followed_files::FollowedFiles,
    settings::{UpstreamClients, settings_error::SettingsError},
};
use fairgate_base::clock::Clock;
use fairgate_config::{FleetConfig, FleetEngineConfig};
use fairgate_disruption_controller::UpstreamCalls;
use fairgate_election::LeaseCallError;
use fairgate_fleet::identity::KeyRevision;
#[cfg(feature = "etcd")]
use fairgate_fleet_engine::etcd::EtcdEngine;
use fairgate_fleet_engine::{
    engine::{EngineError, FleetEngine, FleetKey, StoreOutcome, StoredRecord},
    kubernetes::{KubernetesEngine, ObjectApi},
};

/// How often leases are read, and written if something changed: demand that moves takes its seats along after five such
/// intervals at most.
const LEASE_INTERVAL: Duration = Duration::from_millis(500);
/// How often an etcd is read and written by the gateways of a fleet of up to [`SMALL_FLEET`].
const ETCD_INTERVAL: Duration = Duration::from_millis(100);
/// The same, of a larger one.
const LARGE_FLEET_INTERVAL: Duration = Duration::from_millis(500);
const SMALL_FLEET: u32 = 30;

/// One of the engines.
pub(super) enum ConfiguredEngine {
    /// Objects of the upstream.
    Kubernetes(KubernetesEngine<UpstreamLeases>),
    /// Keys of an etcd.
    #[cfg(feature = "etcd")]
    Etcd(EtcdEngine),
}

impl ConfiguredEngine {
    /// The engine of this fleet, if there is one, and the files whose renewed contents it uses. Must be called within the control
    /// runtime.
    pub(super) fn new(
        fleet: &FleetConfig,
        clients: &UpstreamClients,
        clock: &Clock,
    ) -> Result<Option<(Self, Option<FollowedFiles>)>, SettingsError> {
        match &fleet.engine {
            None => Ok(None),
            Some(FleetEngineConfig::Kubernetes { namespace }) => {
                let calls = UpstreamCalls::new(clients.reviews.clone(), clock.clone());
                let (namespace, name) = (namespace.clone(), fleet.name.clone());
                let engine = KubernetesEngine::new(UpstreamLeases(calls), namespace, name);
                Ok(Some((Self::Kubernetes(engine), None)))
            }
            #[cfg(feature = "etcd")]
            Some(FleetEngineConfig::Etcd(etcd)) => {
                let mut settings = super::settings::etcd::etcd_settings(etcd);
                settings.prefix = format!("{}/{}", settings.prefix, fleet.name);
                let records = fairgate_store::etcd::EtcdRecords::start(&settings);
                let records = records.map_err(SettingsError::FleetEngine)?;
                let connections = records.connections();
                let files = super::settings::etcd::followed_files("fleet.etcd", etcd, connections);
                Ok(Some((Self::Etcd(EtcdEngine::new(records)), files)))
            }
            // Validation of the configuration refuses this earlier.
            #[cfg(not(feature = "etcd"))]
            Some(FleetEngineConfig::Etcd(_)) => {
                Err(SettingsError::FleetEngine(super::settings::without_etcd()))
            }
        }
    }
}

/// How often a gateway of this fleet reads and reports.
pub(super) fn report_interval(fleet: &FleetConfig) -> Duration {
    match &fleet.engine {
        Some(FleetEngineConfig::Etcd(_)) if fleet.max_gateways <= SMALL_FLEET => ETCD_INTERVAL,
        Some(FleetEngineConfig::Etcd(_)) => LARGE_FLEET_INTERVAL,
        Some(FleetEngineConfig::Kubernetes { .. }) | None => LEASE_INTERVAL,
    }
}

/// Calls a method of whichever engine it is.
macro_rules! delegate {
    ($engine:expr, $method:ident($($argument:expr),*)) => {
        match $engine {
            Self::Kubernetes(engine) => engine.$method($($argument),*).await,
            #[cfg(feature = "etcd")]
            Self::Etcd(engine) => engine.$method($($argument),*).await,
        }
    };
}

impl FleetEngine for ConfiguredEngine {
    fn name(&self) -> &'static str {
        match self {
            Self::Kubernetes(engine) => engine.name(),
            #[cfg(feature = "etcd")]
            Self::Etcd(engine) => engine.name(),
        }
    }

    async fn read(&self, key: &FleetKey) -> Result<Option<StoredRecord>, EngineError> {
        delegate!(self, read(key))
    }

    async fn read_reports(&self) -> Result<Vec<StoredRecord>, EngineError> {
        delegate!(self, read_reports())
    }

    async fn write(
        &self,
        key: &FleetKey,
        expected: KeyRevision,
        value: Vec<u8>,
    ) -> Result<StoreOutcome, EngineError> {
        delegate!(self, write(key, expected, value))
    }

    async fn lease_call(
        &self,
        method: Method,
        lease: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        delegate!(self, lease_call(method, lease))
    }

    async fn hash_key(&self, proposal: [u8; 16]) -> Result<[u8; 16], EngineError> {
        delegate!(self, hash_key(proposal))
    }
}

/// The upstream's leases, and the secret with the hash key.
pub(super) struct UpstreamLeases(UpstreamCalls);

impl ObjectApi for UpstreamLeases {
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        self.0.json(method, path, body).await
    }
}
