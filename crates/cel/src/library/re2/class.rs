//! Character classes and escapes of RE2.

use std::fmt::Write as _;

use super::refused::{INVALID_ESCAPE, INVALID_RANGE, Refused};

/// A class that has every character, and one that has none.
pub(super) const ANY: &str = r"[\x00-\x{10FFFF}]";
pub(super) const NONE: &str = r"[^\x00-\x{10FFFF}]";

/// The highest code point.
const MAX_CODE_POINT: u32 = 0x10_FFFF;

/// The named POSIX classes, which are ASCII only.
const POSIX: [(&str, &str); 14] = [
    ("alnum", "0-9A-Za-z"),
    ("alpha", "A-Za-z"),
    ("ascii", r"\x00-\x7F"),
    ("blank", r"\t "),
    ("cntrl", r"\x00-\x1F\x7F"),
    ("digit", "0-9"),
    ("graph", "!-~"),
    ("lower", "a-z"),
    ("print", " -~"),
    ("punct", r"!-/:-@\x5B-`\x7B-~"),
    ("space", r"\t-\r "),
    ("upper", "A-Z"),
    ("word", "0-9A-Za-z_"),
    ("xdigit", "0-9A-Fa-f"),
];

/// A class in brackets, translated into the syntax of the crate `regex`.
pub(super) struct Class;

impl Class {
    /// Parses the class at the start of `text`. Returns the translation, and the text after the class.
    pub(super) fn parse(text: &str) -> Result<(String, &str), Refused> {
        let mut out = String::from("[");
        let mut rest = &text[1..];
        if let Some(after) = rest.strip_prefix('^') {
            out.push('^');
            rest = after;
        }
        let mut first = true;
        while first || !rest.starts_with(']') {
            if rest.is_empty() {
                return Err(("missing closing ]", text.to_owned()));
            }
            first = false;
            rest = match special(rest)? {
                Some((class, after)) => {
                    out.push_str(&class);
                    after
                }
                None => range(rest, text, &mut out)?,
            };
        }
        out.push(']');
        Ok((out, &rest[1..]))
    }
}

/// Parses a class within a class, `[:alpha:]`, `\pL` or `\d`, if the text begins with one.
fn special(text: &str) -> Result<Option<(String, &str)>, Refused> {
    if let Some(inside) = text.strip_prefix("[:")
        && let Some((name, rest)) = inside.split_once(":]")
    {
        let (negated, plain) = match name.strip_prefix('^') {
            Some(plain) => ("^", plain),
            None => ("", name),
        };
        let Some((_, ranges)) = POSIX.iter().find(|(of, _)| *of == plain) else {
            return Err((INVALID_RANGE, format!("[:{name}:]")));
        };
        return Ok(Some((format!("[{negated}{ranges}]"), rest)));
    }
    let perl = match text.as_bytes() {
        [b'\\', b'd', ..] => "[0-9]",
        [b'\\', b'D', ..] => "[^0-9]",
        [b'\\', b's', ..] => r"[\t\n\x0c\r ]",
        [b'\\', b'S', ..] => r"[^\t\n\x0c\r ]",
        [b'\\', b'w', ..] => "[0-9A-Za-z_]",
        [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
        [b'\\', b'p' | b'P', ..] => return unicode(text).map(Some),
        _ => return Ok(None),
    };
    Ok(Some((perl.to_owned(), &text[2..])))
}

/// Parses a character, or a range of two characters with a dash between them, and appends it to `out`. Returns the text
/// after it.
fn range<'p>(text: &'p str, class: &str, out: &mut String) -> Result<&'p str, Refused> {
    let (low, mut rest) = character(text, class)?;
    let mut high = low;
    if rest.starts_with('-') && rest.len() >= 2 && !rest[1..].starts_with(']') {
        (high, rest) = character(&rest[1..], class)?;
        if high < low {
            let wrong = &text[..text.len() - rest.len()];
            return Err((INVALID_RANGE, wrong.to_owned()));
        }
    }
    // The crate `regex` accepts no surrogate at either end.
    let low = if is_surrogate(low) { 0xE000 } else { low };
    let high = if is_surrogate(high) { 0xD7FF } else { high };
    if low > high {
        out.push_str(NONE);
    } else {
        // Writing to a string does not fail.
        let _ = write!(out, "\\x{{{low:X}}}-\\x{{{high:X}}}");
    }
    Ok(rest)
}

/// Whether a code point is half of a UTF-16 pair, which no text has. A pattern may name it nevertheless.
fn is_surrogate(code_point: u32) -> bool {
    (0xD800..0xE000).contains(&code_point)
}

fn character<'p>(text: &'p str, class: &str) -> Result<(u32, &'p str), Refused> {
    match text.chars().next() {
        None => Err(("missing closing ]", class.to_owned())),
        Some('\\') => escape(text),
        Some(character) => Ok((character.into(), &text[character.len_utf8()..])),
    }
}

/// Parses `\pL` or `\p{Name}`. `P` in place of `p`, or a leading `^` in the name, negates it.
pub(super) fn unicode(text: &str) -> Result<(String, &str), Refused> {
    let negated = text.starts_with(r"\P");
    let first = text[2..].chars().next();
    let (name, rest) = match first {
        None => return Err((INVALID_RANGE, text.to_owned())),
        Some('{') => match text[3..].split_once('}') {
            Some(parts) => parts,
            None => return Err((INVALID_RANGE, text.to_owned())),
        },
        Some(character) => text[2..].split_at(character.len_utf8()),
    };
    let whole = &text[..text.len() - rest.len()];
    let (negated, name) = match name.strip_prefix('^') {
        Some(name) => (!negated, name),
        None => (negated, name),
    };
    match property(name) {
        Some((class, complement)) => Ok((if negated { complement } else { class }, rest)),
        None => Err((INVALID_RANGE, whole.to_owned())),
    }
}

/// The class of a general category or a script, and the class of all other characters.
///
/// As in Go, the case of letters does not matter, nor do underscores, dashes and spaces. Categories have short and long
/// names, scripts only long ones. (Go 1.25 and 1.26 do not find the scripts whose names have an underscore.)
fn property(name: &str) -> Option<(String, String)> {
    /// The scripts whose long name has four letters, as all short names have.
    const FOUR_LETTERS: [&str; 7] = ["ahom", "cham", "kawi", "lisu", "modi", "thai", "toto"];

    let name = name.replace(['_', '-', ' '], "").to_ascii_lowercase();
    let pair = |class: &str, complement: &str| Some((class.to_owned(), complement.to_owned()));
    match &*name {
        "any" => return pair(ANY, NONE),
        "ascii" => return pair(r"[\x00-\x7F]", r"[^\x00-\x7F]"),
        "assigned" => return pair(r"\P{gc=Cn}", r"\p{gc=Cn}"),
        // No text has surrogates.
        "cs" | "surrogate" => return pair(NONE, ANY),
        _ => {}
    }
    // The crate `regex` ignores a leading `is`, with which no name in Unicode begins.
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if name.is_empty() || !is_plain || name.starts_with("is") {
        return None;
    }
    let is_script = name.len() != 4 || FOUR_LETTERS.contains(&&*name);
    let kind = ["gc", "sc"].into_iter().find(|kind| {
        (*kind == "gc" || is_script) && regex::Regex::new(&format!(r"\p{{{kind}={name}}}")).is_ok()
    })?;
    Some((
        format!(r"\p{{{kind}={name}}}"),
        format!(r"\P{{{kind}={name}}}"),
    ))
}

/// The code point of the escape at the start of `text`, which may be a surrogate, and the text after it.
pub(super) fn escape(text: &str) -> Result<(u32, &str), Refused> {
    let mut characters = text[1..].chars();
    let Some(kind) = characters.next() else {
        return Err(("trailing backslash at end of expression", String::new()));
    };
    let rest = characters.as_str();
    let wrong = |rest: &str| {
        let part = &text[..text.len() - rest.len()];
        Err((INVALID_ESCAPE, part.to_owned()))
    };
    let is_octal = |text: &str| text.starts_with(|c: char| ('0'..='7').contains(&c));
    let simple = match kind {
        'a' => '\x07',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '1'..='7' if !is_octal(rest) => return wrong(rest),
        '0'..='7' => return Ok(octal(&text[1..])),
        'x' => return hex(text, rest),
        _ if kind.is_ascii() && !kind.is_ascii_alphanumeric() => kind,
        _ => return wrong(rest),
    };
    Ok((simple.into(), rest))
}

/// The code point of up to three octal digits, and the text after them.
fn octal(text: &str) -> (u32, &str) {
    let digits = text
        .bytes()
        .take(3)
        .take_while(|byte| (b'0'..=b'7').contains(byte));
    let length = digits.count();
    let value = u32::from_str_radix(&text[..length], 8).unwrap_or_default();
    (value, &text[length..])
}

/// The code point of two hexadecimal digits, or of any number of them in braces, and the text after them. `text` begins
/// with the backslash, `rest` after the `x`.
fn hex<'p>(text: &'p str, rest: &'p str) -> Result<(u32, &'p str), Refused> {
    let (digits, after) = match rest.strip_prefix('{') {
        Some(inside) => inside.split_once('}').unwrap_or((rest, "")),
        None => rest.split_at_checked(2).unwrap_or(("", "")),
    };
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u32::from_str_radix(digits, 16).ok().filter(|_| valid);
    let end = text.len() - after.len();
    let code_point = value.filter(|value| *value <= MAX_CODE_POINT);
    code_point
        .map(|code_point| (code_point, after))
        .ok_or_else(|| (INVALID_ESCAPE, text[..end].to_owned()))
}
