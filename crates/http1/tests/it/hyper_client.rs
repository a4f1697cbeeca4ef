//! hyper's client on a connection in memory: the reference.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    runtime::{Builder, Runtime},
    task::yield_now,
};

use crate::exchange::{LIMITS, Lines, lines};

/// How long anything may take; only a hang takes that long.
const HANG: Duration = Duration::from_secs(20);

/// How often others run until nothing happens any more without new bytes.
const TURNS: usize = 50;

/// A response as far as hyper read it.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) head: Option<(u16, Lines)>,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<Lines>,
    pub(crate) is_whole: bool,
    pub(crate) error: String,
}

/// A body of known pieces.
#[derive(Clone, Debug)]
pub(crate) struct PiecesBody {
    pub(crate) left: VecDeque<Bytes>,
    pub(crate) exact: Option<u64>,
    pub(crate) is_end: bool,
}

impl Body for PiecesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.left.pop_front();
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_end
    }

    fn size_hint(&self) -> SizeHint {
        self.exact.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder
        .enable_time()
        .build()
        .expect("it needs no descriptor")
}

fn request(method: &Method) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method.clone();
    request
}

/// Reads a response to a request of `method`: `pieces`, then the end of the connection.
pub(crate) fn read(runtime: &Runtime, pieces: &[&[u8]], method: &Method) -> Read {
    runtime.block_on(async {
        let (client, upstream) = tokio::io::duplex(1 << 20);
        let mut read = Read::default();
        let reading = read_response(client, method, &mut read);
        let both = async { tokio::join!(reading, respond(upstream, pieces)) };
        let (result, _upstream) = tokio::time::timeout(HANG, both).await.expect("hyper hangs");
        match result {
            Ok(()) => read.is_whole = true,
            Err(error) => read.error = format!("{error:?}"),
        }
        read
    })
}

async fn read_response(
    client: DuplexStream,
    method: &Method,
    read: &mut Read,
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.max_headers(LIMITS.lines);
    let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request(method)).await?;
    let (parts, mut body) = response.into_parts();
    read.head = Some((parts.status.as_u16(), lines(&parts.headers)));
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => read.content.extend_from_slice(&data),
            Err(frame) => read.trailers = frame.trailers_ref().map(lines),
        }
    }
    Ok(())
}

/// Waits for the request, sends `pieces` one by one and ends that direction.
async fn respond(mut upstream: DuplexStream, pieces: &[&[u8]]) -> DuplexStream {
    let mut asked = [0; 1024];
    let _ = upstream.read(&mut asked).await;
    for piece in pieces {
        if upstream.write_all(piece).await.is_err() {
            break;
        }
        // The client shares this thread: now it reads.
        for _ in 0..3 {
            yield_now().await;
        }
    }
    let _ = upstream.shutdown().await;
    upstream
}

/// Whether another request can follow a whole response of `bytes`.
pub(crate) fn keeps_alive(runtime: &Runtime, bytes: &[u8]) -> bool {
    runtime.block_on(async {
        let (client, mut upstream) = tokio::io::duplex(1 << 16);
        let io = TokioIo::new(client);
        let (mut sender, connection) = http1::handshake(io).await.expect("no exchange yet");
        let connection = tokio::spawn(connection);
        let respond = async {
            let mut asked = [0; 1024];
            let _ = upstream.read(&mut asked).await.expect("it is open");
            upstream.write_all(bytes).await.expect("it has room");
        };
        let sending = sender.send_request(request(&Method::GET));
        let (response, ()) = tokio::join!(sending, respond);
        let collected = response.expect("it is valid").collect().await;
        collected.expect("it is whole");
        for _ in 0..TURNS {
            yield_now().await;
        }
        !connection.is_finished()
    })
}

/// What hyper writes for `request`.
pub(crate) fn write(runtime: &Runtime, request: Request<PiecesBody>) -> Vec<u8> {
    runtime.block_on(async {
        let (client, mut upstream) = tokio::io::duplex(1 << 16);
        let io = TokioIo::new(client);
        let (mut sender, connection) = http1::handshake(io).await.expect("no exchange yet");
        let connection = tokio::spawn(connection);
        let sending = tokio::spawn(async move { sender.send_request(request).await.map(drop) });
        for _ in 0..TURNS {
            yield_now().await;
        }
        sending.abort();
        connection.abort();
        let mut written = Vec::new();
        let read = upstream.read_to_end(&mut written);
        read.await.expect("it is memory");
        written
    })
}
