//! A fake API of policy objects, as kube-apiserver serves it. The test changes its objects and decides when it fails.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::upstream::{self, Speaks, TestReply, TestUpstream};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const LEVELS: &str = "prioritylevelconfigurations";

type EventSender = UnboundedSender<std::io::Result<Bytes>>;

/// The API, shared by the test and the upstream that serves it.
#[derive(Clone)]
pub(crate) struct Api(Arc<Mutex<State>>);

pub(super) struct State {
    pub(super) versions: Vec<&'static str>,
    revision: u64,
    /// By resource and name.
    objects: BTreeMap<(String, String), Value>,
    /// All watch events since `oldest`, with their revision and resource.
    history: Vec<(u64, String, Value)>,
    /// A watch from an older revision gets a 410, as an event of the watch.
    oldest: u64,
    /// It gets that as the response instead.
    pub(super) refuses_old_watches: bool,
    /// Open watches, with their resource.
    watches: Vec<(String, EventSender)>,
    down: bool,
    /// Ends every watch as soon as it is open.
    pub(super) ends_watches_at_once: bool,
}

impl Api {
    pub(crate) fn start() -> (Self, TestUpstream) {
        let api = Self(Arc::new(Mutex::new(State {
            versions: vec!["v1", "v1beta3"],
            revision: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            oldest: 0,
            refuses_old_watches: false,
            watches: Vec::new(),
            down: false,
            ends_watches_at_once: false,
        })));
        let server = api.clone();
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            let response = server.respond(&request);
            async move { response }
        });
        (api, upstream)
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn respond(&self, request: &Request<Incoming>) -> TestReply {
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

    pub(crate) fn put_level(&self, name: &str, shares: u32) {
        self.with(|state| state.put(level(name, shares)));
    }

    pub(super) fn put(&self, object: Value) {
        self.with(|state| state.put(object));
    }

    pub(super) fn delete_level(&self, name: &str) {
        self.with(|state| state.delete_level(name));
    }

    /// Breaks all connections, and responds to every request with 503 from now on.
    pub(super) fn go_down(&self) {
        self.with(|state| {
            state.down = true;
            for (_, watch) in state.watches.drain(..) {
                let _ = watch.send(Err(std::io::Error::other("down")));
            }
        });
    }

    pub(super) fn come_up(&self) {
        self.with(|state| state.down = false);
    }

    /// Ends all watches, as a server does when their timeout is over.
    pub(super) fn end_watches(&self) {
        self.with(|state| state.watches.clear());
    }

    /// Ends all watches and discards the history.
    pub(super) fn compact(&self) {
        self.with(|state| {
            state.oldest = state.revision;
            state.history.clear();
            state.watches.clear();
        });
    }
}

impl State {
    /// Creates or replaces a priority level.
    pub(super) fn put(&mut self, mut object: Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (LEVELS.to_owned(), name);
        let before = self.objects.insert(key, object.clone());
        let event = if before.is_none() {
            "ADDED"
        } else {
            "MODIFIED"
        };
        self.publish(event, &object);
    }

    pub(super) fn delete_level(&mut self, name: &str) {
        self.revision += 1;
        let key = (LEVELS.to_owned(), name.to_owned());
        let mut object = self.objects.remove(&key).unwrap();
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.publish("DELETED", &object);
    }

    /// The revision of the last change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    fn versions(&self) -> TestReply {
        let version = |v: &&str| json!({"groupVersion": format!("{GROUP}/{v}"), "version": v});
        let versions: Vec<Value> = self.versions.iter().map(version).collect();
        json_reply(&json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions,
        }))
    }

    fn list(&self, version: &str, resource: &str) -> TestReply {
        let ours = self.objects.iter().filter(|((of, _), _)| of == resource);
        let items: Vec<&Value> = ours.map(|(_, object)| object).collect();
        json_reply(&json!({
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
        if from < self.oldest && self.refuses_old_watches {
            return status(410, "too old resource version");
        }
        let (sender, body) = upstream::streamed();
        if from < self.oldest {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired",
                "message": "too old resource version", "status": "Failure"});
            send(&sender, &json!({"type": "ERROR", "object": gone}));
        } else if !self.ends_watches_at_once {
            let missed = self.history.iter();
            let missed = missed.filter(|(at, of, _)| *at > from && of == resource);
            missed.for_each(|(_, _, event)| send(&sender, event));
            self.watches.push((resource.to_owned(), sender));
        }
        Response::new(body)
    }

    fn publish(&mut self, event_type: &str, object: &Value) {
        let event = json!({"type": event_type, "object": object});
        for (_, watch) in self.watches.iter().filter(|(of, _)| of == LEVELS) {
            send(watch, &event);
        }
        self.history.push((self.revision, LEVELS.to_owned(), event));
    }
}

fn send(watch: &EventSender, event: &Value) {
    let _ = watch.send(Ok(format!("{event}\n").into()));
}

pub(super) fn level(name: &str, shares: u32) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"},
        }},
    })
}

fn json_reply(value: &Value) -> TestReply {
    Response::new(upstream::full(value.to_string()))
}

fn status(code: u16, message: &str) -> TestReply {
    let status = json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": message});
    let mut reply = json_reply(&status);
    *reply.status_mut() = code.try_into().unwrap();
    reply
}
