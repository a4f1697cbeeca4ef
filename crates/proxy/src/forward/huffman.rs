//! How long texts are in the code of HPACK, in which HTTP/2 sends the lines of heads.
//!
//! It makes texts shorter that have the characters of usual ones, and others up to four times as long: a backslash has 19 bits. Servers
//! limit the encoded length as well, and do not refuse the request then, but close the connection, which other clients share.

/// The length of the code of each byte, in bits: RFC 7541, appendix B.
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// No text is longer than so many times its length.
pub(super) const MOST_TIMES: usize = 4;

/// The length of a text in this code, in bytes.
pub(super) fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|byte| usize::from(BITS[usize::from(*byte)]))
        .sum();
    bits.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of RFC 7541, appendix C, and the limits of the code.
    #[test]
    fn texts_have_the_length_of_the_code() {
        assert_eq!(encoded_bytes(b"www.example.com"), 12);
        assert_eq!(encoded_bytes(b"Mon, 21 Oct 2013 20:13:21 GMT"), 22);
        assert_eq!(encoded_bytes(b""), 0);
        assert_eq!(encoded_bytes(&[b'\\'; 800]), 1900);
        let longest = BITS.iter().max().unwrap();
        assert!(usize::from(*longest) <= MOST_TIMES * 8);
    }
}
