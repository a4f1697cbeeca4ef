//! An upstream's response, through the codec that the gateway reads it with.
//!
//! The first byte says the request's method and how the rest is cut into pieces; the connection is closed after them.
//! Properties: what was read does not depend on the cuts; a response that is accepted hyper's client reads alike.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairgate_http1::{
    BodyPiece, HeadProgress, Http1Error, ResponseBodyDecoder, ResponseHead, ResponseHeadLimits,
    ResponseHeadParser,
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{Outcome, Target};

/// The target `http1_responses`.
pub const TARGET: Target = Target {
    name: "http1_responses",
    run,
    dictionary: &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "X: y\r\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "0\r\nT: v\r\n\r\n",
        ";x=\"y\"",
        " \t",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "000000000000000",
        "ffffffffffffffff",
    ],
};

/// How long anything may take; only a hang takes that long.
const HANG: Duration = Duration::from_secs(20);

const LIMITS: ResponseHeadLimits = ResponseHeadLimits {
    bytes: 2048,
    lines: 80,
};

/// A response as far as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    head: Option<(StatusCode, HeaderMap)>,
    content: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Whether it is whole.
    is_whole: bool,
    error: Option<Http1Error>,
}

fn run(data: &[u8]) -> Outcome {
    let (&control, bytes) = data.split_first().unwrap_or((&0, &[]));
    let method = [Method::GET, Method::HEAD, Method::CONNECT, Method::POST]
        [usize::from(control & 3)]
    .clone();
    let size = usize::from(control >> 2) + 1;
    let whole = read(&[bytes], &method);
    let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
    let in_pieces = read(&pieces, &method);
    assert_eq!(whole, in_pieces, "in pieces of {size}");
    if whole.is_whole {
        assert_eq!(
            whole,
            read_by_hyper(&pieces, &method),
            "hyper reads otherwise"
        );
    }
    let head = whole.head.as_ref();
    Outcome::of((
        head.map(|(status, headers)| (status.as_u16() / 100, headers.len().min(4))),
        whole.content.len().min(4),
        whole.trailers.map(|trailers| trailers.len().min(2)),
        whole.is_whole,
        whole.error.map(|error| error.to_string()),
    ))
}

fn read(pieces: &[&[u8]], method: &Method) -> Seen {
    let mut seen = Seen::default();
    match read_into(&mut seen, pieces, method) {
        Ok(is_whole) => seen.is_whole = is_whole,
        Err(error) => seen.error = Some(error),
    }
    seen
}

fn read_into(seen: &mut Seen, pieces: &[&[u8]], method: &Method) -> Result<bool, Http1Error> {
    let mut pieces = pieces.iter();
    let mut buffer = BytesMut::new();
    let Some(head) = read_head(&mut buffer, &mut pieces, method)? else {
        return Ok(false);
    };
    let mut decoder = ResponseBodyDecoder::new(head.framing);
    seen.head = Some((head.status, head.headers));
    while !decoder.is_end() {
        let read = match decoder.next(&buffer)? {
            BodyPiece::Data { at } => {
                assert!(!at.is_empty(), "empty content");
                seen.content.extend_from_slice(&buffer[at.clone()]);
                at.end
            }
            BodyPiece::Trailers { trailers, read } => {
                seen.trailers = Some(trailers);
                read
            }
            BodyPiece::End { read } => read,
            BodyPiece::More { read } => {
                assert_eq!(read, buffer.len(), "more is needed, but there is more");
                buffer.clear();
                match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => decoder.eof()?,
                }
                continue;
            }
        };
        let _ = buffer.split_to(read);
    }
    Ok(true)
}

fn read_head<'a>(
    buffer: &mut BytesMut,
    pieces: &mut impl Iterator<Item = &'a &'a [u8]>,
    method: &Method,
) -> Result<Option<ResponseHead>, Http1Error> {
    let mut parser = ResponseHeadParser::new(LIMITS);
    loop {
        match parser.parse(buffer, method)? {
            HeadProgress::Head { head, read } => {
                let _ = buffer.split_to(read);
                return Ok(Some(head));
            }
            HeadProgress::Incomplete { read } => {
                let _ = buffer.split_to(read);
                assert!(buffer.len() < LIMITS.bytes, "a head without a bound");
                let Some(piece) = pieces.next() else {
                    return Ok(None);
                };
                buffer.extend_from_slice(piece);
            }
        }
    }
}

/// What hyper's client reads in `pieces`.
fn read_by_hyper(pieces: &[&[u8]], method: &Method) -> Seen {
    let mut seen = Seen::default();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_time()
        .build()
        .expect("it needs no descriptor");
    runtime.block_on(async {
        let (client, mut upstream) = tokio::io::duplex(1 << 16);
        let respond = async {
            let mut asked = [0; 1024];
            let _ = upstream.read(&mut asked).await;
            for piece in pieces {
                // hyper closes the connection once it has what it wants.
                if upstream.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let _ = upstream.shutdown().await;
            upstream
        };
        let read = ask_hyper(client, method, &mut seen);
        let both = async { tokio::join!(read, respond) };
        let (result, _upstream) = tokio::time::timeout(HANG, both).await.expect("hyper hangs");
        seen.is_whole = result.is_ok();
    });
    seen
}

async fn ask_hyper(
    client: tokio::io::DuplexStream,
    method: &Method,
    seen: &mut Seen,
) -> hyper::Result<()> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await?;
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    let response = sender.send_request(request).await?;
    let (parts, mut body) = response.into_parts();
    seen.head = Some((parts.status, parts.headers));
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => seen.content.extend_from_slice(&data),
            Err(frame) => seen.trailers = frame.into_trailers().ok(),
        }
    }
    Ok(())
}
