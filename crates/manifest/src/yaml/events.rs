//! How many parts a YAML text has, before it is read.
//!
//! The library first makes a list of all parts of a document, its *events*: scalars, and beginnings and ends of lists and
//! mappings. Each takes 144 bytes, so that a text such as `[1,1,1…` takes a hundred times its length.

use serde::de::IgnoredAny;

use super::YamlError;

/// The most events of a text. Their list then takes no more memory than the longest bodies in JSON do.
pub(super) const MAX_EVENTS: usize = 1 << 19;

/// Refuses a text that may have more than [`MAX_EVENTS`].
///
/// Texts of up to 170 KiB never have as many, and real ones of the size that etcd stores do not either.
pub(super) fn check(text: &str) -> Result<(), YamlError> {
    if most_events(text) <= MAX_EVENTS {
        return Ok(());
    }
    // Clients send JSON as YAML, for example to apply an object. In JSON the events can be counted.
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    if is_json && json_events(text) <= MAX_EVENTS {
        return Ok(());
    }
    Err(YamlError::TooManyParts)
}

/// The most events that a text can have, by what separates them. What is a part of a scalar counts, too.
fn most_events(text: &str) -> usize {
    let bytes = text.as_bytes();
    // Line breaks need not be ASCII.
    let ends = |at: usize| {
        bytes
            .get(at)
            .is_none_or(|next| next.is_ascii_whitespace() || !next.is_ascii())
    };
    // An alias may end at a colon, and nothing else that ends with a letter or a digit.
    let has_anchors = bytes.contains(&b'&');
    let is_inside_word = |at: usize| {
        let around = [
            at.checked_sub(1).map(|before| bytes[before]),
            bytes.get(at + 1).copied(),
        ];
        !has_anchors
            && around
                .iter()
                .flatten()
                .filter(|byte| byte.is_ascii_alphanumeric())
                .count()
                == 2
    };
    // Each begins an item, which is a scalar or begins and ends, or is beside a key or a value that may be absent: `[a: b, c: d]`
    // is a list of mappings, and in `{a, b}` both have the value null. What stands for a pair is beside a key and a value, of which
    // one may begin and end.
    let counted = bytes.iter().enumerate().map(|(at, byte)| match byte {
        b'[' | b'{' | b',' => 2,
        b'?' => 3,
        b':' if !is_inside_word(at) => 3,
        b'-' if ends(at + 1) => 2,
        _ => 0,
    });
    counted.sum::<usize>() + 2
}

/// The events of a text that is JSON.
fn json_events(text: &str) -> usize {
    let (mut count, mut in_string, mut in_word) = (0, false, false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if in_string {
            match byte {
                b'\\' => drop(bytes.next()),
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        let was_word = in_word;
        in_word = byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        in_string = byte == b'"';
        count += match byte {
            b'{' | b'[' => 2,
            _ => usize::from(in_string || in_word && !was_word),
        };
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_never_has_more_events_than_are_counted() {
        for (text, events) in [
            ("a", 1),
            ("[]", 2),
            ("[a, b]", 4),
            ("{a, b}", 6),
            ("[a: b, c: d]", 10),
            ("[:, :]", 10),
            ("[?, ?]", 10),
            ("[[1], [1]]", 8),
            ("[{a}, {a}]", 10),
            ("a:\nb:\n", 6),
            ("- 1\n- 1\n", 4),
            ("-\n-", 4),
            ("- - 1\n- - 1\n", 8),
            ("- a: 1\n- a: 1\n", 10),
            ("- a:\n  - 1\n", 8),
            ("? a\n? b\n", 6),
            ("? - a\n", 6),
            ("? a: 1\n? b: 1\n", 12),
            ("a:\n b:\n  c: 1", 10),
            ("a:\n- b: 1\nc:\n- d: 1\n", 16),
            ("-\u{85}-\u{2028}", 4),
            ("[*a, *a]", 4),
            ("[&a x, *a:b, *a:b]", 11),
            ("[\"a\":b, \"a\":b]", 10),
            ("[a:b, a:b]", 4),
            ("[!a, !a]", 4),
        ] {
            assert!(most_events(text) >= events, "{text}");
        }
    }

    #[test]
    fn the_events_of_json_are_counted() {
        for (text, events) in [
            ("{}", 2),
            (r#"{"a": [1, -1.5e+3, true, "x, \"y: [z"], "b": null}"#, 11),
            ("\"\\\\\"", 1),
        ] {
            assert_eq!(json_events(text), events, "{text}");
        }
    }

    #[test]
    fn json_as_yaml_may_be_denser_than_other_yaml() {
        let json = format!("[{}1]", "{\"n\":1},".repeat(MAX_EVENTS / 4 - 2));
        assert!(most_events(&json) > MAX_EVENTS && check(&json).is_ok());
        let more = format!("[{}1]", "{\"n\":1},".repeat(MAX_EVENTS / 4));
        assert!(check(&more).is_err());
        let yaml = format!("[{}1]", "{n: 1},".repeat(MAX_EVENTS / 4 - 2));
        assert!(check(&yaml).is_err());
    }
}
