//! The hosted API over real sockets: whole gateways, started from a configuration, each with its own store.

mod api;
mod format;

mod access;
mod applying;
mod bodies;
mod budgets;
mod built_in;
mod conformance;
mod deleted_namespaces;
mod documents;
mod enforcement;
#[cfg(feature = "etcd")]
mod etcd;
mod greedy;
mod hostile;
mod live;
mod no_admin;
mod paging;
mod policies;
mod quota;
mod reconciling;
mod reflector;
mod restarting;
mod unread;
mod versions;
mod watching;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fairgate::{
    app::{self, Running},
    config::Config,
    observe::GatewayMetrics,
};
use fairgate_base::metrics_text;
use fairgate_core::apf::objects::bootstrap;
use fairgate_store::Store;
use serde_json::{Value, json};

use crate::client::soon;
use api::Api;

/// The beginning of all paths of hosted kinds.
const V1: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// The users, by token.
const TOKENS: &str = "\
root,root,root-uid,system:masters
reader,rita,rita-uid,readers
alice,alice,alice-uid,devs
noxu,noxu,noxu-uid,devs
";

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A directory for one test, with the files that a gateway needs. It is removed when dropped.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-hosted-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("tokens"), TOKENS).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// The configuration of a gateway with its store here.
    fn config(&self) -> Config {
        self.config_with("")
    }

    /// The same configuration with more keys.
    fn config_with(&self, more: &str) -> Config {
        let reading = Config::parse("test.yaml", &self.0, Self::text(more).as_bytes());
        let (config, _) = reading.usable().unwrap();
        config
    }

    /// The same as text. Unless `more` says otherwise, the store is a file, and the gateway stops without waiting
    /// for requests.
    fn text(more: &str) -> String {
        let store = if more.contains("store:") {
            ""
        } else {
            "store: {local: {path: store/store.redb}}\n"
        };
        let drain = if more.contains("drain:") {
            ""
        } else {
            "drain: {delay: 0s, grace: 0s}\n"
        };
        let hosted = if more.contains("hostedApi:") {
            ""
        } else {
            "hostedApi: {readerGroups: [readers]}\n"
        };
        format!(
            "apiVersion: fairgate.dev/v1alpha1\n\
             kind: Configuration\n\
             mode: standalone\n\
             listen: {{address: '127.0.0.1:0'}}\n\
             admin: {{address: '127.0.0.1:0'}}\n\
             authentication:\n  tokenFile: tokens\n  tokenReview: {{enabled: false}}\n  \
             anonymous: {{paths: ['*']}}\n\
             {hosted}\
             dataCores: 2\n\
             {drain}{store}{more}"
        )
    }

    /// Starts a gateway here, and waits until all built-in objects have their conditions.
    async fn start(&self) -> Server {
        let server = Server::start(self.config()).await;
        server.settled().await;
        server
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running gateway.
struct Server(Running);

impl Server {
    async fn start(config: Config) -> Self {
        let started =
            tokio::task::spawn_blocking(move || app::start(config, None, GatewayMetrics::new()))
                .await;
        Self(started.unwrap().unwrap())
    }

    /// Stops the gateway, and waits until its store is closed.
    async fn stop(self) {
        let store = Arc::downgrade(self.store());
        tokio::task::spawn_blocking(move || self.0.shut_down())
            .await
            .unwrap();
        until(async || store.strong_count() == 0).await;
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.0.store().unwrap()
    }

    /// A client with the token of `user`; without a token if that is empty.
    async fn as_user(&self, user: &str) -> Api {
        Api::new(self.0.address(), user).await
    }

    async fn root(&self) -> Api {
        self.as_user("root").await
    }

    /// Waits until every FlowSchema has its condition `Dangling`, the last thing that is written at a start.
    async fn settled(&self) {
        let api = self.root().await;
        until(async || {
            let list = api.get(SCHEMAS).await.object();
            let schemas = list["items"].as_array().unwrap();
            schemas.len() >= bootstrap::flow_schemas().len()
                && schemas
                    .iter()
                    .all(|schema| condition(schema, "Dangling").is_some())
        })
        .await;
    }

    /// Waits until the tasks that maintain built-in objects and conditions have seen all changes made so far, and
    /// their own writes for them are done. It takes [`Self::WRITES_TO_RECONCILE`] revisions.
    ///
    /// A built-in FlowSchema is deleted until it is back with its condition. The second time, everything that began
    /// before the first deletion has ended.
    async fn reconciled(&self) {
        let api = self.root().await;
        let probes = format!("{SCHEMAS}/probes");
        for _ in 0..2 {
            let uid = api.delete(&probes).await.object()["details"]["uid"].clone();
            assert!(uid.is_string(), "{uid}");
            until(async || {
                let found = api.get(&probes).await.json();
                found["metadata"]["uid"] != uid && condition(&found, "Dangling").is_some()
            })
            .await;
        }
    }

    /// Two deletions, each followed by a creation and a condition.
    const WRITES_TO_RECONCILE: u64 = 6;

    /// The value of the first sample of a metric with this text among its labels.
    async fn metric(&self, name: &str, label: &str) -> Option<f64> {
        let text = self.root().await.get("/metrics").await.text();
        let mut samples = metrics_text::samples(&text);
        let sample = samples.find(|one| one.name == name && one.series.contains(label));
        sample.map(|sample| sample.value)
    }
}

/// Waits until `holds` returns true.
async fn until(holds: impl AsyncFn() -> bool) {
    soon(async {
        while !holds().await {
            tokio::time::sleep(ms(5)).await;
        }
    })
    .await;
}

/// The condition of a type.
fn condition<'o>(object: &'o Value, ty: &str) -> Option<&'o Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == ty)
}

/// The resource version as a number.
fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(!text.starts_with('0'), "{text}");
    text.parse().unwrap()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// A level that rejects a request at once if no seat is free.
fn level(name: &str, shares: u32) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares,
            "limitResponse": {"type": "Reject"},
        }},
    })
}

/// A FlowSchema for all requests of `user`.
fn schema(name: &str, level: &str, precedence: u32, user: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true,
                }],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    })
}
