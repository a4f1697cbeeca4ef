//! Properties that need no reference.

use bytes::BytesMut;
use fairgate_http1::{RequestBodyEncoder, RequestFraming, RequestHeaderLines, write_request_head};
use http::{HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use crate::{exchange, responses::WORDS};

/// Bytes that often are nearly a response.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let word = proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec());
    let noise = proptest::collection::vec(any::<u8>(), 0..6);
    let part = prop_oneof![8 => word, 1 => noise];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn method() -> impl Strategy<Value = Method> {
    proptest::sample::select(vec![Method::GET, Method::HEAD, Method::CONNECT])
}

/// A server's reading of a body that the codec wrote.
fn read_body(mut written: &[u8], framing: RequestFraming) -> Vec<u8> {
    if framing != RequestFraming::Chunked {
        return written.to_vec();
    }
    let mut content = Vec::new();
    loop {
        let end = written.windows(2).position(|two| two == b"\r\n");
        let (line, rest) = written.split_at(end.expect("a line"));
        let size = std::str::from_utf8(line).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("a size");
        content.extend_from_slice(&rest[2..][..size]);
        written = rest[2 + size..].strip_prefix(b"\r\n").expect("an end");
        if size == 0 {
            assert!(written.is_empty());
            return content;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn how_a_response_is_cut_changes_nothing(
        bytes in stream(),
        is_begun in any::<bool>(),
        method in method(),
        places in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        let begun = b"HTTP/1.1 200 OK\r\n".as_slice();
        let bytes = if is_begun { [begun, &bytes].concat() } else { bytes };
        let whole = exchange::read(&[&bytes], &method);
        let in_pieces = exchange::read(&exchange::cut(&bytes, &places), &method);
        prop_assert_eq!(&whole, &in_pieces);
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&whole, &exchange::read(&bytewise, &method));
    }

    #[test]
    fn what_is_written_is_read_back(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
        is_known in any::<bool>(),
        value in "[ -~]{0,20}",
    ) {
        let content = pieces.concat();
        let exact = is_known.then_some(content.len() as u64);
        let framing = RequestFraming::of(&Method::PUT, false, exact);
        let mut written = RequestHeaderLines::default();
        written.add(&HeaderName::from_static("x-a"), &HeaderValue::from_str(&value).unwrap());
        let mut out = BytesMut::new();
        write_request_head(&mut out, &Method::PUT, "/a?b", &written, framing);

        let mut lines = [httparse::EMPTY_HEADER; 4];
        let mut read = httparse::Request::new(&mut lines);
        let length = read.parse(&out).unwrap().unwrap();
        prop_assert_eq!((read.method, read.path, read.version), (Some("PUT"), Some("/a?b"), Some(1)));
        prop_assert_eq!(read.headers.len(), 2);
        prop_assert_eq!(read.headers[0].value, value.trim().as_bytes());
        prop_assert_eq!(length, out.len());

        let mut body = BytesMut::new();
        let mut encoder = RequestBodyEncoder::new(framing);
        for piece in &pieces {
            let after = encoder.data(piece.len(), &mut body).unwrap();
            body.extend_from_slice(piece);
            body.extend_from_slice(after);
        }
        body.extend_from_slice(encoder.end().unwrap());
        prop_assert_eq!(read_body(&body, framing), content);
    }
}
