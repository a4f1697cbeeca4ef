//! A client that leaves while its request waits is noticed at once.

use std::{
    future::Future,
    io::{Read as _, Write as _},
    net::TcpStream,
    pin::Pin,
    task::{Context, Poll},
};

use fairgate_call::{Call, Refusal, Reply};
use http::Method;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower::Service;

use crate::{
    client::{TestClient, soon},
    failures::Leaving,
    gate::Gate,
    upstream::{full, streamed},
};

/// An innermost service in which every request waits for ever, as in a queue.
#[derive(Clone)]
struct Queue {
    came: UnboundedSender<()>,
    left: UnboundedSender<()>,
    reads_ahead: bool,
}

impl Service<Call> for Queue {
    type Response = Reply;
    type Error = Refusal;
    type Future = Waiting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Waiting {
        let _ = self.came.send(());
        Waiting {
            call,
            reads_ahead: self.reads_ahead,
            _leaving: Leaving(self.left.clone()),
        }
    }
}

struct Waiting {
    call: Call,
    reads_ahead: bool,
    _leaving: Leaving,
}

impl Future for Waiting {
    type Output = Result<Reply, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.reads_ahead {
            let _ = self.call.request.body_mut().poll_read_ahead(cx);
        }
        Poll::Pending
    }
}

fn queue(reads_ahead: bool) -> (Gate, UnboundedReceiver<()>, UnboundedReceiver<()>) {
    let (came, comes) = unbounded_channel();
    let (left, leaves) = unbounded_channel();
    let leaf = Queue {
        came,
        left,
        reads_ahead,
    };
    (Gate::around(move || leaf.clone(), |_| {}), comes, leaves)
}

/// Sends `head` and `body_bytes` of body on a bare socket, waits until the request is in the queue,
/// and disconnects, which must drop the request.
async fn leaves_while_waiting(reads_ahead: bool, head: &str, body_bytes: usize) {
    let (gate, mut comes, mut leaves) = queue(reads_ahead);
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    soon(comes.recv()).await.unwrap();
    let sender = std::thread::spawn(move || {
        // Writes as much as the gateway reads, as a client does that gives up half-way.
        stream
            .set_write_timeout(Some(std::time::Duration::from_millis(200)))
            .unwrap();
        let piece = vec![b'x'; 64 << 10];
        let mut sent = 0;
        while sent < body_bytes {
            let len = piece.len().min(body_bytes - sent);
            match stream.write(&piece[..len]) {
                Ok(n) => sent += n,
                Err(_) => break,
            }
        }
        drop(stream);
    });
    soon(leaves.recv()).await.unwrap();
    sender.join().unwrap();
}

#[tokio::test]
async fn a_get() {
    leaves_while_waiting(false, "GET /api/v1/pods HTTP/1.1\r\nHost: a\r\n\r\n", 0).await;
}

#[tokio::test]
async fn a_get_whose_client_closes_its_write_side_before_it_is_read() {
    let (gate, mut comes, mut leaves) = queue(true);
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    soon(comes.recv()).await.unwrap();
    soon(leaves.recv()).await.unwrap();
}

#[tokio::test]
async fn a_get_followed_by_another_request() {
    let head = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    leaves_while_waiting(false, head, 0).await;
}

#[tokio::test]
async fn a_post_of_100_kib_that_nobody_reads() {
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        100 << 10
    );
    leaves_while_waiting(false, &head, 100 << 10).await;
}

#[tokio::test]
async fn a_post_of_1_mib() {
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        1 << 20
    );
    leaves_while_waiting(true, &head, 1 << 20).await;
}

#[tokio::test]
async fn a_post_of_10_mib() {
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        10 << 20
    );
    leaves_while_waiting(true, &head, 10 << 20).await;
}

#[tokio::test]
async fn a_post_broken_off_in_the_middle() {
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        10 << 20
    );
    leaves_while_waiting(true, &head, 5 << 20).await;
}

#[tokio::test]
async fn a_chunked_post() {
    // Shorter bodies are read before a request gets here.
    let piece = "x".repeat(0x5000);
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n{piece}\r\n"
    );
    leaves_while_waiting(true, &head, 0).await;
}

#[tokio::test]
async fn a_post_that_waits_for_100_continue_in_vain() {
    let (gate, mut comes, mut leaves) = queue(true);
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream
        .write_all(
            b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 20480\r\nExpect: 100-continue\r\n\r\n",
        )
        .unwrap();
    soon(comes.recv()).await.unwrap();
    // Closes only the write side, to read what the gateway has sent until then.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    soon(leaves.recv()).await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.is_empty(), "{:?}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn an_http2_stream_that_is_reset_while_the_connection_lives_on() {
    for reads_ahead in [false, true] {
        let (gate, mut comes, mut leaves) = queue(reads_ahead);
        let mut client = TestClient::http2(gate.address()).await;
        let get = client.request(Method::GET, "/a").body(full("")).unwrap();
        let (send, unfinished) = streamed();
        send.send(Ok(vec![0; 20 << 10].into())).unwrap();
        let post = client.request(Method::POST, "/a").body(unfinished).unwrap();
        let large = client
            .request(Method::POST, "/a")
            .body(full(vec![0; 10 << 20]))
            .unwrap();
        for request in [get, post, large] {
            client.send_until(request, comes.recv()).await.unwrap();
            soon(leaves.recv()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_http2_connection_that_is_closed() {
    let (gate, mut comes, mut leaves) = queue(false);
    let mut client = TestClient::http2(gate.address()).await;
    let request = client
        .request(Method::POST, "/a")
        .body(full(vec![0; 1 << 20]))
        .unwrap();
    client.send_until(request, comes.recv()).await.unwrap();
    client.abandon().await;
    soon(leaves.recv()).await.unwrap();
}
