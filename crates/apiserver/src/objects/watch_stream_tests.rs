//! What watches of large objects take: of memory, and of the time of the thread that sends them.

use allocation_counter::{AllocationInfo, measure};
use fairgate_apihttp::request::{ApiRequest, Caller};
use fairgate_call::ResponseMemory;
use fairgate_core::digest::{RequestDigest, RequestInfo, User};
use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
use fairgate_store::{Precondition, ReadRevision, Store};
use fairgate_testkit::store::TestStore;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::*;
use crate::{HostedBody, hosted::Hosted, test_api};

const BUDGETS: &str = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";

/// A hosted API with budgets in namespace `a`, and the thread that sends its watches.
struct Watched {
    store: Arc<TestStore>,
    hosted: Arc<Hosted>,
    responses: Arc<ResponseMemory>,
    clock: Clock,
    core: Runtime,
}

impl Watched {
    fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    fn with_clock(clock: Clock) -> Self {
        let store = test_api::store(&clock);
        let responses = ResponseMemory::new(64 << 20);
        let kinds = vec![&POD_DISRUPTION_BUDGET];
        let hosted = test_api::hosted(&store, kinds, clock.clone(), Arc::clone(&responses));
        let mut core = tokio::runtime::Builder::new_current_thread();
        Self {
            store,
            hosted,
            responses,
            clock,
            core: core.enable_all().build().unwrap(),
        }
    }

    /// Stores a budget of so many terms, with a label that says which write it is. Returns its revision, and how long it is.
    fn write(&self, name: &str, terms: usize, before: Option<u64>, label: &str) -> (u64, usize) {
        let terms =
            (0..terms).map(|at| json!({"key": format!("k{at}"), "operator": "DoesNotExist"}));
        let terms: Vec<_> = terms.collect();
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "a", "labels": {"write": label}},
            "spec": {"minAvailable": 1, "selector": {"matchExpressions": terms}},
        });
        let text = object.to_string();
        let length = text.len();
        let key = format!("{}a/{name}", POD_DISRUPTION_BUDGET.key_prefix());
        let expected = before.map_or(Precondition::Absent, Precondition::At);
        self.core.block_on(async {
            let written = self.store.write(&key, expected, Some(text.into())).await;
            written.unwrap();
            let revision = self.store.revision().await.unwrap();
            self.store.wait_for(revision).await.unwrap();
            (revision, length)
        })
    }

    /// What `GET` of the budgets with this query is answered.
    fn answer(&self, query: &str) -> HostedBody {
        let info = RequestInfo::parse("GET", BUDGETS, Some(query)).unwrap();
        let request = ApiRequest {
            method: Method::GET,
            path: BUDGETS.to_owned(),
            query: query.to_owned(),
            headers: HeaderMap::new(),
            body: None,
            caller: Caller::Client { impersonator: None },
            audit_id: None,
            digest: Arc::new(RequestDigest {
                info,
                user: Arc::new(User::new("alice", [User::AUTHENTICATED])),
            }),
        };
        let response = self.core.block_on(self.hosted.serve(&request));
        assert_eq!(response.status, http::StatusCode::OK);
        response.body
    }

    /// A watch of the budgets.
    fn watch(&self, query: &str) -> WatchStream {
        match self.answer(query) {
            HostedBody::Stream(stream) => *stream,
            HostedBody::Full(body) => panic!("no watch: {body:?}"),
        }
    }

    /// The next bytes of a watch, and what this thread allocated for them.
    fn next(&self, watch: &mut WatchStream) -> (Bytes, AllocationInfo) {
        let mut bytes = None;
        let used = measure(|| bytes = self.core.block_on(watch.next(&self.clock)));
        (bytes.expect("the watch goes on"), used)
    }
}

/// The types and names of these events, in order.
fn events(bytes: &[u8]) -> Vec<(String, String)> {
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let read = lines.map(|line| {
        let event: Value = serde_json::from_slice(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    });
    read.collect()
}

#[test]
fn a_watch_has_one_of_the_present_objects_decoded_while_that_is_sent_and_none_before() {
    const OBJECTS: usize = 40;
    const MARKED: &str = "watch=1&allowWatchBookmarks=true";
    let watched = Watched::new();
    let name = |at: usize| format!("budget-{at:02}");
    let lengths = (0..OBJECTS).map(|at| watched.write(&name(at), 2000, None, "first").1);
    let length = lengths.max().unwrap();
    for query in [
        MARKED,
        "watch=1&resourceVersion=0",
        "watch=1&timeoutSeconds=-1",
    ] {
        let mut body = None;
        let used = measure(|| body = Some(watched.answer(query)));
        assert!(used.bytes_max < length as u64, "{query}: {used:?}");
        let ends = matches!(body, Some(HostedBody::Full(empty)) if empty.is_empty());
        assert_eq!(ends, query.ends_with("-1"), "{query}");
    }
    let mut watch = watched.watch(MARKED);
    let mut sent = Vec::new();
    while sent.len() <= OBJECTS {
        let (bytes, used) = watched.next(&mut watch);
        sent.extend(events(&bytes));
        let all = OBJECTS * length;
        assert!(used.bytes_max < all as u64, "{used:?} of {all}");
        assert!(bytes.len() < 2 * length, "{}", bytes.len());
    }
    let added = (0..OBJECTS).map(|at| ("ADDED".to_owned(), name(at)));
    let mark = ("BOOKMARK".to_owned(), String::new());
    assert_eq!(sent, added.chain([mark]).collect::<Vec<_>>());
    assert_eq!(
        watched.hosted.initial_events(&POD_DISRUPTION_BUDGET),
        OBJECTS as u64
    );
}

#[test]
fn a_watch_ends_in_time_and_gives_up_its_objects_also_while_they_are_sent() {
    let watched = Watched::with_clock(Clock::manual(fairgate_core::time::Time::ZERO));
    for number in 0..3 {
        watched.write(&format!("large-{number}"), 2000, None, "first");
    }
    let mut watch = watched.watch("watch=1&timeoutSeconds=600");
    assert_eq!(events(&watched.next(&mut watch).0).len(), 1);
    watched.clock.advance(Duration::from_secs(599));
    assert_eq!(events(&watched.next(&mut watch).0).len(), 1);
    assert!(watch.initial.is_some());
    watched.clock.advance(Duration::from_secs(1));
    let ended = watched.core.block_on(watch.next(&watched.clock));
    assert!(ended.is_none());
    assert!(watch.initial.is_none() && watch.changes.is_none());
}

#[test]
fn a_watch_that_the_history_has_overtaken_gives_up_its_objects_when_another_begins() {
    let watched = Watched::new();
    let (first, _) = watched.write("large-0", 2000, None, "first");
    watched.write("large-1", 2000, None, "first");
    let mut slow = watched.watch("watch=1");
    assert_eq!(events(&watched.next(&mut slow).0)[0].0, "ADDED");
    let key = format!("{}a/large-1", POD_DISRUPTION_BUDGET.key_prefix());
    let read = watched.store.get(&key, ReadRevision::Cached);
    let held = watched.core.block_on(read).unwrap().unwrap();
    watched.write("large-0", 2000, Some(first), "second");
    watched.write("large-1", 2000, Some(held.revision), "second");
    // After the age of the history, nothing of it is left.
    let later = watched.clock.now().plus(Duration::from_secs(3600));
    watched
        .core
        .block_on(watched.store.maintain(later))
        .unwrap();
    assert!(watched.store.floor() > held.revision);
    assert_eq!(Arc::strong_count(&held), 2, "the slow watch has it");
    let mut other = watched.watch("watch=1");
    assert_eq!(Arc::strong_count(&held), 1);
    let sent: Value = serde_json::from_slice(&watched.next(&mut slow).0).unwrap();
    assert_eq!(
        (&sent["type"], &sent["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(watched.core.block_on(slow.next(&watched.clock)), None);
    assert_eq!(events(&watched.next(&mut other).0)[0].0, "ADDED");
}

#[test]
fn selectors_are_applied_to_large_and_small_objects_when_their_turn_comes() {
    let watched = Watched::new();
    for (at, terms) in [1, 2000, 1, 2000, 1].into_iter().enumerate() {
        let label = if at < 3 { "no" } else { "yes" };
        watched.write(&format!("budget-{at}"), terms, None, label);
    }
    let mut watch = watched.watch("watch=1&labelSelector=write%3Dyes&allowWatchBookmarks=true");
    let mut sent = Vec::new();
    while sent.len() < 3 {
        sent.extend(events(&watched.next(&mut watch).0));
    }
    let names: Vec<_> = sent.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["budget-3", "budget-4", ""]);
    assert_eq!(watched.hosted.initial_events(&POD_DISRUPTION_BUDGET), 2);
}

#[test]
fn large_objects_are_decoded_on_another_thread_and_charged_to_the_user_until_they_are_sent() {
    let watched = Watched::new();
    let (_, length) = watched.write("large-0", 2000, None, "first");
    watched.write("large-1", 2000, None, "first");
    watched.write("small", 1, None, "first");
    let control = Runtime::new().unwrap();
    let user = Arc::new(User::new("alice", [User::AUTHENTICATED]));
    let mut watch = watched.watch("watch=1");
    watch.do_heavy_work_by(watched.hosted.heavy_work(user, control.handle().clone()));
    for number in 0..2 {
        let (bytes, used) = watched.next(&mut watch);
        assert_eq!(events(&bytes)[0].1, format!("large-{number}"));
        assert!(used.bytes_total < length as u64, "{used:?}");
        assert_eq!(watched.responses.held().now, length);
    }
    assert_eq!(events(&watched.next(&mut watch).0)[0].1, "small");
    assert_eq!(watched.responses.held().now, 0);
    assert_eq!(watched.responses.held().most, length);
}

#[test]
fn a_watch_sends_one_large_change_at_a_time_however_many_there_are() {
    const CHANGES: usize = 30;
    let watched = Watched::new();
    let (first, length) = watched.write("large", 2000, None, "first");
    let mut last = first;
    for number in 0..CHANGES {
        last = watched
            .write("large", 2000, Some(last), &number.to_string())
            .0;
    }
    let mut watch = watched.watch(&format!("watch=1&resourceVersion={first}"));
    for _ in 0..CHANGES {
        let (bytes, used) = watched.next(&mut watch);
        let sent = events(&bytes);
        assert_eq!(sent, [("MODIFIED".to_owned(), "large".to_owned())]);
        assert!(used.bytes_max < (CHANGES * length) as u64, "{used:?}");
    }
}

/// Has many watches send one change of a large object, and compares what each but the first has allocated, and what stays.
fn sent_by_many(name: &str, change: impl Fn(&Watched, u64) -> usize, ty: &str) {
    for query in ["", "&labelSelector=write"] {
        let watched = Watched::new();
        let (first, _) = watched.write(name, 2000, None, "first");
        let query = format!("watch=1&resourceVersion={first}{query}");
        let mut watches: Vec<_> = (0..10).map(|_| watched.watch(&query)).collect();
        let length = i64::try_from(change(&watched, first)).unwrap();
        for (number, watch) in watches.iter_mut().enumerate() {
            let (bytes, used) = watched.next(watch);
            assert_eq!(events(&bytes), [(ty.to_owned(), name.to_owned())]);
            // The event, and if it is the first, what is kept of it.
            assert!(
                used.bytes_current < 3 * length,
                "{query} {number}: {used:?}"
            );
            let copied = i64::try_from(used.bytes_total).unwrap() < 3 * length;
            assert!(copied || number == 0, "{query} {number}: {used:?}");
        }
    }
}

#[test]
fn a_change_of_a_large_object_is_encoded_once_for_all_watches() {
    let write = |watched: &Watched, first| watched.write("large", 2000, Some(first), "second").1;
    sent_by_many("large", write, "MODIFIED");
}

#[test]
fn of_a_deleted_large_object_only_the_text_is_kept() {
    let delete = |watched: &Watched, first| {
        let key = format!("{}a/large", POD_DISRUPTION_BUDGET.key_prefix());
        watched.core.block_on(async {
            let before = watched.store.get(&key, ReadRevision::Cached).await.unwrap();
            let deleted = watched
                .store
                .write(&key, Precondition::At(first), None)
                .await;
            deleted.unwrap();
            let revision = watched.store.revision().await.unwrap();
            watched.store.wait_for(revision).await.unwrap();
            before.unwrap().length()
        })
    };
    sent_by_many("large", delete, "DELETED");
}

#[test]
fn a_large_object_that_selectors_no_longer_match_is_sent_as_it_was_before() {
    let watched = Watched::new();
    let (first, _) = watched.write("large", 2000, None, "first");
    let query = format!("watch=1&resourceVersion={first}&labelSelector=write%3D");
    let [mut leaves, mut enters, mut other] =
        ["first", "second", "third"].map(|label| watched.watch(&format!("{query}{label}")));
    let (second, _) = watched.write("large", 2000, Some(first), "second");
    let change = |watch: &mut WatchStream| -> Value {
        serde_json::from_slice(&watched.next(watch).0).unwrap()
    };
    for (watch, ty, label) in [
        (&mut leaves, "DELETED", "first"),
        (&mut enters, "ADDED", "second"),
    ] {
        let event = change(watch);
        let metadata = &event["object"]["metadata"];
        assert_eq!(
            (&event["type"], &metadata["labels"]["write"]),
            (&json!(ty), &json!(label))
        );
        assert_eq!(metadata["resourceVersion"], second.to_string());
    }
    watched.write("large", 2000, Some(second), "third");
    assert_eq!(change(&mut other)["type"], "ADDED");
}
