//! Hosted objects when namespaces of the upstream are deleted.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Arc, Mutex},
};

use fairgate_apihttp::authorize::{Authorizer, BuiltInRules};
use fairgate_apiserver::{
    Hosted, HostedAdmission, HostedBody, HostedSettings,
    namespaces::{NamespaceFuture, NamespaceState, Namespaces},
    quota::HostedQuota,
};
use fairgate_base::clock::Clock;
use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
use fairgate_store::{
    HistoryLimits, StoreFuture,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;
use http::Method;
use serde_json::Value;

use super::{
    Home,
    api::JSON,
    budgets::{POLICY, web},
    no_admin::NoAdmin,
};

/// The states of namespaces, by name; all others are active.
#[derive(Default)]
struct KnownNamespaces {
    states: Mutex<BTreeMap<String, NamespaceState>>,
    /// What the next reading says in place of that.
    outdated: Mutex<Option<NamespaceState>>,
}

impl Namespaces for KnownNamespaces {
    fn state<'a>(&'a self, name: &'a str) -> NamespaceFuture<'a> {
        let outdated = self.outdated.lock().unwrap().take();
        let known = outdated.or_else(|| self.states.lock().unwrap().get(name).cloned());
        Box::pin(ready(match name {
            "unknown" => Err("away".to_owned()),
            _ => Ok(known.unwrap_or_else(|| active("first"))),
        }))
    }
}

fn active(uid: &str) -> NamespaceState {
    NamespaceState::Active {
        uid: uid.to_owned(),
    }
}

/// A hosted API with its own store, in front of an upstream with these namespaces.
struct InNamespaces {
    hosted: Arc<Hosted>,
    namespaces: Arc<KnownNamespaces>,
    store: Arc<TestStore>,
    _home: Home,
}

impl InNamespaces {
    fn new() -> Self {
        let home = Home::new();
        let settings = LocalSettings {
            path: home.path().join("store.redb"),
            limits: HistoryLimits::default(),
        };
        let clock = Clock::system();
        let store = Arc::new(TestStore::new(
            LocalStore::open(settings, clock.clone()).unwrap(),
        ));
        let namespaces = Arc::new(KnownNamespaces::default());
        let hosted = Hosted::new(HostedSettings {
            kinds: vec![&POD_DISRUPTION_BUDGET],
            subresources: Vec::new(),
            store: store.clone(),
            clock,
            authorizer: Authorizer::BuiltIn(BuiltInRules::default()),
            version: "v1.36.3".to_owned(),
            address: "127.0.0.1:6443".to_owned(),
            namespaces: Some(namespaces.clone()),
            admission: HostedAdmission::Off,
            admin: Arc::new(NoAdmin),
            responses: fairgate_call::ResponseMemory::new(64 << 20),
            body_bytes: 64 << 20,
            quotas: HostedQuota::default(),
        });
        Self {
            hosted,
            namespaces,
            store,
            _home: home,
        }
    }

    fn set(&self, name: &str, state: NamespaceState) {
        let mut namespaces = self.namespaces.states.lock().unwrap();
        namespaces.insert(name.to_owned(), state);
    }

    async fn call(&self, method: Method, namespace: &str, body: Option<&Value>) -> (u16, Value) {
        let path = format!("{POLICY}/namespaces/{namespace}/poddisruptionbudgets");
        let response = self.hosted.serve_own(method, &path, "", JSON, body).await;
        let HostedBody::Full(body) = response.body else {
            panic!("a watch");
        };
        let body = serde_json::from_slice(&body).unwrap();
        (response.status.as_u16(), body)
    }

    async fn create(&self, namespace: &str, name: &str) -> u16 {
        self.call(Method::POST, namespace, Some(&web(name))).await.0
    }

    async fn names(&self, namespace: &str) -> Vec<String> {
        let (_, list) = self.call(Method::GET, namespace, None).await;
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test]
async fn budgets_of_deleted_namespaces_are_deleted_and_no_others() {
    let api = InNamespaces::new();
    for namespace in ["active", "gone", "ending", "again"] {
        for name in ["a", "b"] {
            assert_eq!(api.create(namespace, name).await, 201);
        }
    }
    assert_eq!(api.create("unknown", "a").await, 500);
    api.set("gone", NamespaceState::Absent);
    api.set("ending", NamespaceState::Terminating);
    api.set("again", active("second"));
    for (namespace, is_active, left) in [
        ("active", true, 2),
        ("gone", false, 0),
        ("ending", false, 0),
        ("again", true, 0),
    ] {
        let cleaned = api.hosted.clean_namespace(namespace).await;
        assert_eq!(cleaned.unwrap(), is_active, "{namespace}");
        assert_eq!(api.names(namespace).await.len(), left, "{namespace}");
    }
    let in_use = api.hosted.namespaces_in_use().await.unwrap();
    let first = |name: &str| (name.to_owned(), Some("first".to_owned()));
    let second = ("again".to_owned(), Some("second".to_owned()));
    assert_eq!(in_use, BTreeMap::from([first("active"), second]));
    assert!(api.hosted.clean_namespace("unknown").await.is_err());
}

#[tokio::test]
async fn a_new_namespace_of_the_same_name_begins_without_budgets() {
    let api = InNamespaces::new();
    for name in ["a", "b"] {
        assert_eq!(api.create("shop", name).await, 201);
    }
    api.set("shop", active("second"));
    // The gateway has not noticed yet that this is a new namespace.
    assert_eq!(api.create("shop", "b").await, 201);
    assert_eq!(api.names("shop").await, ["b"]);
    // The new budget stays when the change is noticed.
    assert!(api.hosted.clean_namespace("shop").await.unwrap());
    assert_eq!(api.names("shop").await, ["b"]);
}

#[tokio::test]
async fn a_creation_in_the_earlier_namespace_deletes_nothing_of_the_new_one() {
    let api = InNamespaces::new();
    assert_eq!(api.create("shop", "old").await, 201);
    api.set("shop", active("second"));
    assert_eq!(api.create("shop", "web").await, 201);
    // It has read the namespace before that was deleted, and comes to the store only now.
    *api.namespaces.outdated.lock().unwrap() = Some(active("first"));
    assert_eq!(api.create("shop", "late").await, 500);
    assert_eq!(api.names("shop").await, ["web"]);
    assert_eq!(api.create("shop", "late").await, 201, "it is tried again");
    assert_eq!(api.names("shop").await, ["late", "web"]);
}

#[tokio::test]
async fn an_object_that_is_written_after_its_namespace_was_cleaned_up_is_deleted_again() {
    for (state, code) in [
        (NamespaceState::Absent, 404),
        (NamespaceState::Terminating, 403),
        (active("second"), 500),
    ] {
        let api = InNamespaces::new();
        assert_eq!(api.create("shop", "old").await, 201);
        let (hosted, namespaces) = (api.hosted.clone(), api.namespaces.clone());
        let becomes = state.clone();
        let meanwhile = move || -> StoreFuture<'static, ()> {
            let (hosted, namespaces, state) = (hosted.clone(), namespaces.clone(), becomes.clone());
            Box::pin(async move {
                namespaces
                    .states
                    .lock()
                    .unwrap()
                    .insert("shop".to_owned(), state);
                hosted.clean_namespace("shop").await.unwrap();
                Ok(())
            })
        };
        assert!(
            api.store
                .before_writes
                .set(("poddisruptionbudgets", Box::new(meanwhile)))
                .is_ok()
        );
        assert_eq!(api.create("shop", "late").await, code, "{state:?}");
        assert_eq!(api.names("shop").await, [""; 0], "{state:?}");
    }
}
