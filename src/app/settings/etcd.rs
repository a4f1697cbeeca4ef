//! How an etcd is reached, for the hosted objects and for a fleet.

use std::time::Duration;

use fairgate_config::EtcdConfig;
use fairgate_store::{
    HistoryLimits,
    etcd::{EtcdConnections, EtcdSettings, EtcdTls},
};

use crate::app::followed_files::FollowedFiles;

/// How much history is kept where the gateway compacts an etcd.
const COMPACTION: Duration = Duration::from_secs(300);

/// Follows the certificates and the password of an etcd in their files; `None` if it has none. `key` is where the configuration names
/// them.
pub(in crate::app) fn followed_files(
    key: &'static str,
    config: &EtcdConfig,
    connections: EtcdConnections,
) -> Option<FollowedFiles> {
    let files = config.files.list();
    let config = config.clone();
    (!files.is_empty()).then(|| {
        FollowedFiles::new(key, files, move |contents| {
            let renewed = config.with_contents(contents)?;
            connections.renew(&etcd_settings(&renewed));
            Ok(())
        })
    })
}

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
