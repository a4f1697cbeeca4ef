//! Media types as Go's `mime.ParseMediaType` reads them.

use std::collections::BTreeMap;

/// The longest header that is read. Those of clients have less than a hundred bytes.
pub const LONGEST: usize = 16 << 10;

/// The media type of a header `Content-Type`, in lower case; none if the header is malformed, also in a parameter. What parameters say does
/// not matter to servers.
///
/// A header of more than [`LONGEST`] bytes counts as malformed, unlike in Go: clients may make it as long as a whole head, and reading one with
/// thousands of parameters would take longer than others can wait for the thread.
///
/// Source: Go 1.26 `mime/mediatype.go`.
pub fn media_type(header: &str) -> Option<String> {
    if header.len() > LONGEST {
        return None;
    }
    let (name, mut rest) = header.split_at(header.find(';').unwrap_or(header.len()));
    let name = name.to_lowercase();
    let name = name.trim();
    let is_name = match name.split_once('/') {
        Some((kind, subtype)) => is_token(kind) && is_token(subtype),
        None => is_token(name),
    };
    if !is_name {
        return None;
    }
    let mut parameters: BTreeMap<String, String> = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if is_end(rest) {
            return Some(name.to_owned());
        }
        let (key, value, after) = parameter(rest)?;
        // The same may be there twice.
        if parameters.get(&key).is_some_and(|known| *known != value) {
            return None;
        }
        parameters.insert(key, value);
        rest = after;
    }
}

/// Whether no parameter follows. One semicolon may be the last. Looks no farther than the next parameter.
fn is_end(rest: &str) -> bool {
    rest.strip_prefix(';')
        .unwrap_or(rest)
        .trim_start()
        .is_empty()
}

/// A parameter after its semicolon, and what follows.
fn parameter(text: &str) -> Option<(String, String, &str)> {
    let text = text.strip_prefix(';')?.trim_start();
    let (key, rest) = token(text);
    if key.is_empty() {
        return None;
    }
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, after) = if let Some(quoted) = rest.strip_prefix('"') {
        quoted_value(quoted)?
    } else {
        let (value, after) = token(rest);
        (value.to_owned(), after)
    };
    if value.is_empty() && after == rest {
        return None;
    }
    Some((key.to_ascii_lowercase(), value, after))
}

/// A value after its opening quote, and what follows the closing one.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\r' | '\n' => return None,
            // A backslash before anything else stands for itself.
            '\\' => match chars.next_if(|(_, next)| SPECIAL.contains(*next)) {
                Some((_, next)) => value.push(next),
                None => value.push(c),
            },
            _ => value.push(c),
        }
    }
    None
}

/// Characters that only quotes may hold.
const SPECIAL: &str = "()<>@,;:\\\"/[]?=";

fn is_token_char(c: char) -> bool {
    c.is_ascii_graphic() && !SPECIAL.contains(c)
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_token_char)
}

/// The token at the beginning of a text, and what follows.
fn token(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_token_char(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_too_long_is_malformed() {
        let parameters: Vec<String> = (0..2_000).map(|n| format!(";{n:05x}=")).collect();
        let many = format!("application/json{}1", parameters.join("1"));
        let spaces = |length: usize| format!("{many}{}", " ".repeat(length - many.len()));
        assert_eq!(
            media_type(&spaces(LONGEST)).as_deref(),
            Some("application/json")
        );
        assert_eq!(media_type(&format!("{many};00000=2")), None);
        assert_eq!(media_type(&spaces(LONGEST + 1)), None);
    }

    #[test]
    fn a_malformed_parameter_is_an_error_as_in_go() {
        for header in [
            "application/json",
            " Application/JSON ",
            "application/json;",
            "application/json; ",
            "application/json ; charset=utf-8 ; x=1",
            "application/json;\u{a0}a=1",
            r#"application/json; charset="utf-8""#,
            r#"application/json; a="\"\x";"#,
            "application/json; a=1; a=1",
            "application/json; a*=1",
            "application/json; a = 1",
            "application/json; a=\"\u{fffd}\"",
        ] {
            assert_eq!(
                media_type(header).as_deref(),
                Some("application/json"),
                "{header}"
            );
        }
        assert_eq!(media_type("application").as_deref(), Some("application"));
        for header in [
            "",
            ";",
            "application/",
            "/json",
            "application/json/x",
            "application/json, application/yaml",
            "application/json;;",
            "application/json; charset",
            "application/json; charset=",
            r#"application/json; charset="utf-8"#,
            "application/json; a=1; a=2",
            "application/json; =1",
            "application/json; a=b c",
            "application/json; a=\u{fffd}",
            "application/j\u{fffd}son",
        ] {
            assert_eq!(media_type(header), None, "{header}");
        }
    }
}
