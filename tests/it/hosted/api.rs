//! A client of the hosted API: calls, their responses, and watches.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::client::soon;

pub const JSON: &str = "application/json";
pub const MERGE: &str = "application/merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// A connection of one user.
#[derive(Clone)]
pub struct Api {
    sender: http2::SendRequest<Full<Bytes>>,
    token: String,
}

/// A response with its whole body.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Api {
    /// Opens a connection, with a token unless `token` is empty.
    pub async fn new(address: SocketAddr, token: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            sender,
            token: token.to_owned(),
        }
    }

    /// A request without a body.
    pub fn request(&self, method: Method, target: &str) -> http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://gate{target}"));
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        request
    }

    /// Sends a request and waits for the head of its response.
    pub async fn open(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> http::Response<Incoming> {
        let request = request.body(Full::new(body.into())).unwrap();
        let sent = self.sender.clone().send_request(request);
        soon(sent).await.unwrap()
    }

    /// Sends a request and waits for its whole response.
    pub async fn send(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        ApiResponse::all_of(self.open(request, body).await).await
    }

    pub async fn call(
        &self,
        method: Method,
        target: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let request = self
            .request(method, target)
            .header(CONTENT_TYPE, content_type);
        self.send(request, body).await
    }

    pub async fn get(&self, target: &str) -> ApiResponse {
        self.send(self.request(Method::GET, target), "").await
    }

    pub async fn delete(&self, target: &str) -> ApiResponse {
        self.send(self.request(Method::DELETE, target), "").await
    }

    pub async fn post(&self, target: &str, object: &Value) -> ApiResponse {
        self.call(Method::POST, target, JSON, object.to_string())
            .await
    }

    pub async fn put(&self, target: &str, object: &Value) -> ApiResponse {
        self.call(Method::PUT, target, JSON, object.to_string())
            .await
    }

    pub async fn merge(&self, target: &str, patch: &Value) -> ApiResponse {
        self.call(Method::PATCH, target, MERGE, patch.to_string())
            .await
    }

    /// Starts a watch.
    pub async fn watch(&self, target: &str) -> Watch {
        self.watch_as(target, JSON).await
    }

    /// Starts a watch with this `Accept` header.
    pub async fn watch_as(&self, target: &str, accept: &str) -> Watch {
        let request = self.request(Method::GET, target).header("accept", accept);
        let response = self.open(request, "").await;
        assert_eq!(response.status(), StatusCode::OK, "{target}");
        Watch {
            body: response.into_body(),
            pending: BytesMut::new(),
        }
    }
}

impl ApiResponse {
    /// Waits for the whole response.
    pub async fn all_of(response: http::Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body: soon(body.collect()).await.unwrap().to_bytes(),
        }
    }

    /// The object in the body of a successful response.
    pub fn object(&self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.json()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The message of a refusal, which must be a Status with this code and reason.
    pub fn refused(&self, code: u16, reason: &str) -> String {
        assert_eq!(self.status.as_u16(), code, "{self:?}");
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{self:?}");
        assert_eq!(status["apiVersion"], "v1", "{self:?}");
        assert_eq!(status["status"], "Failure", "{self:?}");
        assert_eq!(status["code"], code, "{self:?}");
        assert_eq!(
            status["reason"].as_str().unwrap_or_default(),
            reason,
            "{self:?}"
        );
        let message = status["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "{self:?}");
        message.to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub fn warnings(&self) -> Vec<&str> {
        let all = self.headers.get_all("warning").iter();
        all.map(|value| value.to_str().unwrap()).collect()
    }
}

/// An open watch.
pub struct Watch {
    body: Incoming,
    pending: BytesMut,
}

impl Watch {
    /// The next event: its type and object. `None` at the end.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        soon(self.next_ever()).await
    }

    /// As [`Self::next`], without a time limit.
    pub async fn next_ever(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                let mut event: Value = serde_json::from_slice(&line).unwrap();
                let ty = event["type"].as_str().unwrap().to_owned();
                return Some((ty, event["object"].take()));
            }
            if !self.more().await {
                assert!(self.pending.is_empty(), "the watch ended inside an event");
                return None;
            }
        }
    }

    /// The next event, which must come.
    pub async fn event(&mut self) -> (String, Value) {
        self.next().await.expect("the watch continues")
    }

    /// The next frame of a watch in protobuf, without its length.
    pub async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(length) = self.pending.first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if self.pending.len() >= length + 4 {
                    let frame = self.pending.split_to(length + 4).freeze();
                    return Some(frame.slice(4..));
                }
            }
            if !soon(self.more()).await {
                return None;
            }
        }
    }

    /// Reads the next piece; false at the end.
    async fn more(&mut self) -> bool {
        match self.body.frame().await {
            None => false,
            Some(frame) => {
                if let Ok(data) = frame.unwrap().into_data() {
                    self.pending.extend_from_slice(&data);
                }
                true
            }
        }
    }
}
