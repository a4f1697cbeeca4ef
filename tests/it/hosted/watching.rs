//! Watches under load: each sees every change once, in order, wherever it begins and however often
//! it begins again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    Home, LEVELS, SCHEMAS, Server, V1,
    api::{Api, JSON},
    level, ms, name, schema, until, version,
};
use crate::random::{self, Below as _, Random};

/// The objects of a kind, by name.
type State = BTreeMap<String, Value>;

/// An event: its revision, its type, and its object.
type Event = (u64, String, Value);

const WRITERS: usize = 6;
const WRITES: usize = 60;
const NAMES: u32 = 12;

/// The state that a list shows, and its revision.
fn state_of(list: &Value) -> (State, u64) {
    let items = list["items"].as_array().unwrap();
    let state = items
        .iter()
        .map(|item| (name(item).to_owned(), item.clone()));
    (state.collect(), version(list))
}

/// Makes random writes.
async fn write(api: Api, mut random: Random) {
    for _ in 0..WRITES {
        let of_schemas = random.below(2) == 0;
        let path = if of_schemas { SCHEMAS } else { LEVELS };
        let name = format!("w-{}", random.below(NAMES));
        let target = format!("{path}/{name}");
        // Not 1, which only `exempt` may have.
        let number = 2 + random.below(1000);
        let mut object = if of_schemas {
            schema(&name, "catch-all", number, "nobody")
        } else {
            level(&name, number)
        };
        object["metadata"]["labels"] = json!({"team": *random.pick(&["red", "blue"])});
        let (response, allowed) = match random.below(6) {
            0 | 1 => (api.post(path, &object).await, [201, 409]),
            2 | 3 => (api.put(&target, &object).await, [200, 404]),
            4 => {
                let patch =
                    json!({"metadata": {"labels": {"team": *random.pick(&["red", "blue"])}}});
                (api.merge(&target, &patch).await, [200, 404])
            }
            _ => (api.delete(&target).await, [200, 404]),
        };
        assert!(allowed.contains(&response.status.as_u16()), "{response:?}");
    }
}

/// Which objects a watch is about.
#[derive(Clone, Copy, Debug)]
enum Selects {
    All,
    Team(&'static str),
    Name(&'static str),
}

impl Selects {
    fn query(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Team(team) => format!("&labelSelector=team%3D{team}"),
            Self::Name(name) => format!("&fieldSelector=metadata.name%3D{name}"),
        }
    }

    fn picks(self, object: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Team(team) => object["metadata"]["labels"]["team"] == team,
            Self::Name(wanted) => name(object) == wanted,
        }
    }

    /// The events of a watch after `start`, given all changes since `before`.
    fn expected(self, before: &State, all: &[Event], start: u64) -> Vec<Event> {
        let mut state = before.clone();
        let mut expected = Vec::new();
        for (revision, ty, object) in all {
            let old = state.remove(name(object));
            let new = (ty != "DELETED").then(|| object.clone());
            let picks = |object: &Option<Value>| object.as_ref().is_some_and(|o| self.picks(o));
            let response = match (picks(&old), picks(&new)) {
                (false, true) => Some(("ADDED", new.clone())),
                (true, true) => Some(("MODIFIED", new.clone())),
                (true, false) => Some(("DELETED", old)),
                (false, false) => None,
            };
            if let Some((ty, Some(mut object))) = response
                && *revision > start
            {
                object["metadata"]["resourceVersion"] = json!(revision.to_string());
                expected.push((*revision, ty.to_owned(), object));
            }
            if let Some(new) = new {
                state.insert(name(object).to_owned(), new);
            }
        }
        expected
    }
}

/// A watch and what it saw.
struct Watcher {
    path: &'static str,
    selects: Selects,
    /// The state at `start`.
    initial: State,
    start: u64,
    seen: Arc<Mutex<Vec<Event>>>,
}

impl Watcher {
    /// Lists, at `exactly` this revision if one is given, and watches from there on; if `restless`, ends the
    /// watch after a few events and opens another one, again and again.
    async fn start(
        tasks: &mut JoinSet<()>,
        api: Api,
        path: &'static str,
        selects: Selects,
        exactly: Option<u64>,
        restless: Option<Random>,
    ) -> Self {
        let at = exactly.map(|at| format!("&resourceVersion={at}&resourceVersionMatch=Exact"));
        let target = format!("{path}?{}{}", selects.query(), at.unwrap_or_default());
        let (initial, start) = state_of(&api.get(&target).await.object());
        let seen = Arc::<Mutex<Vec<Event>>>::default();
        tasks.spawn(watch(api, path, selects, start, restless, seen.clone()));
        Self {
            path,
            selects,
            initial,
            start,
            seen,
        }
    }

    /// What it saw up to a revision.
    fn seen_until(&self, end: u64) -> Vec<Event> {
        let seen = self.seen.lock().unwrap();
        let until_end = seen.iter().take_while(|(revision, ..)| *revision <= end);
        until_end.cloned().collect()
    }

    /// The state after the events that it saw up to a revision.
    fn outcome(&self, end: u64) -> State {
        let mut state = self.initial.clone();
        for (_, ty, mut object) in self.seen_until(end) {
            for key in ["apiVersion", "kind"] {
                object.as_object_mut().unwrap().remove(key);
            }
            match ty.as_str() {
                "DELETED" => assert!(state.remove(name(&object)).is_some()),
                _ => drop(state.insert(name(&object).to_owned(), object)),
            }
        }
        state
    }
}

async fn watch(
    api: Api,
    path: &'static str,
    selects: Selects,
    mut last: u64,
    mut restless: Option<Random>,
    seen: Arc<Mutex<Vec<Event>>>,
) {
    loop {
        let query = selects.query();
        let target = format!("{path}?watch=true&resourceVersion={last}{query}");
        let mut watch = api.watch(&target).await;
        let count = restless.as_mut().map(|random| 1 + random.below(9));
        for _ in 0..count.unwrap_or(u32::MAX) {
            // No event may come for long: the watch ends with the test.
            let Some((ty, object)) = watch.next_ever().await else {
                break;
            };
            assert_ne!(ty, "ERROR", "{object}");
            last = version(&object);
            seen.lock().unwrap().push((last, ty, object));
        }
    }
}

/// Starts watches of all sorts.
async fn watchers(
    server: &Server,
    random: &mut Random,
    tasks: &mut JoinSet<()>,
    start: u64,
) -> Vec<Watcher> {
    let mut watchers = Vec::new();
    let selections = [
        Selects::All,
        Selects::Team("red"),
        Selects::Team("blue"),
        Selects::Name("w-3"),
    ];
    for number in 0..32 {
        let path = [SCHEMAS, LEVELS][number % 2];
        let selects = selections[number / 2 % 4];
        let exactly = (random.below(2) == 0).then_some(start);
        let restless = (number >= 16).then(|| Random::seeded(random.number()));
        let api = server.root().await;
        let watcher = Watcher::start(tasks, api, path, selects, exactly, restless).await;
        watchers.push(watcher);
        tokio::time::sleep(ms(u64::from(random.below(10)))).await;
    }
    watchers
}

#[tokio::test]
async fn every_watch_sees_every_change_once_and_in_order() {
    let home = Home::new();
    all_watches_see_all_changes(&home.start().await).await;
}

/// Runs writers and watchers of all sorts, and compares the events with the changes.
pub(super) async fn all_watches_see_all_changes(server: &Server) {
    let mut random = random::seeded();
    let api = server.root().await;
    let mut tasks = JoinSet::new();
    let mut reference = Vec::new();
    let start = version(&api.get(LEVELS).await.object());
    for path in [SCHEMAS, LEVELS] {
        let api = server.root().await;
        let all = Selects::All;
        reference.push(Watcher::start(&mut tasks, api, path, all, Some(start), None).await);
    }
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write(server.root().await, Random::seeded(random.number())));
    }
    let watchers = watchers(server, &mut random, &mut tasks, start).await;
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }

    // The gateway may still write into the status, at any time. So all watches are compared up to one revision. The
    // reference watches have seen every revision up to it, each once.
    let end = version(&api.get(LEVELS).await.object());
    let revisions = || {
        let seen = reference.iter().flat_map(|watcher| watcher.seen_until(end));
        let mut all: Vec<u64> = seen.map(|(revision, ..)| revision).collect();
        all.sort_unstable();
        all
    };
    until(async || revisions().len() as u64 >= end - start).await;
    assert_eq!(revisions(), (start + 1..=end).collect::<Vec<_>>());

    for watcher in reference.iter().chain(&watchers) {
        let of_kind = reference.iter().find(|other| other.path == watcher.path);
        let of_kind = of_kind.unwrap();
        let all = of_kind.seen_until(end);
        let expected = watcher
            .selects
            .expected(&of_kind.initial, &all, watcher.start);
        until(async || watcher.seen_until(end).len() >= expected.len()).await;
        let seen = watcher.seen_until(end);
        assert_eq!(
            seen, expected,
            "{:?} from {}",
            watcher.selects, watcher.start
        );
        assert!(seen.is_sorted_by_key(|(revision, ..)| *revision));

        let target = format!(
            "{}?resourceVersion={end}&resourceVersionMatch=Exact{}",
            watcher.path,
            watcher.selects.query()
        );
        let (state, _) = state_of(&api.get(&target).await.object());
        assert_eq!(watcher.outcome(end), state, "{:?}", watcher.selects);
    }
}

#[tokio::test]
async fn a_watch_begins_at_the_requested_revision() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let count = api.get(LEVELS).await.object()["items"]
        .as_array()
        .unwrap()
        .len();
    let first = api.post(LEVELS, &level("a-first", 1)).await.object();
    let second = api.post(LEVELS, &level("a-second", 1)).await.object();

    // From a revision: the events after it.
    let from = format!("{LEVELS}?watch=1&resourceVersion={}", version(&first));
    let (ty, object) = api.watch(&from).await.event().await;
    assert_eq!((ty.as_str(), &object), ("ADDED", &second));

    // Without a revision: all objects, in the order of names.
    for from in ["", "&resourceVersion=0"] {
        let mut watch = api.watch(&format!("{LEVELS}?watch=true{from}")).await;
        let mut names = Vec::new();
        for _ in 0..count + 2 {
            let (ty, object) = watch.event().await;
            assert_eq!(ty, "ADDED");
            names.push(name(&object).to_owned());
        }
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(names[..2], ["a-first", "a-second"]);
    }

    // By the old path, for one object.
    let old = format!("{V1}/watch/prioritylevelconfigurations/a-first?resourceVersion=1");
    let (_, object) = api.watch(&old).await.event().await;
    assert_eq!(object, first);

    // From an invalid revision.
    let response = api
        .get(&format!("{LEVELS}?watch=true&resourceVersion=abc"))
        .await;
    let message = response.refused(500, "");
    assert!(
        message.contains("parsing \"abc\": invalid syntax"),
        "{message}"
    );
}

#[tokio::test]
async fn the_initial_events_end_with_a_bookmark() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let list = api.get(SCHEMAS).await.object();
    let count = list["items"].as_array().unwrap().len();
    let query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
        &resourceVersionMatch=NotOlderThan";
    for from in [
        "",
        "&resourceVersion=0",
        &format!("&resourceVersion={}", version(&list)),
    ] {
        let mut watch = api.watch(&format!("{SCHEMAS}?{query}{from}")).await;
        for _ in 0..count {
            assert_eq!(watch.event().await.0, "ADDED");
        }
        let (ty, object) = watch.event().await;
        assert_eq!(ty, "BOOKMARK");
        assert_eq!(object["kind"], "FlowSchema");
        assert_eq!(object["apiVersion"], "flowcontrol.apiserver.k8s.io/v1");
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["k8s.io/initial-events-end"], "true");
        assert!(version(&object) >= version(&list));
        // Then the watch continues.
        let created = api
            .post(SCHEMAS, &schema("next", "exempt", 5, "x"))
            .await
            .object();
        assert_eq!(watch.event().await, ("ADDED".to_owned(), created));
        api.delete(&format!("{SCHEMAS}/next")).await.object();
    }
    // The bookmark is sent only to clients that allow bookmarks.
    let query = query.replace("allowWatchBookmarks=true", "allowWatchBookmarks=false");
    let mut watch = api.watch(&format!("{SCHEMAS}?{query}")).await;
    for _ in 0..count {
        assert_eq!(watch.event().await.0, "ADDED");
    }
    api.post(SCHEMAS, &schema("next", "exempt", 5, "x"))
        .await
        .object();
    assert_eq!(watch.event().await.0, "ADDED");

    // `sendInitialEvents` is forbidden for lists.
    let target = format!("{SCHEMAS}?sendInitialEvents=true");
    let message = api.get(&target).await.refused(422, "Invalid");
    assert!(
        message.contains("sendInitialEvents is forbidden for list"),
        "{message}"
    );
}

#[tokio::test]
async fn a_watch_from_a_future_revision_gets_an_error_event() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let target = format!("{LEVELS}?{query}&resourceVersion=1000000");
    let mut watch = api.watch(&target).await;
    let (ty, status) = watch.event().await;
    assert_eq!(ty, "ERROR");
    assert_eq!(status["code"], 504);
    assert_eq!(status["reason"], "Timeout");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("Too large resource version: 1000000"),
        "{message}"
    );
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watch_ends_cleanly_at_its_timeout_after_a_last_bookmark() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let list = api.get(LEVELS).await.object();
    let target = format!(
        "{LEVELS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={}",
        version(&list)
    );
    let mut watch = api.watch(&target).await;
    let (ty, object) = watch.event().await;
    assert_eq!(ty, "BOOKMARK");
    assert!(version(&object) >= version(&list));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watch_sends_tables_and_metadata() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let from = version(&api.get(LEVELS).await.object());
    let target = format!("{LEVELS}?watch=true&resourceVersion={from}");
    let as_kind = |kind: &str| format!("{JSON};as={kind};g=meta.k8s.io;v=v1");
    let mut tables = api.watch_as(&target, &as_kind("Table")).await;
    let mut partial = api
        .watch_as(&target, &as_kind("PartialObjectMetadata"))
        .await;
    let created = api.post(LEVELS, &level("seen", 3)).await.object();
    let target = format!("{LEVELS}/seen");
    let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": 4}}});
    let patched = api.merge(&target, &patch).await.object();
    api.delete(&target).await.object();

    for (number, (wanted, object)) in [("ADDED", &created), ("MODIFIED", &patched)]
        .into_iter()
        .enumerate()
    {
        let (ty, table) = tables.event().await;
        assert_eq!(ty, wanted);
        assert_eq!(table["kind"], "Table");
        assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(version(&table), version(object));
        let columns = table["columnDefinitions"].as_array();
        let columns = columns.map_or(0, Vec::len);
        assert_eq!(columns, if number == 0 { 7 } else { 0 }, "{table}");
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["cells"][0], "seen");
        assert_eq!(rows[0]["cells"][2], 3 + number);
        assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");

        let (ty, object_seen) = partial.event().await;
        assert_eq!(ty, wanted);
        assert_eq!(object_seen["kind"], "PartialObjectMetadata");
        assert_eq!(object_seen["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(object_seen["metadata"], object["metadata"]);
        assert!(object_seen["spec"].is_null());
    }
    assert_eq!(tables.event().await.0, "DELETED");
    let (ty, gone) = partial.event().await;
    assert_eq!(ty, "DELETED");
    assert!(version(&gone) > version(&patched));
}

#[tokio::test]
async fn a_watch_may_be_requested_by_any_value_but_false() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for word in ["watch", "watch=", "watch=1", "watch=yes"] {
        let target = format!("{LEVELS}?{word}");
        assert_eq!(api.watch(&target).await.event().await.0, "ADDED", "{word}");
    }
    for word in ["watch=0", "watch=false", "watch=FALSE"] {
        let list = api.get(&format!("{LEVELS}?{word}")).await.object();
        assert_eq!(list["kind"], "PriorityLevelConfigurationList", "{word}");
    }
    let old = format!("{V1}/watch/prioritylevelconfigurations");
    let response = api.call(Method::POST, &old, JSON, "{}").await;
    response.refused(405, "MethodNotAllowed");
}
