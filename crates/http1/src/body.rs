//! Reading a response's body: where its content is in what the upstream sent, and where it ends.
//!
//! Content is never copied. Only trailers are kept, until all are there.

use std::ops::Range;

use bytes::Buf as _;
use http::HeaderMap;
use memchr::memchr;

use crate::{Http1Error, ResponseFraming, head::header_map};

/// Trailers, with their line ends and the empty line after them, are fewer bytes than this, as in hyper.
pub const TRAILER_BYTES: usize = 16 * 1024;

/// How many trailer lines there may be.
pub const TRAILER_LINES: usize = 64;

/// The chunk extensions of one body, and spaces before them, are fewer bytes than this, as in hyper.
pub const EXTENSION_BYTES: u32 = 16 * 1024;

/// How many digits a chunk's size may have: those of [`u64::MAX`].
const SIZE_DIGITS: u8 = 16;

/// What the next bytes of a response's body are.
#[derive(Debug)]
pub enum BodyPiece {
    /// All bytes of the input were read; more are needed.
    More {
        /// The length of the input.
        read: usize,
    },
    /// Content, at least one byte.
    Data {
        /// Where in the input it is. Everything up to its end was read.
        at: Range<usize>,
    },
    /// The body ended with trailers.
    Trailers {
        /// The trailers; at least one.
        trailers: HeaderMap,
        /// How many bytes were read. Those after them are not part of the body.
        read: usize,
    },
    /// The body ended.
    End {
        /// How many bytes were read. Those after them are not part of the body.
        read: usize,
    },
}

/// Reads a response's body from bytes that come in pieces.
#[derive(Debug)]
pub struct ResponseBodyDecoder {
    state: State,
}

#[derive(Debug)]
enum State {
    /// So many bytes are left, at least one.
    Length(u64),
    UntilClose,
    Chunked(Chunked),
    Ended,
    /// Whatever comes after an error: the error again.
    Failed(Http1Error),
}

/// The place in a chunked body (RFC 9112, section 7.1).
#[derive(Debug, Default)]
struct Chunked {
    place: Place,
    /// The bytes that are left of the chunk, once its size is read.
    size: u64,
    digits: u8,
    extension: u32,
    trailers: Vec<u8>,
    lines: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Size,
    SpaceAfterSize,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// After the line of the last chunk.
    Last,
    /// The end's LF, without trailers.
    LastLf,
    Trailers,
}

/// What a part of the chunked format led to, besides the place.
enum Step {
    /// To the next place.
    Next,
    End,
    Trailers(HeaderMap),
}

impl ResponseBodyDecoder {
    /// The decoder of a body that ends as `framing` says.
    pub fn new(framing: ResponseFraming) -> Self {
        let state = match framing {
            ResponseFraming::Length(0) => State::Ended,
            ResponseFraming::Length(length) => State::Length(length),
            ResponseFraming::UntilClose => State::UntilClose,
            ResponseFraming::Chunked => State::Chunked(Chunked::default()),
        };
        Self { state }
    }

    /// Reads on in `input`, which begins after what the previous call read.
    ///
    /// After the end, nothing is read any more. Content of a known length ends with its last byte: [`Self::is_end`] is
    /// true right after it.
    ///
    /// # Errors
    ///
    /// What is wrong with a chunked body; and each time after that.
    pub fn next(&mut self, input: &[u8]) -> Result<BodyPiece, Http1Error> {
        match &mut self.state {
            State::Ended => Ok(BodyPiece::End { read: 0 }),
            State::Failed(error) => Err(error.clone()),
            _ if input.is_empty() => Ok(BodyPiece::More { read: 0 }),
            State::UntilClose => Ok(BodyPiece::Data { at: 0..input.len() }),
            State::Length(left) => {
                let length = take(left, input.len());
                if *left == 0 {
                    self.state = State::Ended;
                }
                Ok(BodyPiece::Data { at: 0..length })
            }
            State::Chunked(chunked) => {
                let decoded = chunked.next(input);
                match &decoded {
                    Ok(BodyPiece::End { .. } | BodyPiece::Trailers { .. }) => {
                        self.state = State::Ended;
                    }
                    Ok(_) => {}
                    Err(error) => self.state = State::Failed(error.clone()),
                }
                decoded
            }
        }
    }

    /// The upstream closed the connection.
    ///
    /// # Errors
    ///
    /// [`Http1Error::BodyEndedEarly`] unless that, or something before it, ends the body; or the error of a previous call.
    pub fn eof(&mut self) -> Result<(), Http1Error> {
        match &self.state {
            State::Failed(error) => return Err(error.clone()),
            State::Ended => {}
            State::UntilClose => self.state = State::Ended,
            State::Length(_) | State::Chunked(_) => {
                // A short body must not look complete to the client.
                self.state = State::Failed(Http1Error::BodyEndedEarly);
                return Err(Http1Error::BodyEndedEarly);
            }
        }
        Ok(())
    }

    /// Whether the body ended.
    pub fn is_end(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The bytes of content that are left, if that is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Ended => Some(0),
            State::UntilClose | State::Chunked(_) | State::Failed(_) => None,
        }
    }
}

/// Takes as many bytes from `left` as there are, at most `length`.
fn take(left: &mut u64, length: usize) -> usize {
    let taken = usize::try_from(*left).map_or(length, |left| left.min(length));
    *left -= taken as u64;
    taken
}

impl Chunked {
    fn next(&mut self, input: &[u8]) -> Result<BodyPiece, Http1Error> {
        let mut rest = input;
        while let Some(&byte) = rest.first() {
            let read = input.len() - rest.len();
            if let Place::Data = self.place {
                let length = take(&mut self.size, rest.len());
                if self.size == 0 {
                    self.place = Place::DataCr;
                }
                return Ok(BodyPiece::Data {
                    at: read..read + length,
                });
            }
            let step = if let Place::Trailers = self.place {
                self.trailer_part(&mut rest)?
            } else {
                rest.advance(1);
                self.step(byte)?
            };
            let read = input.len() - rest.len();
            match step {
                Step::Next => {}
                Step::End => return Ok(BodyPiece::End { read }),
                Step::Trailers(trailers) => return Ok(BodyPiece::Trailers { trailers, read }),
            }
        }
        Ok(BodyPiece::More { read: input.len() })
    }

    /// Reads one byte that is neither content nor of trailers.
    fn step(&mut self, byte: u8) -> Result<Step, Http1Error> {
        self.place = match (self.place, byte) {
            (Place::Size, _) if byte.is_ascii_hexdigit() => self.digit(byte)?,
            // Before spaces and extensions: a chunk without a size must not be taken for the last one.
            (Place::Size, _) if self.digits == 0 => return Err(Http1Error::BadChunkSize),
            (Place::Size | Place::SpaceAfterSize | Place::Extension, b'\r') => Place::SizeLf,
            (Place::Size | Place::SpaceAfterSize, b' ' | b'\t') => {
                self.extend()?;
                Place::SpaceAfterSize
            }
            (Place::Size | Place::SpaceAfterSize, b';') => Place::Extension,
            // Some readers end the line at a bare line feed; what follows could then be read in two ways.
            (Place::Extension, b'\n') => return Err(Http1Error::BadChunkSize),
            (Place::Extension, _) => {
                self.extend()?;
                Place::Extension
            }
            (Place::SizeLf, b'\n') => {
                self.digits = 0;
                if self.size == 0 {
                    Place::Last
                } else {
                    Place::Data
                }
            }
            (Place::Size | Place::SpaceAfterSize | Place::SizeLf, _) => {
                return Err(Http1Error::BadChunkSize);
            }
            (Place::DataCr, b'\r') => Place::DataLf,
            (Place::DataLf, b'\n') => Place::Size,
            (Place::Last, b'\r') => Place::LastLf,
            (Place::LastLf, b'\n') => return Ok(Step::End),
            (Place::Last, _) => {
                // The trailers' first byte, which may also be a line feed.
                return self.trailer_part(&mut [byte].as_slice());
            }
            (Place::Data | Place::DataCr | Place::DataLf | Place::LastLf | Place::Trailers, _) => {
                return Err(Http1Error::BadChunkEnd);
            }
        };
        Ok(Step::Next)
    }

    fn digit(&mut self, digit: u8) -> Result<Place, Http1Error> {
        if self.digits == SIZE_DIGITS {
            return Err(Http1Error::ChunkSizeTooLarge);
        }
        self.digits += 1;
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            _ => (digit | 0x20) - b'a' + 10,
        };
        // The digits of the chunk before were read to zero.
        self.size = self.size << 4 | u64::from(value);
        Ok(Place::Size)
    }

    /// Counts a byte that means nothing.
    fn extend(&mut self) -> Result<(), Http1Error> {
        self.extension += 1;
        if self.extension >= EXTENSION_BYTES {
            return Err(Http1Error::ExtensionTooLong);
        }
        Ok(())
    }

    /// Keeps what `rest` has of the current trailer line. After the empty line, parses all.
    fn trailer_part(&mut self, rest: &mut &[u8]) -> Result<Step, Http1Error> {
        self.place = Place::Trailers;
        let room = (TRAILER_BYTES - self.trailers.len()).min(rest.len());
        let end = memchr(b'\n', &rest[..room]).map(|at| at + 1);
        self.trailers
            .extend_from_slice(&rest[..end.unwrap_or(room)]);
        rest.advance(end.unwrap_or(room));
        if self.trailers.len() >= TRAILER_BYTES {
            return Err(Http1Error::TrailersTooLarge);
        }
        if end.is_none() {
            return Ok(Step::Next);
        }
        if !self.trailers.ends_with(b"\r\n") {
            return Err(Http1Error::MalformedTrailers(httparse::Error::NewLine));
        }
        if self.trailers.ends_with(b"\r\n\r\n") {
            return parse_trailers(&self.trailers).map(Step::Trailers);
        }
        self.lines += 1;
        if self.lines > TRAILER_LINES {
            return Err(Http1Error::TrailersTooLarge);
        }
        Ok(Step::Next)
    }
}

/// Parses whole trailers, with the empty line after them.
fn parse_trailers(bytes: &[u8]) -> Result<HeaderMap, Http1Error> {
    let mut lines = [httparse::EMPTY_HEADER; TRAILER_LINES];
    match httparse::parse_headers(bytes, &mut lines) {
        Ok(httparse::Status::Complete((length, lines))) if length == bytes.len() => {
            header_map(bytes, lines, Http1Error::MalformedTrailers)
        }
        Ok(_) => Err(Http1Error::MalformedTrailers(httparse::Error::NewLine)),
        Err(error) => Err(Http1Error::MalformedTrailers(error)),
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
