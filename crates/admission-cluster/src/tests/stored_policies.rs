//! Whatever the store does, it shows for how long the policies may not be those that it has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::Fidelity;
use fairgate_admission::kinds::VALIDATING_ADMISSION_POLICY;
use fairgate_admission_layer::{PublishedPolicies, WorkerPool};
use fairgate_policy_sources::{AdmissionStore, PolicySource as _};
use fairgate_store::{
    Precondition, ReadRevision, Store, WriteOutcome,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;
use fairgate_upstream::{
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
};
use serde_json::json;
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{ClusterSettings, FollowedCluster, PolicyPublisher, PublishingStatus};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

const MAX: Duration = Duration::from_secs(10);
/// More than that.
const LONG: Duration = Duration::from_secs(11);

/// A store that can stop to be readable although it says that it is well.
struct UnreadableStore(Arc<TestStore>);

impl UnreadableStore {
    fn open(clock: &Clock) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-admission-store-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let settings = LocalSettings {
            path: directory.join("store.redb"),
            limits: fairgate_store::HistoryLimits::default(),
        };
        let store = LocalStore::open(settings, clock.clone()).unwrap();
        Self(Arc::new(TestStore::in_directory(store, directory)))
    }

    /// Writes a policy, or deletes it.
    async fn put(&self, text: Option<&str>) {
        let key = format!("{}p", VALIDATING_ADMISSION_POLICY.key_prefix());
        let value = text.map(|text| Bytes::from(text.to_owned()));
        let before = self.0.get(&key, ReadRevision::Cached).await.unwrap();
        let expected = before.map_or(Precondition::Absent, |entry| {
            Precondition::At(entry.revision)
        });
        let written = self.0.write(&key, expected, value).await;
        assert!(matches!(written, Ok(WriteOutcome::Done { .. })));
    }

    fn refuse(&self, is_unreadable: bool) {
        self.0.refuse_lists(is_unreadable.then_some(""));
    }

    /// Waits until it has been asked again so often.
    async fn until_asked(&self, times: usize) {
        let before = self.0.lists();
        until("the store is asked again", || {
            self.0.lists() >= before + times
        })
        .await;
    }
}

/// Policies of a store, published with the limit.
struct Published {
    clock: Clock,
    store: UnreadableStore,
    in_force: Arc<PublishedPolicies>,
    task: JoinHandle<()>,
}

impl Drop for Published {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Published {
    fn start(clock: Clock, store: UnreadableStore) -> Self {
        let endpoint = Endpoint::new("127.0.0.1:9".parse().unwrap(), None);
        let headers = Arc::new(http::HeaderMap::new);
        let client = ApiClient::new(endpoint, headers, ConnectionReuse::Pooled);
        let state = FollowedCluster::start(ClusterSettings {
            client: client.clone(),
            streams: client,
            control: Handle::current(),
            clock: clock.clone(),
            workers: Arc::new(WorkerPool::new(1)),
            reads_now: false,
        });
        let feed = AdmissionStore::new(Arc::clone(&store.0) as Arc<dyn Store>, clock.clone());
        let silence = feed.silence();
        let status = PublishingStatus::with_silence(clock.clone(), || Duration::ZERO, silence);
        let in_force = Arc::<PublishedPolicies>::default();
        let publisher = PolicyPublisher {
            published: Arc::clone(&in_force),
            state,
            fidelity: Fidelity::Completed,
            status,
            max_staleness: Some(MAX),
            keep: None,
        };
        Self {
            clock,
            store,
            in_force,
            task: tokio::spawn(publisher.run(feed)),
        }
    }

    /// Whether requests are evaluated by policies.
    fn are_usable(&self) -> bool {
        self.in_force.current().is_some() && !self.in_force.are_stale(&self.clock)
    }

    async fn until_usable(&self) {
        until("the policies are in force, and confirmed", || {
            self.are_usable()
        })
        .await;
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_cannot_be_read_at_the_start_are_never_passed_by() {
    let clock = Clock::manual(Time::ZERO);
    let store = UnreadableStore::open(&clock);
    store.refuse(true);
    let policies = Published::start(clock, store);
    policies.store.until_asked(2).await;
    policies.clock.advance(LONG);
    assert!(policies.in_force.current().is_none());
    policies.store.refuse(false);
    policies.until_usable().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_cannot_be_read_is_passed_by_for_a_limited_time_however_well_the_store_says_it_is()
 {
    let clock = Clock::manual(Time::ZERO);
    let policies = Published::start(clock.clone(), UnreadableStore::open(&clock));
    policies.until_usable().await;
    // Without a change the store is what counts.
    policies.clock.advance(10 * LONG);
    policies.until_usable().await;
    policies.store.refuse(true);
    policies.store.put(Some("{}")).await;
    policies.store.until_asked(1).await;
    assert!(policies.are_usable());
    policies.clock.advance(LONG);
    assert!(!policies.are_usable(), "from this moment on");
    // However often it is asked meanwhile, and says that it is ready.
    policies.store.until_asked(2).await;
    assert!(!policies.are_usable());
    policies.store.put(None).await;
    policies.store.refuse(false);
    policies.until_usable().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_set_is_replaced_the_time_since_the_change_counts_until_the_next_one_is_asked_for()
{
    let clock = Clock::manual(Time::ZERO);
    let store = UnreadableStore::open(&clock);
    let mut feed = AdmissionStore::new(Arc::clone(&store.0) as Arc<dyn Store>, clock.clone());
    let silence = feed.silence();
    assert!(feed.next().await.documents.is_empty());
    clock.advance(LONG);
    // It is compiled, and put into force.
    assert_eq!(silence(), LONG);
    let policy = json!({"metadata": {"name": "p"}, "spec": {}});
    store.put(Some(&policy.to_string())).await;
    let set = feed.next().await;
    assert_eq!(set.documents.len() + set.findings.len(), 1);
    clock.advance(MAX);
    assert_eq!(silence(), MAX);
    let waiting = tokio::time::timeout(Duration::from_millis(1), feed.next());
    assert!(waiting.await.is_err());
    assert_eq!(silence(), Duration::ZERO);
}
