//! Bytes as Go reads them, character by character.

use std::borrow::Cow;

/// The text of these bytes. Each byte that is not part of UTF-8 becomes U+FFFD.
pub fn utf8_text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    push_utf8(&mut text, bytes);
    text.into()
}

/// Appends the text of these bytes.
pub fn push_utf8(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_that_is_not_utf8_is_a_character() {
        assert_eq!(utf8_text("é".as_bytes()), "é");
        assert_eq!(utf8_text(b"a\xff\xe2\x82b"), "a\u{fffd}\u{fffd}\u{fffd}b");
    }
}
