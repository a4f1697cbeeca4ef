//! Status conditions while the store fails, or its changes are too many to follow.

use std::{sync::Arc, time::Duration};

use fairgate_apihttp::authorize::{Authorizer, BuiltInRules};
use fairgate_apiserver::{
    Hosted, HostedAdmission, HostedBody, HostedSettings, quota::HostedQuota,
    reconcile::ConditionWriter,
};
use fairgate_base::clock::Clock;
use fairgate_objects::kinds::FLOW_CONTROL;
use fairgate_store::{
    HistoryLimits, Store as _,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;
use http::Method;
use serde_json::Value;

use super::{Home, LEVELS, SCHEMAS, api::JSON, condition, level, no_admin::NoAdmin, schema};

/// A hosted API with its own store.
struct Hosting {
    hosted: Arc<Hosted>,
    store: Arc<TestStore>,
    _home: Home,
}

impl Hosting {
    fn new() -> Self {
        let home = Home::new();
        let settings = LocalSettings {
            path: home.path().join("store.redb"),
            limits: HistoryLimits::default(),
        };
        let clock = Clock::system();
        let store = LocalStore::open(settings, clock.clone()).unwrap();
        let store = Arc::new(TestStore::new(store));
        let hosted = Hosted::new(HostedSettings {
            kinds: FLOW_CONTROL.to_vec(),
            subresources: Vec::new(),
            store: store.clone(),
            clock,
            authorizer: Authorizer::BuiltIn(BuiltInRules::default()),
            version: "v1.36.3".to_owned(),
            address: "127.0.0.1:6443".to_owned(),
            namespaces: None,
            admission: HostedAdmission::Off,
            admin: Arc::new(NoAdmin),
            responses: fairgate_call::ResponseMemory::new(64 << 20),
            body_bytes: 64 << 20,
            quotas: HostedQuota::default(),
        });
        Self {
            hosted,
            store,
            _home: home,
        }
    }

    fn conditions(&self) -> ConditionWriter {
        ConditionWriter::new(self.hosted.clone(), Clock::system())
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let response = self.hosted.serve_own(method, path, "", JSON, body).await;
        let HostedBody::Full(text) = response.body else {
            panic!("a watch");
        };
        assert!(response.status.is_success(), "{text:?}");
        serde_json::from_slice(&text).unwrap()
    }

    /// Creates the level `a` and the schema `s` for it.
    async fn fill(&self) {
        self.call(Method::POST, LEVELS, Some(&level("a", 1))).await;
        let object = schema("s", "a", 100, "x");
        self.call(Method::POST, SCHEMAS, Some(&object)).await;
    }

    /// The status of the condition `Dangling` of the schema `s`.
    async fn dangling(&self) -> String {
        let object = self.call(Method::GET, &format!("{SCHEMAS}/s"), None).await;
        let dangling = condition(&object, "Dangling").map(|dangling| &dangling["status"]);
        dangling
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }
}

#[tokio::test]
async fn a_level_that_was_deleted_while_changes_could_not_be_followed_counts_as_deleted() {
    let hosting = Hosting::new();
    hosting.fill().await;
    let mut conditions = hosting.conditions();
    assert!(conditions.reconcile(&[]).await.unwrap());
    assert_eq!(hosting.dangling().await, "False");

    hosting
        .call(Method::DELETE, &format!("{LEVELS}/a"), None)
        .await;
    // The store drops the change before it is read.
    let later = Clock::system().now().plus(Duration::from_secs(3600));
    hosting.store.maintain(later).await.unwrap();
    assert_eq!(hosting.store.floor(), hosting.store.cached_revision());

    assert!(conditions.reconcile(&[]).await.unwrap());
    assert_eq!(hosting.dangling().await, "True");
}

#[tokio::test]
async fn after_a_list_that_failed_halfway_all_objects_are_read() {
    let hosting = Hosting::new();
    hosting.fill().await;
    let mut conditions = hosting.conditions();
    hosting.store.refuse_lists(Some("flowschemas"));
    assert!(conditions.reconcile(&[]).await.is_err());
    hosting.store.refuse_lists(None);
    assert!(conditions.reconcile(&[]).await.unwrap());
    assert_eq!(hosting.dangling().await, "False");
}
