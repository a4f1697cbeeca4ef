//! Validates request heads, and refuses those that servers interpret differently.
//!
//! hyper parses strictly, but resolves some ambiguities instead of refusing them: if both `Transfer-Encoding` and
//! `Content-Length` are present it ignores `Content-Length`, it accepts a bare line feed as a line end, and it allows
//! duplicate headers. Such requests are refused here, before anything else uses them: they enable request smuggling
//! (RFC 9112, section 11.2).

use http::{
    HeaderMap, HeaderValue, Method, Request, Version,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING,
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
pub(crate) fn check<B>(
    request: &Request<B>,
    lines: &CheckedLines<'_>,
    facts: HeadFacts,
) -> Result<RequestTarget, Refusal> {
    let headers = request.headers();
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Refusal::MethodNotAllowed);
    }
    check_host(request, lines)?;
    check_framing(lines, facts)?;
    for (count, message) in [
        (lines.authorizations, "more than one Authorization header"),
        (lines.content_types, "more than one Content-Type header"),
    ] {
        if count > 1 {
            return Err(Refusal::Malformed(message));
        }
    }
    if lines.connection_names > 0 && end_to_end_header_in_connection(headers).is_some() {
        return Err(Refusal::Malformed(
            "Connection names a header the request needs",
        ));
    }
    if let Some(expect) = lines.expect
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

/// What a line of a head takes in memory besides its texts.
const LINE_BYTES: usize = 128;

/// The lines that are checked or needed at once, found in one pass: looking each of them up costs several times as much.
#[derive(Default)]
pub(crate) struct CheckedLines<'a> {
    /// What all lines take in memory.
    pub(crate) bytes: usize,
    hosts: usize,
    /// The first of them.
    host: Option<&'a HeaderValue>,
    encodings: usize,
    /// The first of them.
    encoding: Option<&'a HeaderValue>,
    authorizations: usize,
    content_types: usize,
    has_content_length: bool,
    /// How many names the `Connection` lines list.
    pub(crate) connection_names: usize,
    /// The first of them.
    expect: Option<&'a HeaderValue>,
    /// The first `Audit-ID`.
    pub(crate) audit_id: Option<&'a HeaderValue>,
}

impl<'a> CheckedLines<'a> {
    /// Those of a request.
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut lines = Self::default();
        for (name, value) in headers {
            lines.bytes += LINE_BYTES + name.as_str().len() + value.len();
            match *name {
                HOST => {
                    lines.hosts += 1;
                    lines.host.get_or_insert(value);
                }
                TRANSFER_ENCODING => {
                    lines.encodings += 1;
                    lines.encoding.get_or_insert(value);
                }
                AUTHORIZATION => lines.authorizations += 1,
                CONTENT_TYPE => lines.content_types += 1,
                CONTENT_LENGTH => lines.has_content_length = true,
                CONNECTION => {
                    let commas = value.as_bytes().iter().filter(|&&byte| byte == b',');
                    lines.connection_names += 1 + commas.count();
                }
                EXPECT => {
                    lines.expect.get_or_insert(value);
                }
                _ if name.as_str() == "audit-id" => {
                    lines.audit_id.get_or_insert(value);
                }
                _ => {}
            }
        }
        lines
    }

    /// Whether the client waits for `100 Continue` before it sends its body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expect.is_some()
    }
}

/// Refuses more than one `Host`, none in HTTP/1.1, and one that differs from the authority of the target.
///
/// A default port counts: `gate` and `gate:80` differ. Clients send the same text in both places.
fn check_host<B>(request: &Request<B>, lines: &CheckedLines<'_>) -> Result<(), Refusal> {
    if lines.hosts > 1 {
        return Err(Refusal::Malformed("more than one Host header"));
    }
    if lines.hosts == 0 && request.version() == Version::HTTP_11 {
        return Err(Refusal::Malformed("no Host header"));
    }
    // Where both are there, one server takes the one, and another server the other.
    let (Some(authority), Some(host)) = (request.uri().authority(), lines.host) else {
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
fn check_framing(lines: &CheckedLines<'_>, facts: HeadFacts) -> Result<(), Refusal> {
    if let Some(encoding) = lines.encoding {
        if lines.encodings > 1 || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::Malformed(
                "Transfer-Encoding may be chunked, once, and nothing else",
            ));
        }
        if lines.has_content_length || facts.has_content_length {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check<B>(request: &Request<B>, facts: HeadFacts) -> Result<RequestTarget, Refusal> {
        super::check(request, &CheckedLines::of(request.headers()), facts)
    }

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
