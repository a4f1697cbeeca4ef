//! The end of each frame of a response over HTTP/2, which waits until what is before it is sent.
//!
//! hyper hands a frame to h2 as soon as the client's window has room for one byte of it, and asks for the next one. What does not fit
//! into the window waits in h2. If no frame follows, hyper lets go of the response, and what waits is counted by nobody, and has no time
//! limit. A frame of some length is therefore passed on without its end. hyper hands that end to h2 when all before it is
//! sent, so until then the response is there, with the limits of slow readers.

use bytes::Bytes;
use http::Version;

/// Frames up to this length are passed on whole: what of a response may wait in h2 after hyper has let go of it, in bytes.
const SHORT: usize = 4 << 10;
/// The length of what is held back of longer frames, in bytes.
const TAIL: usize = 1 << 10;

/// The end of a frame that was held back.
pub(super) enum HeldTail {
    /// Nothing is ever held back: over HTTP/1 a connection has one response at a time, of which hyper holds no more than 1 MiB
    /// (`limits.headerBytes`) and a frame, for as long as a client that does not read is not cut off.
    Never,
    /// Nothing is held back at the moment.
    None,
    /// This is.
    Held(Bytes),
}

impl HeldTail {
    /// For a response over this version of HTTP.
    pub(super) fn of(version: Version) -> Self {
        if version == Version::HTTP_2 {
            Self::None
        } else {
            Self::Never
        }
    }

    /// Holds back the end of `data`, if it is long.
    pub(super) fn split_off(&mut self, data: &mut Bytes) {
        if data.len() <= SHORT || matches!(self, Self::Never) {
            return;
        }
        // Copied, because a slice would keep the whole frame in memory.
        let tail = data.split_off(data.len() - TAIL);
        *self = Self::Held(Bytes::copy_from_slice(&tail));
    }

    pub(super) fn take(&mut self) -> Option<Bytes> {
        if !self.is_held() {
            return None;
        }
        match std::mem::replace(self, Self::None) {
            Self::Held(tail) => Some(tail),
            Self::Never | Self::None => None,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What hyper gets of a frame of this length, and what is held back.
    fn split(version: Version, length: usize) -> (usize, usize) {
        let mut tail = HeldTail::of(version);
        let mut data = Bytes::from(vec![b'x'; length]);
        tail.split_off(&mut data);
        let held = tail.take().map_or(0, |held| held.len());
        assert!(tail.take().is_none());
        (data.len(), held)
    }

    #[test]
    fn the_end_of_a_long_frame_is_held_back_over_http2() {
        assert_eq!(split(Version::HTTP_2, SHORT), (SHORT, 0));
        assert_eq!(split(Version::HTTP_2, SHORT + 1), (SHORT + 1 - TAIL, TAIL));
        assert_eq!(split(Version::HTTP_11, 1 << 20), (1 << 20, 0));
    }

    #[test]
    fn what_is_held_back_keeps_nothing_else_in_memory() {
        let frame = Bytes::from(vec![b'x'; 1 << 20]);
        let mut tail = HeldTail::of(Version::HTTP_2);
        let mut sent = frame.clone();
        tail.split_off(&mut sent);
        drop(sent);
        assert!(frame.is_unique());
    }
}
