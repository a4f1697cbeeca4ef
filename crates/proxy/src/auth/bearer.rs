//! Extracts bearer tokens from requests: from `Authorization`, or from the WebSocket subprotocols.
//!
//! Browsers cannot set `Authorization` on a WebSocket, so a token may be sent as a subprotocol instead. Both are
//! parsed exactly as in Kubernetes, which ignores some malformed values: what is not a token here is not a credential,
//! so the request may be anonymous.
//!
//! Not here: whether a token is valid (`token_file`, `token_review`), and its removal before the request is forwarded
//! (`spoof`).

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{
    HeaderMap,
    header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};
use memchr::memchr;

use fairgate_upstream::token_review::BearerToken;

/// Prefix of the subprotocol that carries a token.
const PROTOCOL_PREFIX: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// Without padding, and as lenient as kube-apiserver about the unused bits of the last character.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Why a token among the WebSocket subprotocols is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// More than one token.
    #[error("multiple bearer tokens among the WebSocket subprotocols")]
    Several,
    /// Not base64url without padding, or not UTF-8 when decoded.
    #[error("the bearer token among the WebSocket subprotocols is malformed")]
    Malformed,
    /// There is no other subprotocol that the server could choose.
    #[error("missing additional subprotocol")]
    NoOtherSubprotocol,
}

/// The token of the first `Authorization` line, if it has one.
///
/// The format is the scheme `Bearer` in any case, one space, the token; what follows another space is ignored.
pub(crate) fn from_authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let (scheme, rest) = value.split_at(memchr(b' ', value)?);
    let rest = &rest[1..];
    let token = &rest[..memchr(b' ', rest).unwrap_or(rest.len())];
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// The token among the subprotocols of a WebSocket request, decoded.
///
/// # Errors
///
/// [`ProtocolError`] when there is one that cannot be used.
pub(crate) fn from_websocket(headers: &HeaderMap) -> Result<Option<BearerToken>, ProtocolError> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let mut encoded = None;
    let mut others = 0;
    for protocol in subprotocols(headers) {
        match protocol.strip_prefix(PROTOCOL_PREFIX) {
            None => others += 1,
            Some(_) if encoded.is_some() => return Err(ProtocolError::Several),
            Some(text) => encoded = Some(text),
        }
    }
    let Some(encoded) = encoded else {
        return Ok(None);
    };
    let decoded = BASE64URL
        .decode(encoded)
        .map_err(|_error| ProtocolError::Malformed)?;
    if std::str::from_utf8(&decoded).is_err() {
        return Err(ProtocolError::Malformed);
    }
    match BearerToken::new(decoded) {
        Some(_) if others == 0 => Err(ProtocolError::NoOtherSubprotocol),
        token => Ok(token),
    }
}

/// The subprotocols without those that carry a token, joined in one line.
///
/// `None` if there is nothing to remove. Tokens are removed from any request, not only from WebSocket upgrades, so
/// that they are never forwarded.
pub(super) fn without_tokens(headers: &HeaderMap) -> Option<Vec<u8>> {
    let carries_token = |protocol: &&[u8]| protocol.starts_with(PROTOCOL_PREFIX);
    subprotocols(headers).find(carries_token)?;
    let rest: Vec<_> = subprotocols(headers)
        .filter(|protocol| !carries_token(protocol))
        .collect();
    Some(rest.join(&b','))
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let contains_upgrade = |value: &[u8]| {
        value
            .windows(b"upgrade".len())
            .any(|part| part.eq_ignore_ascii_case(b"upgrade"))
    };
    headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && headers
            .get_all(CONNECTION)
            .iter()
            .any(|value| contains_upgrade(value.as_bytes()))
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                )
            })
            .collect()
    }

    fn websocket(protocols: &[&str]) -> HeaderMap {
        let mut lines = vec![
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ];
        lines.extend(protocols.iter().map(|p| ("sec-websocket-protocol", *p)));
        headers(&lines)
    }

    #[test]
    fn authorization_is_parsed_like_in_kube_apiserver() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bEaReR abc", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer abc def ghi", Some("abc")),
            ("Bearer a,b=", Some("a,b=")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer\tabc", None),
            ("Basic YTpi", None),
            ("Negotiate abc", None),
            ("Bearerabc", None),
            ("", None),
        ] {
            let headers = headers(&[("authorization", value)]);
            assert_eq!(
                from_authorization(&headers),
                token.map(str::as_bytes),
                "{value:?}"
            );
        }
        assert_eq!(from_authorization(&HeaderMap::new()), None);
    }

    #[test]
    fn the_first_of_several_authorization_lines_counts() {
        let lines = [
            ("authorization", "Bearer one"),
            ("authorization", "Bearer two"),
        ];
        assert_eq!(from_authorization(&headers(&lines)), Some(&b"one"[..]));
        let lines = [
            ("authorization", "Basic one"),
            ("authorization", "Bearer two"),
        ];
        assert_eq!(from_authorization(&headers(&lines)), None);
    }

    #[test]
    fn a_websocket_may_carry_its_token_as_a_subprotocol() {
        // "secret"
        for protocols in [
            &["base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io"][..],
            &[
                "v4.channel.k8s.io",
                " base64url.bearer.authorization.k8s.io.c2VjcmV0 ",
            ],
        ] {
            let headers = websocket(protocols);
            let token = from_websocket(&headers).unwrap().unwrap();
            assert_eq!(token.as_bytes(), b"secret");
            assert_eq!(
                without_tokens(&headers),
                Some(b"v4.channel.k8s.io".to_vec())
            );
        }
    }

    #[test]
    fn a_bad_subprotocol_token_is_an_error() {
        let prefix = "base64url.bearer.authorization.k8s.io.";
        for (protocols, error) in [
            (
                format!("{prefix}c2VjcmV0,{prefix}c2VjcmV0,v4"),
                ProtocolError::Several,
            ),
            (format!("{prefix}c2Vj!,v4"), ProtocolError::Malformed),
            (format!("{prefix}c2VjcmV0cw==,v4"), ProtocolError::Malformed),
            (format!("{prefix}_w,v4"), ProtocolError::Malformed), // the byte ff
            (
                format!("{prefix}c2VjcmV0"),
                ProtocolError::NoOtherSubprotocol,
            ),
        ] {
            assert_eq!(
                from_websocket(&websocket(&[&protocols])),
                Err(error),
                "{protocols}"
            );
        }
    }

    #[test]
    fn an_empty_subprotocol_token_is_no_credential() {
        let empty = websocket(&["base64url.bearer.authorization.k8s.io.,v4"]);
        assert_eq!(from_websocket(&empty), Ok(None));
        assert_eq!(from_websocket(&websocket(&["v4, v5"])), Ok(None));
    }

    #[test]
    fn without_an_upgrade_no_subprotocol_is_read_but_tokens_are_still_removed() {
        let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
        for lines in [
            &[("sec-websocket-protocol", token)][..],
            &[("sec-websocket-protocol", token), ("upgrade", "websocket")],
            &[
                ("sec-websocket-protocol", token),
                ("connection", "upgrade"),
                ("upgrade", "SPDY/3.1"),
            ],
        ] {
            let headers = headers(lines);
            assert_eq!(from_websocket(&headers), Ok(None));
            assert_eq!(without_tokens(&headers), Some(Vec::new()));
        }
        assert_eq!(without_tokens(&websocket(&["v4,v5"])), None);
    }
}
