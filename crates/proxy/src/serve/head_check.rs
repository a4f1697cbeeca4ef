//! Validates request heads, and refuses those that servers interpret differently.
//!
//! hyper parses strictly, but resolves some ambiguities instead of refusing them: if both `Transfer-Encoding` and
//! `Content-Length` are present it ignores `Content-Length`, it accepts a bare line feed as a line end, and it allows
//! duplicate headers. Such requests are refused here, before anything else uses them: they enable request smuggling
//! (RFC 9112, section 11.2).

use http::{
    HeaderMap, Method, Request, Version,
    header::{
        AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName, TRANSFER_ENCODING,
    },
};

use super::head_scan::HeadFacts;
use fairgate_call::{Refusal, end_to_end_header_in_connection};

/// What a valid head addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    /// A path: the request goes through the stack.
    Path,
    /// The server as a whole, `OPTIONS *` (RFC 9110, section 9.3.7). The response does not need the stack.
    ServerWide,
}

/// Refuses a head that is malformed or ambiguous. `facts` were collected while scanning the bytes of an
/// HTTP/1 head.
///
/// # Errors
///
/// [`Refusal::Malformed`], [`Refusal::MethodNotAllowed`] or [`Refusal::ExpectationFailed`]. The caller must close an
/// HTTP/1 connection after any of them, because the end of the request is not certain.
pub(crate) fn check<B>(request: &Request<B>, facts: HeadFacts) -> Result<RequestTarget, Refusal> {
    let headers = request.headers();
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Refusal::MethodNotAllowed);
    }
    check_host(request)?;
    check_framing(headers, facts)?;
    check_single(
        headers,
        &AUTHORIZATION,
        "more than one Authorization header",
    )?;
    check_single(headers, &CONTENT_TYPE, "more than one Content-Type header")?;
    if end_to_end_header_in_connection(headers).is_some() {
        return Err(Refusal::Malformed(
            "Connection names a header the request needs",
        ));
    }
    if let Some(expect) = headers.get(EXPECT)
        && !expect.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Refusal::ExpectationFailed);
    }
    match request.uri().path() {
        "*" if request.method() == Method::OPTIONS => Ok(RequestTarget::ServerWide),
        path if path.starts_with('/') => Ok(RequestTarget::Path),
        _ => Err(Refusal::Malformed("the target is not a path")),
    }
}

/// Refuses more than one `Host`, none in HTTP/1.1, and one that differs from the authority of the target.
///
/// A default port counts: `gate` and `gate:80` differ. Clients send the same text in both places.
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

/// Refuses ambiguous message framing (RFC 9112, section 6.3).
fn check_framing(headers: &HeaderMap, facts: HeadFacts) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let encoding = encodings.next();
    if let Some(encoding) = encoding {
        if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::Malformed(
                "Transfer-Encoding may be chunked, once, and nothing else",
            ));
        }
        if headers.contains_key(CONTENT_LENGTH) || facts.has_content_length {
            return Err(Refusal::Malformed(
                "both Transfer-Encoding and Content-Length",
            ));
        }
    }
    if facts.bare_line_feed {
        return Err(Refusal::Malformed("a line ends without a carriage return"));
    }
    Ok(())
}

fn check_single(
    headers: &HeaderMap,
    name: &HeaderName,
    message: &'static str,
) -> Result<(), Refusal> {
    if headers.get_all(name).iter().nth(1).is_some() {
        return Err(Refusal::Malformed(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(request: http::request::Builder) -> Result<RequestTarget, Refusal> {
        check(&request.body(()).unwrap(), HeadFacts::default())
    }

    fn get() -> http::request::Builder {
        Request::get("/api").header("host", "gate")
    }

    #[test]
    fn an_ordinary_request_passes() {
        assert_eq!(checked(get()).unwrap(), RequestTarget::Path);
    }

    #[test]
    fn duplicate_headers_that_change_the_meaning_are_refused() {
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
    fn connection_may_not_name_a_header_that_the_request_needs() {
        assert!(checked(get().header("connection", "close, Host")).is_err());
        assert!(checked(get().header("connection", "content-length")).is_err());
        assert!(checked(get().header("connection", "keep-alive, x-other")).is_ok());
    }

    #[test]
    fn a_missing_or_different_host_header_is_refused() {
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
    fn connect_and_trace_are_refused_and_options_asterisk_needs_no_stack() {
        for method in ["CONNECT", "TRACE"] {
            assert!(matches!(
                checked(get().method(method)),
                Err(Refusal::MethodNotAllowed)
            ));
        }
        let asterisk = Request::options("*").header("host", "gate");
        assert_eq!(checked(asterisk).unwrap(), RequestTarget::ServerWide);
        assert!(checked(get().uri("*")).is_err());
    }

    #[test]
    fn problems_that_only_the_raw_bytes_show_are_refused() {
        let chunked = get()
            .header("transfer-encoding", "chunked")
            .body(())
            .unwrap();
        let length = HeadFacts {
            has_content_length: true,
            ..HeadFacts::default()
        };
        assert!(check(&chunked, HeadFacts::default()).is_ok());
        assert!(check(&chunked, length).is_err());
        assert!(check(&get().body(()).unwrap(), length).is_ok());
        let bare = HeadFacts {
            bare_line_feed: true,
            ..HeadFacts::default()
        };
        assert!(check(&get().body(()).unwrap(), bare).is_err());
    }
}
