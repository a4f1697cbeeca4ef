//! What do the layers of admission policies cost a request that no policy is about, and one that ten evaluate?
//!
//! One request through both layers on a data core, in front of a leaf that responds at once. The baseline is the leaf
//! alone; then the layers of a gateway that evaluates nothing, and of one with 200 policies, none of which matches, for a read
//! and for writes. Bars: at most 1 µs more than the baseline, and no more allocations.
//!
//! Then a Pod of 4 KiB is created, which ten policies allow, in fidelity `completed`: ten that read nothing but its metadata, so that no
//! defaults are set, and ten that read its containers. They have no bar: nearly all is decoding the body and making the object.

#[path = "support/leaf.rs"]
mod leaf;
mod support;

use std::{
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::{
    AdmissionDecision, AdmissionMode, AdmissionRecord, AdmissionRecorder, ClusterObjects,
    LookupFuture, ParamScope, PolicyParamKind, PolicySet, SharedObject,
};
use fairgate_admission_layer::{
    AdmissionLayer, AdmissionWaitLayer, AnsweredHere, ClusterState, ForwardedPolicies,
    PublishedPolicies, RequestEvaluator, RequestEvaluatorSettings, ResourceKind, ResourcesRead,
    ServedResource,
};
use fairgate_base::clock::Clock;
use fairgate_call::{Call, ClientBody, Inbound, Peer, Refusal, Reply, RequestContext};
use fairgate_cel::CelJson;
use fairgate_core::digest::{RequestDigest, RequestInfo, User};
use fairgate_upstream::{
    access_review::{AccessReviewSettings, AccessReviews},
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
    review::ReviewClient,
};
use leaf::Leaf;
use serde_json::{Value, json};
use support::{Case, measure};
use tokio::runtime::Handle;
use tower::{Layer, Service};

/// A cluster of one namespace, in which only pods are served.
#[derive(Debug)]
struct Cluster {
    pods: Arc<ServedResource>,
    namespace: SharedObject,
}

impl Cluster {
    fn new() -> Self {
        let pods = ResourceKind {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            kind: Some(["", "v1", "Pod"].map(str::to_owned)),
        };
        let namespace = r#"{"metadata": {"name": "shop", "labels": {"env": "prod", "team": "a"}}}"#;
        let namespace: CelJson<'static> = serde_json::from_str(namespace).expect("it is JSON");
        Self {
            pods: Arc::new(ServedResource {
                resource: pods.clone(),
                is_namespaced: true,
                equivalents: vec![pods],
            }),
            namespace: Arc::new(namespace),
        }
    }
}

impl ClusterState for Cluster {
    fn resource(&self, _: &str, _: &str, of: &str, sub: &str) -> Option<Arc<ServedResource>> {
        (of == "pods" && sub.is_empty()).then(|| Arc::clone(&self.pods))
    }

    fn are_resources_known(&self) -> bool {
        true
    }

    fn resources_read(&self) -> ResourcesRead<'_> {
        unreachable!("the resource is known")
    }
}

impl ClusterObjects for Cluster {
    fn namespace(&self, _: &str) -> Option<SharedObject> {
        Some(Arc::clone(&self.namespace))
    }

    fn read_namespace<'a>(&'a self, _: &'a str, _: &'a str) -> LookupFuture<'a> {
        unreachable!("the namespace is known")
    }

    fn param_scope(&self, _: &PolicyParamKind) -> Result<ParamScope, String> {
        Err("no params".to_owned())
    }
}

/// What is evaluated is allowed.
#[derive(Debug)]
struct Allowed;

impl AdmissionRecorder for Allowed {
    fn record(&self, record: AdmissionRecord) {
        assert_eq!(record.decision, AdmissionDecision::Allowed, "{record:?}");
    }
}

/// Policies that the Pod complies with.
const POLICIES: &str = include_str!("policies.json");

/// Ten policies that match the Pod.
fn matching() -> ForwardedPolicies {
    let all: Vec<Value> = serde_json::from_str(POLICIES).expect("policies are JSON");
    forwarded([all.clone(), all.iter().map(binding).collect()])
}

/// The same, with expressions that read nothing but metadata.
fn about_metadata() -> ForwardedPolicies {
    let mut all: Vec<Value> = serde_json::from_str(POLICIES).expect("policies are JSON");
    for policy in &mut all {
        policy["spec"]["variables"] = json!([]);
        policy["spec"]["matchConditions"] = json!([]);
        policy["spec"]["validations"] =
            json!([{"expression": "object.metadata.labels.all(key, key.size() < 63)"}]);
    }
    forwarded([all.clone(), all.iter().map(binding).collect()])
}

fn binding(policy: &Value) -> Value {
    let name = &policy["metadata"]["name"];
    json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}})
}

fn forwarded([policies, bindings]: [Vec<Value>; 2]) -> ForwardedPolicies {
    let [policies, bindings] = [&policies, &bindings].map(|all| all.iter().collect::<Vec<_>>());
    ForwardedPolicies {
        set: Arc::new(PolicySet::from_json(&policies, &bindings).expect("they are policies")),
        ..ForwardedPolicies::default()
    }
}

/// Two hundred policies: a third is about other resources, a third about other namespaces, a third about subresources.
fn policies() -> ForwardedPolicies {
    let mut all: [Vec<Value>; 2] = Default::default();
    for number in 0..200 {
        let rule = |resource: &str| {
            json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
                "resources": [resource]}])
        };
        let (rules, namespaces) = match number % 3 {
            0 => (rule(&format!("things{number}")), json!({})),
            1 => (
                rule("pods"),
                json!({"matchLabels": {"env": format!("e{number}")}}),
            ),
            _ => (rule("pods/status"), json!({})),
        };
        let name = format!("p{number}");
        all[0].push(json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": rules, "namespaceSelector": namespaces,
                "objectSelector": {}, "matchPolicy": "Equivalent"},
            "validations": [{"expression": "false"}]}}));
        all[1].push(binding(&json!({"metadata": {"name": name}})));
    }
    forwarded(all)
}

/// The layer of a gateway that enforces these policies.
fn enforcing(runtime: &Handle, policies: ForwardedPolicies) -> AdmissionLayer {
    let authority = "127.0.0.1:1".parse().expect("it is an authority");
    let client = ApiClient::new(
        Endpoint::new(authority, None),
        Arc::new(http::HeaderMap::new),
        ConnectionReuse::Pooled,
    );
    // It stands still, so that no evaluation goes on elsewhere because instructions are being counted.
    let clock = Clock::manual(Clock::system().now());
    let published = Arc::<PublishedPolicies>::default();
    published.publish(policies);
    let evaluator = RequestEvaluator::new(RequestEvaluatorSettings {
        mode: AdmissionMode::Enforce,
        policies: published,
        cluster: Arc::new(Cluster::new()),
        recorder: Arc::new(Allowed),
        access: AccessReviews::new(
            AccessReviewSettings::default(),
            ReviewClient::access(client.clone()),
            clock.clone(),
            runtime.clone(),
        ),
        client,
        body_budget: 1 << 20,
        guard: false,
        workers: Arc::new(fairgate_admission_layer::WorkerPool::new(1)),
        clock,
    });
    AdmissionLayer::new(evaluator, AnsweredHere::none(), runtime.clone())
}

/// Sends one request after the other to a service, which is made when its turn comes: what the layers of other cases take to set up,
/// which is never twice the same, is not counted.
fn case<S>(
    name: &str,
    service: impl FnOnce() -> S + 'static,
    method: http::Method,
    target: &'static str,
    body: Bytes,
) -> Case<'static>
where
    S: Service<Call, Response = Reply, Error = Refusal> + 'static,
{
    Case::new(name, move || {
        let mut service = service();
        let info = RequestInfo::from_target(method.as_str(), target);
        let digest = Arc::new(RequestDigest {
            info: info.expect("it is well-formed"),
            user: Arc::new(User::new("alice", [User::AUTHENTICATED])),
        });
        let (peer, clock) = (Rc::new(Peer::local()), Clock::system());
        move || {
            let mut request = http::Request::new(ClientBody::full(body.clone()));
            let json = http::HeaderValue::from_static("application/json");
            request
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, json);
            *request.method_mut() = method.clone();
            *request.uri_mut() = http::Uri::from_static(target);
            let inbound = Inbound {
                request: Box::new(request),
                peer: Rc::clone(&peer),
                received: clock.now(),
                context: Rc::new(RequestContext::default()),
            };
            let call = Call::new(inbound, Arc::clone(&digest), Duration::from_secs(60));
            let answer = pin!(service.call(call.expect("it has no time limit")));
            let polled = answer.poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_ready(), "the leaf answers at once");
        }
    })
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    let _inside = runtime.enter();
    let stack = |layer: AdmissionLayer| AdmissionWaitLayer::of(&layer).layer(layer.layer(Leaf));
    let enforced = |policies: fn() -> ForwardedPolicies| {
        let runtime = runtime.handle().clone();
        move || stack(enforcing(&runtime, policies()))
    };
    let none = move || stack(AdmissionLayer::none());
    let (empty, created) = (Bytes::new(), Bytes::from(support::pod::pod()));
    let pods = "/api/v1/namespaces/shop/pods";
    let pod = "/api/v1/namespaces/shop/pods/web";
    let (get, post, put) = (http::Method::GET, http::Method::POST, http::Method::PUT);
    let posted = |name, body: &Bytes, policies| {
        case(name, enforced(policies), post.clone(), pods, body.clone())
    };
    let unmatched =
        |name, method, target| case(name, enforced(policies), method, target, empty.clone());
    measure(
        "One request, with its context and response.",
        vec![
            case(
                "POST, no layers (baseline)",
                || Leaf,
                post.clone(),
                pods,
                empty.clone(),
            ),
            case(
                "POST, nothing is evaluated",
                none,
                post.clone(),
                pods,
                empty.clone(),
            ),
            unmatched("GET, 200 policies", get, pod),
            posted("POST, 200 policies", &empty, policies),
            // It may turn out to create or to update.
            unmatched("PUT, 200 policies", put, pod),
            posted(
                "POST of a Pod, 10 policies about metadata",
                &created,
                about_metadata,
            ),
            posted("POST of a Pod, 10 about its containers", &created, matching),
        ],
    );
}
