//! The gateway in front of an upstream (`mode: overlay`), as a process: it serves the flow control API and budgets,
//! merges them into the upstream's documents, and authorizes with the upstream's reviews.

mod authorization;
mod budgets;
mod documents;
mod hosted_policies;
mod hosted_staleness;
mod metrics;
mod upstream;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use self::upstream::{Server, is_of_a_client};
use crate::{
    client::{self, TestClient},
    process::{GatewayProcess, ProcessOptions},
    upstream::full,
};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const TOKENS: &str = "\
root-token,root,root-uid,system:masters
alice-token,alice,alice-uid,devs
bob-token,bob,bob-uid,devs
carol-token,carol,carol-uid,devs
dave-token,dave,dave-uid,devs
mallory-token,mallory,mallory-uid,devs
";

/// A gateway in front of `server`.
fn gateway_before(server: &Server) -> GatewayProcess {
    gateway_with(server, "relay")
}

/// The same, with this mode of evictions.
fn gateway_with(server: &Server, eviction_mode: &str) -> GatewayProcess {
    let configuration = json!({
        "mode": "overlay",
        "upstream": {"url": format!("http://{}", server.upstream.as_ref().unwrap().address)},
        "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
        "eviction": {"mode": eviction_mode},
    });
    let options = ProcessOptions {
        tokens: TOKENS,
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

async fn client_of(gateway: &GatewayProcess, user: &'static str) -> Client {
    Client {
        connection: TestClient::http1(gateway.address).await,
        user,
    }
}

/// A client with a connection and the token of a user.
struct Client {
    connection: TestClient,
    user: &'static str,
}

struct ClientResponse {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Client {
    async fn send(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> ClientResponse {
        let mut request = self.connection.request(method, target);
        request = request.header("authorization", format!("Bearer {}-token", self.user));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(full(body)).unwrap();
        let answer = client::soon(self.connection.send(request)).await.unwrap();
        ClientResponse {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: client::body(answer).await,
        }
    }

    async fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> ClientResponse {
        self.send(Method::GET, target, headers, String::new()).await
    }

    async fn create_schema(&mut self, name: &str) -> ClientResponse {
        let json = [("content-type", "application/json")];
        let body = schema(name).to_string();
        self.send(Method::POST, SCHEMAS, &json, body).await
    }

    async fn apply_schema(&mut self, name: &str) -> ClientResponse {
        let target = format!("{SCHEMAS}/{name}?fieldManager=test&force=true");
        let apply = [("content-type", "application/apply-patch+yaml")];
        let body = schema(name).to_string();
        self.send(Method::PATCH, &target, &apply, body).await
    }
}

impl ClientResponse {
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
async fn requests_for_other_resources_are_forwarded_unchanged() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;
    let accept = [("accept", AGGREGATED), ("accept-encoding", "gzip")];
    for target in [
        "/",
        "/version",
        "/metrics/slis",
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
        alice.send(method, target, &[], "{}".to_owned()).await;
        server.of(target).len()
    };
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(of(Method::POST, review).await, 1);
    assert_eq!(of(Method::HEAD, "/apis").await, 1);
}

#[tokio::test]
async fn requests_for_hosted_resources_do_not_reach_the_upstream() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut root = client_of(&gateway, "root").await;
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

#[tokio::test]
async fn reviews_and_upstream_connections_are_counted() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    for name in ["alice", "bob"] {
        let mut user = client_of(&gateway, name).await;
        user.get(SCHEMAS, &[]).await;
        user.create_schema("x").await;
        user.get("/api", &[]).await;
    }
    let reviews = |outcome: &str| {
        let name = format!("fairgate_access_reviews_total{{outcome=\"{outcome}\"}}");
        gateway.metric(&name).unwrap()
    };
    assert_eq!(reviews("allowed"), 1);
    assert_eq!(reviews("denied"), 1);
    assert_eq!(reviews("failed"), 2);
    let open = gateway.metric("fairgate_upstream_connections");
    let opened = gateway.metric("fairgate_upstream_connections_opened_total");
    assert!(open.unwrap() >= 1 && opened.unwrap() >= open.unwrap());

    drop(server);

    client::soon(async {
        while gateway.metric("fairgate_upstream_connections") != Some(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client_of(&gateway, "alice").await.get("/api", &[]).await;
    let failed = "fairgate_upstream_errors_total{outcome=\"connect\"}";
    assert!(gateway.metric(failed).unwrap() >= 1);
}
