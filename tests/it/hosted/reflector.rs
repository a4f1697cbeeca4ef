//! A kube-rs reflector keeps up while the gateway is restarted, and after its history has been dropped.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate_core::time::Time;
use futures_util::StreamExt as _;
use http::{HeaderValue, header::AUTHORIZATION};
use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::{Home, LEVELS, Server, level, ms, name, until};

/// A TCP proxy: its address stays while the gateway behind it is restarted.
#[derive(Clone)]
struct FixedAddress {
    address: SocketAddr,
    behind: Arc<Mutex<Option<SocketAddr>>>,
}

impl FixedAddress {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::<Mutex<Option<SocketAddr>>>::default();
        let fixed = Self {
            address,
            behind: behind.clone(),
        };
        tokio::spawn(async move {
            while let Ok((mut outside, _)) = listener.accept().await {
                let behind = *behind.lock().unwrap();
                tokio::spawn(async move {
                    if let Some(behind) = behind
                        && let Ok(mut inside) = TcpStream::connect(behind).await
                    {
                        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                    }
                });
            }
        });
        fixed
    }

    fn forward_to(&self, server: Option<&Server>) {
        *self.behind.lock().unwrap() = server.map(|server| server.0.address());
    }

    fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        let token = HeaderValue::from_static("Bearer root");
        config.headers.push((AUTHORIZATION, token));
        kube::Client::try_from(config).unwrap()
    }
}

/// A running reflector.
struct Reflected {
    store: reflector::Store<PriorityLevelConfiguration>,
    /// How often it listed everything.
    lists: Arc<AtomicUsize>,
    /// The shares of the level `counted`, in each event about it.
    counted: Arc<Mutex<Vec<i32>>>,
}

impl Reflected {
    fn start(client: kube::Client) -> Self {
        let (store, writer) = reflector::store::<PriorityLevelConfiguration>();
        let (lists, counted) = (
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let events = watcher(kube::Api::all(client), watcher::Config::default());
        let mut events = Box::pin(events.reflect(writer));
        let (listed, seen) = (lists.clone(), counted.clone());
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Init) => drop(listed.fetch_add(1, Ordering::Relaxed)),
                    Ok(watcher::Event::Apply(level)) => {
                        if level.metadata.name.as_deref() == Some("counted") {
                            seen.lock().unwrap().push(shares(&level));
                        }
                    }
                    Ok(_) => {}
                    // The watcher retries at once; the gateway may be down for longer.
                    Err(_) => tokio::time::sleep(ms(20)).await,
                }
            }
        });
        Self {
            store,
            lists,
            counted,
        }
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let state = self.store.state();
        let versions = state.iter().map(|level| {
            let metadata = level.metadata.clone();
            (metadata.name.unwrap(), metadata.resource_version.unwrap())
        });
        versions.collect()
    }

    /// Waits until it has the same objects as the gateway.
    async fn catches_up_with(&self, server: &Server) {
        let list = server.root().await.get(LEVELS).await.object();
        let items = list["items"].as_array().unwrap();
        let versions: BTreeMap<_, _> = items
            .iter()
            .map(|item| {
                let version = item["metadata"]["resourceVersion"].as_str().unwrap();
                (name(item).to_owned(), version.to_owned())
            })
            .collect();
        until(async || self.versions() == versions).await;
    }
}

fn shares(level: &PriorityLevelConfiguration) -> i32 {
    let limited = level.spec.as_ref().and_then(|spec| spec.limited.as_ref());
    limited.and_then(|l| l.nominal_concurrency_shares).unwrap()
}

fn with_shares(shares: i32) -> Value {
    json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}})
}

#[tokio::test]
async fn a_reflector_misses_nothing_when_a_gateway_restarts_or_history_is_dropped() {
    let home = Home::new();
    let mut server = home.start().await;
    let fixed = FixedAddress::new().await;
    fixed.forward_to(Some(&server));
    let reflected = Reflected::start(fixed.client());
    // Levels of the first list are not among the events that are counted.
    reflected.catches_up_with(&server).await;
    server
        .root()
        .await
        .post(LEVELS, &level("counted", 1))
        .await
        .object();
    reflected.catches_up_with(&server).await;
    assert_eq!(reflected.lists.load(Ordering::Relaxed), 1);

    // Restarts: it continues where it was, and receives all changes that it missed.
    let target = format!("{LEVELS}/counted");
    for round in 0..3 {
        fixed.forward_to(None);
        server.stop().await;
        server = home.start().await;
        let api = server.root().await;
        for shares in 0..4 {
            let patch = with_shares(2 + 4 * round + shares);
            api.merge(&target, &patch).await.object();
        }
        api.post(LEVELS, &level(&format!("of-{round}"), 1))
            .await
            .object();
        api.delete(&format!("{LEVELS}/of-{}", round - 1)).await;
        fixed.forward_to(Some(&server));
        reflected.catches_up_with(&server).await;
    }
    assert_eq!(reflected.lists.load(Ordering::Relaxed), 1);
    let response = reflected.counted.lock().unwrap().clone();
    assert_eq!(response, (1..14).collect::<Vec<_>>());

    // The history is dropped while it is disconnected: it has to list again.
    fixed.forward_to(None);
    server.stop().await;
    server = home.start().await;
    let api = server.root().await;
    api.merge(&target, &with_shares(77)).await.object();
    api.delete(&format!("{LEVELS}/of-2")).await.object();
    server
        .store()
        .maintain(Time::ZERO.plus(Duration::from_secs(1 << 32)))
        .await
        .unwrap();
    api.post(LEVELS, &level("after", 1)).await.object();
    fixed.forward_to(Some(&server));
    reflected.catches_up_with(&server).await;
    assert_eq!(reflected.lists.load(Ordering::Relaxed), 2);
}
