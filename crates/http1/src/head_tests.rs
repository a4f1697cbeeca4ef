//! Tables of heads, accepted and refused.

use super::*;

const LIMITS: ResponseHeadLimits = ResponseHeadLimits {
    bytes: 4096,
    lines: 100,
};

fn parse(input: &[u8], method: &Method) -> Result<HeadProgress, Http1Error> {
    ResponseHeadParser::new(LIMITS).parse(input, method)
}

fn head_of(input: &str, method: &Method) -> ResponseHead {
    match parse(input.as_bytes(), method) {
        Ok(HeadProgress::Head { head, read }) => {
            assert_eq!(read, input.len(), "{input:?}");
            head
        }
        other => panic!("{input:?}: {other:?}"),
    }
}

fn get(input: &str) -> ResponseHead {
    head_of(input, &Method::GET)
}

fn refusal(input: &str) -> Http1Error {
    match parse(input.as_bytes(), &Method::GET) {
        Err(error) => error,
        Ok(progress) => panic!("{input:?}: {progress:?}"),
    }
}

#[test]
fn a_head_has_its_status_headers_and_framing() {
    let head =
        get("HTTP/1.1 201 Created\r\nX-A: 1\r\nEmpty:\r\nx-a:  2 \t\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(head.status, StatusCode::CREATED);
    let values: Vec<_> = head.headers.get_all("x-a").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(head.headers["empty"], "");
    assert_eq!(head.headers.len(), 4);
    assert_eq!(head.framing, ResponseFraming::Length(3));
    assert!(head.keep_alive);
}

#[test]
fn what_follows_the_head_is_not_read() {
    let input = b"HTTP/1.1 200\n\nHTTP/1.1 500\r\n\r\n";
    let Ok(HeadProgress::Head { head, read }) = parse(input, &Method::GET) else {
        panic!("it is whole");
    };
    assert_eq!((head.status, read), (StatusCode::OK, 14));
}

#[test]
fn a_carriage_return_alone_is_refused_before_the_head_ends() {
    for input in [
        "HTTP/1.1 200 OK\rA",
        "HTTP/1.1 200 OK\r\nA: 1\rB: 2",
        "HTTP/1.1 200 OK\r\nA: 1\r\r",
        "HTTP/1.1 200 OK\r\n\r\r",
    ] {
        let error = refusal(input);
        assert_eq!(error, Http1Error::MalformedHead(httparse::Error::NewLine));
    }
    let waits = parse(b"HTTP/1.1 200 OK\r\nA: 1\r", &Method::GET);
    assert!(matches!(waits, Ok(HeadProgress::Incomplete { read: 0 })));
}

#[test]
fn the_body_ends_as_status_method_and_headers_say() {
    use ResponseFraming::{Chunked, Length, UntilClose};
    let cases = [
        ("200 OK\r\n", Method::GET, UntilClose),
        ("200 OK\r\nContent-Length: 0\r\n", Method::GET, Length(0)),
        (
            "200 OK\r\nContent-Length: 18446744073709551613\r\n",
            Method::GET,
            Length(u64::MAX - 2),
        ),
        (
            "200 OK\r\nTransfer-Encoding: ChunkeD\r\n",
            Method::GET,
            Chunked,
        ),
        ("200 OK\r\nContent-Length: 5\r\n", Method::HEAD, Length(0)),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\n",
            Method::HEAD,
            Length(0),
        ),
        ("204 No\r\nContent-Length: x\r\n", Method::GET, Length(0)),
        ("304 No\r\nContent-Length: 5\r\n", Method::GET, Length(0)),
        ("101 Up\r\nContent-Length: 5\r\n", Method::GET, Length(0)),
        (
            "200 OK\r\nContent-Length: 5\r\n",
            Method::CONNECT,
            Length(0),
        ),
        (
            "400 No\r\nContent-Length: 5\r\n",
            Method::CONNECT,
            Length(5),
        ),
    ];
    for (rest, method, framing) in cases {
        let head = head_of(&format!("HTTP/1.1 {rest}\r\n"), &method);
        assert_eq!(head.framing, framing, "{method} {rest}");
    }
}

#[test]
fn the_connection_stays_open_as_version_and_connection_say() {
    let cases = [
        ("1.1 200\r\nContent-Length: 1\r\n", true),
        ("1.1 200\r\n", false),
        ("1.1 204\r\n", true),
        ("1.1 101\r\n", false),
        ("1.1 204\r\nConnection: Close\r\n", false),
        ("1.1 204\r\nConnection: keep-alive, x\t,\tCLOSE\r\n", false),
        (
            "1.1 204\r\nConnection: close\r\nConnection: keep-alive\r\n",
            false,
        ),
        (
            "1.1 204\r\nConnection: keep-alive\r\nConnection: close\r\n",
            false,
        ),
        ("1.1 204\r\nConnection: \u{e9}, close\r\n", false),
        ("1.1 204\r\nConnection: closed\r\n", true),
        ("1.0 204\r\n", false),
        ("1.0 204\r\nConnection: Keep-Alive\r\n", true),
        ("1.0 204\r\nConnection: keep-alive, close\r\n", false),
    ];
    for (rest, keep_alive) in cases {
        let head = get(&format!("HTTP/{rest}\r\n"));
        assert_eq!(head.keep_alive, keep_alive, "{rest:?}");
    }
}

/// A head with so many lines.
fn lines(count: usize) -> String {
    format!("HTTP/1.1 200\r\n{}\r\n", "a:b\r\n".repeat(count))
}

fn with(headers: &str) -> String {
    format!("HTTP/1.1 200\r\n{headers}\r\n\r\n")
}

#[test]
fn every_malformed_head_has_its_error() {
    use httparse::Error::{HeaderName, HeaderValue, NewLine, Status};
    let malformed = Http1Error::MalformedHead;
    let cases = [
        ("x".to_owned(), Http1Error::Version),
        ("\r\nHTTP/1.1 200\r\n\r\n".to_owned(), Http1Error::Version),
        ("HTTP/2".to_owned(), Http1Error::Version),
        ("HTTP/1.2 200\r\n\r\n".to_owned(), Http1Error::Version),
        ("HTTP/1.1200\r\n\r\n".to_owned(), Http1Error::Version),
        ("HTTP/1.1 099\r\n\r\n".to_owned(), malformed(Status)),
        ("HTTP/1.1 1000\r\n\r\n".to_owned(), malformed(Status)),
        ("HTTP/1.1  200\r\n\r\n".to_owned(), malformed(Status)),
        ("HTTP/1.1 200 \0\r\n\r\n".to_owned(), malformed(Status)),
        (with("a : b"), malformed(HeaderName)),
        (with(" a: b"), malformed(HeaderName)),
        (with("a: b\r\n c"), malformed(HeaderName)),
        (with("a"), malformed(HeaderName)),
        (with(": b"), malformed(HeaderName)),
        (with("a: b\rc"), malformed(NewLine)),
        (with("a: \0"), malformed(HeaderValue)),
        (with("a: b\r\n\rc: d"), malformed(NewLine)),
        (lines(101), Http1Error::TooManyHeaders),
        (
            "HTTP/1.1 200 ".to_owned() + &"x".repeat(4083),
            Http1Error::HeadTooLarge,
        ),
        (
            with(&format!("a: {}", "x".repeat(4090))),
            Http1Error::HeadTooLarge,
        ),
        (
            "HTTP/1.1 100\r\n\r\n".repeat(65),
            Http1Error::TooManyInterim,
        ),
    ];
    for (input, error) in cases {
        assert_eq!(refusal(&input), error, "{input:?}");
    }
    assert_eq!(get(&lines(100)).headers.len(), 100);
}

#[test]
fn every_uncertain_end_of_the_body_has_its_error() {
    let chunked = "Transfer-Encoding: chunked";
    let cases = [
        (with("Content-Length: "), Http1Error::InvalidLength),
        (with("Content-Length: -1"), Http1Error::InvalidLength),
        (with("Content-Length: +1"), Http1Error::InvalidLength),
        (with("Content-Length: 1 2"), Http1Error::InvalidLength),
        (with("Content-Length: 0x1"), Http1Error::InvalidLength),
        (
            with("Content-Length: 18446744073709551614"),
            Http1Error::InvalidLength,
        ),
        (
            with("Content-Length: 18446744073709551616"),
            Http1Error::InvalidLength,
        ),
        (with("Content-Length: 1, 1"), Http1Error::SeveralLengths),
        (
            with("Content-Length: 1\r\nContent-Length: 1"),
            Http1Error::SeveralLengths,
        ),
        (
            with(&format!("{chunked}\r\nContent-Length: 1")),
            Http1Error::LengthAndEncoding,
        ),
        (
            with("Transfer-Encoding: gzip"),
            Http1Error::UnsupportedEncoding,
        ),
        (
            with("Transfer-Encoding: gzip, chunked"),
            Http1Error::UnsupportedEncoding,
        ),
        (
            with(&format!("{chunked}\r\n{chunked}")),
            Http1Error::UnsupportedEncoding,
        ),
        (
            format!("HTTP/1.0 200\r\n{chunked}\r\n\r\n"),
            Http1Error::UnsupportedEncoding,
        ),
    ];
    for (input, error) in cases {
        assert_eq!(refusal(&input), error, "{input:?}");
    }
}

#[test]
fn interim_responses_are_skipped_and_consumed() {
    let interim =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\nContent-Length: 9\r\n\r\n";
    let mut parser = ResponseHeadParser::new(LIMITS);
    let first = format!("{interim}HTTP/1.1 2");
    let progress = parser.parse(first.as_bytes(), &Method::GET);
    let Ok(HeadProgress::Incomplete { read }) = progress else {
        panic!("{progress:?}");
    };
    assert_eq!(read, interim.len());
    let progress = parser.parse(b"HTTP/1.1 204\r\n\r\n", &Method::GET);
    assert!(
        matches!(progress, Ok(HeadProgress::Head { read: 16, .. })),
        "{progress:?}"
    );

    let many = "HTTP/1.1 199\r\n\r\n".repeat(64) + "HTTP/1.1 204\r\n\r\n";
    assert_eq!(get(&many).status, StatusCode::NO_CONTENT);
}

#[test]
fn a_buffer_of_the_limit_is_never_incomplete() {
    let limits = ResponseHeadLimits {
        bytes: 16,
        lines: 1,
    };
    let parse = |input: &[u8]| ResponseHeadParser::new(limits).parse(input, &Method::GET);
    assert!(matches!(
        parse(b"HTTP/1.1 204\r\n\r\n"),
        Ok(HeadProgress::Head { .. })
    ));
    assert!(matches!(
        parse(b"HTTP/1.1 204 \r\n\r"),
        Err(Http1Error::HeadTooLarge)
    ));
    assert!(matches!(
        parse(b"HTTP/1.1 204 \r\n\r\n"),
        Err(Http1Error::HeadTooLarge)
    ));
    assert!(matches!(
        parse(b"HTTP/1.1 204 \r\n"),
        Ok(HeadProgress::Incomplete { read: 0 })
    ));
}

#[test]
fn bytes_that_come_one_by_one_are_searched_once() {
    let head = format!("HTTP/1.1 204\r\na: {}\r\nb:c\r\n\r\n", "x".repeat(1000));
    let mut parser = ResponseHeadParser::new(LIMITS);
    for end in 0..head.len() {
        let progress = parser.parse(&head.as_bytes()[..end], &Method::GET);
        assert!(matches!(progress, Ok(HeadProgress::Incomplete { read: 0 })));
        assert!(parser.searched + 2 >= end, "{} of {end}", parser.searched);
    }
    let progress = parser.parse(head.as_bytes(), &Method::GET);
    assert!(matches!(progress, Ok(HeadProgress::Head { .. })));
}
