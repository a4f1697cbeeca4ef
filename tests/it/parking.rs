//! HTTP/1 connections that are idle for a while keep their socket and no buffers, and no client notices.

use std::{fmt::Write as _, time::Duration};

use fairgate_proxy::{
    forward::UpstreamSettings,
    serve::{
        DrainPhase,
        tls::{ServingCertificate, ServingTls},
    },
};
use fairgate_testkit::random::{Below as _, Random, seeded};
use http_body_util::BodyExt as _;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    client::soon,
    failures::until,
    gate::Gate,
    pki::{self, Authority},
    upstream::{Speaks, TestUpstream, full},
};

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// One connection of a client that writes what it wants, when it wants.
struct Conversation<'a> {
    stream: BufReader<Box<dyn Stream>>,
    gate: &'a Gate,
}

impl<'a> Conversation<'a> {
    async fn plain(gate: &'a Gate) -> Self {
        let stream = TcpStream::connect(gate.address()).await.unwrap();
        let stream = BufReader::new(Box::new(stream) as Box<dyn Stream>);
        Self { stream, gate }
    }

    async fn tls(gate: &'a Gate, authority: &Authority) -> Self {
        let stream = TcpStream::connect(gate.address()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(authority.client(None, &[b"http/1.1"]));
        let stream = connector.connect(name, stream).await.unwrap();
        let stream = BufReader::new(Box::new(stream) as Box<dyn Stream>);
        Self { stream, gate }
    }

    async fn parked(&self) {
        until(|| self.gate.gateway.parked_connections() == 1).await;
    }

    async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The head and the body of the next response, which has a length.
    async fn response(&mut self) -> (String, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.stream.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        soon(self.stream.read_exact(&mut body)).await.unwrap();
        (head, String::from_utf8(body).unwrap())
    }

    /// The gateway closes the connection, and sends nothing more.
    async fn ended(&mut self) {
        let mut rest = Vec::new();
        soon(self.stream.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

/// Answers with the path and the body of each request.
fn echo() -> TestUpstream {
    TestUpstream::start(Speaks::Http1, |request| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        http::Response::new(full(format!("{path} {body}")))
    })
}

fn parks(settings: &mut fairgate::app::AppSettings) {
    settings.serve.park_after = Duration::from_millis(1);
}

/// A request, and the body of its response.
fn request(random: &mut Random, number: u32) -> (String, String) {
    let mut head = format!("/{number} HTTP/1.1\r\nHost: a\r\n");
    // Some have about as many lines as hyper has room for, or more; the upstream gets none of these.
    for line in 0..[0, 0, 98, 99, 100, 400][random.below(6) as usize] {
        write!(head, "Keep-Alive: {line}\r\n").unwrap();
    }
    let length = random.below(3) * random.below(9000);
    let body: String = (0..length)
        .map(|index| char::from(b'a' + u8::try_from((index + number) % 26).unwrap()))
        .collect();
    let sent = match random.below(3) {
        0 => return (format!("GET {head}\r\n"), format!("/{number} ")),
        1 => format!("POST {head}Content-Length: {length}\r\n\r\n{body}"),
        _ => {
            let mut sent = format!("POST {head}Transfer-Encoding: chunked\r\n\r\n");
            let (first, second) = body.split_at(body.len() / 2);
            for chunk in [first, second].into_iter().filter(|it| !it.is_empty()) {
                write!(sent, "{:x}\r\n{chunk}\r\n", chunk.len()).unwrap();
            }
            sent + "0\r\n\r\n"
        }
    };
    (sent, format!("/{number} {body}"))
}

/// Sends requests in one piece or several, one or two at a time, with pauses in which the connection is parked, and pauses within
/// requests in which it would be, were it idle.
async fn talk(conversation: &mut Conversation<'_>, random: &mut Random) {
    for number in 0..40 {
        let mut requests = vec![request(random, number)];
        if random.below(4) == 0 {
            requests.push(request(random, number + 1000));
        }
        // Before its first byte a connection without TLS may become one of HTTP/2, and is not parked.
        if number > 0 && random.below(3) > 0 {
            conversation.parked().await;
        }
        let mut sent: &str = &requests.iter().map(|(sent, _)| &**sent).collect::<String>();
        while !sent.is_empty() {
            let length = u32::try_from(sent.len()).unwrap();
            let cut = match random.below(3) {
                0 => 1 + random.below(length),
                1 => length.min(1 + random.below(20)),
                _ => length,
            };
            let (piece, rest) = sent.split_at(usize::try_from(cut).unwrap());
            conversation.write(piece).await;
            sent = rest;
            if random.below(3) == 0 {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
        for (_, expected) in requests {
            let (head, body) = conversation.response().await;
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert!(body == expected, "{number}: {body} {expected}");
        }
    }
    conversation.parked().await;
}

#[tokio::test]
async fn a_parked_connection_serves_requests_however_they_arrive() {
    let mut random = seeded();
    let authority = Authority::new("test root");
    let upstream = echo();
    let to = || UpstreamSettings::new(upstream.address.to_string().parse().unwrap(), None);
    let gate = Gate::towards(to(), |settings, _| parks(settings));
    let mut conversation = Conversation::plain(&gate).await;
    talk(&mut conversation, &mut random).await;
    assert_eq!(gate.gateway.connections(), 1);

    let (chain, key) = authority.issue_with_key(&pki::Leaf::named("localhost"));
    let own = ServingTls::new(&ServingCertificate::new(chain, key).unwrap(), Vec::new()).unwrap();
    let gate = Gate::towards(to(), |settings, _| {
        parks(settings);
        settings.serve.tls = Some(own);
    });
    let mut conversation = Conversation::tls(&gate, &authority).await;
    talk(&mut conversation, &mut random).await;
    assert_eq!(gate.gateway.connections(), 1);
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// A connection that is parked after one request.
async fn parked(gate: &Gate) -> Conversation<'_> {
    let mut conversation = Conversation::plain(gate).await;
    conversation.write(GET).await;
    assert_eq!(conversation.response().await.1, "/a ");
    conversation.parked().await;
    conversation
}

#[tokio::test]
async fn a_parked_connection_ends_with_its_client() {
    let upstream = echo();
    let gate = Gate::with(&upstream, |settings, _| parks(settings));
    drop(parked(&gate).await);
    until(|| gate.gateway.connections() == 0).await;
    // The client closes only its sending side, after one more request.
    let mut conversation = parked(&gate).await;
    conversation.write(GET).await;
    conversation.stream.shutdown().await.unwrap();
    assert_eq!(conversation.response().await.1, "/a ");
    conversation.ended().await;
    until(|| gate.gateway.connections() == 0).await;
    assert_eq!(gate.gateway.parked_connections(), 0);
}

#[tokio::test]
async fn a_parked_connection_ends_at_the_idle_timeout() {
    let upstream = echo();
    let gate = Gate::with(&upstream, |settings, _| {
        parks(settings);
        settings.serve.idle_timeout = Duration::from_secs(2);
    });
    parked(&gate).await.ended().await;
    until(|| gate.gateway.connections() == 0).await;
}

#[tokio::test]
async fn a_parked_connection_may_send_one_more_request_while_the_gateway_stops() {
    let upstream = echo();
    for sends_one_more in [false, true] {
        let gate = Gate::with(&upstream, |settings, _| {
            parks(settings);
            // Long enough for a request on a loaded machine, if there is one.
            settings.serve.drain.idle_grace =
                Duration::from_secs(1 + 29 * u64::from(sends_one_more));
        });
        let mut conversation = parked(&gate).await;
        gate.gateway.drain().advance(DrainPhase::Stopping);
        if sends_one_more {
            conversation.write(GET).await;
            let (head, body) = conversation.response().await;
            assert!(head.contains("connection: close"), "{head}");
            assert_eq!(body, "/a ");
        }
        conversation.ended().await;
    }
}

/// A response after which the connection is closed is followed by what the client still sends, which must not reset it.
#[tokio::test]
async fn a_connection_that_is_being_closed_is_not_parked() {
    let upstream = echo();
    let gate = Gate::with(&upstream, |settings, _| parks(settings));
    let mut conversation = Conversation::plain(&gate).await;
    let last = GET.replace("Host", "Connection: close\r\nHost");
    conversation.write(&last).await;
    for _ in 0..50 {
        assert_eq!(gate.gateway.parked_connections(), 0);
        // The gateway may have closed it by now: it lingers for a second.
        let _ = conversation.stream.write_all(&[b'x'; 4096]).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(conversation.response().await.1, "/a ");
    conversation.ended().await;
}

/// hyper reads the next head when it has the last response and the rest of its request, though the client has not read the
/// response to its end. hyper must not be dropped for a head of many lines then.
#[tokio::test]
async fn a_head_of_many_lines_waits_for_the_client_to_read_the_last_response() {
    /// More than is read before a request gets its seat, and no more than is discarded after an early response.
    const BODY: usize = 200 << 10;
    let upstream = TestUpstream::start(Speaks::Http1, |request| async move {
        let kibibytes: usize = request.uri().path()[1..].parse().unwrap();
        // It answers before it has read the body, and reads it then.
        tokio::spawn(request.into_body().collect());
        http::Response::new(full(vec![b'x'; kibibytes << 10]))
    });
    let gate = Gate::with(&upstream, |settings, _| {
        // Long enough for a loaded machine; a client that misses bytes waits for so long.
        settings.serve.idle_timeout = Duration::from_secs(20);
    });
    // How much the kernel takes is not known: for one of these lengths it takes all but a part.
    let mut conversations = Vec::new();
    for step in 4..40 {
        let kibibytes = step * 256;
        let mut conversation = Conversation::plain(&gate).await;
        let head =
            format!("POST /{kibibytes} HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n");
        conversation.write(&head).await;
        conversations.push((conversation, kibibytes << 10));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let rest = "b".repeat(BODY);
    let lines = "Keep-Alive: 5\r\n".repeat(150);
    for (conversation, _) in &mut conversations {
        let next = format!("{rest}GET /1 HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        conversation.write(&next).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (mut conversation, length) in conversations {
        for length in [length, 1 << 10] {
            let (head, body) = conversation.response().await;
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert!(body.len() == length && body.bytes().all(|byte| byte == b'x'));
        }
    }
}
