//! Admission policies on forwarded requests, through a whole gateway.

mod discovery;
mod documents;
mod hosted;
mod hosted_objects;
mod hostile;
mod slow_readers;
mod staleness;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use http::{Method, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{
    client,
    eviction::{
        cluster,
        gateway::{Gateway, Got, User},
    },
    upstream::{self, Speaks, TestReply, TestUpstream},
};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// In place of an object: the upstream does not answer.
const HANGS: &str = "hangs";

/// An upstream with stored objects by path, and the gateway in front of it.
struct World {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    upstream: TestUpstream,
    gateway: Gateway,
    directory: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A policy with its binding: name, resource, expression, action, fidelity.
fn policy([name, resource, expression, action, fidelity]: [&str; 5]) -> [Value; 2] {
    let group = "admissionregistration.k8s.io/v1";
    [
        json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "annotations": {"fairgate.dev/fidelity": fidelity}},
            "spec": {
                "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"],
                    "apiVersions": ["*"], "resources": [resource]}]},
                "validations": [{"expression": expression}],
            },
        }),
        json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": format!("{name}-b")},
            "spec": {"policyName": name, "validationActions": [action]},
        }),
    ]
}

/// The policies of the world of this name.
fn policy_file(name: &str) -> PathBuf {
    let directory = format!("fairgate-forwarded-{}-{name}", std::process::id());
    std::env::temp_dir().join(directory).join("p.yaml")
}

impl World {
    fn new(mode: &str, name: &str, policies: &[[Value; 2]]) -> Self {
        Self::with(mode, name, policies, json!({}))
    }

    /// With these further sections of the configuration.
    fn with(mode: &str, name: &str, policies: &[[Value; 2]], further: Value) -> Self {
        Self::of(mode, name, policies, further, &[])
    }

    /// With these objects from the start.
    fn of(
        mode: &str,
        name: &str,
        policies: &[[Value; 2]],
        further: Value,
        objects: &[(&str, Value)],
    ) -> Self {
        let file = policy_file(name);
        let directory = file.parent().unwrap().to_owned();
        std::fs::create_dir_all(&directory).unwrap();
        let documents: Vec<String> = policies.iter().flatten().map(Value::to_string).collect();
        let token = directory.join("token");
        std::fs::write(&file, documents.join("\n---\n")).unwrap();
        std::fs::write(&token, "gateway").unwrap();
        let objects = objects
            .iter()
            .map(|(path, object)| ((*path).to_owned(), object.clone()));
        let objects = Arc::new(Mutex::new(objects.collect::<BTreeMap<_, _>>()));
        let stored = Arc::clone(&objects);
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            let stored = Arc::clone(&stored);
            async move {
                let (head, body) = request.into_parts();
                let found = stored.lock().unwrap().get(head.uri.path()).cloned();
                if found.is_some_and(|object| object == HANGS) {
                    std::future::pending::<()>().await;
                }
                let body = body.collect().await.unwrap().to_bytes();
                respond(&stored, &head, &body)
            }
        });
        let mut sections = json!({
            "upstream": {"url": format!("http://{}", upstream.address), "tokenFile": token},
            "admission": {"mode": mode, "policies": {"files": [file]}},
        });
        let Value::Object(further) = further else {
            panic!("sections are a mapping");
        };
        sections.as_object_mut().unwrap().extend(further);
        Self {
            gateway: Gateway::before(upstream.address, sections),
            objects,
            upstream,
            directory,
        }
    }

    async fn alice(&self) -> User {
        self.gateway.alice().await
    }

    fn store(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    /// The writes that the upstream has received from the client: method and target.
    fn writes(&self) -> Vec<String> {
        let seen = self.upstream.seen();
        let writes = seen.iter().filter(|one| {
            let is_review = one.target.ends_with("accessreviews");
            let upgrades = one.target.contains("/exec");
            !is_review && (one.method != Method::GET || upgrades)
        });
        writes
            .map(|one| format!("{} {}", one.method, one.target))
            .collect()
    }
}

fn respond(
    stored: &Mutex<BTreeMap<String, Value>>,
    head: &http::request::Parts,
    body: &[u8],
) -> TestReply {
    let json = |value: Value| Response::new(upstream::full(value.to_string()));
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    match path {
        "/api" | "/apis" if stored.lock().unwrap().contains_key(path) => {
            let mut down = json(json!({"kind": "Status", "code": 500}));
            *down.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            return down;
        }
        "/api" | "/apis" => {
            return json(
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": []}),
            );
        }
        "/api/v1/namespaces" if query.contains("watch=true") => {
            return Response::new(upstream::streamed().1);
        }
        "/api/v1/namespaces" => {
            return json(json!({"kind": "NamespaceList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"}, "items": [
                    {"metadata": {"name": "ns", "resourceVersion": "1", "labels": {"env": "prod"}}}]}));
        }
        REVIEWS if stored.lock().unwrap().contains_key(REVIEWS) => {
            let mut down = json(json!({"kind": "Status", "code": 503}));
            *down.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            return down;
        }
        REVIEWS => {
            let mut review: Value = serde_json::from_slice(body).unwrap();
            review["status"] = json!({"allowed": review["spec"]["user"] != "mallory"});
            return json(review);
        }
        _ => {}
    }
    if head.method == Method::GET && !path.contains("/exec") {
        let found = stored.lock().unwrap().get(path).cloned();
        let Some(found) = found else {
            let name = path.rsplit('/').next();
            let mut absent = json(
                json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}, "code": 404}),
            );
            *absent.status_mut() = http::StatusCode::NOT_FOUND;
            return absent;
        };
        return json(found);
    }
    let mut object: Value = serde_json::from_slice(body).unwrap_or(json!({"kind": "Status"}));
    if object["kind"] == "ConfigMap" && object["data"]["defaulted"].is_null() {
        object["data"]["defaulted"] = json!("yes");
    }
    let mut response = json(object);
    *response.status_mut() = http::StatusCode::CREATED;
    let warning = http::HeaderValue::from_static("299 - \"of the upstream\"");
    response.headers_mut().insert("warning", warning);
    response
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn warnings(got: &Got) -> Vec<String> {
    let all = got.headers.get_all("warning").iter();
    all.map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn g01_g08_a_dry_run_shows_defaults_and_warnings_are_merged() {
    let expression = "object.data.defaulted == 'yes'";
    let world = World::new(
        "enforce",
        "g01",
        &[
            policy(["dry", "configmaps", expression, "Deny", "dryRun"]),
            policy(["warn", "configmaps", "false", "Warn", "asSent"]),
        ],
    );
    let got = world.alice().await.post(MAPS, &map("m")).await;
    assert_eq!(got.code, 201, "{}", got.text());
    assert_eq!(
        warnings(&got),
        [
            "299 - \"of the upstream\"",
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'warn' with binding 'warn-b': failed expression: false\""
        ]
    );
    let sent = [format!("POST {MAPS}?dryRun=All"), format!("POST {MAPS}")];
    assert_eq!(world.writes(), sent);
}

#[tokio::test]
async fn g01_without_a_dry_run_there_are_no_defaults() {
    let expression = "object.data.defaulted == 'yes'";
    let all = [policy(["p", "configmaps", expression, "Deny", "completed"])];
    let world = World::new("enforce", "g01b", &all);
    let got = world.alice().await.post(MAPS, &map("m")).await;
    assert_eq!(
        (got.code, got.header("x-fairgate-reason")),
        (422, "admission-denied")
    );
    assert!(
        got.text().contains("no such key: defaulted"),
        "{}",
        got.text()
    );
    assert!(world.writes().is_empty());
}

#[tokio::test]
async fn g07_impersonation_is_refused_before_any_policy() {
    let all = [policy(["p", "configmaps", "false", "Deny", "dryRun"])];
    let world = World::new("enforce", "g07", &all);
    let json = [
        ("content-type", "application/json"),
        ("impersonate-user", "bob"),
    ];
    let body = map("m").to_string();
    let mut alice = world.alice().await;
    let got = alice.ask(Method::POST, MAPS, &json, body).await;
    assert_eq!(
        (got.code, got.header("x-fairgate-reason")),
        (403, "forbidden")
    );
    assert!(got.text().contains("impersonation"), "{}", got.text());
    assert!(!got.text().contains("ValidatingAdmissionPolicy"));
    assert!(world.writes().is_empty());
    let evaluated = "fairgate_admission_requests_total";
    assert_eq!(world.gateway.metric(evaluated).await, 0);
}

#[tokio::test]
async fn g09_an_authorizer_that_is_down_is_an_error_of_the_check() {
    let check = "authorizer.group('').resource('pods').check('get')";
    let (errored, allowed) = (format!("{check}.errored()"), format!("{check}.allowed()"));
    let all = [
        policy(["errored", "configmaps", &errored, "Deny", "completed"]),
        policy(["allowed", "secrets", &allowed, "Deny", "completed"]),
    ];
    let world = World::new("enforce", "g09", &all);
    world.store(REVIEWS, json!("down"));
    let mut alice = world.alice().await;
    let got = alice.post(MAPS, &map("m")).await;
    assert_eq!(got.code, 201, "{}", got.text());
    // It is not allowed, so the policy denies, and nobody can say whether the user may write at all.
    let secret = json!({"metadata": {"name": "s"}});
    let got = alice.post("/api/v1/namespaces/ns/secrets", &secret).await;
    assert!(got.code >= 400, "{}", got.text());
    assert_eq!(world.writes(), [format!("POST {MAPS}")]);
}

#[tokio::test]
async fn g11_a_namespace_is_read_only_if_the_watch_does_not_know_it() {
    let expression = "namespaceObject.metadata.labels.env == 'prod'";
    let all = [policy(["p", "configmaps", expression, "Deny", "completed"])];
    let world = World::new("enforce", "g11", &all);
    // The labels have just been changed, and the watch has not delivered that yet.
    for name in ["ns", "other"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"env": "dev"}}});
        world.store(&format!("/api/v1/namespaces/{name}"), namespace);
    }
    let mut alice = world.alice().await;
    for (name, code) in [("ns", 201), ("other", 422)] {
        let path = format!("/api/v1/namespaces/{name}/configmaps");
        let got = alice.post(&path, &map("m")).await;
        assert_eq!(got.code, code, "{name}: {}", got.text());
    }
    let seen = world.upstream.seen();
    let reads = |name: &str| {
        let path = format!("/api/v1/namespaces/{name}");
        seen.iter().filter(|one| one.target == path).count()
    };
    assert_eq!((reads("ns"), reads("other")), (0, 1));
}

#[tokio::test]
async fn g13_one_protected_item_keeps_its_collection() {
    let expression = "!('protected' in oldObject.data)";
    let all = [policy(["p", "configmaps", expression, "Deny", "completed"])];
    let world = World::new("enforce", "g13", &all);
    let items = json!([{"metadata": {"name": "a"}, "data": {}},
        {"metadata": {"name": "b"}, "data": {"protected": ""}}]);
    let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": items});
    world.store(MAPS, list);
    let mut alice = world.alice().await;
    let got = alice.ask(Method::DELETE, MAPS, &[], "").await;
    assert_eq!(got.code, 422, "{}", got.text());
    assert!(world.writes().is_empty());
}

#[tokio::test]
async fn g14_exec_is_refused_before_the_upgrade_to_websocket_and_to_spdy() {
    let expression = "object.command[0] != 'rm'";
    let all = [policy(["p", "pods/exec", expression, "Deny", "completed"])];
    let world = World::new("enforce", "g14", &all);
    let mut alice = world.alice().await;
    alice.post(MAPS, &map("until policies are known")).await;
    for (protocol, method) in [("websocket", "GET"), ("SPDY/3.1", "POST")] {
        let request = format!(
            "{method} /api/v1/namespaces/ns/pods/p/exec?command=rm&stdout=1 HTTP/1.1\r\nHost: gate\r\n\
             Authorization: Bearer alice-token\r\nConnection: Upgrade, close\r\nUpgrade: {protocol}\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
        );
        let address = world.gateway.address();
        let sending = move || client::raw(address, request.as_bytes());
        let response = tokio::task::spawn_blocking(sending).await.unwrap();
        assert_eq!(client::status(&response), 422, "{response}");
        assert!(
            response.contains("pods \\\"p\\\" is forbidden"),
            "{response}"
        );
    }
    assert_eq!(world.writes(), [format!("POST {MAPS}")]);
}

#[tokio::test]
async fn in_audit_mode_nothing_is_refused() {
    let all = [policy(["p", "configmaps", "false", "Deny", "dryRun"])];
    let world = World::new("audit", "audit", &all);
    let got = world.alice().await.post(MAPS, &map("m")).await;
    assert_eq!((got.code, warnings(&got).len()), (201, 1));
    assert_eq!(world.writes(), [format!("POST {MAPS}")]);
}

/// G5 of evictions, not of policies: the gateway carries evictions out itself, after policies have allowed them.
#[tokio::test]
async fn eviction_g05_a_denied_eviction_leaves_its_budget_unchanged() {
    let expression = "object.metadata.name != 'kept'";
    let all = [policy([
        "p",
        "pods/eviction",
        expression,
        "Deny",
        "completed",
    ])];
    let authoritative = json!({"eviction": {"mode": "authoritative"}});
    let world = World::with("enforce", "evictions", &all, authoritative);
    let (pods, budgets) = (
        "/api/v1/namespaces/ns/pods",
        "/apis/policy/v1/namespaces/ns/poddisruptionbudgets",
    );
    for name in ["kept", "free"] {
        world.store(
            &format!("{pods}/{name}"),
            cluster::pod(name, "Running", true),
        );
    }
    let mut budget = cluster::budget(1, 3, 2);
    budget["metadata"]["resourceVersion"] = json!("7");
    let list = json!({"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1",
        "metadata": {"resourceVersion": "7"}, "items": [budget]});
    world.store(budgets, list);
    let mut alice = world.alice().await;

    let denied = alice.evict("kept", Value::Null).await;
    let reason = denied.header("x-fairgate-reason").to_owned();
    assert_eq!((denied.code, reason.as_str()), (422, "admission-denied"));
    assert_eq!(denied.cause(), "");
    assert!(world.writes().is_empty(), "{:?}", world.writes());

    let granted = alice.evict("free", Value::Null).await;
    assert_eq!(granted.code, 201, "{}", granted.text());
    let expected = [
        format!("PUT {budgets}/foo/status?fieldManager=fairgate"),
        format!("PATCH {pods}/free/status?fieldManager=fairgate"),
        format!("DELETE {pods}/free"),
    ];
    assert_eq!(world.writes(), expected);
}
