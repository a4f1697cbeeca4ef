//! Headers that belong to the request itself, not to one connection.

use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST},
};

/// Without one of these headers a request has another meaning, or is invalid. A proxy must drop the headers that
/// `Connection` names (RFC 9110, section 7.6.1), so a request whose `Connection` names one of these is refused.
/// Identity headers need no check: the gateway drops those of the client before it adds its own.
const END_TO_END: [HeaderName; 5] = [ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST];

/// The first header named by `Connection` that must not be dropped; such a request is malformed.
pub fn end_to_end_header_in_connection(headers: &HeaderMap) -> Option<HeaderName> {
    let named = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii);
    let mut kept = named.filter_map(|token| {
        let is_named = |name: &&HeaderName| token.eq_ignore_ascii_case(name.as_str().as_bytes());
        END_TO_END.iter().find(is_named).cloned()
    });
    kept.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&'static str]) -> Option<HeaderName> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CONNECTION, http::HeaderValue::from_static(line));
        }
        end_to_end_header_in_connection(&headers)
    }

    #[test]
    fn names_are_found_in_any_line_and_any_case() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&["keep-alive, x-other", "close"]), None);
        assert_eq!(found(&["close, Host"]), Some(HOST));
        assert_eq!(
            found(&["close", "x,\tcontent-LENGTH "]),
            Some(CONTENT_LENGTH)
        );
        assert_eq!(found(&["x-host, hosts"]), None);
    }
}
