//! Encodes keys of a user's extra attributes in header names, and decodes them.
//!
//! A key may be any text, but a header name may only contain token characters and is case-insensitive. So all other
//! characters, `%` itself and capital letters are sent as `%XX`. The receiver lower-cases the name before it decodes
//! it, which results in exactly the key that was sent.
//!
//! Not here: the prefix before the key, and the values.

/// The part of a header name that stands for `key`.
///
/// Capital letters are escaped too. Other senders often do not, but then the receiver, which lower-cases before
/// decoding, gets another key.
pub(crate) fn escape(key: &str) -> String {
    use std::fmt::Write as _;

    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        if stands_for_itself(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
    out
}

/// The key that `suffix`, the rest of a header name after the prefix, stands for.
///
/// Lower-cases, then decodes; with a malformed escape the lower-cased text is the key. `None` if the
/// key is not UTF-8.
pub(crate) fn unescape(suffix: &str) -> Option<String> {
    let lower = suffix.to_ascii_lowercase();
    match percent_decode(lower.as_bytes()) {
        Some(bytes) => String::from_utf8(bytes).ok(),
        None => Some(lower),
    }
}

fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$&'*+-.^_`|~".contains(&byte)
}

/// `None` if a `%` is not followed by two hexadecimal digits.
fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, tail) = tail.split_first_chunk::<2>()?;
        let value = |digit: u8| char::from(digit).to_digit(16);
        out.push(u8::try_from(value(digits[0])? * 16 + value(digits[1])?).ok()?);
        rest = tail;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_escaped_as_the_server_decodes_them() {
        for (key, suffix) in [
            ("scopes", "scopes"),
            ("example.com/project", "example.com%2Fproject"),
            (
                "authentication.kubernetes.io/pod-name",
                "authentication.kubernetes.io%2Fpod-name",
            ),
            ("a b", "a%20b"),
            ("100%", "100%25"),
            ("naïve", "na%C3%AFve"),
            ("Team", "%54eam"),
            ("!#$&'*+-.^_`|~", "!#$&'*+-.^_`|~"),
            ("a:b\"c(d)", "a%3Ab%22c%28d%29"),
        ] {
            assert_eq!(escape(key), suffix);
            assert_eq!(unescape(suffix).as_deref(), Some(key));
        }
    }

    #[test]
    fn a_received_key_is_lower_cased_before_it_is_decoded() {
        assert_eq!(unescape("Team").as_deref(), Some("team"));
        assert_eq!(unescape("%54eam").as_deref(), Some("Team"));
        assert_eq!(
            unescape("Example.com%2fProject").as_deref(),
            Some("example.com/project")
        );
    }

    #[test]
    fn a_malformed_escape_leaves_the_text_as_it_is() {
        for (suffix, key) in [
            ("50%", "50%"),
            ("A%2", "a%2"),
            ("%zzX", "%zzx"),
            ("%2F%", "%2f%"),
        ] {
            assert_eq!(unescape(suffix).as_deref(), Some(key));
        }
    }

    #[test]
    fn a_key_that_is_not_utf8_is_no_key() {
        assert_eq!(unescape("%ff"), None);
    }

    proptest! {
        #[test]
        fn every_key_survives_encoding_and_decoding_in_any_letter_case(key in "\\PC*") {
            let sent = escape(&key);
            prop_assert_eq!(unescape(&sent.to_ascii_lowercase()), Some(key.clone()));
            prop_assert_eq!(unescape(&sent.to_ascii_uppercase()), Some(key));
        }
    }
}
