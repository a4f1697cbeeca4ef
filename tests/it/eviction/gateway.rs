//! Gateways in front of a [`Cluster`], and their clients.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use fairgate::{app, config::Config, observe::GatewayMetrics};
use fairgate_store::Store;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::{
    client::{self, TestClient},
    upstream::full,
};

/// A gateway in this process.
pub struct Gateway {
    running: Option<app::Running>,
    directory: std::path::PathBuf,
}

impl Gateway {
    /// A gateway that decides about evictions by `mode`.
    pub fn deciding(mode: &str, cluster: &Cluster) -> Self {
        Self::with(cluster, json!({"eviction": {"mode": mode}}))
    }

    pub fn with(cluster: &Cluster, sections: Value) -> Self {
        Self::before(cluster.upstream.address, sections)
    }

    /// A gateway in front of the server at this address.
    pub fn before(upstream: SocketAddr, sections: Value) -> Self {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("fairgate-eviction-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let users = ["alice", "bob", "mallory"];
        let tokens = users.map(|user| format!("{user}-token,{user},,devs\n"));
        let root = "root-token,root,,system:masters\n";
        let tokens = format!("{}{root}", tokens.concat());
        std::fs::write(directory.join("tokens.csv"), tokens).unwrap();
        let mut config = json!({
            "apiVersion": "fairgate.dev/v1alpha1",
            "kind": "Configuration",
            "dataCores": 1,
            "listen": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": {"url": format!("http://{upstream}")},
            "authentication": {"tokenFile": "tokens.csv", "tokenReview": {"enabled": false}},
        });
        let Value::Object(sections) = sections else {
            panic!("sections are a mapping");
        };
        config.as_object_mut().unwrap().extend(sections);
        let reading = Config::parse("test.yaml", &directory, config.to_string().as_bytes());
        let (config, _) = reading.usable().unwrap();
        // A runtime cannot be started inside another.
        let started = std::thread::spawn(|| app::start(config, None, GatewayMetrics::new()));
        Self {
            running: Some(started.join().unwrap().unwrap()),
            directory,
        }
    }

    fn running(&self) -> &app::Running {
        self.running.as_ref().unwrap()
    }

    pub fn address(&self) -> SocketAddr {
        self.running().address()
    }

    /// The store of the API that it hosts.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.running().store().unwrap())
    }

    pub async fn alice(&self) -> User {
        self.user("alice").await
    }

    pub async fn user(&self, name: &'static str) -> User {
        User {
            client: TestClient::http1(self.address()).await,
            name,
        }
    }

    /// The number of evictions with this outcome.
    pub async fn counted(&self, mode: &str, outcome: &str) -> u64 {
        let name = format!("fairgate_evictions_total{{mode=\"{mode}\",outcome=\"{outcome}\"}}");
        self.metric(&name).await
    }

    /// The rows of the dump of evictions that wait, by the names of its columns.
    pub async fn waiting_evictions(&self) -> Vec<std::collections::BTreeMap<String, String>> {
        let mut operator = TestClient::http1(self.running().admin_address()).await;
        let path = "/debug/api_priority_and_fairness/dump_waiting_evictions";
        let text = client::body_text(operator.get(path).await).await;
        let cells = |line: &str| -> Vec<String> {
            line.split(',').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut lines = text.lines();
        let head = cells(lines.next().unwrap());
        lines
            .map(|line| head.iter().cloned().zip(cells(line)).collect())
            .collect()
    }

    /// The report of the health checks.
    pub async fn health(&self) -> String {
        let mut operator = TestClient::http1(self.running().admin_address()).await;
        client::body_text(operator.get("/readyz?verbose").await).await
    }

    /// The sum of all samples whose name and labels begin with `name`.
    pub async fn metric(&self, name: &str) -> u64 {
        let mut operator = TestClient::http1(self.running().admin_address()).await;
        let all = client::body_text(operator.get("/metrics").await).await;
        let samples = all.lines().filter(|line| line.starts_with(name));
        let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "these metrics are small counts"
        )]
        let sum = values.sum::<f64>() as u64;
        sum
    }

    /// Stops the gateway as a signal does.
    pub fn shut_down(mut self) -> std::thread::JoinHandle<()> {
        let running = self.running.take().unwrap();
        std::thread::spawn(move || running.shut_down())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A runtime cannot be stopped inside another either.
        let running = self.running.take();
        let _ = std::thread::spawn(move || drop(running)).join();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A user with a connection.
pub struct User {
    client: TestClient,
    name: &'static str,
}

pub struct Got {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/ns/pods/{pod}/eviction")
}

pub fn eviction(pod: &str, options: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "ns"}, "deleteOptions": options})
}

impl User {
    pub async fn ask(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Got {
        let request = self.request(method, target, headers, body.into());
        let answer = client::soon(self.client.send(request)).await.unwrap();
        Got {
            code: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: client::body(answer).await,
        }
    }

    fn request(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> http::Request<crate::upstream::TestBody> {
        let mut request = self.client.request(method, target);
        request = request.header("authorization", format!("Bearer {}-token", self.name));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(full(body)).unwrap()
    }

    pub async fn post(&mut self, target: &str, body: &Value) -> Got {
        let json = [("content-type", "application/json")];
        self.ask(Method::POST, target, &json, body.to_string())
            .await
    }

    pub async fn get(&mut self, target: &str) -> Got {
        self.ask(Method::GET, target, &[], Bytes::new()).await
    }

    /// Evicts a pod with these delete options.
    pub async fn evict(&mut self, pod: &str, options: Value) -> Got {
        self.post(&path(pod), &eviction(pod, &options)).await
    }

    /// Sends an eviction, and disconnects once `until` is true.
    pub async fn evict_and_disconnect(mut self, pod: &str, until: impl Fn() -> bool) {
        let json = [("content-type", "application/json")];
        let body = eviction(pod, &Value::Null).to_string();
        let request = self.request(Method::POST, &path(pod), &json, body.into());
        let sending = self.client.send(request);
        let arrived = crate::failures::until(until);
        tokio::select! {
            response = sending => panic!("a response: {response:?}"),
            () = arrived => {}
        }
    }
}

impl Got {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// What the response says about the budget.
    pub fn cause(&self) -> String {
        let causes = &self.json()["details"]["causes"];
        if causes[0]["reason"] != "DisruptionBudget" {
            return String::new();
        }
        causes[0]["message"].as_str().unwrap().to_owned()
    }
}
