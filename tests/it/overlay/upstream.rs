//! The fake API server behind the gateway of these tests: a few documents and objects, and access reviews. Alice may
//! read, Carol may also patch, Dave may write admission policies, read objects named "allowed" and those in the namespace
//! "readable", and list those in "listable", reviews for Bob fail, and Mallory may not read the documents at the root.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{AGGREGATED, GROUP, REVIEWS};
use crate::upstream::{SeenRequest, Speaks, TestReply, TestUpstream, full, text};

/// The API server. A test stops it by setting `upstream` to `None`.
pub(super) struct Server {
    pub(super) upstream: Option<TestUpstream>,
    /// How often its documents have changed.
    pub(super) edition: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn start() -> Self {
        let edition = Arc::<AtomicUsize>::default();
        let current = Arc::clone(&edition);
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            respond(request, current.load(Ordering::SeqCst))
        });
        Self {
            upstream: Some(upstream),
            edition,
        }
    }

    /// The requests that it has received.
    pub(super) fn seen(&self) -> Vec<SeenRequest> {
        let seen = self.upstream.as_ref().unwrap().seen();
        // The gateway itself reads the metrics from time to time.
        let own = |seen: &SeenRequest| seen.target == "/metrics" && !is_of_a_client(&seen.headers);
        seen.into_iter().filter(|seen| !own(seen)).collect()
    }

    /// The received requests for `target`.
    pub(super) fn of(&self, target: &str) -> Vec<SeenRequest> {
        let seen = self.seen().into_iter();
        seen.filter(|seen| seen.target == target).collect()
    }
}

/// Whether the gateway has sent a request on behalf of a client.
pub(super) fn is_of_a_client(headers: &HeaderMap) -> bool {
    headers.contains_key("impersonate-user")
}

type PendingReply = Pin<Box<dyn Future<Output = TestReply> + Send>>;

fn respond(request: Request<Incoming>, edition: usize) -> PendingReply {
    Box::pin(async move {
        let path = request.uri().path().to_owned();
        if path == REVIEWS {
            let review = request.into_body().collect().await.unwrap().to_bytes();
            return review_response(&serde_json::from_slice(&review).unwrap());
        }
        let refused = request
            .headers()
            .get("impersonate-user")
            .is_some_and(|user| user == "mallory");
        if refused && ["/apis", "/metrics", "/openapi/v2", "/openapi/v3"].contains(&&*path) {
            return with_status(StatusCode::FORBIDDEN, text("the upstream says no"));
        }
        if path == "/metrics" {
            return metrics(&request);
        }
        root_document(&path, &request, edition)
            .or_else(|| group_document(&path, &request))
            .or_else(|| object(&path))
            .unwrap_or_else(|| text("the upstream's"))
    })
}

/// Metrics as a kube-apiserver of Kubernetes 1.36 has them, in short.
pub(super) const METRICS: &str = "\
# HELP apiserver_flowcontrol_nominal_limit_seats [BETA] Nominal number of execution seats configured for each priority level
# TYPE apiserver_flowcontrol_nominal_limit_seats gauge
apiserver_flowcontrol_nominal_limit_seats{priority_level=\"catch-all\"} 13
apiserver_flowcontrol_nominal_limit_seats{priority_level=\"exempt\"} 0
# HELP apiserver_flowcontrol_request_wait_duration_seconds [BETA] Length of time a request spent waiting in its queue
# TYPE apiserver_flowcontrol_request_wait_duration_seconds histogram
apiserver_flowcontrol_request_wait_duration_seconds_bucket{execute=\"true\",flow_schema=\"exempt\",priority_level=\"exempt\",le=\"+Inf\"} 7
apiserver_flowcontrol_request_wait_duration_seconds_sum{execute=\"true\",flow_schema=\"exempt\",priority_level=\"exempt\"} 0.5
apiserver_flowcontrol_request_wait_duration_seconds_count{execute=\"true\",flow_schema=\"exempt\",priority_level=\"exempt\"} 7
# HELP apiserver_storage_objects [STABLE] Number of stored objects
# TYPE apiserver_storage_objects gauge
apiserver_storage_objects{resource=\"pods\"} 3
# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 2.3e+03
";

/// How long the metrics of the case `long` are: more than the gateway merges.
pub(super) const LONG: usize = 33 << 20;

/// The query names the case.
fn metrics(request: &Request<Incoming>) -> TestReply {
    let plain = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    let (content_type, body) = match request.uri().query() {
        None => (plain, METRICS.to_owned()),
        Some("html") => (plain, "<html>no metrics</html>".to_owned()),
        Some("openmetrics") => (
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            format!("{METRICS}# EOF\n"),
        ),
        Some("failing") => {
            return with_status(StatusCode::INTERNAL_SERVER_ERROR, text("broken metrics"));
        }
        Some(_) => (plain, "x 1\n".repeat(LONG / 4)),
    };
    let mut answer = Response::new(full(body));
    let headers = answer.headers_mut();
    headers.insert("content-type", content_type.parse().unwrap());
    headers.insert("cache-control", "no-cache, private".parse().unwrap());
    answer
}

fn header<'a>(request: &'a Request<Incoming>, name: &str) -> &'a str {
    let value = request.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// The lists of all groups, and the OpenAPI documents at the root.
fn root_document(path: &str, request: &Request<Incoming>, edition: usize) -> Option<TestReply> {
    let (accept, known) = (header(request, "accept"), header(request, "if-none-match"));
    Some(match path {
        "/apis" if *request.method() == Method::HEAD => text(""),
        "/api" if !is_of_a_client(request.headers()) => {
            let pods = json!({"resource": "pods", "scope": "Namespaced", "verbs": ["get"],
                "responseKind": {"group": "", "version": "v1", "kind": "Pod"}});
            let core =
                json!({"metadata": {}, "versions": [{"version": "v1", "resources": [pods]}]});
            let list = json!({"kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2", "items": [core]});
            tagged(&list, AGGREGATED, "\"core\"", known)
        }
        "/apis" if accept.contains("v=v2;as=APIGroupDiscoveryList") => {
            let item = |name: &str| json!({"metadata": {"name": name}, "versions": []});
            let items = [item("apps"), item("example.com")];
            let list = json!({"kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
            tagged(&list, AGGREGATED, &format!("\"list-{edition}\""), known)
        }
        "/apis" => json_of(&json!({"kind": "APIGroupList", "apiVersion": "v1",
            "groups": [{"name": "apps"}, {"name": "flowcontrol.apiserver.k8s.io"}]})),
        "/openapi/v2" => {
            let tag = format!("\"v2-{edition}\"");
            tagged(&openapi_v2(edition), "application/json", &tag, known)
        }
        "/openapi/v3" => json_of(&json!({"paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=A"},
            "apis/flowcontrol.apiserver.k8s.io/v1": {
                "serverRelativeURL": "/openapi/v3/apis/flowcontrol.apiserver.k8s.io/v1?hash=B"}}})),
        _ => return None,
    })
}

/// The documents of the groups that the gateway hosts, too, and of `/api/v1`.
fn group_document(path: &str, request: &Request<Incoming>) -> Option<TestReply> {
    Some(match path {
        GROUP => json_of(
            &json!({"kind": "APIGroup", "name": "flowcontrol.apiserver.k8s.io",
            "versions": [{"groupVersion": "flowcontrol.apiserver.k8s.io/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "flowcontrol.apiserver.k8s.io/v1", "version": "v1"}}),
        ),
        path if path == format!("{GROUP}/v1") => json_of(&json!({"kind": "APIResourceList",
            "groupVersion": "flowcontrol.apiserver.k8s.io/v1", "resources": [
                {"name": "flowschemas", "verbs": ["theirs"]}, {"name": "others", "verbs": ["get"]}]})),
        path if path == format!("/openapi/v3{GROUP}/v1") => {
            let document = json!({"openapi": "3.0.0", "info": {"title": "theirs"}, "paths": {
                format!("{GROUP}/v1/others"): {}, format!("{GROUP}/v1/flowschemas"): "theirs"}});
            let known = header(request, "if-none-match");
            tagged(&document, "application/json", "\"B\"", known)
        }
        "/apis/policy/v1" => json_of(
            &json!({"kind": "APIResourceList", "groupVersion": "policy/v1",
            "resources": [{"name": "poddisruptionbudgets", "verbs": ["theirs"]}]}),
        ),
        "/api/v1" => json_of(
            &json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "pods", "kind": "Pod"}, {"name": "pods/log", "kind": "Pod"}]}),
        ),
        path if path.contains("v1beta3") || path.contains("v9") => {
            with_status(StatusCode::NOT_FOUND, text("404 page not found"))
        }
        _ => return None,
    })
}

/// Namespaces, and the pods of `shop`.
fn object(path: &str) -> Option<TestReply> {
    Some(match path {
        "/api/v1/namespaces/shop" => json_of(
            &json!({"kind": "Namespace", "metadata": {"uid": "of-shop"}, "status": {"phase": "Active"}}),
        ),
        "/api/v1/namespaces/ending" => json_of(&json!({"kind": "Namespace",
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        "/api/v1/namespaces/gone" => {
            let status = json!({"kind": "Status", "reason": "NotFound",
                "details": {"kind": "namespaces", "name": "gone"}});
            with_status(StatusCode::NOT_FOUND, json_of(&status))
        }
        path if path.starts_with("/api/v1/namespaces/shop/pods/p") => {
            json_of(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "1",
                "labels": {"app": "web"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}))
        }
        _ => return None,
    })
}

fn with_status(status: StatusCode, mut reply: TestReply) -> TestReply {
    *reply.status_mut() = status;
    reply
}

fn json_of(value: &Value) -> TestReply {
    let mut answer = Response::new(full(value.to_string()));
    let json = "application/json".parse().unwrap();
    answer.headers_mut().insert("content-type", json);
    answer
}

fn tagged(value: &Value, content_type: &str, tag: &str, known: &str) -> TestReply {
    let mut answer = json_of(value);
    if known == tag {
        answer = Response::new(full(""));
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = answer.headers_mut();
    headers.insert("content-type", content_type.parse().unwrap());
    headers.insert("etag", tag.parse().unwrap());
    headers.insert("cache-control", "public".parse().unwrap());
    headers.insert("last-modified", "yesterday".parse().unwrap());
    answer
}

/// A document so large that it is compressed.
fn openapi_v2(edition: usize) -> Value {
    let long = "long ".repeat(40_000);
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": format!("v{edition}")},
        "paths": {
            "/apis/apps/v1/deployments": {"get": {"description": long}},
            "/apis/flowcontrol.apiserver.k8s.io/v1/theirs": {"get": {"description": "stays"}},
            "/apis/flowcontrol.apiserver.k8s.io/v1beta1/flowschemas": {"get": {"description": "goes"}},
        },
        "definitions": {},
    })
}

fn review_response(review: &Value) -> TestReply {
    let spec = &review["spec"];
    let verb = spec["resourceAttributes"]["verb"].as_str();
    let verb = verb.or(spec["nonResourceAttributes"]["verb"].as_str());
    let reads = ["get", "list", "watch"].contains(&verb.unwrap());
    let answer = match (spec["user"].as_str().unwrap(), verb.unwrap()) {
        ("bob", _) => return with_status(StatusCode::SERVICE_UNAVAILABLE, text("no idea")),
        ("carol", "patch") => json_of(&json!({"status": {"allowed": true}})),
        ("dave", _) => {
            let of = &spec["resourceAttributes"];
            let [group, namespace, name] =
                ["group", "namespace", "name"].map(|key| of[key].as_str().unwrap_or_default());
            let allowed = match (verb.unwrap(), namespace) {
                _ if group == "admissionregistration.k8s.io" => true,
                ("get", "readable") | ("list", "listable") => true,
                _ => name == "allowed",
            };
            json_of(&json!({"status": {"allowed": allowed}}))
        }
        _ if reads => json_of(&json!({"status": {"allowed": true}})),
        _ => json_of(&json!({"status": {"allowed": false, "reason": "not on a Friday"}})),
    };
    with_status(StatusCode::CREATED, answer)
}
