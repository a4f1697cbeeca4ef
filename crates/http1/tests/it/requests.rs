//! Requests as the codec and hyper's client write them: the same bytes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use fairgate_http1::{RequestBodyEncoder, RequestFraming, RequestHeaderLines, write_request_head};
use http::{HeaderMap, HeaderValue, Method, Request};

use crate::hyper_client::{self, PiecesBody};

/// What the codec writes for `request`.
fn write(request: &Request<PiecesBody>) -> Vec<u8> {
    let body = request.body();
    let framing = RequestFraming::of(request.method(), body.is_end, body.exact);
    let target = request.uri().to_string();
    let mut lines = RequestHeaderLines::default();
    for (name, value) in request.headers() {
        lines.add(name, value);
    }
    let mut out = BytesMut::new();
    write_request_head(&mut out, request.method(), &target, &lines, framing);
    if framing != RequestFraming::None {
        let mut encoder = RequestBodyEncoder::new(framing);
        for piece in &body.left {
            let after = encoder
                .data(piece.len(), &mut out)
                .expect("it was promised");
            out.extend_from_slice(piece);
            out.extend_from_slice(after);
        }
        out.extend_from_slice(encoder.end().expect("all came"));
    }
    out.to_vec()
}

#[test]
fn requests_are_those_that_hyper_writes() {
    let runtime = hyper_client::runtime();
    let mut headers = HeaderMap::new();
    headers.append("host", HeaderValue::from_static("a"));
    headers.append("x-a", HeaderValue::from_bytes(b"\xe9 b").unwrap());
    headers.append("x-b", HeaderValue::from_static(""));
    headers.append("x-a", HeaderValue::from_static("c"));
    let long = Bytes::from("y".repeat(300));
    let bodies: [(&[Bytes], _, _); 7] = [
        (&[], None, true),
        (&[], Some(0), true),
        (&[], Some(0), false),
        (&[], None, false),
        (&[Bytes::from("abc"), long.clone()], Some(303), false),
        (
            &[Bytes::from("abc"), Bytes::new(), long.clone()],
            None,
            false,
        ),
        (&[long], None, false),
    ];
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::from_bytes(b"PURGE").unwrap(),
    ];
    for method in methods {
        for (pieces, exact, is_end) in &bodies {
            let body = PiecesBody {
                left: VecDeque::from(pieces.to_vec()),
                exact: *exact,
                is_end: *is_end,
            };
            let mut request = Request::new(body);
            *request.method_mut() = method.clone();
            *request.uri_mut() = "/api/v1?watch=1".parse().unwrap();
            request.headers_mut().clone_from(&headers);
            let written = write(&request);
            let expected = hyper_client::write(&runtime, request);
            assert_eq!(
                String::from_utf8_lossy(&written),
                String::from_utf8_lossy(&expected),
                "{method} {exact:?} {is_end}"
            );
            assert_eq!(written, expected);
        }
    }
}
