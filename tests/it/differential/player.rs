//! Plays a session: one connection, one request after the other.

use std::{net::SocketAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use super::{
    corpus::{Request, Session},
    decode::{Decoded, decode},
    normalise::{Seen, counts},
};
use crate::client::soon;

/// How much longer a watch is read after all expected events have arrived, to notice unexpected ones.
const GRACE: Duration = Duration::from_millis(100);
/// One response in the corpus has a hundred warnings.
const MAX_HEADERS: usize = 1000;

/// The normalised responses to a session's requests, in the form of the corpus.
pub async fn play(address: SocketAddr, session: &Session) -> Vec<Value> {
    let mut connection = Connection {
        address,
        sender: None,
    };
    let mut seen = Seen::new(session.managed_fields);
    let mut watched = false;
    let mut answers = Vec::new();
    for (request, want) in &session.exchanges {
        let answer = soon(connection.send_until(request, &seen)).await;
        let (head, body) = answer.into_parts();
        let events = want["events"].as_array().map(Vec::len);
        // The first watch of a session has to end by itself; waiting for all of them would take a minute.
        let enough = events.filter(|_| std::mem::replace(&mut watched, events.is_some()));
        let body = soon(read(body, enough)).await;
        if body.cut_off {
            connection.sender = None;
        }
        let status = head.status.as_u16();
        answers.push(normalise(
            &mut seen,
            request,
            status,
            &head.headers,
            &body.bytes,
        ));
    }
    answers
}

struct Connection {
    address: SocketAddr,
    /// `None` before the first request, and after a response that was not read to its end.
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    async fn send(&mut self, request: &Request, seen: &Seen) -> Response<Incoming> {
        let sender = self.sender().await;
        soon(sender.send_request(wire(request, seen)))
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", request.line()))
    }

    /// Sends a request, again if it says until when.
    async fn send_until(&mut self, request: &Request, seen: &Seen) -> Response<Incoming> {
        loop {
            let answer = self.send(request, seen).await;
            if request.is_answered_by(&answer) {
                return answer;
            }
            answer.into_body().collect().await.unwrap();
        }
    }

    async fn sender(&mut self) -> &mut SendRequest<Full<Bytes>> {
        let open = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !open {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let handshake = Builder::new()
                .max_headers(MAX_HEADERS)
                .handshake(TokioIo::new(stream));
            let (sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        self.sender.as_mut().expect("it was just made")
    }
}

/// The HTTP request, with its placeholders replaced.
fn wire(request: &Request, seen: &Seen) -> http::Request<Full<Bytes>> {
    let path = seen.resolve(&request.path);
    let query = seen.resolve(&request.query);
    let mark = if query.is_empty() { "" } else { "?" };
    let body = if request.body_base64.is_empty() {
        seen.resolve(&request.body).into_bytes()
    } else {
        STANDARD.decode(&request.body_base64).unwrap()
    };
    let mut wire = http::Request::new(Full::new(Bytes::from(body)));
    *wire.method_mut() = Method::from_bytes(request.method.as_bytes()).unwrap();
    *wire.uri_mut() = format!("{path}{mark}{query}").parse().unwrap();
    let headers = wire.headers_mut();
    headers.insert("host", HeaderValue::from_static("gate"));
    headers.insert("user-agent", HeaderValue::from_static("session/1.0"));
    headers.insert("x-user", HeaderValue::from_static("root"));
    for (name, value) in &request.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        if name == "user-agent" && value.is_empty() {
            headers.remove(name);
        } else {
            let value = HeaderValue::from_bytes(seen.resolve(value).as_bytes());
            headers.insert(name, value.unwrap());
        }
    }
    wire
}

/// What was read of a body.
#[derive(Default)]
struct Read {
    bytes: Vec<u8>,
    cut_off: bool,
}

/// Reads a body to its end or, given how many events are enough, until nothing arrives for [`GRACE`] after those.
async fn read(mut body: Incoming, enough: Option<usize>) -> Read {
    let mut read = Read::default();
    loop {
        let has_enough = enough.is_some_and(|enough| events_in(&read.bytes) >= enough);
        let patience = if has_enough { GRACE } else { Duration::MAX };
        let Ok(frame) = tokio::time::timeout(patience, body.frame()).await else {
            read.cut_off = true;
            return read;
        };
        let Some(frame) = frame else { return read };
        if let Ok(data) = frame.unwrap().into_data() {
            read.bytes.extend_from_slice(&data);
        }
    }
}

/// The number of events in JSON lines, without those that a server may send at any time.
fn events_in(bytes: &[u8]) -> usize {
    let events = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    events.map_while(Result::ok).filter(counts).count()
}

/// A response in the form of the corpus.
fn normalise(
    seen: &mut Seen,
    request: &Request,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Value {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut answer = json!({"code": status});
    let mut reported = Map::new();
    for name in ["Content-Type", "Retry-After"] {
        if let Some(value) = headers.get(name) {
            reported.insert(name.to_owned(), json!(text(value)));
        }
    }
    let content_type = headers.get("content-type").map(text).unwrap_or_default();
    match decode(status, &content_type, body) {
        Decoded::Document(mut document) => {
            seen.learn(request, &document);
            seen.tree(&mut document);
            answer["body"] = document;
        }
        Decoded::Events(events) => {
            let events = events.into_iter().filter_map(|event| seen.event(event));
            answer["events"] = events.collect();
        }
        Decoded::Text if body.is_empty() => {}
        Decoded::Text => answer["text"] = json!(String::from_utf8_lossy(body)),
    }
    let warnings: Vec<String> = headers
        .get_all("warning")
        .iter()
        .map(|warning| seen.text(&text(warning)))
        .collect();
    if !warnings.is_empty() {
        reported.insert("Warning".to_owned(), json!(warnings));
    }
    answer["headers"] = Value::Object(reported);
    answer
}
