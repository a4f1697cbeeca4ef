//! Text of clients, made safe for logs, labels and tables.

use std::borrow::Cow;

/// `text` without characters that control a terminal or break lines, truncated to at most `max` bytes.
pub(super) fn sanitize(text: &str, max: usize) -> Cow<'_, str> {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = &text[..end];
    if is_plain(cut.as_bytes()) {
        return Cow::Borrowed(cut);
    }
    if cut.contains(is_control_like) {
        Cow::Owned(cut.replace(is_control_like, "\u{fffd}"))
    } else {
        Cow::Borrowed(cut)
    }
}

/// Whether all bytes are printable ASCII, as those of nearly all text are.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    // Without a way out within a piece, its bytes are compared many at a time.
    let is_plain = |piece: &[u8]| {
        let outside = |byte: &u8| byte.wrapping_sub(b' ') > b'~' - b' ';
        !piece.iter().fold(false, |any, byte| any | outside(byte))
    };
    bytes.chunks(64).all(is_plain)
}

/// Whether it is a control character, a line or paragraph separator, or changes the text direction.
pub(super) fn is_control_like(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}
