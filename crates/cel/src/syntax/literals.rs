//! The values that literals stand for.

/// The text or bytes that a literal stands for. `literal` includes the quotes and the prefix `r`, not the prefix `b`.
///
/// # Errors
///
/// The message for an invalid escape.
pub(super) fn unescape(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let raw = literal.starts_with(['r', 'R']);
    let quoted = literal.trim_start_matches(['r', 'R']);
    let quotes = if quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""))
    {
        3
    } else {
        1
    };
    let inside = &quoted[quotes..quoted.len() - quotes];
    // CRLF and CR count as line feeds.
    let inside = inside.replace("\r\n", "\n").replace('\r', "\n");
    if raw || !inside.contains('\\') {
        return Ok(inside.into_bytes());
    }
    let mut out = Vec::with_capacity(inside.len());
    let mut rest = inside.as_str();
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape(&rest[at + 1..], bytes, &mut out)?;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Appends the meaning of the escape whose backslash precedes `rest`, and returns the text after the escape.
fn escape<'s>(rest: &'s str, bytes: bool, out: &mut Vec<u8>) -> Result<&'s str, &'static str> {
    let failed = "unable to unescape string";
    let kind = *rest.as_bytes().first().ok_or(failed)?;
    let simple = match kind {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'\\' | b'\'' | b'"' | b'`' | b'?' => kind,
        _ => 0,
    };
    if simple != 0 {
        out.push(simple);
        return Ok(&rest[1..]);
    }
    let (from, digits, radix) = match kind {
        b'x' | b'X' => (1, 2, 16),
        b'u' if !bytes => (1, 4, 16),
        b'U' if !bytes => (1, 8, 16),
        b'0'..=b'3' => (0, 3, 8),
        _ => return Err(failed),
    };
    let text = rest.get(from..from + digits).ok_or(failed)?;
    let value = u32::from_str_radix(text, radix).map_err(|_| failed)?;
    if bytes {
        out.push(u8::try_from(value).map_err(|_| failed)?);
    } else {
        let character = char::from_u32(value).ok_or("invalid unicode code point")?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(&rest[from + digits..])
}

/// The value of an `int` literal; `None` if it is out of range.
pub(super) fn int(text: &str, negative: bool) -> Option<i64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -value } else { value }).ok()
}

/// The value of a `uint` literal; `None` if it is out of range.
pub(super) fn uint(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['u', 'U']);
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The value of a `double` literal; `None` if it is too large.
pub(super) fn double(text: &str, negative: bool) -> Option<f64> {
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(literal: &str) -> String {
        String::from_utf8(unescape(literal, false).unwrap()).unwrap()
    }

    #[test]
    fn escapes_are_replaced_by_their_meaning() {
        assert_eq!(
            text(r"'a\n\x41\u00e9\101\U0001F600'"),
            "a\nA\u{e9}A\u{1f600}"
        );
        assert_eq!(text(r"r'\n'"), r"\n");
        assert_eq!(text("'''a\r\nb'''"), "a\nb");
        assert_eq!(text("''"), "");
        assert_eq!(
            unescape(r"'\xff\377é'", true).unwrap(),
            [0xff, 0xff, 0xc3, 0xa9]
        );
        let wrong = unescape(r"'\ud800'", false);
        assert_eq!(wrong, Err("invalid unicode code point"));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(int("9223372036854775808", true), Some(i64::MIN));
        assert_eq!(int("9223372036854775808", false), None);
        assert_eq!(int("0x10", true), Some(-16));
        assert_eq!(uint("18446744073709551615u"), Some(u64::MAX));
        assert_eq!(double("1e400", false), None);
    }
}
