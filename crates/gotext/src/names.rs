//! The rules for names, labels and keys, with kube-apiserver's messages.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation` and `pkg/api/validation`.

use std::{borrow::Cow, fmt::Write as _};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SERVICE_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// The longest DNS label, label value and name of a label, in bytes.
const MAX_NAME: usize = 63;
/// The longest DNS subdomain, in bytes.
const MAX_SUBDOMAIN: usize = 253;

/// The errors in a DNS-1123 subdomain.
pub fn subdomain(name: &str) -> Vec<String> {
    subdomain_in(name, "characters")
}

fn subdomain_in(name: &str, unit: &str) -> Vec<String> {
    const WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
        characters, '-' or '.', and must start and end with an alphanumeric character";
    let mut wrong = too_long(name, MAX_SUBDOMAIN, unit);
    if !has_subdomain_form(name.as_bytes()) {
        wrong.push(against(WORDS, SUBDOMAIN, &["example.com"]));
    }
    wrong
}

/// The errors in a DNS-1123 label.
pub fn label(name: &str) -> Vec<String> {
    const WORDS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
        characters or '-', and must start and end with an alphanumeric character";
    let mut wrong = too_long(name, MAX_NAME, "characters");
    if !has_label_form(name.as_bytes()) {
        if has_subdomain_form(name.as_bytes()) {
            wrong.push("must not contain dots".to_owned());
        } else {
            wrong.push(against(WORDS, LABEL, &["my-name", "123-abc"]));
        }
    }
    wrong
}

/// The errors in an object name that must be a DNS-1123 subdomain, or with `prefix`, the beginning
/// of one.
pub fn object_name(name: &str, prefix: bool) -> Vec<String> {
    if prefix {
        subdomain(&of_prefix(name))
    } else {
        subdomain(name)
    }
}

/// The name that stands for all that a prefix may become: a prefix may end in a dash, since a suffix will follow.
pub fn of_prefix(name: &str) -> Cow<'_, str> {
    match name.strip_suffix('-') {
        None | Some("") => name.into(),
        // kube-apiserver replaces one byte more than the dash.
        Some(stem) if stem.ends_with(|last: char| last.is_ascii()) => {
            (stem[..stem.len() - 1].to_owned() + "a").into()
        }
        // In kube-apiserver the byte is part of a character, which makes the name invalid. So does that character.
        Some(stem) => stem.into(),
    }
}

/// The errors in a DNS-1035 label: the name of a service or of an API version.
pub fn service_label(name: &str) -> Vec<String> {
    const WORDS: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
        with an alphabetic character, and end with an alphanumeric character";
    let mut wrong = too_long(name, MAX_NAME, "characters");
    let bytes = name.as_bytes();
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let has_form = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || *byte == b'-');
    if !has_form {
        wrong.push(against(WORDS, SERVICE_LABEL, &["my-name", "abc-123"]));
    }
    wrong
}

/// The errors in a name that only has to be a segment of a path.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// The errors in a qualified name: the key of a label, a finalizer.
pub fn qualified(name: &str) -> Vec<String> {
    const WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
        and end with an alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut wrong = Vec::new();
    let parts: Vec<&str> = name.split('/').collect();
    let local = match parts.as_slice() {
        [local] => local,
        [prefix, local] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(
                    subdomain_in(prefix, "bytes")
                        .into_iter()
                        .map(|text| format!("prefix part {text}")),
                );
            }
            local
        }
        _ => {
            let text = against(&format!("a valid label key {WORDS}"), QUALIFIED, EXAMPLES);
            return vec![
                text + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ];
        }
    };
    if local.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else {
        wrong.extend(
            too_long(local, MAX_NAME, "bytes")
                .into_iter()
                .map(|text| format!("name part {text}")),
        );
    }
    if !has_name_form(local.as_bytes()) {
        wrong.push(against(&format!("name part {WORDS}"), QUALIFIED, EXAMPLES));
    }
    wrong
}

/// The errors in the value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    const WORDS: &str = "a valid label must be an empty string or consist of alphanumeric \
        characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let mut wrong = too_long(value, MAX_NAME, "bytes");
    if !value.is_empty() && !has_name_form(value.as_bytes()) {
        wrong.push(against(
            WORDS,
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// kube-apiserver counts bytes, and calls them bytes in some messages.
fn too_long(text: &str, limit: usize, unit: &str) -> Vec<String> {
    if text.len() > limit {
        vec![format!("must be no more than {limit} {unit}")]
    } else {
        Vec::new()
    }
}

/// A rule with its pattern and valid examples.
fn against(words: &str, pattern: &str, examples: &[&str]) -> String {
    let mut text = format!("{words} (e.g. ");
    for (index, example) in examples.iter().enumerate() {
        if index > 0 {
            text.push_str(" or ");
        }
        let _ = write!(text, "'{example}', ");
    }
    let _ = write!(text, "regex used for validation is '{pattern}')");
    text
}

/// Whether this is a DNS-1123 subdomain. True exactly where [`subdomain`] finds nothing wrong, but without an allocation.
pub fn is_subdomain(name: &[u8]) -> bool {
    name.len() <= MAX_SUBDOMAIN && has_subdomain_form(name)
}

/// Whether this is a DNS-1123 label. True exactly where [`label`] finds nothing wrong, but without an allocation.
pub fn is_label(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && has_label_form(name)
}

/// Whether this is the key of a label: a name, after an optional DNS subdomain and `/`. True exactly where
/// [`qualified`] finds nothing wrong, but without an allocation.
pub fn is_label_key(key: &[u8]) -> bool {
    match key.iter().position(|&byte| byte == b'/') {
        None => is_name(key),
        Some(slash) => {
            let (prefix, name) = (&key[..slash], &key[slash + 1..]);
            is_subdomain(prefix) && is_name(name)
        }
    }
}

/// Whether this is the value of a label. True exactly where [`label_value`] finds nothing wrong, but without an
/// allocation.
pub fn is_label_value(value: &[u8]) -> bool {
    value.is_empty() || is_name(value)
}

fn is_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && has_name_form(name)
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn has_name_form(name: &[u8]) -> bool {
    let inner = |byte: u8| IS_IN_NAME[usize::from(byte)];
    has_form(name, |byte| byte.is_ascii_alphanumeric(), inner)
}

/// Whether a byte may stand in a name. A table, since the keys and values of every label selector are looked at byte by byte.
static IS_IN_NAME: [bool; 256] = {
    let mut is_in_name = [false; 256];
    let mut byte = u8::MIN;
    loop {
        is_in_name[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    is_in_name
};

/// DNS labels, separated by dots.
fn has_subdomain_form(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'.').all(has_label_form)
}

/// Lower-case letters, digits and inner `-`.
fn has_label_form(label: &[u8]) -> bool {
    let outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_form(label, outer, |byte| outer(byte) || byte == b'-')
}

/// Whether the first and the last byte are `outer` and all are `inner`.
fn has_form(text: &[u8], outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let at_end = |byte: Option<&u8>| byte.is_some_and(|&byte| outer(byte));
    at_end(text.first()) && at_end(text.last()) && text.iter().all(|&byte| inner(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(object_name("e2e-example-fs-", true).is_empty());
        assert!(object_name("a-", true).is_empty());
        assert!(!object_name("A-b", true).is_empty());
        assert!(!object_name("a-", false).is_empty());
    }

    #[test]
    fn a_prefix_may_not_end_in_another_character_than_ascii_and_a_dash() {
        for prefix in ["é-", "a-é-", "x😀-"] {
            assert_eq!(object_name(prefix, true).len(), 1, "{prefix}");
        }
        // One byte more than the dash is replaced, so its length does not count.
        let longest = "a".repeat(MAX_SUBDOMAIN - 2) + "é-";
        assert_eq!(object_name(&longest, true).len(), 1);
    }

    #[test]
    fn the_error_of_a_subdomain_says_what_is_wrong() {
        assert_eq!(
            subdomain("Ab"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                 '-' or '.', and must start and end with an alphanumeric character (e.g. \
                 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
        assert!(subdomain("a.b-c.d1").is_empty());
        assert_eq!(label("a.b"), ["must not contain dots"]);
    }

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        assert!(qualified("example.com/My_Name.1").is_empty());
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/b/c").len(), 1);
        assert_eq!(qualified("a/").len(), 2);
        assert_eq!(label_value("-").len(), 1);
        assert!(label_value("").is_empty());
    }

    #[test]
    fn keys_and_values_are_valid_exactly_where_nothing_is_wrong_with_them() {
        let long = |length: usize| "a".repeat(length);
        let mut parts = vec![long(63), long(64), long(253), long(254)];
        let short = [
            "", "a", "A", "1", "-", ".", "_", "a-b", "a-", "-a", "a.b", "a..b", "a_b", "A.b", "a/",
            "/a", "\u{e4}", " ",
        ];
        parts.extend(short.map(String::from));
        for first in &parts {
            for second in &parts {
                for text in [format!("{first}/{second}"), format!("{first}{second}")] {
                    let key = qualified(&text).is_empty();
                    assert_eq!(is_label_key(text.as_bytes()), key, "{text}");
                    assert_eq!(is_subdomain(text.as_bytes()), subdomain(&text).is_empty());
                    assert_eq!(is_label(text.as_bytes()), label(&text).is_empty());
                    let value = label_value(&text).is_empty();
                    assert_eq!(is_label_value(text.as_bytes()), value, "{text}");
                }
            }
        }
    }
}
