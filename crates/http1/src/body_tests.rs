//! Tables of bodies, accepted and refused.

use super::*;

/// What a whole body led to: content, trailers, and how many bytes were read.
fn decode(input: &[u8]) -> Result<(Vec<u8>, Option<HeaderMap>, usize), Http1Error> {
    let mut decoder = ResponseBodyDecoder::new(ResponseFraming::Chunked);
    let (mut at, mut content) = (0, Vec::new());
    loop {
        match decoder.next(&input[at..])? {
            BodyPiece::More { read } => {
                assert_eq!(at + read, input.len());
                decoder.eof()?;
                unreachable!("a chunked body does not end with the connection");
            }
            BodyPiece::Data { at: range } => {
                content.extend_from_slice(&input[at..][range.clone()]);
                at += range.end;
            }
            BodyPiece::Trailers { trailers, read } => {
                return Ok((content, Some(trailers), at + read));
            }
            BodyPiece::End { read } => return Ok((content, None, at + read)),
        }
    }
}

fn content(input: &str) -> String {
    let (content, trailers, read) = decode(input.as_bytes()).expect(input);
    assert!(trailers.is_none());
    assert_eq!(read, input.len(), "{input:?}");
    String::from_utf8(content).unwrap()
}

#[test]
fn chunks_are_read_with_any_size_and_extensions() {
    assert_eq!(content("0\r\n\r\n"), "");
    assert_eq!(content("3\r\nabc\r\n0\r\n\r\n"), "abc");
    assert_eq!(content("0000000000000003\r\nabc\r\n000\r\n\r\n"), "abc");
    let many = "x".repeat(0xab);
    assert_eq!(content(&format!("aB\r\n{many}\r\n0\r\n\r\n")), many);
    assert_eq!(
        content("1;a=\"b\"\r\na\r\n1 \t;c\r\nb\r\n1 \r\nc\r\n0;d\r\n\r\n"),
        "abc"
    );
}

#[test]
fn trailers_end_a_body() {
    let input = b"1\r\na\r\n0\r\nX: 1\r\ny:\r\nX: 2\r\n\r\nrest";
    let (content, trailers, read) = decode(input).unwrap();
    let trailers = trailers.unwrap();
    assert_eq!(content, b"a");
    assert_eq!(read, input.len() - 4);
    assert_eq!(trailers.get_all("x").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(trailers["y"], "");
}

#[test]
fn every_mistake_has_its_error() {
    use httparse::Error::{HeaderName, HeaderValue, NewLine};
    let malformed = Http1Error::MalformedTrailers;
    let extension = "x".repeat(16 * 1024);
    let cases = [
        ("\r\n", Http1Error::BadChunkSize),
        (" 1\r\n", Http1Error::BadChunkSize),
        ("-1\r\n", Http1Error::BadChunkSize),
        ("0x1\r\n", Http1Error::BadChunkSize),
        ("1g\r\n", Http1Error::BadChunkSize),
        ("1 1\r\n", Http1Error::BadChunkSize),
        ("1\na", Http1Error::BadChunkSize),
        ("1\r\r\n", Http1Error::BadChunkSize),
        ("1;a\nb\r\n", Http1Error::BadChunkSize),
        ("1;a\rb\r\n", Http1Error::BadChunkSize),
        ("10000000000000000\r\n", Http1Error::ChunkSizeTooLarge),
        ("00000000000000001\r\n", Http1Error::ChunkSizeTooLarge),
        (&format!("1;{extension}"), Http1Error::ExtensionTooLong),
        (
            &format!("1{}", " ".repeat(16 * 1024)),
            Http1Error::ExtensionTooLong,
        ),
        (
            &format!("1;{0}\r\na\r\n1;{0}", &extension[..8192]),
            Http1Error::ExtensionTooLong,
        ),
        ("1\r\nab", Http1Error::BadChunkEnd),
        ("1\r\na\n", Http1Error::BadChunkEnd),
        ("1\r\na\rb", Http1Error::BadChunkEnd),
        ("0\r\n\rb", Http1Error::BadChunkEnd),
        ("0\r\n\n", malformed(NewLine)),
        ("0\r\na: b\n", malformed(NewLine)),
        ("0\r\na\r\n\r\n", malformed(HeaderName)),
        ("0\r\na: b\rc\r\n\r\n", malformed(HeaderValue)),
        ("0\r\na: b\r\n c\r\n\r\n", malformed(HeaderName)),
        (
            &format!("0\r\na: {extension}"),
            Http1Error::TrailersTooLarge,
        ),
        (
            &format!("0\r\n{}", "a:b\r\n".repeat(65)),
            Http1Error::TrailersTooLarge,
        ),
        ("", Http1Error::BodyEndedEarly),
        ("1\r\n", Http1Error::BodyEndedEarly),
        ("1\r\na\r\n0\r\n", Http1Error::BodyEndedEarly),
        ("ffffffffffffffff\r\na", Http1Error::BodyEndedEarly),
        ("0\r\na: b\r\n", Http1Error::BodyEndedEarly),
    ];
    for (input, error) in cases {
        assert_eq!(decode(input.as_bytes()).unwrap_err(), error, "{input:?}");
    }
    let (_, trailers, _) = decode(format!("0\r\n{}\r\n", "a:b\r\n".repeat(64)).as_bytes()).unwrap();
    assert_eq!(trailers.unwrap().len(), 64);
}

#[test]
fn a_body_of_a_known_length_ends_with_its_last_byte() {
    let mut decoder = ResponseBodyDecoder::new(ResponseFraming::Length(3));
    assert_eq!(decoder.remaining(), Some(3));
    assert!(matches!(decoder.next(b""), Ok(BodyPiece::More { read: 0 })));
    assert!(matches!(decoder.next(b"a"), Ok(BodyPiece::Data { at }) if at == (0..1)));
    assert!(!decoder.is_end());
    assert!(matches!(decoder.next(b"bcd"), Ok(BodyPiece::Data { at }) if at == (0..2)));
    assert!(decoder.is_end());
    assert_eq!(decoder.remaining(), Some(0));
    assert!(matches!(decoder.next(b"d"), Ok(BodyPiece::End { read: 0 })));
    assert_eq!(decoder.eof(), Ok(()));

    let mut short = ResponseBodyDecoder::new(ResponseFraming::Length(u64::MAX));
    assert!(matches!(short.next(b"ab"), Ok(BodyPiece::Data { .. })));
    assert_eq!(short.eof(), Err(Http1Error::BodyEndedEarly));
    assert!(!short.is_end());

    assert!(ResponseBodyDecoder::new(ResponseFraming::Length(0)).is_end());
}

#[test]
fn the_close_ends_only_a_body_without_another_end() {
    let mut decoder = ResponseBodyDecoder::new(ResponseFraming::UntilClose);
    assert!(matches!(decoder.next(b"ab"), Ok(BodyPiece::Data { at }) if at == (0..2)));
    assert_eq!(decoder.remaining(), None);
    assert_eq!(decoder.eof(), Ok(()));
    assert!(decoder.is_end());
}

#[test]
fn an_error_stays() {
    let mut decoder = ResponseBodyDecoder::new(ResponseFraming::Chunked);
    assert!(decoder.next(b"x").is_err());
    assert_eq!(
        decoder.next(b"0\r\n\r\n").unwrap_err(),
        Http1Error::BadChunkSize
    );
    assert_eq!(decoder.eof(), Err(Http1Error::BadChunkSize));
    assert!(!decoder.is_end());
}
