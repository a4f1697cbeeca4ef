//! Paths of API requests.

use std::fmt::Write as _;

/// Appends text to a path or query so that it stays one segment or one value: every byte that is not unreserved in
/// RFC 3986 is escaped.
pub fn push_segment(path: &mut String, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            byte => {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_one_segment() {
        let mut path = "/a/".to_owned();
        push_segment(&mut path, "../b?c=é&Z-1_~");
        assert_eq!(path, "/a/..%2Fb%3Fc%3D%C3%A9%26Z-1_~");
    }
}
