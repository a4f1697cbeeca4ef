//! Policy objects of an upstream's API, followed by list and watch.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fairgate::source::{DocumentSet, PolicySource as _, kube::KubeSource};
use fairgate_base::clock::Clock;
use fairgate_upstream::{
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{sync::mpsc::UnboundedSender, time::timeout};

use crate::upstream::{self, Speaks, TestReply, TestUpstream};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const LEVELS: &str = "prioritylevelconfigurations";

type Sender = UnboundedSender<std::io::Result<Bytes>>;

/// An API of policy objects as a kube-apiserver has it, which does as the test says.
#[derive(Clone)]
struct Api(Arc<Mutex<State>>);

struct State {
    versions: Vec<&'static str>,
    revision: u64,
    /// By resource and name.
    objects: BTreeMap<(String, String), Value>,
    /// What happened, by its revision and resource.
    history: Vec<(u64, String, Value)>,
    /// Watches from before this are too old.
    oldest: u64,
    watches: Vec<(String, Sender)>,
    down: bool,
    /// Ends every watch as soon as it is open.
    curt: bool,
}

impl Api {
    fn start() -> (Self, TestUpstream) {
        let api = Self(Arc::new(Mutex::new(State {
            versions: vec!["v1", "v1beta3"],
            revision: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            oldest: 0,
            watches: Vec::new(),
            down: false,
            curt: false,
        })));
        let answering = api.clone();
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            let answer = answering.answer(&request);
            async move { answer }
        });
        (api, upstream)
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn answer(&self, request: &Request<Incoming>) -> TestReply {
        let query = request.uri().query().unwrap_or_default();
        let group = format!("/apis/{GROUP}");
        let rest = request.uri().path().strip_prefix(&group);
        self.with(|state| {
            if state.down {
                return status(503, "down");
            }
            match rest.map(|rest| rest.split('/').skip(1).collect::<Vec<_>>()) {
                Some(path) if path.is_empty() => state.versions(),
                Some(path) if path.len() == 2 && state.versions.contains(&path[0]) => {
                    if query.contains("watch=true") {
                        state.watch(path[1], query)
                    } else {
                        state.list(path[0], path[1])
                    }
                }
                _ => status(404, "not found"),
            }
        })
    }

    fn put_level(&self, name: &str, shares: u32) {
        self.put(level(name, shares));
    }

    fn put(&self, mut object: Value) {
        self.with(|state| {
            state.revision += 1;
            object["metadata"]["resourceVersion"] = state.revision.to_string().into();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let before = state
                .objects
                .insert((LEVELS.to_owned(), name), object.clone());
            let kind = if before.is_none() {
                "ADDED"
            } else {
                "MODIFIED"
            };
            state.tell(kind, &object);
        });
    }

    fn delete_level(&self, name: &str) {
        self.with(|state| {
            state.revision += 1;
            let key = (LEVELS.to_owned(), name.to_owned());
            let mut object = state.objects.remove(&key).unwrap();
            object["metadata"]["resourceVersion"] = state.revision.to_string().into();
            state.tell("DELETED", &object);
        });
    }

    /// Breaks all connections, and answers nothing but 503 from now on.
    fn go_down(&self) {
        self.with(|state| {
            state.down = true;
            for (_, watch) in state.watches.drain(..) {
                let _ = watch.send(Err(std::io::Error::other("down")));
            }
        });
    }

    fn come_up(&self) {
        self.with(|state| state.down = false);
    }

    /// Ends all watches as a server does after their time, and forgets what happened.
    fn forget(&self) {
        self.with(|state| {
            state.oldest = state.revision;
            state.history.clear();
            state.watches.clear();
        });
    }
}

impl State {
    fn versions(&self) -> TestReply {
        let version = |v: &&str| json!({"groupVersion": format!("{GROUP}/{v}"), "version": v});
        let versions: Vec<Value> = self.versions.iter().map(version).collect();
        json_of(&json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions,
        }))
    }

    fn list(&self, version: &str, resource: &str) -> TestReply {
        let ours = self.objects.iter().filter(|((of, _), _)| of == resource);
        let items: Vec<&Value> = ours.map(|(_, object)| object).collect();
        json_of(&json!({
            "kind": "SomeList", "apiVersion": format!("{GROUP}/{version}"),
            "metadata": {"resourceVersion": self.revision.to_string()},
            "items": items,
        }))
    }

    fn watch(&mut self, resource: &str, query: &str) -> TestReply {
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        let (sender, body) = upstream::streamed();
        if from < self.oldest {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired",
                "message": "too old resource version", "status": "Failure"});
            send(&sender, &json!({"type": "ERROR", "object": gone}));
        } else if !self.curt {
            let missed = self.history.iter();
            let missed = missed.filter(|(at, of, _)| *at > from && of == resource);
            missed.for_each(|(_, _, event)| send(&sender, event));
            self.watches.push((resource.to_owned(), sender));
        }
        Response::new(body)
    }

    fn tell(&mut self, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        for (_, watch) in self.watches.iter().filter(|(of, _)| of == LEVELS) {
            send(watch, &event);
        }
        self.history.push((self.revision, LEVELS.to_owned(), event));
    }
}

fn send(watch: &Sender, event: &Value) {
    let _ = watch.send(Ok(format!("{event}\n").into()));
}

fn level(name: &str, shares: u32) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"},
        }},
    })
}

fn json_of(value: &Value) -> TestReply {
    Response::new(upstream::full(value.to_string()))
}

fn status(code: u16, message: &str) -> TestReply {
    let status = json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": message});
    let mut answer = json_of(&status);
    *answer.status_mut() = code.try_into().unwrap();
    answer
}

fn follow(address: SocketAddr) -> KubeSource {
    let endpoint = Endpoint::new(address.to_string().parse().unwrap(), None);
    let client = ApiClient::new(
        endpoint,
        Arc::new(|| {
            let user = ("x-remote-user", "fairgate");
            let headers = [user].map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            HeaderMap::from_iter(headers)
        }),
        ConnectionReuse::PerRequest,
    );
    KubeSource::new(client, Clock::system())
}

/// The next set, which has to come soon.
async fn next(followed: &mut KubeSource) -> DocumentSet {
    let set = timeout(Duration::from_secs(10), followed.next()).await;
    set.expect("a set comes")
}

/// The next set, which has to come within the second that a change may take.
async fn at_once(followed: &mut KubeSource) -> DocumentSet {
    let set = timeout(Duration::from_secs(1), followed.next()).await;
    set.expect("a set comes within a second")
}

async fn nothing_comes(followed: &mut KubeSource) {
    let set = timeout(Duration::from_millis(300), followed.next()).await;
    assert_eq!(set.ok(), None);
}

/// Levels with their shares.
fn shares(set: &DocumentSet) -> Vec<(&str, u64)> {
    let share = |value: &Value| value["spec"]["limited"]["nominalConcurrencyShares"].as_u64();
    set.documents
        .iter()
        .map(|document| {
            let name = document.value["metadata"]["name"].as_str().unwrap();
            (name, share(&document.value).unwrap())
        })
        .collect()
}

/// How many lists were asked for.
fn lists(upstream: &TestUpstream) -> usize {
    let seen = upstream.seen();
    seen.iter().filter(|s| s.target.contains("limit=")).count()
}

#[tokio::test]
async fn the_objects_are_listed_and_then_followed() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = follow(upstream.address);
    let first = next(&mut followed).await;
    assert_eq!(shares(&first), [("a", 1)]);
    let value = &first.documents[0].value;
    assert_eq!(value["apiVersion"], format!("{GROUP}/v1"));
    assert_eq!(value["kind"], "PriorityLevelConfiguration");
    nothing_comes(&mut followed).await;
    assert_eq!(followed.sync_status().age(), Duration::ZERO);

    api.put_level("b", 2);
    let second = at_once(&mut followed).await;
    assert_eq!(shares(&second), [("a", 1), ("b", 2)]);
    assert_ne!(second.revision, first.revision);
    api.put_level("a", 3);
    assert_eq!(shares(&at_once(&mut followed).await), [("a", 3), ("b", 2)]);
    api.delete_level("a");
    api.delete_level("b");
    api.put_level("a", 1);
    let burst = at_once(&mut followed).await;
    assert_eq!(shares(&burst), [("a", 1)], "a burst is one set");
    for seen in upstream.seen() {
        assert_eq!(seen.headers["x-remote-user"], "fairgate", "{seen:?}");
        assert_eq!(seen.method, http::Method::GET);
    }
}

#[tokio::test]
async fn what_no_policy_depends_on_is_passed_over() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = follow(upstream.address);
    next(&mut followed).await;
    let mut object = level("a", 1);
    object["status"] = json!({"conditions": []});
    object["metadata"]["labels"] = json!({"some": "label"});
    api.put(object);
    nothing_comes(&mut followed).await;
}

#[tokio::test]
async fn while_the_upstream_is_gone_nothing_changes_and_then_what_was_missed_is_caught_up() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = follow(upstream.address);
    next(&mut followed).await;
    nothing_comes(&mut followed).await;
    let step = followed.sync_status();

    api.go_down();
    api.put_level("b", 2);
    for _ in 0..8 {
        nothing_comes(&mut followed).await;
    }
    assert!(step.age() >= Duration::from_secs(2), "{:?}", step.age());
    let trouble = step.problem().unwrap();
    assert!(
        trouble.contains("the upstream answered 503: down; the last good policy"),
        "{trouble}"
    );

    api.come_up();
    let set = next(&mut followed).await;
    assert_eq!(shares(&set), [("a", 1), ("b", 2)]);
    nothing_comes(&mut followed).await;
    assert_eq!((step.age(), step.problem()), (Duration::ZERO, None));

    api.go_down();
    api.come_up();
    nothing_comes(&mut followed).await;
}

#[tokio::test]
async fn a_watch_that_is_too_old_is_made_good_by_a_list() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    let mut followed = follow(upstream.address);
    next(&mut followed).await;
    nothing_comes(&mut followed).await;
    api.with(|state| state.watches.clear());
    api.put_level("b", 2);
    api.delete_level("a");
    api.forget();
    let before = lists(&upstream);
    assert_eq!(shares(&next(&mut followed).await), [("b", 2)]);
    assert!(lists(&upstream) > before);
    api.put_level("c", 3);
    assert_eq!(shares(&next(&mut followed).await), [("b", 2), ("c", 3)]);
}

#[tokio::test]
async fn a_watch_that_ends_is_opened_again_and_misses_nothing() {
    let (api, upstream) = Api::start();
    let mut followed = follow(upstream.address);
    next(&mut followed).await;
    nothing_comes(&mut followed).await;
    let before = lists(&upstream);
    api.with(|state| state.watches.clear());
    api.put_level("a", 1);
    assert_eq!(shares(&at_once(&mut followed).await), [("a", 1)]);
    assert_eq!(lists(&upstream), before);
}

#[tokio::test]
async fn watches_that_end_at_once_are_not_opened_in_a_circle() {
    let (api, upstream) = Api::start();
    api.with(|state| state.curt = true);
    let mut followed = follow(upstream.address);
    next(&mut followed).await;
    nothing_comes(&mut followed).await;
    let seen = upstream.seen();
    let watches = seen.iter().filter(|s| s.target.contains("watch=true"));
    let watches = watches.count();
    assert!((2..=8).contains(&watches), "{watches}");
}

#[tokio::test]
async fn an_upstream_that_only_has_v1beta3_is_followed_in_it_until_it_has_more() {
    let (api, upstream) = Api::start();
    api.with(|state| state.versions = vec!["v1beta3"]);
    api.put_level("a", 1);
    let mut followed = follow(upstream.address);
    let set = next(&mut followed).await;
    assert_eq!(
        set.documents[0].value["apiVersion"],
        format!("{GROUP}/v1beta3")
    );
    nothing_comes(&mut followed).await;

    api.go_down();
    api.with(|state| state.versions = vec!["v1"]);
    api.come_up();
    api.put_level("a", 2);
    let set = next(&mut followed).await;
    assert_eq!(set.documents[0].value["apiVersion"], format!("{GROUP}/v1"));
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_told_and_the_others_count() {
    let (api, upstream) = Api::start();
    api.put_level("a", 1);
    api.put(json!({"metadata": {"name": "strange", "generation": "x"}, "spec": [7]}));
    let mut followed = follow(upstream.address);
    let set = next(&mut followed).await;
    assert_eq!(shares(&set), [("a", 1)]);
    assert!(!set.findings.is_empty());
    for finding in &set.findings {
        assert!(!finding.is_error(), "{finding}");
        assert_eq!(finding.name, "strange");
    }
    api.put_level("strange", 2);
    let set = at_once(&mut followed).await;
    assert_eq!(shares(&set), [("a", 1), ("strange", 2)]);
    assert_eq!(set.findings, []);
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_yields_nothing_and_says_why() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut followed = follow(address);
    nothing_comes(&mut followed).await;
    let trouble = followed.sync_status().problem().unwrap();
    assert!(trouble.contains("onnection refused"), "{trouble}");
    assert!(
        trouble.contains("the built-in objects are in force"),
        "{trouble}"
    );
}

/// A gateway in a process of its own.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts a gateway that follows `upstream`; returns where its port for operators is.
    fn following(upstream: SocketAddr) -> (Self, String) {
        let name = format!("fairgate-following-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let configuration = json!({
            "apiVersion": "fairgate.dev/v1alpha1", "kind": "Configuration", "mode": "sidecar",
            "listen": {"address": "127.0.0.1:0"}, "admin": {"address": "127.0.0.1:0"},
            "upstream": {"url": format!("http://{upstream}")}, "dataCores": 1,
        });
        std::fs::write(&path, configuration.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairgate"))
            .args(["serve", "--config", path.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let process = Self(child);
        let mut all = String::new();
        loop {
            let begin = all.len();
            let read = log.read_line(&mut all).unwrap();
            assert!(read > 0, "it ended:\n{all}");
            if let Some((_, rest)) = all[begin..].split_once(" admin=") {
                let admin = rest.split_whitespace().next().unwrap().to_owned();
                // Else it would have to wait once the pipe is full.
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                std::fs::remove_file(path).unwrap();
                return (process, admin);
            }
        }
    }
}

fn get(admin: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}");
}

#[test]
fn a_gateway_serves_with_built_in_objects_until_it_reaches_the_upstream_and_then_by_its_objects() {
    let (api, upstream) = Api::start();
    api.put_level("mine", 1);
    api.go_down();
    let (_process, admin) = Process::following(upstream.address);
    let shows = |what: &str| get(&admin, "/metrics").contains(what);

    let ready = get(&admin, "/readyz?verbose");
    assert!(ready.contains("200 OK"), "{ready}");
    assert!(ready.contains("[!]source: not reached for"), "{ready}");
    assert!(
        ready.contains("the built-in objects are in force"),
        "{ready}"
    );
    assert!(shows("priority_level=\"workload-low\""));
    assert!(!shows("fairgate_source_age_seconds 0\n"));

    api.come_up();
    wait_until("the level is taken on", || shows("priority_level=\"mine\""));
    wait_until("in step", || shows("fairgate_source_age_seconds 0\n"));
    let ready = get(&admin, "/readyz?verbose");
    assert!(ready.contains("[+]source ok"), "{ready}");

    api.go_down();
    wait_until("it is told", || {
        get(&admin, "/readyz?verbose").contains("the last good policy stays in force")
    });
    assert!(shows("priority_level=\"mine\""));
}
