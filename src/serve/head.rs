//! Refuses request heads that servers disagree about.
//!
//! hyper parses strictly, but settles some questions instead of refusing them: of
//! `Transfer-Encoding` and `Content-Length` it drops the second, it takes a bare line feed for a line
//! end, and it leaves duplicate headers to us. Whatever two servers could read in two ways is
//! refused here, before anything looks at it.

use http::{
    HeaderMap, Method, Request, Version,
    header::{
        ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName,
        TRANSFER_ENCODING,
    },
};

use crate::call::Refusal;

/// What a head that may be served asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Something that goes on through the stack.
    Request,
    /// `OPTIONS *`: whether anybody is here. Answered on the spot.
    IsAnybodyThere,
}

/// Refuses a head that is malformed or ambiguous. `bytes` is the HTTP/1 head as received, if known.
///
/// # Errors
///
/// [`Refusal::Malformed`] and its like. An HTTP/1 connection should not be used again after one.
pub fn check<B>(request: &Request<B>, bytes: Option<&[u8]>) -> Result<Asks, Refusal> {
    let headers = request.headers();
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Refusal::MethodNotAllowed);
    }
    check_host(request)?;
    check_framing(headers, bytes)?;
    check_single(
        headers,
        &AUTHORIZATION,
        "more than one Authorization header",
    )?;
    check_single(headers, &CONTENT_TYPE, "more than one Content-Type header")?;
    check_connection(headers)?;
    if let Some(expect) = headers.get(EXPECT)
        && !expect.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Refusal::ExpectationFailed);
    }
    match request.uri().path() {
        "*" if request.method() == Method::OPTIONS => Ok(Asks::IsAnybodyThere),
        path if path.starts_with('/') => Ok(Asks::Request),
        _ => Err(Refusal::Malformed("the target is not a path")),
    }
}

/// One host, and only one, is asked for.
fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::Malformed("more than one Host header"));
    }
    if host.is_none() && request.version() == Version::HTTP_11 {
        return Err(Refusal::Malformed("no Host header"));
    }
    let (Some(authority), Some(host)) = (request.uri().authority(), host) else {
        return Ok(());
    };
    if authority
        .as_str()
        .as_bytes()
        .eq_ignore_ascii_case(host.as_bytes())
    {
        Ok(())
    } else {
        Err(Refusal::Malformed("the target and the Host header differ"))
    }
}

/// The body ends where everybody thinks it ends.
fn check_framing(headers: &HeaderMap, bytes: Option<&[u8]>) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let encoding = encodings.next();
    if let Some(encoding) = encoding {
        if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::Malformed(
                "Transfer-Encoding may be chunked, once, and nothing else",
            ));
        }
        if headers.contains_key(CONTENT_LENGTH) || bytes.is_some_and(has_length) {
            return Err(Refusal::Malformed(
                "both Transfer-Encoding and Content-Length",
            ));
        }
    }
    if bytes.is_some_and(has_bare_line_feed) {
        return Err(Refusal::Malformed("a line ends without a carriage return"));
    }
    Ok(())
}

fn check_single(
    headers: &HeaderMap,
    name: &HeaderName,
    complaint: &'static str,
) -> Result<(), Refusal> {
    if headers.get_all(name).iter().nth(1).is_some() {
        return Err(Refusal::Malformed(complaint));
    }
    Ok(())
}

/// `Connection` removes no header that the request cannot do without.
fn check_connection(headers: &HeaderMap) -> Result<(), Refusal> {
    const NEEDED: [HeaderName; 5] = [ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST];
    let names_needed = headers.get_all(CONNECTION).iter().any(|value| {
        value.as_bytes().split(|b| *b == b',').any(|token| {
            NEEDED.iter().any(|name| {
                token
                    .trim_ascii()
                    .eq_ignore_ascii_case(name.as_str().as_bytes())
            })
        })
    });
    if names_needed {
        return Err(Refusal::Malformed(
            "Connection names a header the request needs",
        ));
    }
    Ok(())
}

/// The lines of the head at the beginning of `bytes`, line ends included; not the empty line that
/// ends it, nor those that may come before it.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(bytes)
        .skip_while(|line| is_empty(line))
        .take_while(|line| !is_empty(line))
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|b| *b == b'\n')
}

fn is_empty(line: &[u8]) -> bool {
    matches!(line, b"\n" | b"\r\n")
}

/// Whether there is a `Content-Length`, which hyper drops beside a `Transfer-Encoding`.
fn has_length(bytes: &[u8]) -> bool {
    let name = CONTENT_LENGTH.as_str().as_bytes();
    lines(bytes).any(|line| {
        line.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    })
}

/// Whether a line of the head, the empty one at its end included, ends with a line feed alone.
fn has_bare_line_feed(bytes: &[u8]) -> bool {
    // Counting takes far less time than searching, and nearly always settles it.
    #[expect(
        clippy::naive_bytecount,
        reason = "the compiler makes vector instructions of it, which is enough for a head"
    )]
    let feeds = bytes.iter().filter(|b| **b == b'\n').count();
    let ends = bytes
        .iter()
        .zip(bytes.iter().skip(1))
        .filter(|pair| (*pair.0, *pair.1) == (b'\r', b'\n'))
        .count();
    let is_bare = |line: &[u8]| line.ends_with(b"\n") && !line.ends_with(b"\r\n");
    let mut from_the_first = split(bytes).skip_while(|line| is_empty(line));
    feeds != ends
        && from_the_first
            .find(|line| is_bare(line) || is_empty(line))
            .is_some_and(is_bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(request: http::request::Builder) -> Result<Asks, Refusal> {
        check(&request.body(()).unwrap(), None)
    }

    fn get() -> http::request::Builder {
        Request::get("/api").header("host", "gate")
    }

    #[test]
    fn an_ordinary_request_passes() {
        assert_eq!(checked(get()).unwrap(), Asks::Request);
    }

    #[test]
    fn duplicates_that_decide_something_are_refused() {
        for name in ["host", "authorization", "content-type"] {
            let twice = get().header(name, "a").header(name, "b");
            assert!(checked(twice).is_err(), "{name}");
        }
        assert!(checked(get().header("accept", "a").header("accept", "b")).is_ok());
    }

    #[test]
    fn every_transfer_encoding_but_chunked_is_refused() {
        let te = |value: &str| checked(get().header("transfer-encoding", value));
        assert!(te("chunked").is_ok());
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "xchunked"] {
            assert!(te(bad).is_err(), "{bad}");
        }
        let twice = get()
            .header("transfer-encoding", "chunked")
            .header("transfer-encoding", "chunked");
        assert!(checked(twice).is_err());
    }

    #[test]
    fn connection_may_not_name_what_the_request_needs() {
        assert!(checked(get().header("connection", "close, Host")).is_err());
        assert!(checked(get().header("connection", "content-length")).is_err());
        assert!(checked(get().header("connection", "keep-alive, x-other")).is_ok());
    }

    #[test]
    fn two_names_for_one_host_are_refused() {
        let absolute = |host| Request::get("http://gate/api").header("host", host);
        assert!(checked(absolute("gate")).is_ok());
        assert!(checked(absolute("GATE")).is_ok());
        assert!(checked(absolute("other")).is_err());
        assert!(
            checked(Request::get("/api")).is_err(),
            "HTTP/1.1 needs a host"
        );
    }

    #[test]
    fn tunnels_and_echoes_are_refused_and_asterisk_is_answered_here() {
        for method in ["CONNECT", "TRACE"] {
            assert!(matches!(
                checked(get().method(method)),
                Err(Refusal::MethodNotAllowed)
            ));
        }
        let asterisk = Request::options("*").header("host", "gate");
        assert_eq!(checked(asterisk).unwrap(), Asks::IsAnybodyThere);
        assert!(checked(get().uri("*")).is_err());
    }

    #[test]
    fn only_the_bytes_tell_a_dropped_length_and_a_bare_line_feed() {
        let both = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-LENGTH: 3\r\n\r\n";
        assert!(has_length(both));
        assert!(!has_bare_line_feed(both));
        let body = b"POST / HTTP/1.1\r\nHost: a\r\n\r\nContent-Length: 3\n";
        assert!(!has_length(body), "that is the body");
        assert!(!has_bare_line_feed(body), "that is the body");
        assert!(has_bare_line_feed(b"GET / HTTP/1.1\nHost: a\r\n\r\n"));
        assert!(has_bare_line_feed(b"GET / HTTP/1.1\r\nHost: a\r\n\n"));
        assert!(has_length(
            b"\r\n\r\nGET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
        ));
    }
}
