//! The pods of the fake upstream: some in each namespace, whose labels clients change.

use std::{convert::Infallible, sync::Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

/// The path of the pods of all namespaces.
pub(crate) const PODS: &str = "/api/v1/pods";
/// Ready pods of each namespace.
pub(crate) const EACH: usize = 5;
/// The pod of a namespace that is not ready.
const UNREADY: &str = "unready";
/// Events that a slow watch may miss before it ends.
const BEHIND: usize = 65_536;

/// The pods.
pub(crate) struct Pods {
    state: Mutex<State>,
    events: broadcast::Sender<Bytes>,
}

struct State {
    version: u64,
    namespaces: Vec<String>,
    /// Labels of each pod, besides those that clients look for and change.
    labels: usize,
    /// Whether each namespace has one pod more, which is not ready.
    one_unready: bool,
    changes: usize,
}

impl Default for Pods {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                version: 1,
                namespaces: Vec::new(),
                labels: 0,
                one_unready: false,
                changes: 0,
            }),
            events: broadcast::channel(BEHIND).0,
        }
    }
}

impl Pods {
    /// There are pods in these namespaces from now on. To be called before the gateway starts.
    pub(crate) fn add(&self, namespaces: impl Iterator<Item = String>) {
        self.state.lock().unwrap().namespaces.extend(namespaces);
    }

    /// Each pod has so many labels more. To be called before the gateway starts.
    pub(crate) fn have_labels(&self, count: usize) {
        self.state.lock().unwrap().labels = count;
    }

    /// Each namespace has one pod more, which is not ready. To be called before the gateway starts.
    pub(crate) fn have_one_unready(&self) {
        self.state.lock().unwrap().one_unready = true;
    }

    /// How many pods there are.
    pub(crate) fn number(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.namespaces.len() * (EACH + usize::from(state.one_unready))
    }

    /// How often labels have changed.
    pub(crate) fn changes(&self) -> usize {
        self.state.lock().unwrap().changes
    }

    /// The list of all.
    pub(crate) fn list(&self) -> Bytes {
        let state = self.state.lock().unwrap();
        let each = |namespace: &String| {
            let namespace = namespace.clone();
            let state = &state;
            let unready = state.one_unready.then(|| UNREADY.to_owned());
            let names = (0..EACH).map(|number| format!("p{number}"));
            names
                .chain(unready)
                .map(move |name| state.pod(&namespace, &name, 0, 1))
        };
        let items: Vec<_> = state.namespaces.iter().flat_map(each).collect();
        let version = state.version.to_string();
        let list = json!({
            "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items,
        });
        list.to_string().into()
    }

    /// The events of changes from now on.
    pub(crate) fn watch(&self) -> UnsyncBoxBody<Bytes, Infallible> {
        let events = self.events.subscribe();
        let events = futures_util::stream::unfold(events, |mut events| async move {
            let event = events.recv().await.ok()?;
            Some((Ok(Frame::data(event)), events))
        });
        StreamBody::new(events).boxed_unsync()
    }

    /// The pod at this path.
    pub(crate) fn get(&self, path: &str) -> Option<Bytes> {
        let (namespace, name) = named(path)?;
        let state = self.state.lock().unwrap();
        if !state.namespaces.iter().any(|known| known == namespace) {
            return None;
        }
        Some(state.pod(namespace, name, 0, 1).to_string().into())
    }

    /// A label of the pod at this path changes, if there is one.
    pub(crate) fn patch(&self, path: &str) {
        let Some((namespace, name)) = named(path) else {
            return;
        };
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        state.changes += 1;
        let changed = state.pod(namespace, name, state.changes, state.version);
        drop(state);
        let event = json!({"type": "MODIFIED", "object": changed});
        let _ = self.events.send(format!("{event}\n").into());
    }
}

/// The namespace and the name of the pod at this path.
fn named(path: &str) -> Option<(&str, &str)> {
    let (namespace, pod) = path.strip_prefix("/api/v1/namespaces/")?.split_once('/')?;
    let name = pod.strip_prefix("pods/")?;
    Some((namespace, name.split('/').next()?))
}

impl State {
    fn pod(&self, namespace: &str, name: &str, flap: usize, version: u64) -> Value {
        let mut labels: Map<String, Value> = (0..self.labels)
            .map(|number| (format!("l{number}"), json!("")))
            .collect();
        labels.insert("app".to_owned(), json!("v1"));
        labels.insert("flap".to_owned(), json!(flap.to_string()));
        let ready = if name == UNREADY { "False" } else { "True" };
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "namespace": namespace, "name": name, "uid": format!("uid-of-{name}-in-{namespace}"),
                "resourceVersion": version.to_string(), "labels": labels,
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        })
    }
}
