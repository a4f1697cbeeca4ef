//! Removes headers with which a client could spoof an identity.
//!
//! An upstream trusts the identity headers that the gateway sends, so none of a client's own may reach it: not in
//! another spelling, not by a `Connection` line that would remove the gateway's header, and not as a token that
//! another server would accept. Hop-by-hop headers are removed in the same step, because what `Connection` names must
//! be removed *before* the identity is added.
//!
//! Not here: trailers (a request's are never forwarded), and the gateway's own `X-Forwarded-*`.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, TE, UPGRADE},
};
use smallvec::SmallVec;

use super::bearer;
use fairgate_call::{RequestHeaderNames, end_to_end_header_in_connection};

/// Names of headers that are never forwarded.
const NAMES: [&str; 10] = [
    "authorization",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-connection",
    "keep-alive",
    "trailer",
    "transfer-encoding",
    "connection",
    "te",
    "upgrade",
];
/// Prefixes of headers that are never forwarded.
const PREFIXES: [&str; 3] = ["x-remote-", IMPERSONATE, "x-kubernetes-pf-"];
/// Headers in which senders say where a request came from.
const SOURCE_NAMES: [&str; 2] = ["forwarded", "x-real-ip"];
const SOURCE_PREFIX: &str = "x-forwarded-";
const IMPERSONATE: &str = "impersonate-";

/// The header names that the configuration adds to the well-known ones.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredNames {
    names: Vec<HeaderName>,
    prefixes: Vec<Box<str>>,
}

/// Why a request is refused because of its headers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderRefusal {
    /// Answered with 403.
    #[error("impersonation is not supported through this gateway: header {name}")]
    Impersonation { name: HeaderName },
    /// Answered with 400.
    #[error("the Connection header must not name {name}")]
    ConnectionNames { name: HeaderName },
    /// Answered with 400.
    #[error("more than one Authorization header")]
    SeveralAuthorizations,
}

impl ConfiguredNames {
    /// The names in these sets: those accepted from front proxies, and those that the upstream accepts.
    pub fn new<'a>(sets: impl IntoIterator<Item = &'a RequestHeaderNames>) -> Self {
        let mut all = Self::default();
        for set in sets {
            all.names.extend(set.names().cloned());
            all.prefixes.extend(set.extra_prefix.iter().cloned());
        }
        all
    }

    /// Whether a header of this name, in lower case, is removed.
    fn contain(&self, name: &str) -> bool {
        let well_known = NAMES.iter().any(|n| folded_eq(name, n))
            || PREFIXES.iter().any(|p| folded_starts_with(name, p));
        let source = SOURCE_NAMES.iter().any(|n| folded_eq(name, n))
            || folded_starts_with(name, SOURCE_PREFIX);
        well_known || source || self.configured(name)
    }

    fn configured(&self, name: &str) -> bool {
        self.names.iter().any(|n| folded_eq(name, n.as_str()))
            || self.prefixes.iter().any(|p| folded_starts_with(name, p))
    }
}

/// Removes all headers that a client may not set, and all hop-by-hop headers.
///
/// To be called after authentication, which reads some of these, and before [`upstream::write`], which adds the
/// authenticated ones. A name with `_` for `-` counts as the same name, since some servers treat the two alike. If
/// the request is a valid upgrade, exactly `connection: upgrade` and one `upgrade` line are left; of `te`, only
/// `trailers`. It takes one pass over the names, and allocates only if more than 8 headers are removed.
///
/// # Errors
///
/// [`HeaderRefusal`]; the headers are unchanged then.
///
/// [`upstream::write`]: super::upstream::write()
pub(super) fn strip_identity_headers(
    headers: &mut HeaderMap,
    configured: &ConfiguredNames,
) -> Result<(), HeaderRefusal> {
    let mut found = RemovedLines::of(headers, configured)?;
    if found.names.is_empty() && !found.protocols {
        return Ok(());
    }
    refuse_ambiguous(headers, &found)?;
    let upgrade = upgrade_value(headers, &found);
    let te_trailers = found.te && lists(headers, &TE, b"trailers");
    if found.connection {
        found.names.extend(named_by_connection(headers));
    }
    let protocols = found.protocols.then(|| bearer::without_tokens(headers));
    if protocols.as_ref().is_some_and(Option::is_some) {
        found.names.push(SEC_WEBSOCKET_PROTOCOL);
    }
    for name in &found.names {
        headers.remove(name);
    }
    if let Some(Some(rest)) = protocols {
        insert_protocols(headers, &rest);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    if te_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    Ok(())
}

/// The headers of a request that are removed, found in one pass: looking each of them up costs several times as much.
#[derive(Default)]
struct RemovedLines {
    names: SmallVec<[HeaderName; 8]>,
    /// Which of those that need another look are among them.
    authorization: bool,
    connection: bool,
    te: bool,
    upgrade: bool,
    /// Whether there are subprotocols, of which some may have to be removed.
    protocols: bool,
}

impl RemovedLines {
    fn of(headers: &HeaderMap, configured: &ConfiguredNames) -> Result<Self, HeaderRefusal> {
        let mut found = Self::default();
        for name in headers.keys() {
            if name.as_str().starts_with(IMPERSONATE) {
                return Err(HeaderRefusal::Impersonation { name: name.clone() });
            }
            if configured.contain(name.as_str()) {
                match *name {
                    AUTHORIZATION => found.authorization = true,
                    CONNECTION => found.connection = true,
                    TE => found.te = true,
                    UPGRADE => found.upgrade = true,
                    _ => {}
                }
                found.names.push(name.clone());
            }
            found.protocols |= *name == SEC_WEBSOCKET_PROTOCOL;
        }
        Ok(found)
    }
}

/// Whether `name` could carry an identity to an upstream that accepts these configured names.
pub(super) fn carries_identity(name: &str, configured: Option<&RequestHeaderNames>) -> bool {
    folded_starts_with(name, IMPERSONATE)
        || folded_starts_with(name, "x-remote-")
        || configured.is_some_and(|set| {
            set.names().any(|n| folded_eq(name, n.as_str()))
                || set.extra_prefix.iter().any(|p| folded_starts_with(name, p))
        })
}

/// Refuses a request because of headers that servers understand differently. Part of [`strip_identity_headers`].
///
/// # Errors
///
/// [`HeaderRefusal`].
fn refuse_ambiguous(headers: &HeaderMap, found: &RemovedLines) -> Result<(), HeaderRefusal> {
    if found.authorization && headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(HeaderRefusal::SeveralAuthorizations);
    }
    if !found.connection {
        return Ok(());
    }
    // `serve` refuses these earlier. But this module removes every header that `Connection` names, so it checks
    // them, too.
    match end_to_end_header_in_connection(headers) {
        Some(name) => Err(HeaderRefusal::ConnectionNames { name }),
        None => Ok(()),
    }
}

/// The requested protocol, if there is exactly one and `Connection` requests an upgrade too.
fn upgrade_value(headers: &HeaderMap, found: &RemovedLines) -> Option<HeaderValue> {
    if !found.upgrade || !found.connection {
        return None;
    }
    let mut lines = headers.get_all(UPGRADE).iter();
    let only = lines.next().filter(|_| lines.next().is_none())?;
    let one = !only.is_empty() && !only.as_bytes().contains(&b',');
    (one && lists(headers, &CONNECTION, b"upgrade")).then(|| only.clone())
}

/// Every header that a `Connection` line names.
fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    elements(headers, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok())
}

/// Whether one of the comma-separated elements of the header `name` is `element`, in any case.
fn lists(headers: &HeaderMap, name: &HeaderName, element: &[u8]) -> bool {
    elements(headers, name).any(|e| e.eq_ignore_ascii_case(element))
}

fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
}

fn insert_protocols(headers: &mut HeaderMap, protocols: &[u8]) {
    // Parts of valid header values are valid.
    if let (false, Ok(value)) = (protocols.is_empty(), HeaderValue::from_bytes(protocols)) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

/// Whether two lower-case names are equal if `_` and `-` count as the same character.
fn folded_eq(name: &str, other: &str) -> bool {
    name.len() == other.len() && folded_starts_with(name, other)
}

fn folded_starts_with(name: &str, prefix: &str) -> bool {
    let fold = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() >= prefix.len()
        && name
            .bytes()
            .zip(prefix.bytes())
            .all(|(a, b)| fold(a) == fold(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                )
            })
            .collect()
    }

    fn stripped(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = headers(lines);
        strip_identity_headers(&mut headers, &ConfiguredNames::default()).unwrap();
        headers
    }

    #[test]
    fn no_identity_header_passes_however_it_is_spelled() {
        for name in [
            "X-Remote-User",
            "x-remote-uid",
            "X-REMOTE-GROUP",
            "X-Remote-Extra-Scopes",
            "X-Remote-Extra-example.com%2Fa",
            "X-Remote-Anything-New",
            "X_Remote_User",
            "x-remote_user",
            "X-Remote_Extra-a",
            "Impersonate_User",
            "impersonate_group",
            "Impersonate_Extra-a",
            "Authorization",
            "Proxy-Authorization",
            "Proxy_Authorization",
            "Proxy-Authenticate",
            "Proxy-Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "Transfer_Encoding",
            "Connection",
            "Upgrade",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Host",
            "X-Forwarded-Uri",
            "X-Forwarded-Client-Cert",
            "X_Forwarded_For",
            "Forwarded",
            "X-Real-Ip",
            "X_Real_IP",
            "X-Kubernetes-PF-FlowSchema-UID",
        ] {
            let once = stripped(&[("accept", "a"), (name, "x"), ("user-agent", "u")]);
            assert_eq!(once, headers(&[("accept", "a"), ("user-agent", "u")]));
            if name != "Authorization" {
                let twice = stripped(&[(name, "x"), ("accept", "a"), (name, "y")]);
                assert_eq!(twice, headers(&[("accept", "a")]), "{name}");
            }
        }
    }

    #[test]
    fn other_headers_pass_unchanged() {
        let lines = [
            ("accept", "application/json"),
            ("accept", "text/plain"),
            ("content-type", "application/json"),
            ("cookie", "a=b"),
            ("x-request-id", "1"),
            ("x-remote", "1"),
            ("remote-user", "1"),
            ("impersonated", "1"),
            ("sec-websocket-protocol", "v4.channel.k8s.io, v5"),
        ];
        assert_eq!(stripped(&lines), headers(&lines));
    }

    #[test]
    fn impersonation_is_refused_whatever_its_suffix() {
        for name in [
            "Impersonate-User",
            "IMPERSONATE-GROUP",
            "impersonate-uid",
            "Impersonate-Extra-a",
            "Impersonate-Later",
            "Impersonate-",
        ] {
            let before = headers(&[("connection", name), (name, ""), ("x-remote-user", "u")]);
            let mut after = before.clone();
            let refusal = strip_identity_headers(&mut after, &ConfiguredNames::default());
            assert!(
                matches!(refusal, Err(HeaderRefusal::Impersonation { .. })),
                "{name}"
            );
            assert_eq!(after, before);
        }
    }

    #[test]
    fn configured_names_are_removed_in_every_spelling() {
        let names = RequestHeaderNames::new(
            &["My-User", "Other"],
            &["My_Uid"],
            &["My-Group"],
            &["My-X-"],
        )
        .unwrap();
        let mut given = headers(&[
            ("my-user", "a"),
            ("MY_USER", "b"),
            ("other", "c"),
            ("my-uid", "d"),
            ("my_group", "e"),
            ("my-x-key", "f"),
            ("my_x_key", "g"),
            ("x-remote-user", "h"),
            ("mine", "i"),
        ]);
        strip_identity_headers(&mut given, &ConfiguredNames::new([&names])).unwrap();
        assert_eq!(given, headers(&[("mine", "i")]));
    }

    #[test]
    fn headers_that_any_connection_line_names_are_removed() {
        let left = stripped(&[
            ("connection", "close, X-Remote-User , x-custom"),
            ("connection", "Impersonate-Group"),
            ("x-custom", "1"),
            ("x-other", "2"),
        ]);
        assert_eq!(left, headers(&[("x-other", "2")]));
    }

    #[test]
    fn a_connection_line_may_not_name_an_end_to_end_header() {
        for name in [
            "Host",
            "content-length",
            "Content-Type",
            "ACCEPT",
            "Authorization",
        ] {
            let mut given = headers(&[("connection", "keep-alive"), ("connection", name)]);
            let refusal = strip_identity_headers(&mut given, &ConfiguredNames::default());
            assert!(matches!(
                refusal,
                Err(HeaderRefusal::ConnectionNames { .. })
            ));
        }
    }

    #[test]
    fn two_authorization_lines_are_refused() {
        let mut given = headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
        assert_eq!(
            strip_identity_headers(&mut given, &ConfiguredNames::default()),
            Err(HeaderRefusal::SeveralAuthorizations)
        );
    }

    #[test]
    fn a_valid_upgrade_is_forwarded_in_one_form() {
        let left = stripped(&[
            ("connection", "keep-alive, UPGRADE, x-remote-user"),
            ("upgrade", "SPDY/3.1"),
            ("te", "gzip, Trailers"),
        ]);
        let expected = [
            ("connection", "upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("te", "trailers"),
        ];
        assert_eq!(left, headers(&expected));
    }

    #[test]
    fn an_incomplete_upgrade_is_removed() {
        for lines in [
            &[("upgrade", "websocket")][..],
            &[("connection", "upgrade")],
            &[("connection", "upgraded"), ("upgrade", "websocket")],
            &[("connection", "upgrade"), ("upgrade", "websocket, h2c")],
            &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("upgrade", "h2c"),
            ],
        ] {
            assert_eq!(stripped(lines), HeaderMap::new(), "{lines:?}");
        }
    }

    #[test]
    fn a_token_among_subprotocols_never_passes() {
        let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
        let left = stripped(&[
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
            ("sec-websocket-protocol", token),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ]);
        let expected = [(
            "sec-websocket-protocol",
            "v4.channel.k8s.io,v5.channel.k8s.io",
        )];
        assert_eq!(left, headers(&expected));
        assert_eq!(
            stripped(&[("sec-websocket-protocol", token)]),
            HeaderMap::new()
        );
    }
}
