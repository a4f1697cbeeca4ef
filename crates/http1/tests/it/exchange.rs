//! A response as the codec reads it, in pieces, as a connection would.

use bytes::BytesMut;
use fairgate_http1::{
    BodyPiece, HeadProgress, Http1Error, ResponseBodyDecoder, ResponseHead, ResponseHeadLimits,
    ResponseHeadParser,
};
use http::{HeaderMap, Method};

/// Lines and bytes of a head, so few that tests reach them.
pub(crate) const LIMITS: ResponseHeadLimits = ResponseHeadLimits {
    bytes: 8 * 1024,
    lines: 100,
};

/// Headers as they can be compared: names and values.
pub(crate) type Lines = Vec<(String, Vec<u8>)>;

/// A response as far as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) head: Option<(u16, Lines)>,
    pub(crate) keep_alive: bool,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<Lines>,
    /// `Some` if it is whole: how many bytes are left.
    pub(crate) left: Option<usize>,
    pub(crate) error: Option<Http1Error>,
}

/// Headers as they can be compared.
pub(crate) fn lines(headers: &HeaderMap) -> Lines {
    let lines = headers.iter();
    lines
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect()
}

/// Reads the response in `pieces`, after which the connection is closed.
pub(crate) fn read(pieces: &[&[u8]], method: &Method) -> Seen {
    let mut seen = Seen::default();
    match read_into(&mut seen, pieces, method) {
        Ok(left) => seen.left = left,
        Err(error) => seen.error = Some(error),
    }
    seen
}

/// Returns how many bytes are left after the whole response.
fn read_into(
    seen: &mut Seen,
    pieces: &[&[u8]],
    method: &Method,
) -> Result<Option<usize>, Http1Error> {
    let mut pieces = pieces.iter();
    let mut buffer = BytesMut::new();
    let Some(head) = read_head(&mut buffer, &mut pieces, method)? else {
        return Ok(None);
    };
    seen.head = Some((head.status.as_u16(), lines(&head.headers)));
    seen.keep_alive = head.keep_alive;
    let mut decoder = ResponseBodyDecoder::new(head.framing);
    while !decoder.is_end() {
        let before = buffer.len();
        let read = match decoder.next(&buffer)? {
            BodyPiece::Data { at } => {
                assert!(!at.is_empty(), "empty content");
                seen.content.extend_from_slice(&buffer[at.clone()]);
                at.end
            }
            BodyPiece::Trailers { trailers, read } => {
                assert!(!trailers.is_empty(), "empty trailers");
                seen.trailers = Some(lines(&trailers));
                read
            }
            BodyPiece::End { read } => read,
            BodyPiece::More { read } => {
                assert_eq!(read, before, "more is needed, but there is more");
                buffer.clear();
                if let Some(piece) = pieces.next() {
                    buffer.extend_from_slice(piece);
                } else {
                    decoder.eof()?;
                }
                continue;
            }
        };
        assert!(read <= before && (read > 0 || decoder.is_end()));
        let _ = buffer.split_to(read);
    }
    let rest: usize = pieces.map(|piece| piece.len()).sum();
    Ok(Some(buffer.len() + rest))
}

fn read_head<'a>(
    buffer: &mut BytesMut,
    pieces: &mut impl Iterator<Item = &'a &'a [u8]>,
    method: &Method,
) -> Result<Option<ResponseHead>, Http1Error> {
    let mut parser = ResponseHeadParser::new(LIMITS);
    loop {
        let progress = parser.parse(buffer, method)?;
        match progress {
            HeadProgress::Head { head, read } => {
                let _ = buffer.split_to(read);
                return Ok(Some(head));
            }
            HeadProgress::Incomplete { read } => {
                let _ = buffer.split_to(read);
                assert!(buffer.len() < LIMITS.bytes, "a head without a bound");
                let Some(piece) = pieces.next() else {
                    return Ok(None);
                };
                buffer.extend_from_slice(piece);
            }
        }
    }
}

/// Cuts `bytes` at `places`, which are taken modulo the length.
pub(crate) fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|at| at % (bytes.len() + 1)).collect();
    places.push(bytes.len());
    places.sort_unstable();
    let mut from = 0;
    let mut pieces = Vec::new();
    for to in places {
        pieces.push(&bytes[from..to]);
        from = to;
    }
    pieces
}
