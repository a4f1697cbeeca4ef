//! A hosted API over a store of its own, for tests of this crate.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use fairgate_apihttp::authorize::{Authorizer, BuiltInRules};
use fairgate_base::clock::Clock;
use fairgate_call::ResponseMemory;
use fairgate_objects::kind::Kind;
use fairgate_store::{
    HistoryLimits, Store,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;

use crate::{
    admin::{AdminEndpoints, AdminFuture},
    admission::HostedAdmission,
    hosted::{Hosted, HostedSettings},
    limits::quota::HostedQuota,
};

struct Nothing;

impl AdminEndpoints for Nothing {
    fn ask<'a>(&'a self, _: &'a str, _: &'a str, _: bool) -> AdminFuture<'a> {
        Box::pin(ready(None))
    }
}

/// A store in a directory of its own.
pub(crate) fn store(clock: &Clock) -> Arc<TestStore> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("fairgate-test-api-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let settings = LocalSettings {
        path: directory.join("store.redb"),
        limits: HistoryLimits::default(),
    };
    let store = LocalStore::open(settings, clock.clone()).unwrap();
    Arc::new(TestStore::in_directory(store, directory))
}

/// An API of these kinds.
pub(crate) fn hosted(
    store: &Arc<TestStore>,
    kinds: Vec<&'static Kind>,
    clock: Clock,
    responses: Arc<ResponseMemory>,
) -> Arc<Hosted> {
    Hosted::new(HostedSettings {
        body_bytes: 64 << 20,
        quotas: HostedQuota::default(),
        kinds,
        subresources: Vec::new(),
        store: Arc::clone(store) as Arc<dyn Store>,
        clock,
        authorizer: Authorizer::BuiltIn(BuiltInRules::default()),
        version: "v1.36.3".to_owned(),
        address: "127.0.0.1:6443".to_owned(),
        namespaces: None,
        admission: HostedAdmission::Off,
        admin: Arc::new(Nothing),
        responses,
    })
}
