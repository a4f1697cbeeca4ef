//! A gateway with a hosted API to which only its clients write.

use std::{
    fs,
    future::ready,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use fairgate_apihttp::authorize::{Authorizer, BuiltInRules};
use fairgate_apiserver::{
    AdminEndpoints, AdminFuture, Hosted, HostedAdmission, HostedLayer, HostedSettings, Ownership,
    quota::HostedQuota, reconcile::Bootstrapper,
};
use fairgate_base::clock::Clock;
use fairgate_call::{Call, Refusal, Reply};
use fairgate_core::apf::objects::Bootstrap;
use fairgate_objects::kind::Kind;
use fairgate_store::{HistoryLimits, local};
use tokio::runtime::Handle;
use tower::Layer as _;

use crate::gate::{Gate, Leaf};

/// A gateway and its store, both removed when this is dropped.
pub struct Server {
    gate: Gate,
    _directory: Directory,
}

impl Server {
    /// Starts a gateway that hosts these kinds, with the built-in objects in its store. The hosted API runs on this runtime.
    pub async fn start(kinds: Vec<&'static Kind>) -> Self {
        let directory = Directory::new();
        let settings = local::LocalSettings {
            path: directory.0.join("store.redb"),
            limits: HistoryLimits::default(),
        };
        let clock = Clock::system();
        let store = local::LocalStore::open(settings, clock.clone()).unwrap();
        let hosted = Hosted::new(HostedSettings {
            kinds,
            subresources: Vec::new(),
            namespaces: None,
            store: Arc::new(store),
            clock: clock.clone(),
            authorizer: Authorizer::BuiltIn(BuiltInRules::default()),
            version: "v1.36.3".to_owned(),
            address: "127.0.0.1:6443".to_owned(),
            admission: HostedAdmission::OfStore { recorder: None },
            admin: Arc::new(Nobody),
            responses: fairgate_call::ResponseMemory::new(64 << 20),
            body_bytes: 64 << 20,
            quotas: HostedQuota::default(),
        });
        let mut keeper = Bootstrapper::new(Arc::clone(&hosted), Bootstrap::Suggested);
        keeper.ensure().await.unwrap();
        let control = Handle::current();
        let leaf = move || {
            let hosted = Arc::clone(&hosted);
            let everything = Ownership::Everything;
            HostedLayer::new(hosted, control.clone(), clock.clone(), everything)
                .layer(Leaf(not_hosted))
        };
        Self {
            gate: Gate::around(leaf, |_| {}),
            _directory: directory,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.gate.address()
    }
}

/// A directory that is removed when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-differential-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Has no admin endpoints.
struct Nobody;

impl AdminEndpoints for Nobody {
    fn ask<'a>(&'a self, _: &'a str, _: &'a str, _: bool) -> AdminFuture<'a> {
        Box::pin(ready(None))
    }
}

/// The innermost service, which no request of the corpus reaches.
fn not_hosted(call: &Call) -> Result<Reply, Refusal> {
    panic!("{} is not hosted", call.request.uri())
}
