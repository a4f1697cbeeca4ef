//! Connections over loopback, with bodies of a real server.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use fairgate_base::{events::EventSink, turns::spawn_local};
use fairgate_call::{ClientBody, RequestContext};
use fairgate_http1::RequestHeaderLines;
use http::{Method, Response};
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::LocalSet,
};

use super::*;
use crate::forward::{ConnectionEvent, retryable_body::BodyRecovery};

/// Keeps what is given back.
#[derive(Default)]
struct Kept(RefCell<Vec<Rc<Http1Connection>>>);

impl KeepsIdle for Kept {
    fn keep(&self, connection: Rc<Http1Connection>) {
        self.0.borrow_mut().push(connection);
    }
}

/// Two ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

/// The body of a request that announces 9 bytes of which 3 arrive, and the client that could send the rest.
async fn unfinished_body() -> (ClientBody, TcpStream) {
    let (mut client, server) = pair().await;
    let body = Rc::<Cell<Option<Incoming>>>::default();
    let arrived = Rc::new(Notify::new());
    let (taken, told) = (Rc::clone(&body), Rc::clone(&arrived));
    spawn_local(async move {
        let service = service_fn(|request: http::Request<Incoming>| {
            taken.set(Some(request.into_body()));
            told.notify_one();
            std::future::pending::<Result<Response<Empty<Bytes>>, std::convert::Infallible>>()
        });
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(server), service)
            .await;
    });
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc")
        .await
        .unwrap();
    arrived.notified().await;
    (ClientBody::incoming(body.take().unwrap(), None), client)
}

fn sent_body(body: ClientBody) -> RetryableBody {
    let context = Rc::new(RequestContext::new(Method::POST, None, 0));
    let recovery = BodyRecovery::of(&body);
    RetryableBody::new(body, recovery, context, None)
}

/// Sends a request without headers, and reads the head of the response.
async fn send(
    connection: &Rc<Http1Connection>,
    body: ClientBody,
) -> Result<ResponseHead, (ExchangeError, bool)> {
    let head = OutgoingHead {
        method: &Method::POST,
        target: "/",
        lines: &RequestHeaderLines::default(),
    };
    connection.begin(&head, sent_body(body))?;
    connection.read_head().await
}

/// A connection, the upstream's end of it, its pool, and what happened to its connections.
type Tested = (Rc<Http1Connection>, TcpStream, Rc<Kept>, Arc<CountedEvents>);

/// How many connections are open, and how many failed.
#[derive(Default)]
struct CountedEvents {
    open: AtomicI32,
    lost: AtomicI32,
}

impl CountedEvents {
    fn open(&self) -> i32 {
        self.open.load(Ordering::Relaxed)
    }

    fn lost(&self) -> i32 {
        self.lost.load(Ordering::Relaxed)
    }
}

async fn connection() -> Tested {
    let (ours, upstream) = pair().await;
    let pool = Rc::<Kept>::default();
    let events = Arc::<CountedEvents>::default();
    let counted = Arc::clone(&events);
    let sink = EventSink::new(move |event| {
        let (counter, change) = match event {
            ConnectionEvent::Opened => (&counted.open, 1),
            ConnectionEvent::Closed => (&counted.open, -1),
            ConnectionEvent::Lost => (&counted.lost, 1),
            _ => return,
        };
        counter.fetch_add(change, Ordering::Relaxed);
    });
    let limits = ResponseHeadLimits {
        bytes: 4096,
        lines: 100,
    };
    let weak: Weak<Kept> = Rc::downgrade(&pool);
    let shared = SharedByConnections {
        buffer: Rc::default(),
        limits,
        idle: Waker::noop().clone(),
    };
    let connection = Http1Connection::new(
        Socket::Plain(ours),
        OpenConnection::new(&sink),
        weak,
        shared,
    );
    (connection, upstream, pool, events)
}

fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test);
}

async fn frame(connection: &Http1Connection) -> Option<Result<Bytes, BodyError>> {
    let frame = poll_fn(|cx| connection.poll_frame(cx)).await;
    frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
}

/// Reads the head of the request, and answers with this.
async fn answer(upstream: &mut TcpStream, answer: &[u8]) {
    let mut received = Vec::new();
    while !received.ends_with(b"abc") {
        assert!(upstream.read_buf(&mut received).await.unwrap() > 0);
    }
    upstream.write_all(answer).await.unwrap();
}

/// The same after a response to a request of which the client has not sent everything, and the client.
async fn answered_while_sending(early: &[u8]) -> (Tested, TcpStream) {
    let (connection, mut upstream, pool, events) = connection().await;
    let (body, client) = unfinished_body().await;
    let (sent, ()) = tokio::join!(send(&connection, body), answer(&mut upstream, early));
    assert_eq!(sent.unwrap().status, 200);
    ((connection, upstream, pool, events), client)
}

#[test]
fn the_rest_of_a_request_is_sent_although_nobody_reads_the_response() {
    local(async {
        let (tested, mut client) =
            answered_while_sending(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        let (connection, mut upstream, pool, events) = tested;
        // Nobody polls the response.
        client.write_all(b"defghi").await.unwrap();
        let mut rest = [0; 6];
        upstream.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"defghi");
        assert_eq!(frame(&connection).await.unwrap().unwrap(), "ok");
        assert!(connection.is_end_stream());
        while connection.sender.borrow().is_some() {
            tokio::task::yield_now().await;
        }
        connection.release(true);
        assert_eq!(pool.0.borrow().len(), 1);
        assert_eq!(events.open(), 1);
    });
}

#[test]
fn an_upload_goes_on_after_the_response_has_ended() {
    local(async {
        let (tested, mut client) =
            answered_while_sending(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let (connection, mut upstream, pool, events) = tested;
        connection.clone().release(true);
        assert!(pool.0.borrow().is_empty());
        client.write_all(b"defghi").await.unwrap();
        let mut rest = [0; 6];
        upstream.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"defghi");
        while pool.0.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(events.open(), 1);
        assert!(connection.is_open());
    });
}

/// It may be that nothing more can be sent, and the client, which is gone, is not asked for more.
#[test]
fn an_upstream_that_ends_during_the_rest_of_an_upload_ends_the_connection() {
    local(async {
        let (tested, client) =
            answered_while_sending(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let (connection, mut upstream, pool, events) = tested;
        connection.clone().release(true);
        upstream.shutdown().await.unwrap();
        while events.open() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(pool.0.borrow().is_empty());
        assert!(connection.sender.borrow().is_none());
        drop(client);
    });
}

#[test]
fn an_upload_that_fails_after_the_response_has_ended_closes_the_connection() {
    local(async {
        let (tested, client) =
            answered_while_sending(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let (connection, mut upstream, pool, events) = tested;
        connection.clone().release(true);
        drop(client);
        while events.open() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(pool.0.borrow().is_empty());
        assert_eq!(upstream.read(&mut [0]).await.unwrap(), 0, "it is closed");
        assert_eq!(events.lost(), 0, "the upstream did nothing wrong");
    });
}

#[test]
fn a_response_that_is_given_up_leaves_no_task_behind() {
    local(async {
        let (tested, _client) =
            answered_while_sending(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        let (connection, mut upstream, pool, events) = tested;
        assert_eq!(Rc::strong_count(&connection), 2, "a task sends the rest");
        // It has run, and waits for the client.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        connection.clone().release(false);
        while Rc::strong_count(&connection) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(pool.0.borrow().is_empty());
        assert_eq!(events.open(), 0);
        assert_eq!(upstream.read(&mut [0]).await.unwrap(), 0, "it is closed");
    });
}

#[test]
fn a_client_that_ends_its_body_early_ends_the_response() {
    local(async {
        let (tested, client) =
            answered_while_sending(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok").await;
        let (connection, _upstream, _pool, events) = tested;
        assert_eq!(frame(&connection).await.unwrap().unwrap(), "ok");
        let (failed, ()) = tokio::join!(frame(&connection), async { drop(client) });
        assert!(matches!(failed, Some(Err(_))), "{failed:?}");
        assert_eq!(events.open(), 0);
        assert_eq!(events.lost(), 0, "the upstream did nothing wrong");
    });
}

#[test]
fn a_connection_that_the_upstream_closes_while_idle_is_not_kept() {
    local(async {
        let (connection, mut upstream, pool, events) = connection().await;
        let last = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let (sent, ()) = tokio::join!(
            send(&connection, ClientBody::full("abc")),
            answer(&mut upstream, last)
        );
        sent.unwrap();
        connection.clone().release(true);
        assert_eq!(pool.0.borrow().len(), 1);
        drop(upstream);
        while connection.is_open() {
            tokio::task::yield_now().await;
        }
        assert_eq!(events.open(), 0);
        let again = send(&connection, ClientBody::empty());
        let (_, nothing_sent) = again.await.unwrap_err();
        assert!(nothing_sent);
    });
}
