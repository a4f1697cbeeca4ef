//! How an etcd is reached, for the hosted objects and for a fleet.

use std::time::Duration;

use fairgate_config::EtcdConfig;
use fairgate_store::{
    HistoryLimits,
    etcd::{EtcdSettings, EtcdTls},
};

/// How much history is kept where the gateway compacts an etcd.
const COMPACTION: Duration = Duration::from_secs(300);

/// The settings of a client of an etcd.
pub(in crate::app) fn etcd_settings(config: &EtcdConfig) -> EtcdSettings {
    let identity = config.client_pem.as_ref();
    let identity = identity.map(|(cert, key)| (cert.clone(), (**key).clone()));
    let tls = config.authorities_pem.as_ref().map(|ca| EtcdTls {
        ca: ca.clone(),
        identity,
        server_name: None,
    });
    let user = config.user.as_ref();
    EtcdSettings {
        endpoints: config.endpoints.clone(),
        prefix: config.prefix.clone(),
        tls,
        user: user.map(|(user, password)| (user.clone(), (**password).clone())),
        limits: HistoryLimits::default(),
        compaction: config.compaction.then_some(COMPACTION),
    }
}
