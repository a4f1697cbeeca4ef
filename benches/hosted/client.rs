//! A client of the hosted API.

use std::net::SocketAddr;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// The path of FlowSchemas.
pub(crate) const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";

/// One connection.
#[derive(Clone)]
pub(crate) struct Client(http2::SendRequest<Full<Bytes>>);

/// A FlowSchema of about 1 KiB.
pub(crate) fn body(name: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name, "labels": {"of": "bench"}, "annotations": {"padding": "x".repeat(200)}},
        "spec": {
            "matchingPrecedence": 5000,
            "priorityLevelConfiguration": {"name": "workload-low"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": name}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true,
                }],
            }],
        },
    })
}

impl Client {
    pub(crate) async fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("it is a TCP stream");
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .expect("it speaks HTTP/2");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn open(&self, method: Method, target: &str, body: String) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://gate{target}"))
            .header("authorization", "Bearer root")
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .expect("the request is well-formed");
        self.0
            .clone()
            .send_request(request)
            .await
            .expect("it answers")
    }

    async fn call(&self, method: Method, target: &str, body: String) -> (StatusCode, Bytes) {
        let response = self.open(method, target, body).await;
        let status = response.status();
        let body = response.into_body().collect().await;
        (status, body.expect("the response is complete").to_bytes())
    }

    /// Creates an object.
    pub(crate) async fn create(&self, name: &str) {
        let (status, text) = self
            .call(Method::POST, SCHEMAS, body(name).to_string())
            .await;
        assert_eq!(status, StatusCode::CREATED, "{text:?}");
    }

    /// Reads an object.
    pub(crate) async fn get(&self, name: &str) {
        let target = format!("{SCHEMAS}/{name}");
        let (status, text) = self.call(Method::GET, &target, String::new()).await;
        assert_eq!(status, StatusCode::OK, "{text:?}");
    }

    /// Deletes the objects of the bench.
    pub(crate) async fn delete_all(&self) {
        let target = format!("{SCHEMAS}?labelSelector=of%3Dbench");
        let (status, text) = self.call(Method::DELETE, &target, String::new()).await;
        assert_eq!(status, StatusCode::OK, "{text:?}");
    }

    /// Lists all objects; returns the body of the response.
    pub(crate) async fn list(&self) -> Bytes {
        let (status, text) = self.call(Method::GET, SCHEMAS, String::new()).await;
        assert_eq!(status, StatusCode::OK, "{text:?}");
        text
    }

    async fn listed(&self) -> Value {
        serde_json::from_slice(&self.list().await).expect("it is JSON")
    }

    /// The number of objects.
    pub(crate) async fn count(&self) -> usize {
        self.listed().await["items"].as_array().map_or(0, Vec::len)
    }

    /// The resource version of a list.
    pub(crate) async fn version(&self) -> String {
        let list = self.listed().await;
        list["metadata"]["resourceVersion"]
            .as_str()
            .expect("a list has one")
            .to_owned()
    }

    /// Waits for the objects that a gateway creates at its first start.
    pub(crate) async fn until_built_in_objects_are_there(&self) {
        while self.count().await < 11 {
            tokio::task::yield_now().await;
        }
    }

    /// Watches the objects of the bench.
    pub(crate) async fn watch(&self, from: &str) -> Watch {
        let target = format!("{SCHEMAS}?watch=1&labelSelector=of%3Dbench&resourceVersion={from}");
        let response = self.open(Method::GET, &target, String::new()).await;
        assert_eq!(response.status(), StatusCode::OK, "a watch starts");
        Watch {
            body: response.into_body(),
            pending: BytesMut::new(),
        }
    }
}

/// An open watch.
pub(crate) struct Watch {
    body: Incoming,
    pending: BytesMut,
}

impl Watch {
    /// Waits for an event; the number in the object's name if it was just made.
    pub(crate) async fn next_written(&mut self) -> Option<usize> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end);
                self.pending.advance(1);
                // Not parsed completely, because a thousand watchers share the cores.
                let text = std::str::from_utf8(&line).expect("it is text");
                if !text.starts_with(r#"{"type":"ADDED""#) {
                    return None;
                }
                let (_, rest) = text.split_once(r#""name":"watched-"#)?;
                return rest.split('"').next()?.parse().ok();
            }
            let frame = self.body.frame().await.expect("the watch continues");
            if let Ok(data) = frame.expect("the watch continues").into_data() {
                self.pending.extend_from_slice(&data);
            }
        }
    }
}
