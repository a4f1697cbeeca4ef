//! The store in etcd: what all stores keep, and what is etcd's own. Against the real program, which
//! `FAIRGATE_ETCD` names; the tests start it.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use etcd_client::GetOptions;

use super::{EtcdSettings, EtcdStore, EtcdTls};
use crate::{
    HistoryLimits, Precondition, ReadRevision, Store, StoreError, StoreFuture, StoreHealth,
    WriteOutcome,
    conformance::{self, TestStore, conformance},
};

use fairgate_base::clock::Clock;
use fairgate_testkit::{
    etcd::EtcdServer,
    pki::{Authority, Leaf},
};

/// The etcd that tests share, which do nothing to it.
fn shared() -> &'static EtcdServer {
    static SHARED: OnceLock<EtcdServer> = OnceLock::new();
    SHARED.get_or_init(EtcdServer::start)
}

fn settings(endpoint: String, prefix: &str) -> EtcdSettings {
    EtcdSettings {
        endpoints: vec![endpoint],
        prefix: prefix.to_owned(),
        tls: None,
        user: None,
        limits: HistoryLimits::default(),
        compaction: None,
    }
}

/// A prefix that no other test has.
fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("/fairgate/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn open(settings: EtcdSettings) -> Arc<dyn Store> {
    let store = EtcdStore::start(&settings, conformance::clock()).unwrap();
    let loaded = tokio::time::timeout(Duration::from_secs(30), store.wait_for(1)).await;
    assert!(loaded.is_ok(), "etcd was not read: {:?}", store.health());
    Arc::new(store)
}

struct EtcdPlace(String, Clock);

impl EtcdPlace {
    fn new() -> Self {
        Self(prefix(), conformance::clock())
    }
}

impl TestStore for EtcdPlace {
    fn open(&mut self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let settings = settings(shared().endpoint(), &self.0);
            let store = EtcdStore::start(&settings, self.1.clone())?;
            store.wait_for(1).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn clock(&self) -> Clock {
        self.1.clone()
    }
}

conformance!(EtcdPlace::new());

async fn create(store: &dyn Store, key: &str, value: &str) -> u64 {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    match store.write(key, Precondition::Absent, value).await.unwrap() {
        WriteOutcome::Done { revision, .. } => revision,
        WriteOutcome::Lost(found) => panic!("lost to {found:?}"),
    }
}

/// Waits until the store says it is well, or not.
async fn until_well(store: &dyn Store, well: bool) -> StoreHealth {
    for _ in 0..600 {
        let health = store.health();
        if (health == StoreHealth::Ready) == well {
            return health;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still {:?}", store.health());
}

#[tokio::test]
async fn replicas_see_what_the_others_write_in_the_same_order() {
    const WRITES: usize = 20;
    let prefix = prefix();
    let endpoint = shared().endpoint();
    let one = open(settings(endpoint.clone(), &prefix)).await;
    let other = open(settings(endpoint, &prefix)).await;
    let start = one.revision().await.unwrap();
    let mut watches = [
        one.watch("/", start).unwrap(),
        other.watch("/", start).unwrap(),
    ];
    for n in 0..WRITES {
        let (writer, reader) = if n % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let key = format!("/a/{n}");
        let revision = create(&**writer, &key, "1").await;
        // What one acknowledged, the other reads at once.
        let page = reader
            .list("/a/", None, None, ReadRevision::Newest)
            .await
            .unwrap();
        assert_eq!(page.entries.len(), n + 1);
        let entry = reader
            .get(&key, ReadRevision::Newest)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(entry.revision, revision);
        let again = reader
            .write(&key, Precondition::Absent, Some(Bytes::new()))
            .await;
        assert!(matches!(again, Ok(WriteOutcome::Lost(Some(found))) if found.revision == revision));
    }
    let mut seen = Vec::new();
    for watch in &mut watches {
        let mut revisions = Vec::new();
        while revisions.len() < WRITES {
            let events = watch.next().await.unwrap();
            revisions.extend(
                events
                    .iter()
                    .map(|event| (event.revision, event.key.clone())),
            );
        }
        seen.push(revisions);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn objects_are_below_the_prefix_beside_the_marker() {
    let prefix = prefix();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    create(&*store, "/policy/poddisruptionbudgets/default/web", "value").await;
    let mut client = shared().client().await;
    let all = GetOptions::new().with_prefix();
    let found = client.get(format!("{prefix}/"), Some(all)).await.unwrap();
    let found: Vec<_> = found
        .kvs()
        .iter()
        .map(|kv| (kv.key_str().unwrap(), kv.value_str().unwrap()))
        .collect();
    let key = format!("{prefix}/policy/poddisruptionbudgets/default/web");
    let marker = format!("{prefix}/.format");
    assert_eq!(found, [(&*marker, "fairgate 2"), (&*key, "value")]);
}

/// What a store of the first format has, with `marker` as its marker.
async fn first_format(prefix: &str, marker: &str, objects: u32) {
    let mut client = shared().client().await;
    client
        .put(format!("{prefix}/{marker}"), "fairgate 1", None)
        .await
        .unwrap();
    for n in 0..objects {
        let key = format!("{prefix}/flowschemas/{n}");
        client.put(key, format!("{n}"), None).await.unwrap();
    }
}

async fn is_migrated(store: &dyn Store, prefix: &str, objects: usize) {
    let schemas = "/flowcontrol.apiserver.k8s.io/flowschemas/";
    let page = store.list(schemas, None, None, ReadRevision::Newest).await;
    assert_eq!(page.unwrap().entries.len(), objects);
    let all = store.list("/", None, None, ReadRevision::Newest).await;
    assert_eq!(all.unwrap().entries.len(), objects);
    let mut client = shared().client().await;
    let marker = client.get(format!("{prefix}/.format"), None).await.unwrap();
    assert_eq!(marker.kvs()[0].value_str().unwrap(), "fairgate 2");
    let migrating = client.get(format!("{prefix}/.migrating"), None).await;
    assert!(migrating.unwrap().kvs().is_empty());
}

#[tokio::test]
async fn keys_of_the_first_format_are_migrated_by_replicas_that_start_at_once() {
    let prefix = prefix();
    first_format(&prefix, ".format", 250).await;
    let open = || open(settings(shared().endpoint(), &prefix));
    let (a, b, c) = tokio::join!(open(), open(), open());
    for store in [a, b, c] {
        is_migrated(&*store, &prefix, 250).await;
        let key = format!(
            "/flowcontrol.apiserver.k8s.io/flowschemas/{}",
            store.cached_revision()
        );
        create(&*store, &key, "new").await;
        let deleted = store
            .get(&key, ReadRevision::Newest)
            .await
            .unwrap()
            .unwrap();
        let at = Precondition::At(deleted.revision);
        store.write(&key, at, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_migration_that_was_interrupted_is_finished() {
    let prefix = prefix();
    first_format(&prefix, ".migrating", 5).await;
    let mut client = shared().client().await;
    let moved = format!("{prefix}/flowcontrol.apiserver.k8s.io/flowschemas/moved");
    client.put(moved, "1", None).await.unwrap();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    is_migrated(&*store, &prefix, 6).await;
}

#[tokio::test]
async fn a_write_fails_once_a_newer_version_has_changed_the_format() {
    let prefix = prefix();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    create(&*store, "/g/a/b", "1").await;
    let mut client = shared().client().await;
    let marker = format!("{prefix}/.format");
    client.put(marker, "fairgate 3", None).await.unwrap();
    let value = Some(Bytes::from_static(b"2"));
    let refused = store.write("/g/a/c", Precondition::Absent, value).await;
    assert!(refused.is_err(), "{refused:?}");
    let key = format!("{prefix}/g/a/c");
    assert!(client.get(key, None).await.unwrap().kvs().is_empty());
}

#[tokio::test]
async fn foreign_data_is_refused_and_left_alone() {
    let mut client = shared().client().await;
    for (prefix, key, value) in [
        (prefix(), "/pods/default/web", "theirs"),
        (prefix(), "/.format", "fairgate 3"),
    ] {
        let key = format!("{prefix}{key}");
        client.put(&*key, value, None).await.unwrap();
        let settings = settings(shared().endpoint(), &prefix);
        let store = EtcdStore::start(&settings, conformance::clock()).unwrap();
        loop {
            match store.health() {
                StoreHealth::Degraded(why) if why.contains("empty or fairgate's own") => break,
                StoreHealth::Ready => panic!("{prefix} is taken for its own"),
                StoreHealth::Unread | StoreHealth::Degraded(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let refused = store
            .write("/a", Precondition::Absent, Some(Bytes::new()))
            .await;
        assert!(refused.is_err());
        assert!(store.get("/a", ReadRevision::Newest).await.is_err());
        assert!(store.watch("/", 1).is_err());
        let all = GetOptions::new().with_prefix();
        let left = client.get(format!("{prefix}/"), Some(all)).await.unwrap();
        assert_eq!(left.kvs().len(), 1);
        assert_eq!(left.kvs()[0].value_str().unwrap(), value);
    }
}

#[tokio::test]
async fn what_others_write_elsewhere_moves_the_revision_and_nothing_else() {
    let store = open(settings(shared().endpoint(), &prefix())).await;
    let first = create(&*store, "/a", "1").await;
    let mut watch = store.watch("/", first).unwrap();
    let mut client = shared().client().await;
    client.put("/elsewhere", "1", None).await.unwrap();
    let page = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert!(page.revision > first);
    assert!(watch.ready().unwrap().is_empty());
    assert!(watch.progress() > first);
}

#[tokio::test]
async fn one_transaction_over_many_keys_is_one_step() {
    let prefix = prefix();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    let mut last = 0;
    for n in 0..300 {
        last = create(&*store, &format!("/a/{n}"), "1").await;
    }
    let mut watch = store.watch("/", last).unwrap();
    // An operator's hand: everything, the marker included.
    let mut client = shared().client().await;
    let all = etcd_client::DeleteOptions::new().with_prefix();
    client
        .delete(format!("{prefix}/"), Some(all))
        .await
        .unwrap();
    let events = watch.next().await.unwrap();
    assert_eq!(events.len(), 300);
    assert!(
        events
            .iter()
            .all(|event| event.revision == events[0].revision)
    );
    let past = store
        .list("/a/", None, None, ReadRevision::Exactly(last))
        .await
        .unwrap();
    assert_eq!(past.entries.len(), 300);
    // It claims the prefix again, and goes on.
    store.wait_for(events[0].revision + 1).await.unwrap();
    until_well(&*store, true).await;
    create(&*store, "/a/0", "again").await;
}

#[tokio::test]
async fn while_etcd_is_away_cached_reads_go_on_and_writes_are_told() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let first = create(&*store, "/a/x", "1").await;
    let mut watch = store.watch("/", first).unwrap();
    server.stop();
    let StoreHealth::Degraded(why) = until_well(&*store, false).await else {
        unreachable!()
    };
    assert!(why.contains("etcd"), "{why}");
    let cached = store
        .list("/a/", None, None, ReadRevision::Cached)
        .await
        .unwrap();
    assert_eq!(cached.entries.len(), 1);
    let told = store
        .write("/a/y", Precondition::Absent, Some(Bytes::new()))
        .await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
    let told = store.list("/a/", None, None, ReadRevision::Newest).await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");

    server.restart();
    until_well(&*store, true).await;
    let second = create(&*store, "/a/z", "2").await;
    // The watch went on where it was.
    let mut seen = Vec::new();
    while seen.last() != Some(&second) {
        seen.extend(
            watch
                .next()
                .await
                .unwrap()
                .iter()
                .map(|event| event.revision),
        );
    }
    assert_eq!(watch.progress(), second);
}

#[tokio::test]
async fn started_before_etcd_it_serves_once_that_is_there() {
    let mut server = EtcdServer::start();
    server.stop();
    let store = EtcdStore::start(
        &settings(server.endpoint(), "/fairgate"),
        conformance::clock(),
    )
    .unwrap();
    let told = store.get("/a", ReadRevision::Cached).await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
    assert!(matches!(
        store.watch("/", 1),
        Err(StoreError::Unavailable(_))
    ));
    server.restart();
    store.wait_for(1).await.unwrap();
    create(&store, "/a", "1").await;
}

#[tokio::test]
async fn compacted_beyond_what_it_saw_it_reads_anew_and_watches_end() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let first = create(&*store, "/a/kept", "1").await;
    let gone = create(&*store, "/a/gone", "1").await;
    let mut watch = store.watch("/", gone).unwrap();
    // The store loses etcd, which moves on without it.
    server.stop();
    until_well(&*store, false).await;
    let ports = server.ports;
    server.ports.0 = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    server.restart();
    let mut client = server.client().await;
    client.delete("/fairgate/a/gone", None).await.unwrap();
    let put = client.put("/fairgate/a/new", "1", None).await.unwrap();
    let newest = put.header().unwrap().revision();
    client.compact(newest, None).await.unwrap();
    server.stop();
    server.ports = ports;
    server.restart();

    store
        .wait_for(u64::try_from(newest).unwrap())
        .await
        .unwrap();
    let ended = watch.next().await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let keys: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["/a/kept", "/a/new"]);
    let past = store.get("/a/kept", ReadRevision::Exactly(first)).await;
    assert!(
        matches!(past, Err(StoreError::Compacted { .. })),
        "{past:?}"
    );
    until_well(&*store, true).await;
}

#[tokio::test]
async fn pages_of_before_it_started_come_from_etcd() {
    let mut server = EtcdServer::start();
    let mut client = server.client().await;
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    for n in 0..250 {
        create(&*store, &format!("/a/{n:03}"), "1").await;
    }
    let then = store.revision().await.unwrap();
    create(&*store, "/a/later", "1").await;
    // The history is dropped in memory, not in etcd.
    let clock = conformance::clock();
    clock.advance(Duration::from_secs(3600));
    store.maintain(clock.now()).await.unwrap();
    assert!(store.floor() > then);
    let at = ReadRevision::Exactly(then);
    let mut keys = Vec::new();
    for prefix in ["/a/", "/"] {
        let page = store.list(prefix, None, None, at).await.unwrap();
        assert_eq!((page.entries.len(), page.remaining), (250, 0));
        keys = page.entries.iter().map(|entry| entry.key.clone()).collect();
    }
    let limit = std::num::NonZeroUsize::new(7);
    let page = store.list("/a/", Some(&keys[99]), limit, at).await.unwrap();
    let part: Vec<_> = page.entries.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!((part, page.remaining), (keys[100..107].to_vec(), 143));
    assert!(store.get("/a/later", at).await.unwrap().is_none());

    let compact = i64::try_from(then).unwrap() + 1;
    client.compact(compact, None).await.unwrap();
    let gone = store.list("/a/", None, None, at).await;
    assert!(matches!(gone, Err(StoreError::Compacted { asked, .. }) if asked == then));
    server.stop();
}

#[tokio::test]
async fn of_many_replicas_one_compacts_in_an_interval() {
    let server = EtcdServer::start();
    let clock = conformance::clock();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let mut settings = settings(server.endpoint(), "/fairgate");
        settings.compaction = Some(Duration::from_secs(300));
        replicas.push(open(settings).await);
    }
    let client = server.client().await;
    // A watch from the beginning tells down to where there is history.
    let oldest = async || {
        let options = etcd_client::WatchOptions::new()
            .with_start_revision(1)
            .with_all_keys();
        let mut stream = client
            .watch_client()
            .watch("", Some(options))
            .await
            .unwrap();
        loop {
            let response = stream.message().await.unwrap().unwrap();
            if response.canceled() {
                return response.compact_revision();
            }
            if !response.created() {
                return 0;
            }
        }
    };
    let mut noted = Vec::new();
    for round in 0..4_usize {
        for n in 0..5 {
            create(&*replicas[0], &format!("/a/{round}-{n}"), "1").await;
        }
        let before = replicas[0].revision().await.unwrap();
        for replica in &replicas {
            replica.maintain(clock.now()).await.unwrap();
            // Before its interval is over nobody does anything.
            replica.maintain(clock.now()).await.unwrap();
        }
        let after = replicas[0].revision().await.unwrap();
        assert_eq!(after - before, 1, "one of them took the turn");
        noted.push(after);
        let oldest = u64::try_from(oldest().await).unwrap();
        let expected = round.checked_sub(1).map_or(0, |last| noted[last]);
        assert_eq!(oldest, expected, "round {round}: {noted:?}");
        clock.advance(Duration::from_secs(300));
    }
}

#[tokio::test]
async fn an_etcd_that_went_back_is_refused() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    for n in 0..5 {
        create(&*store, &format!("/a/{n}"), "1").await;
    }
    server.stop();
    fs::remove_dir_all(&server.directory).unwrap();
    server.restart();
    let told = loop {
        let written = store
            .write("/b", Precondition::Absent, Some(Bytes::new()))
            .await;
        match written {
            Err(StoreError::Unavailable(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(told, Err(StoreError::WentBack { .. })), "{told:?}");
    // What was known is not forgotten.
    let cached = store
        .list("/a/", None, None, ReadRevision::Cached)
        .await
        .unwrap();
    assert_eq!(cached.entries.len(), 5);
}

#[tokio::test]
async fn another_cluster_in_its_place_is_read_anew() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let last = create(&*store, "/a/old", "1").await;
    let mut watch = store.watch("/", last).unwrap();
    server.stop();
    until_well(&*store, false).await;
    // Not the revision tells that it is another: that has gone on.
    let ports = server.ports;
    let mut other = EtcdServer::with(Vec::new());
    let elsewhere = open(settings(other.endpoint(), "/fairgate")).await;
    for n in 0..20 {
        create(&*elsewhere, &format!("/a/new{n}"), "1").await;
    }
    let newest = elsewhere.revision().await.unwrap();
    assert!(newest > last);
    drop(elsewhere);
    other.stop();
    other.ports.0 = ports.0;
    other.restart();
    let ended = watch.next().await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    until_well(&*store, true).await;
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!(page.entries.len(), 20);
}

#[tokio::test]
async fn an_etcd_that_began_anew_is_read_anew_once_it_has_gone_past_what_was_seen() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let mut last = 0;
    for n in 0..5 {
        last = create(&*store, &format!("/a/old{n}"), "1").await;
    }
    let mut watch = store.watch("/", last).unwrap();
    server.stop();
    until_well(&*store, false).await;
    // Of the same name and the same address, it is the same cluster to whoever asks.
    fs::remove_dir_all(&server.directory).unwrap();
    server.restart();
    let other = open(settings(server.endpoint(), "/fairgate")).await;
    for n in 0..20 {
        create(&*other, &format!("/a/new{n}"), "1").await;
    }
    assert!(other.revision().await.unwrap() > last);
    let ended = watch.next().await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    until_well(&*store, true).await;
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let keys: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
    assert!(keys.iter().all(|key| key.starts_with("/a/new")), "{keys:?}");
    assert_eq!(keys.len(), 20);
}

/// Certificates in PEM, and the files that etcd reads them from.
struct Pki {
    directory: PathBuf,
    authority: Authority,
}

impl Pki {
    fn new(name: &str) -> Self {
        let authority = Authority::new("etcd");
        let name = format!("fairgate-etcd-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("ca"), authority.pem()).unwrap();
        Self {
            directory,
            authority,
        }
    }

    /// Certificate and key. etcd takes the common name for the user.
    fn issue(&self, name: &str) -> (String, String) {
        self.authority.issue_pem(&Leaf::named(name))
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.directory.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test]
async fn over_tls_each_side_proves_who_it_is() {
    let pki = Pki::new("tls");
    let (certificate, key) = pki.issue("etcd.test");
    let server = EtcdServer::with(vec![
        "--cert-file".to_owned(),
        pki.file("cert", &certificate),
        "--key-file".to_owned(),
        pki.file("key", &key),
        "--client-cert-auth".to_owned(),
        "--trusted-ca-file".to_owned(),
        pki.file("ca", &pki.authority.pem()),
    ]);
    let (certificate, key) = pki.issue("fairgate");
    let tls = EtcdTls {
        ca: pki.authority.pem().into(),
        identity: Some((certificate.into(), key.into())),
        server_name: Some("etcd.test".to_owned()),
    };
    let secure = |tls: EtcdTls| {
        let endpoint = server.endpoint().replace("http:", "https:");
        EtcdSettings {
            tls: Some(tls),
            ..settings(endpoint, "/fairgate")
        }
    };
    let store = open(secure(tls.clone())).await;
    create(&*store, "/a", "1").await;

    let stranger = Pki::new("stranger");
    for wrong in [
        EtcdTls {
            identity: None,
            ..tls.clone()
        },
        EtcdTls {
            ca: stranger.authority.pem().into(),
            ..tls.clone()
        },
        EtcdTls {
            server_name: Some("another.test".to_owned()),
            ..tls.clone()
        },
    ] {
        let refused = EtcdStore::start(&secure(wrong), conformance::clock()).unwrap();
        let connected = tokio::time::timeout(Duration::from_secs(2), refused.wait_for(1)).await;
        assert!(connected.is_err());
        assert!(matches!(refused.health(), StoreHealth::Degraded(_)));
    }
}

#[tokio::test]
async fn a_user_sees_no_more_than_the_prefix_and_a_wrong_password_is_told() {
    let server = EtcdServer::start();
    let mut client = server.client().await;
    client.user_add("root", "r", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("fairgate", "secret", None).await.unwrap();
    client.role_add("fairgate").await.unwrap();
    let below = etcd_client::Permission::read_write("/fairgate/").with_prefix();
    client
        .role_grant_permission("fairgate", below)
        .await
        .unwrap();
    client
        .user_grant_role("fairgate", "fairgate")
        .await
        .unwrap();
    client.auth_enable().await.unwrap();

    let user = |name: &str, password: &str, prefix: &str| EtcdSettings {
        user: Some((name.to_owned(), password.to_owned())),
        ..settings(server.endpoint(), prefix)
    };
    let store = open(user("fairgate", "secret", "/fairgate")).await;
    create(&*store, "/a", "1").await;
    assert_eq!(
        store
            .list("/", None, None, ReadRevision::Newest)
            .await
            .unwrap()
            .entries
            .len(),
        1
    );

    for wrong in [
        user("fairgate", "guess", "/fairgate"),
        user("fairgate", "secret", "/elsewhere"),
        settings(server.endpoint(), "/fairgate"),
    ] {
        let refused = EtcdStore::start(&wrong, conformance::clock()).unwrap();
        let told = loop {
            match refused
                .write("/b", Precondition::Absent, Some(Bytes::new()))
                .await
            {
                Err(StoreError::Unavailable(why)) if why.contains("not read yet") => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                told => break told,
            }
        };
        let told = told.unwrap_err().to_string();
        assert!(told.contains("check user, password"), "{told}");
    }
}

#[tokio::test]
async fn settings_without_sense_are_refused() {
    let start = |settings: EtcdSettings| {
        EtcdStore::start(&settings, conformance::clock())
            .err()
            .unwrap()
            .to_string()
    };
    let good = settings("http://127.0.0.1:1".to_owned(), "/fairgate");
    let mut none = good.clone();
    none.endpoints.clear();
    assert!(start(none).contains("name one"));
    let mut secure = good.clone();
    secure.endpoints = vec!["https://127.0.0.1:1".to_owned()];
    assert!(start(secure).contains("http://"));
    let mut root = good.clone();
    root.prefix = "/".to_owned();
    assert!(start(root).contains("not a valid key or prefix"));
}
