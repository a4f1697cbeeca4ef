//! An API server for the disruption controller, in memory: any kind of object, lists in pages, watches,
//! conditional status writes, scales, leases and events.
//!
//! It treats resource versions, continue tokens and old watches as kube-apiserver does. A test can break its watches,
//! forget its history, and have it fail any request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::cluster::date;
use crate::upstream::{self, Speaks, TestReply, TestUpstream};

type EventSender = UnboundedSender<std::io::Result<Bytes>>;
/// API path such as `/api/v1`, plural, namespace, name.
type Key = (String, String, String, String);
type Failure = Box<dyn FnMut(&Method, &str) -> Option<u16> + Send>;

/// The server; it stops when this is dropped.
pub struct ControlPlane {
    pub upstream: TestUpstream,
    state: Arc<Mutex<Content>>,
}

#[derive(Default)]
struct Content {
    version: u64,
    objects: BTreeMap<Key, Value>,
    /// All watch events since `oldest`: version, API path, plural, event.
    history: Vec<(u64, String, String, Value)>,
    /// A watch from an older version gets a 410.
    oldest: u64,
    /// Open watches: API path, plural, the client.
    watches: Vec<(String, String, EventSender)>,
    /// Method and target of every request.
    calls: Vec<(Method, String)>,
    failure: Option<Failure>,
    /// Whether it reviews tokens and access.
    reviews: bool,
    /// How far its clock is ahead, in seconds.
    ahead: i64,
}

impl ControlPlane {
    pub fn start() -> Self {
        let state = Arc::<Mutex<Content>>::default();
        let shared = Arc::clone(&state);
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            respond(Arc::clone(&shared), request)
        });
        Self { upstream, state }
    }

    fn with<T>(&self, run: impl FnOnce(&mut Content) -> T) -> T {
        run(&mut self.state.lock().unwrap())
    }

    /// Creates or replaces an object of a resource such as `("/api/v1", "pods")`.
    pub fn put(&self, (api, plural): (&str, &str), object: Value) {
        let meta = |field| {
            object["metadata"][field]
                .as_str()
                .unwrap_or("ns")
                .to_owned()
        };
        let key = (
            api.to_owned(),
            plural.to_owned(),
            meta("namespace"),
            meta("name"),
        );
        self.with(|content| content.put(&key, object));
    }

    /// Deletes an object of the namespace `ns`.
    pub fn delete(&self, resource: (&str, &str), name: &str) {
        self.delete_in("ns", resource, name);
    }

    /// Deletes an object of a namespace; `""` for a cluster-scoped object.
    pub fn delete_in(&self, namespace: &str, (api, plural): (&str, &str), name: &str) {
        let key = (
            api.to_owned(),
            plural.to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        );
        self.with(|content| content.delete(&key));
    }

    /// The object of this name in the namespace `ns`.
    pub fn get(&self, resource: (&str, &str), name: &str) -> Option<Value> {
        self.get_in("ns", resource, name)
    }

    pub fn get_in(
        &self,
        namespace: &str,
        (api, plural): (&str, &str),
        name: &str,
    ) -> Option<Value> {
        let key = (
            api.to_owned(),
            plural.to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        );
        self.with(|content| content.objects.get(&key).cloned())
    }

    /// All objects of a kind.
    pub fn all(&self, (api, plural): (&str, &str)) -> Vec<Value> {
        self.with(|content| content.of(api, plural).cloned().collect())
    }

    /// Breaks all watches of a kind, as a lost connection does.
    pub fn break_watches(&self, plural: &str) {
        self.with(|content| {
            content.watches.retain(|(_, of, watch)| {
                if of == plural {
                    let _ = watch.send(Err(std::io::Error::other("broken")));
                }
                of != plural
            });
        });
    }

    /// Forgets all history, and ends all watches.
    pub fn compact(&self) {
        self.with(|content| {
            content.history.clear();
            content.oldest = content.version;
            content.watches.clear();
        });
    }

    /// The number of open watches.
    pub fn watches(&self) -> usize {
        self.with(|content| {
            content.watches.retain(|(_, _, watch)| !watch.is_closed());
            content.watches.len()
        })
    }

    /// Fails each request for which `failure` returns a status, with that status.
    pub fn fail(&self, failure: impl FnMut(&Method, &str) -> Option<u16> + Send + 'static) {
        self.with(|content| content.failure = Some(Box::new(failure)));
    }

    /// From now on, tokens are the names of their users, and users may do everything.
    pub fn review(&self) {
        self.with(|content| content.reviews = true);
    }

    /// Sets how far its clock is ahead.
    pub fn set_ahead(&self, seconds: i64) {
        self.with(|content| content.ahead = seconds);
    }

    /// The number of requests with this method whose target has the prefix `begins`.
    pub fn count(&self, method: &Method, begins: &str) -> usize {
        self.with(|content| {
            let calls = content.calls.iter();
            calls
                .filter(|(of, target)| of == method && target.starts_with(begins))
                .count()
        })
    }

    /// The targets of all requests except those for metrics.
    pub fn targets(&self) -> Vec<String> {
        self.with(|content| {
            let calls = content.calls.iter().map(|(_, target)| target.clone());
            calls.filter(|target| target != "/metrics").collect()
        })
    }
}

async fn respond(state: Arc<Mutex<Content>>, request: Request<Incoming>) -> TestReply {
    let (head, body) = request.into_parts();
    let body = body.collect().await;
    let body = body.map(http_body_util::Collected::to_bytes);
    let body = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let target = head.uri.path_and_query().unwrap().as_str().to_owned();
    let mut content = state.lock().unwrap();
    content.calls.push((head.method.clone(), target.clone()));
    let mut failure = content.failure.take();
    let code = failure
        .as_mut()
        .and_then(|fails| fails(&head.method, &target));
    content.failure = failure;
    let mut reply = match code {
        Some(code) => status(code, "refused by the test"),
        None => content.serve(&head.method, &target, body),
    };
    if content.ahead != 0 {
        let date = date(content.ahead);
        reply.headers_mut().insert("date", date.parse().unwrap());
    }
    reply
}

fn reply(code: u16, value: &Value) -> TestReply {
    let mut reply = Response::new(upstream::full(value.to_string()));
    *reply.status_mut() = code.try_into().unwrap();
    reply
}

fn status(code: u16, message: &str) -> TestReply {
    let value = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code});
    reply(code, &value)
}

fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(key, _)| *key == name);
    found.next().map(|(_, value)| value)
}

impl Content {
    fn of(&self, api: &str, plural: &str) -> impl Iterator<Item = &Value> {
        let ours = move |key: &&Key| key.0 == api && key.1 == plural;
        let keys = self.objects.keys().filter(ours);
        keys.map(|key| &self.objects[key])
    }

    fn serve(&mut self, method: &Method, target: &str, body: Value) -> TestReply {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if self.reviews && path.ends_with("reviews") {
            return Self::reviewed(body);
        }
        if path == "/apis/test.dev" {
            let version =
                |name: &str| json!({"groupVersion": format!("test.dev/{name}"), "version": name});
            let versions = [version("v1alpha1"), version("v1")];
            return reply(
                200,
                &json!({"kind": "APIGroup", "name": "test.dev", "versions": versions, "preferredVersion": version("v1")}),
            );
        }
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let at = if segments.first() == Some(&"api") {
            2
        } else {
            3
        };
        if segments.len() < at {
            return status(404, "not found");
        }
        let api = format!("/{}", segments[..at].join("/"));
        match (method.as_str(), &segments[at..]) {
            ("GET", []) => Self::discovery(&api),
            ("GET", [plural]) if query.contains("watch=true") => self.watch(&api, plural, query),
            ("GET", [plural]) => self.list(&api, plural, query),
            ("GET", ["namespaces", name]) => self.namespace(api, name),
            ("POST", ["namespaces", namespace, plural]) => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let key = (api, (*plural).to_owned(), (*namespace).to_owned(), name);
                if self.objects.contains_key(&key) {
                    return status(409, "already exists");
                }
                reply(201, &self.put(&key, body))
            }
            (_, ["namespaces", namespace, plural, name, rest @ ..]) => {
                let key = (
                    api,
                    (*plural).to_owned(),
                    (*namespace).to_owned(),
                    (*name).to_owned(),
                );
                self.object(method, &key, rest.first().copied(), &body)
            }
            _ => status(404, "no such route"),
        }
    }

    fn reviewed(mut review: Value) -> TestReply {
        let user = json!({"username": review["spec"]["token"]});
        review["status"] = json!({"authenticated": true, "user": user, "allowed": true});
        reply(201, &review)
    }

    fn object(&mut self, method: &Method, key: &Key, sub: Option<&str>, body: &Value) -> TestReply {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return status(404, "not found");
        };
        match (method.as_str(), sub) {
            ("GET", None) => reply(200, &object),
            // Widgets have a scale.
            ("GET", Some("scale")) if key.1 == "widgets" => {
                let metadata = object["metadata"].clone();
                reply(
                    200,
                    &json!({"metadata": metadata, "spec": {"replicas": object["spec"]["replicas"]}}),
                )
            }
            ("PUT", sub) => {
                if object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return status(409, "the object has been modified");
                }
                let part = sub.unwrap_or("spec");
                object[part] = body[part].clone();
                reply(200, &self.put(key, object))
            }
            ("DELETE", None) => {
                self.delete(key);
                reply(200, &object)
            }
            ("PATCH", Some("status")) => {
                let condition = &body["status"]["conditions"][0];
                let conditions = object["status"]["conditions"].as_array_mut().unwrap();
                conditions.retain(|old| old["type"] != condition["type"]);
                conditions.push(condition.clone());
                reply(200, &self.put(key, object))
            }
            ("PATCH", None) => {
                for (name, value) in body.as_object().unwrap() {
                    object[name] = value.clone();
                }
                reply(200, &self.put(key, object))
            }
            _ => status(404, "no such route"),
        }
    }

    fn namespace(&self, api: String, name: &str) -> TestReply {
        let key = (api, "namespaces".to_owned(), String::new(), name.to_owned());
        if let Some(namespace) = self.objects.get(&key) {
            return reply(200, namespace);
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "details": {"kind": "namespaces", "name": name}});
        reply(404, &status)
    }

    fn discovery(api: &str) -> TestReply {
        let widgets = json!({"name": "widgets", "kind": "Widget", "namespaced": true});
        if api == "/apis/test.dev/v1alpha1" {
            return reply(
                200,
                &json!({"kind": "APIResourceList", "resources": [widgets]}),
            );
        }
        if api != "/apis/test.dev/v1" {
            return status(404, "not found");
        }
        reply(
            200,
            &json!({"kind": "APIResourceList", "resources": [
                widgets,
                {"name": "widgets/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"},
            ]}),
        )
    }

    fn list(&self, api: &str, plural: &str, query: &str) -> TestReply {
        let number = |name| parameter(query, name).and_then(|text| text.parse().ok());
        let all: Vec<&Value> = self.of(api, plural).collect();
        let from: usize = number("continue").unwrap_or(0);
        let to = from
            .saturating_add(number("limit").unwrap_or(usize::MAX))
            .min(all.len());
        let mut list = json!({"kind": "List", "metadata": {"resourceVersion": self.version.to_string()}, "items": all[from..to]});
        if to < all.len() {
            list["metadata"]["continue"] = json!(to.to_string());
        }
        reply(200, &list)
    }

    fn watch(&mut self, api: &str, plural: &str, query: &str) -> TestReply {
        let from: u64 = parameter(query, "resourceVersion")
            .unwrap()
            .parse()
            .unwrap();
        let (sender, body) = upstream::streamed();
        if from < self.oldest {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired",
                "message": "too old resource version", "status": "Failure"});
            send(&sender, &json!({"type": "ERROR", "object": gone}));
            return Response::new(body);
        }
        for (at, of_api, of, event) in &self.history {
            if *at > from && of_api == api && of == plural {
                send(&sender, event);
            }
        }
        self.watches
            .push((api.to_owned(), plural.to_owned(), sender));
        Response::new(body)
    }

    fn put(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["namespace"] = json!(key.2);
        let before = self.objects.insert(key.clone(), object.clone());
        let event = if before.is_none() {
            "ADDED"
        } else {
            "MODIFIED"
        };
        self.publish(key, event, &object);
        object
    }

    fn delete(&mut self, key: &Key) {
        self.version += 1;
        let mut object = self.objects.remove(key).unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.publish(key, "DELETED", &object);
    }

    fn publish(&mut self, (api, plural, ..): &Key, event: &str, object: &Value) {
        let event = json!({"type": event, "object": object});
        for (of_api, of, watch) in &self.watches {
            if of_api == api && of == plural {
                send(watch, &event);
            }
        }
        let entry = (self.version, api.clone(), plural.clone(), event);
        self.history.push(entry);
    }
}

fn send(watch: &EventSender, event: &Value) {
    let _ = watch.send(Ok(format!("{event}\n").into()));
}
