//! Follows a stand-in for an API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::{
    ClusterObjects as _, Fidelity, InputFailure, ParamScope, PolicyParamKind,
};
use fairgate_admission_layer::{ClusterState as _, PublishedPolicies, WorkerPool};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use fairgate_testkit::upstream::{self, Speaks, TestReply, TestUpstream};
use fairgate_upstream::{
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ETAG, IF_NONE_MATCH},
};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::mpsc::UnboundedSender};

use crate::{
    ClusterNeeds, ClusterSettings, FollowedCluster, PolicyPublisher, PublishingStatus,
    UpstreamPolicies,
};

mod consistent_reads;
mod kind_schemas;
mod param_kinds;
mod resources;
mod staleness;
mod stored_policies;
mod watches;

type WatchSender = UnboundedSender<std::io::Result<Bytes>>;

/// The API of a server. The test changes its objects.
#[derive(Clone, Default)]
struct StandIn(Arc<Mutex<StandInState>>);

#[derive(Default)]
struct StandInState {
    /// Documents and single objects, by path.
    documents: BTreeMap<String, Value>,
    /// Lists, by path.
    collections: BTreeMap<String, Collection>,
    revision: u64,
}

#[derive(Default)]
struct Collection {
    objects: BTreeMap<String, Value>,
    history: Vec<(u64, Value)>,
    watches: Vec<WatchSender>,
    is_forbidden: bool,
    /// Whether nothing arrives any more on the watches that are open.
    is_mute: bool,
    /// Whether nothing arrives on those that are opened, either.
    is_silent: bool,
}

impl StandIn {
    fn start() -> (Self, TestUpstream) {
        let api = Self::default();
        let server = api.clone();
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            let response = server.respond(&request);
            async move { response }
        });
        (api, upstream)
    }

    fn with<T>(&self, change: impl FnOnce(&mut StandInState) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn document(&self, path: &str, document: Value) {
        self.with(|state| state.documents.insert(path.to_owned(), document));
    }

    /// Creates or replaces an object.
    fn put(&self, path: &str, object: Value) {
        self.with(|state| state.change(path, object, false));
    }

    fn delete(&self, path: &str, object: Value) {
        self.with(|state| state.change(path, object, true));
    }

    fn forbid(&self, path: &str, is_forbidden: bool) {
        self.with(|state| state.collection(path).is_forbidden = is_forbidden);
    }

    /// The number of watches that clients hold open.
    fn open_watches(&self, path: &str) -> usize {
        self.with(|state| {
            let watches = &mut state.collection(path).watches;
            watches.retain(|watch| !watch.is_closed());
            watches.len()
        })
    }

    fn respond(&self, request: &Request<Incoming>) -> TestReply {
        let (path, query) = (
            request.uri().path(),
            request.uri().query().unwrap_or_default(),
        );
        self.with(|state| {
            if let Some(document) = state.documents.get(path) {
                return versioned(document, request.headers());
            }
            let revision = state.revision;
            match state.collections.get_mut(path) {
                None => {
                    let mut names = path.rsplit('/');
                    let (name, plural) = (names.next(), names.next().unwrap_or_default());
                    let mut served = state.collections.keys();
                    let is_served = served.any(|served| served.ends_with(&format!("/{plural}")));
                    let details = if is_served { json!({"name": name}) } else { json!({}) };
                    reply(404, &json!({"kind": "Status", "reason": "NotFound", "details": details, "code": 404}))
                }
                Some(collection) if collection.is_forbidden => reply(
                    403,
                    &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                        "message": "not for you", "code": 403}),
                ),
                Some(collection) if query.contains("watch=true") => collection.watch(query),
                Some(collection) => reply(
                    200,
                    &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": revision.to_string()},
                        "items": collection.objects.values().collect::<Vec<_>>()}),
                ),
            }
        })
    }
}

impl StandInState {
    fn collection(&mut self, path: &str) -> &mut Collection {
        self.collections.entry(path.to_owned()).or_default()
    }

    fn change(&mut self, path: &str, mut object: Value, is_gone: bool) {
        self.revision += 1;
        let revision = self.revision;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let part = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let key = format!("{}/{}", part("namespace"), part("name"));
        let collection = self.collection(path);
        let kind = if is_gone {
            collection.objects.remove(&key);
            "DELETED"
        } else if collection.objects.insert(key, object.clone()).is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let event = json!({"type": kind, "object": object});
        if !collection.is_mute && !collection.is_silent {
            for watch in &collection.watches {
                send(watch, &event);
            }
        }
        collection.history.push((revision, event));
    }
}

impl Collection {
    fn watch(&mut self, query: &str) -> TestReply {
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        let (sender, body) = upstream::streamed();
        let missed = self.history.iter().filter(|(at, _)| *at > from);
        if !self.is_silent {
            missed.for_each(|(_, event)| send(&sender, event));
        }
        self.watches.push(sender);
        Response::new(body)
    }
}

fn send(watch: &WatchSender, event: &Value) {
    let _ = watch.send(Ok(format!("{event}\n").into()));
}

fn reply(code: u16, body: &Value) -> TestReply {
    let mut reply = Response::new(upstream::full(body.to_string()));
    *reply.status_mut() = code.try_into().unwrap();
    reply
}

/// A document with its version, or the word that the client has it already.
fn versioned(document: &Value, asked: &HeaderMap) -> TestReply {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    let version: HeaderValue = format!("\"{:x}\"", hasher.finish()).parse().unwrap();
    if asked.get(IF_NONE_MATCH) == Some(&version) {
        let mut same = Response::new(upstream::full(""));
        *same.status_mut() = StatusCode::NOT_MODIFIED;
        return same;
    }
    let mut reply = reply(200, document);
    reply.headers_mut().insert(ETAG, version);
    reply
}

const NAMESPACES: &str = "/api/v1/namespaces";
const CONFIG_MAPS: &str = "/api/v1/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies";
const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1beta1/validatingadmissionpolicybindings";

/// An API with namespaces, config maps, and admission policies in v1beta1.
fn usual() -> (StandIn, TestUpstream) {
    let (api, upstream) = StandIn::start();
    let resource = |plural: &str, kind: &str, scope: &str, version: [&str; 2]| {
        json!({"resource": plural, "scope": scope,
            "responseKind": {"group": version[0], "version": version[1], "kind": kind}})
    };
    let group = |name: &str, version: &str, resources: Value| {
        json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": name}, "versions": [{"version": version, "resources": resources}]}]})
    };
    let core = ["", "v1"];
    let core = json!([
        resource("namespaces", "Namespace", "Cluster", core),
        resource("configmaps", "ConfigMap", "Namespaced", core),
    ]);
    api.document("/api", group("", "v1", core));
    let of = ["admissionregistration.k8s.io", "v1beta1"];
    let admission = json!([
        resource(
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            "Cluster",
            of
        ),
        resource(
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            "Cluster",
            of
        ),
    ]);
    api.document("/apis", group(of[0], of[1], admission));
    api.with(|state| {
        for path in [NAMESPACES, CONFIG_MAPS, POLICIES, BINDINGS] {
            state.collection(path);
        }
    });
    (api, upstream)
}

fn follow(upstream: &TestUpstream) -> Arc<FollowedCluster> {
    follow_at(upstream, Clock::manual(Time::ZERO))
}

fn follow_at(upstream: &TestUpstream, clock: Clock) -> Arc<FollowedCluster> {
    start(upstream, clock, false)
}

fn start(upstream: &TestUpstream, clock: Clock, reads_now: bool) -> Arc<FollowedCluster> {
    start_with(upstream, clock, reads_now, Arc::new(WorkerPool::new(1)))
}

fn start_with(
    upstream: &TestUpstream,
    clock: Clock,
    reads_now: bool,
    workers: Arc<WorkerPool>,
) -> Arc<FollowedCluster> {
    let client = |reuse| {
        let endpoint = Endpoint::new(upstream.address.to_string().parse().unwrap(), None);
        ApiClient::new(endpoint, Arc::new(HeaderMap::new), reuse)
    };
    FollowedCluster::start(ClusterSettings {
        client: client(ConnectionReuse::Pooled),
        streams: client(ConnectionReuse::PerRequest),
        control: Handle::current(),
        clock,
        workers,
        reads_now,
    })
}

/// Waits until `holds` returns true.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

fn config_map() -> PolicyParamKind {
    PolicyParamKind {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
    }
}

fn needs() -> ClusterNeeds {
    ClusterNeeds {
        namespaces: true,
        params: BTreeSet::from([config_map()]),
    }
}

fn named(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "managedFields": [{}]}})
}

fn namespace(name: &str, team: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": team}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_and_params_are_followed_while_policies_need_them() {
    let (api, upstream) = usual();
    api.put(NAMESPACES, namespace("a", "red"));
    api.put(CONFIG_MAPS, named("a", "p"));
    let state = follow(&upstream);
    assert!(state.namespace("a").is_none() && !state.are_params_known(&config_map()));
    state.follow(&needs());
    state.namespaces_listed().await;
    state.params_listed().await;
    assert!(state.are_params_known(&config_map()));
    let team = || {
        let namespace = state.namespace("a")?;
        Some(
            namespace
                .text_at(&["metadata", "labels", "team"])
                .to_owned(),
        )
    };
    assert_eq!(team().as_deref(), Some("red"));
    let param = state.param(&config_map(), "a", "p").unwrap();
    assert_eq!(param.text_at(&["kind"]), "ConfigMap");
    assert_eq!(param.text_at(&["apiVersion"]), "v1");
    assert_eq!(state.params(&config_map(), "a").len(), 1);
    assert_eq!(state.params(&config_map(), "b").len(), 0);

    api.put(NAMESPACES, namespace("a", "blue"));
    until("the label changes", || team().as_deref() == Some("blue")).await;
    api.delete(CONFIG_MAPS, named("a", "p"));
    until("the param is gone", || {
        state.param(&config_map(), "a", "p").is_none()
    })
    .await;
    assert!(state.are_params_known(&config_map()));

    state.follow(&ClusterNeeds::default());
    assert!(state.namespace("a").is_none() && !state.are_params_known(&config_map()));
    until("nothing is watched", || {
        api.open_watches(NAMESPACES) + api.open_watches(CONFIG_MAPS) == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn params_that_may_not_be_read_stay_unknown_until_they_may() {
    let (api, upstream) = usual();
    api.forbid(CONFIG_MAPS, true);
    let state = follow(&upstream);
    state.follow(&needs());
    state.namespaces_listed().await;
    let lists = || {
        let seen = upstream.seen();
        seen.iter()
            .filter(|seen| seen.target.starts_with(CONFIG_MAPS))
            .count()
    };
    until("the list is refused twice", || lists() >= 2).await;
    assert!(!state.are_params_known(&config_map()));
    assert_eq!(state.param_scope(&config_map()), Ok(ParamScope::Namespaced));
    api.forbid(CONFIG_MAPS, false);
    until("the params are known", || {
        state.are_params_known(&config_map())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_watch_has_delivered_is_read_and_absence_is_remembered_for_a_moment() {
    let (api, upstream) = usual();
    let mut object = namespace("b", "red");
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Namespace");
    api.document("/api/v1/namespaces/b", object);
    let state = follow(&upstream);
    let found = state.read_namespace("u", "b").await.unwrap();
    assert_eq!(found.text_at(&["metadata", "labels", "team"]), "red");
    for _ in 0..3 {
        let absent = state.read_namespace("u", "absent").await;
        assert_eq!(absent.unwrap_err(), InputFailure::NotFound);
    }
    let seen = upstream.seen();
    let asked = seen
        .iter()
        .filter(|seen| seen.target.ends_with("/absent"))
        .count();
    assert_eq!(asked, 1);
    assert_eq!(
        state.read_namespace("u", "../secrets").await,
        Err(InputFailure::NotFound)
    );
    until("the kind is known", || {
        state.param_scope(&config_map()).is_ok()
    })
    .await;
    let absent = state.read_param("u", &config_map(), "a", "p").await;
    assert_eq!(absent, Err(InputFailure::NotFound));
    let unknown = PolicyParamKind {
        api_version: "x.io/v1".to_owned(),
        kind: "Limit".to_owned(),
    };
    let words = "failed to find resource referenced by paramKind: 'x.io/v1, Kind=Limit'";
    assert_eq!(state.param_scope(&unknown), Err(words.to_owned()));
    let failed = state.read_param("u", &unknown, "", "p").await;
    assert_eq!(failed, Err(InputFailure::Failed(words.to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_aggregated_documents_is_asked_for_each_version_and_again_for_unknown_resources()
 {
    let (api, upstream) = StandIn::start();
    api.document("/api", json!({"kind": "APIVersions", "versions": ["v1"]}));
    let pods = json!({"name": "pods", "kind": "Pod", "namespaced": true});
    api.document(
        "/api/v1",
        json!({"kind": "APIResourceList", "resources": [pods]}),
    );
    let groups = |versions: Value| json!({"kind": "APIGroupList", "groups": [{"name": "x.io", "versions": versions}]});
    let v1 = json!({"groupVersion": "x.io/v1", "version": "v1"});
    // The second version cannot be read: the others are known nevertheless.
    let v2 = json!({"groupVersion": "x.io/v2", "version": "v2"});
    api.document("/apis", groups(json!([v1, v2])));
    let limits = json!({"name": "limits", "kind": "Limit", "namespaced": false});
    api.document(
        "/apis/x.io/v1",
        json!({"kind": "APIResourceList", "resources": [limits]}),
    );
    let state = follow(&upstream);
    until("pods are known", || {
        state.resource("", "v1", "pods", "").is_some()
    })
    .await;
    let found = state.resource("x.io", "v1", "limits", "").unwrap();
    assert!(!found.is_namespaced);
    assert_eq!(found.equivalents.len(), 1);
    assert!(state.resource("x.io", "v2", "limits", "").is_none());
    api.document(
        "/apis/x.io/v2",
        json!({"kind": "APIResourceList", "resources": [limits]}),
    );
    until("the new version is known", || {
        state.resource("x.io", "v2", "limits", "").is_some()
    })
    .await;
    assert_eq!(
        state
            .resource("x.io", "v1", "limits", "")
            .unwrap()
            .equivalents
            .len(),
        2
    );
}

fn policy(name: &str, expression: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": expression}],
        },
    })
}

fn binding(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_of_the_upstream_are_published_once_the_namespaces_are_known() {
    let (api, upstream) = usual();
    api.put(POLICIES, policy("one", "object.metadata.name == 'x'"));
    api.put(BINDINGS, binding("one"));
    api.forbid(NAMESPACES, true);
    let state = follow(&upstream);
    let feed = UpstreamPolicies::start(&state, true, None);
    let published = Arc::<PublishedPolicies>::default();
    let status = PublishingStatus::new(Clock::manual(Time::ZERO), feed.age());
    let publisher = PolicyPublisher {
        published: Arc::clone(&published),
        state: Arc::clone(&state),
        fidelity: Fidelity::Completed,
        status: Arc::clone(&status),
        max_staleness: None,
        keep: None,
    };
    let task = tokio::spawn(publisher.run(feed));
    let count = || published.current().map(|policies| policies.set.len());
    until("namespaces are asked for", || {
        let seen = upstream.seen();
        seen.iter().any(|seen| seen.target.starts_with(NAMESPACES))
    })
    .await;
    assert_eq!(count(), None);
    api.forbid(NAMESPACES, false);
    until("the policy is in force", || count() == Some(1)).await;
    assert_eq!(
        published.current().unwrap().fidelity,
        [("one".to_owned(), Fidelity::Completed)]
    );
    assert!(!published.current().unwrap().are_static);

    // One that does not compile has effect, as in a server.
    api.put(POLICIES, policy("two", "nonsense("));
    api.put(BINDINGS, binding("two"));
    until("both are in force", || count() == Some(2)).await;
    // They are counted once they are published.
    until("both are counted", || status.policies() == 2).await;
    api.delete(BINDINGS, binding("one"));
    api.delete(BINDINGS, binding("two"));
    until("none is in force", || count() == Some(0)).await;
    until("namespaces are not needed", || {
        api.open_watches(NAMESPACES) == 0
    })
    .await;
    task.abort();
}
