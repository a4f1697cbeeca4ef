//! The engine on an etcd.

use fairgate_store::{HistoryLimits, etcd};

use crate::{
    engine::{EngineFailure, FleetEngine, FleetKey},
    etcd::EtcdEngine,
};

/// The engine on an etcd at this address, with this user and password.
pub(super) fn on_etcd(endpoint: String, user: Option<(&str, &str)>) -> EtcdEngine {
    let settings = etcd::EtcdSettings {
        endpoints: vec![endpoint],
        prefix: "/fleets/front".to_owned(),
        tls: None,
        user: user.map(|(name, password)| (name.to_owned(), password.to_owned())),
        limits: HistoryLimits::default(),
        compaction: None,
    };
    EtcdEngine::new(etcd::EtcdRecords::start(&settings).unwrap())
}

/// What an operator is told about an etcd that forbids the calls is not what he is told about one that is away.
#[tokio::test]
async fn an_etcd_that_forbids_the_calls_is_told_from_one_that_is_away() {
    let server = fairgate_testkit::etcd::EtcdServer::start();
    let mut client = server.client().await;
    client.user_add("root", "r", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("no-role", "secret", None).await.unwrap();
    client.auth_enable().await.unwrap();

    for user in [
        None,
        Some(("no-role", "secret")),
        Some(("no-role", "guess")),
    ] {
        let engine = on_etcd(server.endpoint(), user);
        let read = engine.read(&FleetKey::Ledger).await.unwrap_err();
        assert_eq!(read.failure, EngineFailure::Forbidden, "{user:?}: {read}");
        let reports = engine.read_reports().await.unwrap_err();
        assert_eq!(
            reports.failure,
            EngineFailure::Forbidden,
            "{user:?}: {reports}"
        );
        let lease = engine
            .lease_call(http::Method::GET, None)
            .await
            .unwrap_err();
        assert_eq!(lease.code, Some(403), "{user:?}: {}", lease.why);
    }
}
