//! A client's HTTP/1 connection as one stream of bytes, through the gateway's own reader.
//!
//! The first byte says how the rest is cut into packets, and whether the response waits for the request's body.
//! Properties: what was read does not depend on the cuts; the requests are those that hyper alone reads in the same
//! bytes, body for body, up to the first that is refused; requests that hyper reads and the gateway does not were refused.

use std::{
    cell::{OnceCell, RefCell},
    convert::Infallible,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fairgate_base::{clock::Clock, turns::spawn_local};
use fairgate_call::{Inbound, Reply, ReplyBody};
use fairgate_proxy::serve::{
    Acceptor, ClientConnections, Core, Defence, DrainController, ServeSettings,
};
use http::{Method, Request, Response};
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Runtime,
    task::{LocalSet, yield_now},
};
use tower::Service;

use crate::{Outcome, Target};

/// The target `http1_stream`.
pub const TARGET: Target = Target {
    name: "http1_stream",
    run,
    dictionary: &[
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Expect: 100-continue\r\n",
        "Host: a\r\n",
        "HTTP/1.0",
        "HTTP/1.1",
        "OPTIONS * HTTP/1.1\r\n",
        "HEAD ",
        "CONNECT a:1 ",
        "TRACE ",
        "http://a/",
        ": ",
        "\t",
        ";x=\"y\"",
        "X: y\r\n",
        " ",
        "Upgrade: websocket\r\nConnection: upgrade\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "0\r\nT: v\r\n\r\n",
        "%2",
        "ffffffffffffffff",
    ],
};

/// How long anything may take; only a hang takes that long.
const HANG: Duration = Duration::from_secs(20);

fn run(data: &[u8]) -> Outcome {
    let (&control, bytes) = data.split_first().unwrap_or((&0, &[]));
    let cut = usize::from(control & 0x7f) + 1;
    let is_early = control & 0x80 != 0;
    Gateway::with(|gateway| {
        let whole = gateway.play(bytes, usize::MAX, is_early);
        let in_pieces = gateway.play(bytes, cut, is_early);
        assert!(
            whole.is_like(&in_pieces),
            "in pieces of {cut}: {in_pieces:?}\n{whole:?}"
        );
        if !is_early {
            let reference = gateway.block_on(read_by_hyper(bytes));
            agrees(&whole, &reference);
        }
        let facts = whole.requests.iter().map(|request| {
            (
                request.version.clone(),
                request.body.len().min(4),
                request.is_whole,
            )
        });
        Outcome::of((facts.collect::<Vec<_>>(), whole.statuses.clone(), is_early))
    })
}

/// A request as its recipient saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    method: Method,
    target: String,
    version: String,
    headers: Vec<(String, Vec<u8>)>,
    /// The body, as far as it was read.
    body: Vec<u8>,
    is_whole: bool,
}

/// The outcome of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Played {
    requests: Vec<Seen>,
    /// The statuses of all responses, in order.
    statuses: Vec<u16>,
}

impl Seen {
    /// Whether both are the same request. How much of a broken body came through may differ.
    fn is_like(&self, other: &Self) -> bool {
        if self.is_whole || other.is_whole {
            return self == other;
        }
        let common = self.body.len().min(other.body.len());
        let head = |seen: &Self| Self {
            body: Vec::new(),
            ..seen.clone()
        };
        head(self) == head(other) && self.body[..common] == other.body[..common]
    }
}

impl Played {
    fn is_like(&self, other: &Self) -> bool {
        let mut pairs = self.requests.iter().zip(&other.requests);
        self.requests.len() == other.requests.len()
            && pairs.all(|(one, another)| one.is_like(another))
            && self.statuses == other.statuses
    }
}

/// The gateway's requests are the first of those that hyper reads.
fn agrees(gateway: &Played, hyper: &[Seen]) {
    // The gateway answers `OPTIONS *` itself.
    let is_asterisk = |seen: &&Seen| seen.target != "*";
    let hyper: Vec<_> = hyper.iter().filter(is_asterisk).collect();
    for (index, seen) in gateway.requests.iter().enumerate() {
        let Some(expected) = hyper.get(index) else {
            panic!("hyper does not read request {index}: {seen:?}\n{hyper:?}")
        };
        let is_last = index + 1 == gateway.requests.len();
        assert!(seen.is_whole || is_last, "a request follows a broken body");
        // hyper may go on with a chunked body where the gateway finds it malformed.
        let expected = Seen {
            is_whole: expected.is_whole && seen.is_whole,
            ..(*expected).clone()
        };
        assert!(seen.is_like(&expected), "{seen:?}\n{expected:?}");
    }
    if gateway.requests.len() < hyper.len() {
        let is_refused = gateway.statuses.iter().any(|status| *status >= 400);
        let is_broken = gateway.requests.last().is_some_and(|seen| !seen.is_whole);
        assert!(
            is_refused || is_broken,
            "requests are missing: {gateway:?}\n{hyper:?}"
        );
    }
}

/// A gateway that runs on the calling thread whenever a connection is played.
struct Gateway {
    runtime: Runtime,
    tasks: LocalSet,
    address: SocketAddr,
    leaf: Leaf,
}

thread_local! {
    /// Never dropped: its tasks use what else is local to the thread, which would be gone.
    static GATEWAY: OnceCell<&'static Gateway> = const { OnceCell::new() };
}

impl Gateway {
    fn with<T>(play: impl FnOnce(&Self) -> T) -> T {
        GATEWAY.with(|gateway| play(gateway.get_or_init(|| Box::leak(Box::new(Self::start())))))
    }

    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the machine has descriptors");
        let tasks = LocalSet::new();
        let leaf = Leaf::default();
        let stack = leaf.clone();
        let address = tasks.block_on(&runtime, async move {
            let listener =
                Acceptor::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback has ports");
            let address = listener.local_addr().expect("it is bound");
            let (handle, core) = Core::new();
            let acceptor = Acceptor::new(
                listener,
                vec![handle],
                ClientConnections::new(100, None),
                None,
            );
            let drain = DrainController::default();
            let phases = drain.subscribe();
            spawn_local(async move {
                // It announces the end by being dropped.
                let accepted = acceptor.run(drain.subscribe()).await;
                drop(drain);
                accepted
            });
            let clock = Clock::system();
            let defence = Defence::new(64 << 20, clock.clone());
            spawn_local(core.run(ServeSettings::default(), defence, clock, phases, stack));
            address
        });
        Self {
            runtime,
            tasks,
            address,
            leaf,
        }
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, async {
            tokio::time::timeout(HANG, future)
                .await
                .expect("the connection hangs")
        })
    }

    /// Sends `bytes` in packets of `cut`, then ends the client's side, and reads to the end.
    fn play(&self, bytes: &[u8], cut: usize, is_early: bool) -> Played {
        *self.leaf.0.borrow_mut() = Log {
            is_early,
            requests: Vec::new(),
        };
        let answers = self.block_on(async {
            let mut stream = TcpStream::connect(self.address)
                .await
                .expect("the gateway listens");
            stream.set_nodelay(true).expect("it is open");
            let (mut reader, mut writer) = stream.split();
            let mut answers = Vec::new();
            let read = async {
                // A connection that is closed before all was read ends with a reset.
                let _ = reader.read_to_end(&mut answers).await;
            };
            let write = async {
                for packet in bytes.chunks(cut) {
                    if writer.write_all(packet).await.is_err() {
                        return;
                    }
                    // The gateway shares this thread: now it reads.
                    for _ in 0..4 {
                        yield_now().await;
                    }
                }
                let _ = writer.shutdown().await;
            };
            tokio::join!(read, write);
            answers
        });
        Played {
            requests: self.leaf.0.borrow().requests.clone(),
            statuses: statuses(&answers),
        }
    }
}

/// The statuses of all responses, whose bodies contain no status line.
fn statuses(answers: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answers);
    let lines = text.split("HTTP/1.").skip(1);
    lines
        .filter_map(|line| line.get(2..5)?.parse().ok())
        .collect()
}

/// Responds to every request with 200, and records it.
#[derive(Clone, Default)]
struct Leaf(Rc<RefCell<Log>>);

#[derive(Default)]
struct Log {
    /// Whether the response is sent before the body was read.
    is_early: bool,
    requests: Vec<Seen>,
}

impl Service<Inbound> for Leaf {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        let log = Rc::clone(&self.0);
        Box::pin(async move {
            let is_early = log.borrow().is_early;
            let (parts, body) = inbound.request.into_parts();
            let body = (!is_early).then_some(body);
            let seen = record(Request::from_parts(parts, ()), body).await;
            log.borrow_mut().requests.push(seen);
            Ok(Response::new(ReplyBody::empty()))
        })
    }
}

/// What hyper alone reads in `bytes`.
async fn read_by_hyper(bytes: &[u8]) -> Vec<Seen> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let (mut client, server) = tokio::io::duplex(bytes.len() + 1);
    client.write_all(bytes).await.expect("it has room for all");
    client.shutdown().await.expect("it is open");
    let service = service_fn(|request: Request<Incoming>| {
        let log = Rc::clone(&log);
        async move {
            let (parts, body) = request.into_parts();
            let seen = record(Request::from_parts(parts, ()), Some(body)).await;
            log.borrow_mut().push(seen);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let settings = ServeSettings::default();
    let connection = http1::Builder::new()
        .half_close(true)
        .max_headers(settings.header_lines)
        .max_buf_size(settings.head_bytes)
        .serve_connection(TokioIo::new(server), service);
    let mut answers = Vec::new();
    let read = client.read_to_end(&mut answers);
    let (_, _) = tokio::join!(connection, read);
    log.take()
}

/// Reads a request's body, if it is given, and notes what there was.
async fn record<B>(request: Request<()>, body: Option<B>) -> Seen
where
    B: http_body_util::BodyExt<Data = Bytes> + Unpin,
{
    let mut seen = Seen {
        method: request.method().clone(),
        target: request.uri().to_string(),
        version: format!("{:?}", request.version()),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
            .collect(),
        body: Vec::new(),
        is_whole: true,
    };
    let Some(mut body) = body else { return seen };
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            seen.is_whole = false;
            break;
        };
        seen.body.extend(frame.data_ref().into_iter().flatten());
    }
    seen
}
