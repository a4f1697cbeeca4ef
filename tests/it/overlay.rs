//! The gateway over an upstream: it answers for the flow control API and nothing else, tells of it in
//! the upstream's documents, and asks the upstream who may.
//!
//! The whole program runs here, as its configuration says.

use std::{
    fs,
    future::Future,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::{
    client::{self, TestClient},
    upstream::{SeenRequest, Speaks, TestReply, TestUpstream, full, text},
};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// An API server of few words. Alice may read; Carol may patch, too; of Bob it cannot tell.
struct Server {
    upstream: Option<TestUpstream>,
    /// How often its documents have changed.
    edition: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let edition = Arc::<AtomicUsize>::default();
        let current = Arc::clone(&edition);
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            answer(request, current.load(Ordering::SeqCst))
        });
        Self {
            upstream: Some(upstream),
            edition,
        }
    }

    fn seen(&self) -> Vec<SeenRequest> {
        let seen = self.upstream.as_ref().unwrap().seen();
        // The gateway itself reads the metrics from time to time.
        let own = |seen: &SeenRequest| seen.target == "/metrics" && !is_of_a_client(&seen.headers);
        seen.into_iter().filter(|seen| !own(seen)).collect()
    }

    fn of(&self, target: &str) -> Vec<SeenRequest> {
        let seen = self.seen().into_iter();
        seen.filter(|seen| seen.target == target).collect()
    }
}

fn is_of_a_client(headers: &HeaderMap) -> bool {
    headers.contains_key("impersonate-user")
}

type Answering = Pin<Box<dyn Future<Output = TestReply> + Send>>;

fn answer(request: Request<Incoming>, edition: usize) -> Answering {
    Box::pin(async move {
        let header = |name: &str| {
            let value = request.headers().get(name);
            value.map_or("", |value| value.to_str().unwrap()).to_owned()
        };
        let (accept, known) = (header("accept"), header("if-none-match"));
        let path = request.uri().path().to_owned();
        let refused = header("impersonate-user") == "mallory";
        match path.as_str() {
            REVIEWS => {
                let review = request.into_body().collect().await.unwrap().to_bytes();
                review_answer(&serde_json::from_slice(&review).unwrap())
            }
            "/apis" | "/openapi/v2" | "/openapi/v3" if refused => {
                let mut answer = text("the upstream says no");
                *answer.status_mut() = StatusCode::FORBIDDEN;
                answer
            }
            "/apis" if *request.method() == Method::HEAD => text(""),
            "/apis" if accept.contains("v=v2;as=APIGroupDiscoveryList") => {
                let item = |name: &str| json!({"metadata": {"name": name}, "versions": []});
                let items = [item("apps"), item("example.com")];
                let list = json!({"kind": "APIGroupDiscoveryList",
                    "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
                tagged(&list, AGGREGATED, &format!("\"list-{edition}\""), &known)
            }
            "/apis" => json_of(&json!({"kind": "APIGroupList", "apiVersion": "v1",
                "groups": [{"name": "apps"}, {"name": "flowcontrol.apiserver.k8s.io"}]})),
            "/openapi/v2" => {
                let tag = format!("\"v2-{edition}\"");
                tagged(&openapi_v2(edition), "application/json", &tag, &known)
            }
            "/openapi/v3" => json_of(&json!({"paths": {
                "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=A"},
                "apis/flowcontrol.apiserver.k8s.io/v1": {
                    "serverRelativeURL": "/openapi/v3/apis/flowcontrol.apiserver.k8s.io/v1?hash=B"}}})),
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
                tagged(&document, "application/json", "\"B\"", &known)
            }
            "/apis/policy/v1" => json_of(
                &json!({"kind": "APIResourceList", "groupVersion": "policy/v1",
                "resources": [{"name": "poddisruptionbudgets", "verbs": ["theirs"]}]}),
            ),
            "/api/v1" => json_of(
                &json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "pods", "kind": "Pod"}, {"name": "pods/log", "kind": "Pod"}]}),
            ),
            "/api/v1/namespaces/shop" => {
                json_of(&json!({"kind": "Namespace", "status": {"phase": "Active"}}))
            }
            "/api/v1/namespaces/ending" => json_of(&json!({"kind": "Namespace",
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            "/api/v1/namespaces/gone" => {
                let mut answer = json_of(&json!({"kind": "Status", "reason": "NotFound",
                    "details": {"kind": "namespaces", "name": "gone"}}));
                *answer.status_mut() = StatusCode::NOT_FOUND;
                answer
            }
            path if path.starts_with("/api/v1/namespaces/shop/pods/p") => {
                json_of(&json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "1",
                    "labels": {"app": "web"}},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}))
            }
            path if path.contains("v1beta3") || path.contains("v9") => {
                let mut answer = text("404 page not found");
                *answer.status_mut() = StatusCode::NOT_FOUND;
                answer
            }
            _ => text("the upstream's"),
        }
    })
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

/// More than is sent without being compressed.
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

fn review_answer(review: &Value) -> TestReply {
    let spec = &review["spec"];
    let verb = spec["resourceAttributes"]["verb"].as_str();
    let verb = verb.or(spec["nonResourceAttributes"]["verb"].as_str());
    let reads = ["get", "list", "watch"].contains(&verb.unwrap());
    let mut answer = match (spec["user"].as_str().unwrap(), verb.unwrap()) {
        ("bob", _) => {
            let mut answer = text("no idea");
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return answer;
        }
        ("carol", "patch") => json_of(&json!({"status": {"allowed": true}})),
        _ if reads => json_of(&json!({"status": {"allowed": true}})),
        _ => json_of(&json!({"status": {"allowed": false, "reason": "not on a Friday"}})),
    };
    *answer.status_mut() = StatusCode::CREATED;
    answer
}

/// The program, in front of a server.
struct Gateway {
    process: Child,
    address: SocketAddr,
    admin: SocketAddr,
    directory: PathBuf,
}

impl Gateway {
    fn over(server: &Server, test: &str) -> Self {
        Self::with(server, test, "relay")
    }

    /// The same with a mode of evictions.
    fn with(server: &Server, test: &str, evictions: &str) -> Self {
        let name = format!("fairgate-overlay-{}-{test}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let users = [
            ("root", "system:masters"),
            ("alice", "devs"),
            ("bob", "devs"),
            ("carol", "devs"),
            ("mallory", "devs"),
        ];
        let tokens = users.map(|(user, group)| format!("{user}-token,{user},{user}-uid,{group}\n"));
        fs::write(directory.join("tokens.csv"), tokens.concat()).unwrap();
        let config = json!({
            "apiVersion": "fairgate.dev/v1alpha1",
            "kind": "Configuration",
            "mode": "overlay",
            "listen": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": {"url": format!("http://{}", server.upstream.as_ref().unwrap().address)},
            "authentication": {"tokenFile": "tokens.csv", "tokenReview": {"enabled": false}},
            "eviction": {"mode": evictions},
        });
        let path = directory.join("fairgate.yaml");
        fs::write(&path, config.to_string()).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_fairgate"))
            .args(["serve", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let (address, admin) = serving_addresses(&mut log);
        // Nobody must wait for the log to be read.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self {
            process,
            address,
            admin,
            directory,
        }
    }

    /// The value of a metric of the gateway's own.
    async fn metric(&self, name: &str) -> Option<u64> {
        let mut operator = TestClient::http1(self.admin).await;
        let all = client::body_text(operator.get("/metrics").await).await;
        let value = all
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    async fn user(&self, name: &'static str) -> User {
        User {
            client: TestClient::http1(self.address).await,
            name,
        }
    }
}

/// The addresses that the log tells, for clients and for operators.
fn serving_addresses(log: &mut impl std::io::BufRead) -> (SocketAddr, SocketAddr) {
    let mut told = String::new();
    for line in log.lines() {
        let line = line.unwrap();
        if line.contains(": serving ") {
            let told = |name: &str| {
                let value = line.split(&format!(" {name}=")).nth(1).unwrap();
                value.split(' ').next().unwrap().parse().unwrap()
            };
            return (told("address"), told("admin"));
        }
        told.push_str(&line);
        told.push('\n');
    }
    panic!("the gateway does not serve:\n{told}");
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Somebody with a connection.
struct User {
    client: TestClient,
    name: &'static str,
}

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl User {
    async fn ask(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Got {
        let mut request = self.client.request(method, target);
        request = request.header("authorization", format!("Bearer {}-token", self.name));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(full(body)).unwrap();
        let answer = client::soon(self.client.send(request)).await.unwrap();
        Got {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: client::body(answer).await,
        }
    }

    async fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Got {
        self.ask(Method::GET, target, headers, String::new()).await
    }

    async fn create_schema(&mut self, name: &str) -> Got {
        let json = [("content-type", "application/json")];
        let body = schema(name).to_string();
        self.ask(Method::POST, SCHEMAS, &json, body).await
    }

    async fn apply_schema(&mut self, name: &str) -> Got {
        let target = format!("{SCHEMAS}/{name}?fieldManager=test&force=true");
        let apply = [("content-type", "application/apply-patch+yaml")];
        let body = schema(name).to_string();
        self.ask(Method::PATCH, &target, &apply, body).await
    }
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

fn schema(name: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {"priorityLevelConfiguration": {"name": "workload-low"}},
    })
}

fn names(list: &Value, name: impl Fn(&Value) -> &Value) -> Vec<String> {
    let items = list.as_array().unwrap().iter();
    items
        .map(|item| name(item).as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_documents_are_the_upstreams_with_ours_in_them() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "documents");
    let mut alice = gateway.user("alice").await;

    let groups = alice.get("/apis", &[]).await.json();
    let merged = ["apps", "flowcontrol.apiserver.k8s.io"];
    assert_eq!(names(&groups["groups"], |group| &group["name"]), merged);
    assert_eq!(
        groups["groups"][1]["versions"][1]["groupVersion"],
        "flowcontrol.apiserver.k8s.io/v1beta3"
    );
    let yaml = alice.get("/apis", &[("accept", "application/yaml")]).await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text().contains("- name: flowcontrol.apiserver.k8s.io"));

    for form in [
        AGGREGATED.to_owned(),
        AGGREGATED.replace("v=v2", "v=v2beta1"),
    ] {
        let got = alice.get("/apis", &[("accept", &form)]).await;
        assert_eq!(got.header("content-type"), form);
        assert_eq!(got.header("cache-control"), "public");
        let list = got.json();
        let found = names(&list["items"], |item| &item["metadata"]["name"]);
        let expected = ["apps", "flowcontrol.apiserver.k8s.io", "example.com"];
        assert_eq!(found, expected);
    }

    let got = alice.get("/openapi/v2", &[]).await;
    assert_eq!(got.header("last-modified"), "");
    let v2 = got.json();
    let paths = v2["paths"].as_object().unwrap();
    assert!(paths.contains_key("/apis/apps/v1/deployments") && paths.contains_key(SCHEMAS));
    assert!(!paths.contains_key(&SCHEMAS.replace("v1/", "v1beta1/")));
    assert!(paths.contains_key("/apis/flowcontrol.apiserver.k8s.io/v1/theirs"));
    assert_eq!(v2["info"]["version"], "v0");
    let protobuf = alice.get("/openapi/v2", &[("accept", PROTOBUF)]).await;
    assert_eq!(protobuf.header("content-type"), PROTOBUF);
    assert!(protobuf.text().contains("/apis/apps/v1/deployments"));
    assert!(protobuf.text().contains(SCHEMAS));
    assert_eq!(protobuf.header("etag"), got.header("etag"));

    let v3 = alice.get("/openapi/v3", &[]).await.json();
    let url = |key: &str| v3["paths"][key]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(url("api/v1"), "/openapi/v3/api/v1?hash=A");
    let ours = url("apis/flowcontrol.apiserver.k8s.io/v1");
    let got = alice.get(ours, &[]).await;
    assert_eq!(got.status, 200, "{ours}");
    assert_eq!(got.header("cache-control"), "public, immutable");
    let paths = got.json()["paths"].as_object().unwrap().clone();
    assert!(paths.contains_key(&format!("{GROUP}/v1/others")) && paths[SCHEMAS].is_object());
    let another = format!("/openapi/v3{GROUP}/v1?hash=OLD");
    let got = alice.get(&another, &[]).await;
    assert_eq!((got.status, got.header("location")), (301, ours));
    let plain = alice.get(another.split('?').next().unwrap(), &[]).await;
    assert_eq!(plain.header("cache-control"), "public");
    let tag = plain.header("etag").to_owned();
    let again = alice.get(ours, &[("if-none-match", &tag)]).await;
    assert_eq!(again.status, 304);

    let group = alice.get(GROUP, &[]).await.json();
    let versions = names(&group["versions"], |version| &version["version"]);
    assert_eq!(versions, ["v1", "v1beta3"]);
    let resources = alice.get(&format!("{GROUP}/v1"), &[]).await.json();
    let schemas = &resources["resources"][0];
    assert_eq!(
        (&schemas["name"], &schemas["verbs"][0]),
        (&json!("flowschemas"), &json!("create"))
    );
    let found = names(&resources["resources"], |resource| &resource["name"]);
    let expected = [
        "flowschemas",
        "flowschemas/status",
        "others",
        "prioritylevelconfigurations",
        "prioritylevelconfigurations/status",
    ];
    assert_eq!(found, expected);
    // What the upstream lacks altogether is all ours.
    let beta = alice.get(&format!("{GROUP}/v1beta3"), &[]).await.json();
    assert_eq!(beta["groupVersion"], "flowcontrol.apiserver.k8s.io/v1beta3");
    let beta = alice.get(&format!("/openapi/v3{GROUP}/v1beta3"), &[]).await;
    assert_eq!(beta.status, 200);
    let unknown = alice.get(&format!("{GROUP}/v9"), &[]).await;
    assert_eq!(unknown.status, 404);

    for seen in server.of("/openapi/v2") {
        assert_eq!(seen.headers["impersonate-user"], "alice");
        assert_eq!(seen.headers["accept"], "application/json");
        assert_eq!(seen.headers["accept-encoding"], "identity");
    }
}

#[tokio::test]
async fn a_document_is_fetched_again_only_when_it_has_changed() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "tags");
    let mut alice = gateway.user("alice").await;

    let first = alice.get("/openapi/v2", &[]).await;
    let zip = [("accept-encoding", "gzip")];
    let compressed = alice.get("/openapi/v2", &zip).await;
    assert_eq!(compressed.header("content-encoding"), "gzip");
    assert!(compressed.body.len() < first.body.len() / 4);
    let known = [
        ("if-none-match", first.header("etag")),
        ("range", "bytes=0-1"),
    ];
    let unchanged = alice.get("/openapi/v2", &known).await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));

    server.edition.fetch_add(1, Ordering::SeqCst);
    let changed = alice.get("/openapi/v2", &known).await;
    assert_eq!(changed.status, 200);
    assert_eq!(changed.json()["info"]["version"], "v1");
    assert_ne!(changed.header("etag"), first.header("etag"));

    let seen = server.of("/openapi/v2");
    let asked_with = |name: &str| -> Vec<Option<&str>> {
        let values = seen.iter().map(|seen| seen.headers.get(name));
        values
            .map(|value| value.map(|value| value.to_str().unwrap()))
            .collect()
    };
    let first_tag = Some("\"v2-0\"");
    assert_eq!(
        asked_with("if-none-match"),
        [None, first_tag, first_tag, first_tag]
    );
    assert_eq!(asked_with("range"), [None; 4]);
}

#[tokio::test]
async fn what_the_upstream_refuses_is_refused() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "refused");
    // What was made for others is there.
    gateway.user("alice").await.get("/openapi/v2", &[]).await;
    let mut mallory = gateway.user("mallory").await;
    for target in ["/apis", "/openapi/v2", "/openapi/v3"] {
        let got = mallory.get(target, &[]).await;
        assert_eq!(got.status, 403);
        assert_eq!(got.text(), "the upstream says no");
    }
}

#[tokio::test]
async fn whatever_is_not_ours_passes_unchanged() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "passing");
    let mut alice = gateway.user("alice").await;
    let accept = [("accept", AGGREGATED), ("accept-encoding", "gzip")];
    for target in [
        "/",
        "/version",
        "/metrics",
        "/livez?verbose",
        "/api",
        "/api/v1/pods?limit=5",
        "/apis/apps/v1",
        "/apis/flowcontrol.example.com/v1/flowschemas",
        "/openapi/v3/apis/apps/v1?hash=B",
    ] {
        let got = alice.get(target, &accept).await;
        assert_eq!(got.text(), "the upstream's", "{target}");
        let seen = server.of(target);
        assert_eq!(seen.len(), 1, "{target}");
        assert_eq!(seen[0].headers["accept"], AGGREGATED);
        assert_eq!(seen[0].headers["accept-encoding"], "gzip");
    }
    let mut of = async |method, target| {
        alice.ask(method, target, &[], "{}".to_owned()).await;
        server.of(target).len()
    };
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(of(Method::POST, review).await, 1);
    assert_eq!(of(Method::HEAD, "/apis").await, 1);
}

#[tokio::test]
async fn whatever_is_ours_does_not_reach_the_upstream() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "ours");
    let mut root = gateway.user("root").await;
    let list = root.get(SCHEMAS, &[]).await.json();
    let found = names(&list["items"], |item| &item["metadata"]["name"]);
    assert!(found.contains(&"catch-all".to_owned()), "{found:?}");
    assert_eq!(root.create_schema("mine").await.status, 201);
    let encoded = SCHEMAS.replace("/flowcontrol.", "/flowcontrol%2e");
    for (target, status) in [
        (&format!("{SCHEMAS}/mine"), 200),
        (&format!("{encoded}/mine"), 200),
        (&format!("{SCHEMAS}/theirs"), 404),
        (&format!("{GROUP}/v9/flowschemas"), 404),
        (&format!("/{SCHEMAS}"), 404),
        (&format!("/x/..{SCHEMAS}"), 404),
        (&SCHEMAS.replace("/v1/", "/./v1/"), 404),
    ] {
        assert_eq!(root.get(target, &[]).await.status, status, "{target}");
    }
    let seen = server.seen();
    assert!(seen.is_empty(), "{seen:?}");

    // Other resources of the group are the upstream's.
    let others = root.get(&format!("{GROUP}/v1/others"), &[]).await;
    assert_eq!((others.status, &*others.text()), (200, "the upstream's"));
}

fn budget_in(namespace: &str) -> (String, String) {
    let target = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    (target, budget.to_string())
}

#[tokio::test]
async fn budgets_are_hosted_where_evictions_are_carried_out_here() {
    let server = Server::start();
    let gateway = Gateway::with(&server, "budgets", "authoritative");
    let mut root = gateway.user("root").await;
    let json = [("content-type", "application/json")];
    for (namespace, status, message) in [
        ("shop", 201, ""),
        ("gone", 404, "namespaces \"gone\" not found"),
        (
            "ending",
            403,
            "poddisruptionbudgets.policy \"web\" is forbidden: unable to create new content in namespace \
             ending because it is being terminated",
        ),
    ] {
        let (target, body) = budget_in(namespace);
        let got = root.ask(Method::POST, &target, &json, body).await;
        assert_eq!(got.status, status, "{namespace}");
        if !message.is_empty() {
            assert_eq!(got.message(), message);
        }
    }

    let resources = root.get("/apis/policy/v1", &[]).await.json();
    assert_eq!(resources["resources"][0]["shortNames"], json!(["pdb"]));
    let core = root.get("/api/v1", &[]).await.json();
    let found = names(&core["resources"], |resource| &resource["name"]);
    assert_eq!(found, ["pods", "pods/eviction", "pods/log"]);
    assert_eq!(core["resources"][1]["kind"], "Eviction");

    // The hosted budget decides: its status is not computed yet.
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "shop"}});
    let target = "/api/v1/namespaces/shop/pods/p/eviction";
    let got = root
        .ask(Method::POST, target, &json, eviction.to_string())
        .await;
    assert_eq!(got.status, 429);
    assert_eq!(
        got.json()["details"]["causes"][0]["message"],
        "The disruption budget web is still being processed by the server."
    );
    // With a computed budget, the eviction charges it and deletes the pod.
    let (budgets, _) = budget_in("shop");
    let mut budget = root.get(&format!("{budgets}/web"), &[]).await.json();
    budget["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2});
    let status = format!("{budgets}/web/status");
    let got = root
        .ask(Method::PUT, &status, &json, budget.to_string())
        .await;
    assert_eq!(got.status, 200);
    let got = root
        .ask(Method::POST, target, &json, eviction.to_string())
        .await;
    assert_eq!(got.status, 201, "{}", got.text());
    let charged = root.get(&format!("{budgets}/web"), &[]).await.json();
    assert_eq!(charged["status"]["disruptionsAllowed"], 0);
    assert!(charged["status"]["disruptedPods"]["p"].is_string());
    let theirs = server.seen();
    assert!(
        theirs
            .iter()
            .all(|seen| !seen.target.contains("poddisruptionbudgets"))
    );
}

#[tokio::test]
async fn budgets_stay_the_upstreams_where_it_decides_about_evictions() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "no-budgets");
    let mut root = gateway.user("root").await;
    let (target, _) = budget_in("shop");
    let got = root.get(&target, &[]).await;
    assert_eq!((got.status, &*got.text()), (200, "the upstream's"));
}

#[tokio::test]
async fn the_upstream_is_asked_once_who_may_what() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "asked");
    let mut alice = gateway.user("alice").await;
    for _ in 0..3 {
        assert_eq!(alice.get(SCHEMAS, &[]).await.status, 200);
        let refused = alice.create_schema("hers").await;
        assert_eq!(refused.status, 403);
        assert_eq!(
            refused.message(),
            "flowschemas.flowcontrol.apiserver.k8s.io is forbidden: User \"alice\" cannot create \
             resource \"flowschemas\" in API group \"flowcontrol.apiserver.k8s.io\" at the cluster \
             scope: not on a Friday"
        );
    }
    let asked = server.of(REVIEWS);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(!is_of_a_client(&asked[0].headers), "in the gateway's name");
    // Each in their own name.
    assert_eq!(
        gateway.user("carol").await.get(SCHEMAS, &[]).await.status,
        200
    );
    assert_eq!(server.of(REVIEWS).len(), 3);
    gateway.user("root").await.get(SCHEMAS, &[]).await;
    assert_eq!(server.of(REVIEWS).len(), 3);
}

#[tokio::test]
async fn what_the_upstream_is_asked_for_and_its_connections_are_counted() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "counted");
    for name in ["alice", "bob"] {
        let mut user = gateway.user(name).await;
        user.get(SCHEMAS, &[]).await;
        user.create_schema("x").await;
        user.get("/api", &[]).await;
    }
    let reviews = async |outcome: &str| {
        let name = format!("fairgate_access_reviews_total{{outcome=\"{outcome}\"}}");
        gateway.metric(&name).await.unwrap()
    };
    assert_eq!(reviews("allowed").await, 1);
    assert_eq!(reviews("denied").await, 1);
    assert_eq!(reviews("failed").await, 2);
    let open = gateway.metric("fairgate_upstream_connections").await;
    let opened = gateway.metric("fairgate_upstream_connections_opened_total");
    assert!(open.unwrap() >= 1 && opened.await.unwrap() >= open.unwrap());

    drop(server);

    client::soon(async {
        while gateway.metric("fairgate_upstream_connections").await != Some(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gateway.user("alice").await.get("/api", &[]).await;
    let failed = "fairgate_upstream_errors_total{outcome=\"connect\"}";
    assert!(gateway.metric(failed).await.unwrap() >= 1);
}

#[tokio::test]
async fn an_apply_that_would_make_an_object_has_to_be_allowed_to() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "apply");
    let mut carol = gateway.user("carol").await;
    let refused = carol.apply_schema("new").await;
    assert_eq!(refused.status, 403);
    let message = refused.message();
    assert!(message.contains("cannot create resource"), "{message}");
    assert!(message.ends_with(": not on a Friday"), "{message}");
    gateway.user("root").await.create_schema("new").await;
    assert_eq!(carol.apply_schema("new").await.status, 200);
}

#[tokio::test]
async fn an_object_that_comes_and_goes_is_not_made_by_who_may_only_change_it() {
    let server = Server::start();
    let gateway = Gateway::over(&server, "fleeting");
    let (mut carol, mut root) = (gateway.user("carol").await, gateway.user("root").await);
    let coming_and_going = async {
        for _ in 0..150 {
            root.create_schema("fleeting").await;
            let target = format!("{SCHEMAS}/fleeting");
            root.ask(Method::DELETE, &target, &[], String::new()).await;
        }
    };
    let applying = async {
        loop {
            let status = carol.apply_schema("fleeting").await.status;
            assert!([200, 403, 409].contains(&status), "{status}");
        }
    };
    tokio::select! {
        () = coming_and_going => {}
        () = applying => {}
    }
}

#[tokio::test]
async fn without_the_upstream_what_is_known_goes_on() {
    let mut server = Server::start();
    let gateway = Gateway::over(&server, "down");
    let mut alice = gateway.user("alice").await;
    let mut bob = gateway.user("bob").await;
    assert_eq!(alice.get(SCHEMAS, &[]).await.status, 200);
    let undecided = bob.get(SCHEMAS, &[]).await;
    assert_eq!(undecided.status, 500);
    assert_eq!(
        undecided.text(),
        format!(
            "Internal Server Error: \"{SCHEMAS}\": SubjectAccessReview: the upstream answered 503: Service Unavailable\n"
        )
    );

    server.upstream = None;
    assert_eq!(alice.get(SCHEMAS, &[]).await.status, 200);
    let other = SCHEMAS.replace("flowschemas", "prioritylevelconfigurations");
    let undecided = alice.get(&other, &[]).await;
    assert_eq!(undecided.status, 500);
    let text = undecided.text();
    assert!(text.starts_with(&format!("Internal Server Error: \"{other}\": ")));
    for target in ["/apis", GROUP, "/openapi/v2", "/version"] {
        let status = alice.get(target, &[]).await.status;
        assert!([502, 503].contains(&status), "{target}: {status}");
    }
    let mut root = gateway.user("root").await;
    assert_eq!(root.create_schema("in-the-dark").await.status, 201);
    assert_eq!(root.get(SCHEMAS, &[]).await.status, 200);
}
