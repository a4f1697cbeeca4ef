//! Bytes that were read from a connection and are not passed to hyper yet.
//!
//! They are kept in pieces, so that what was passed on is freed at once. They are the beginning of a head, which is
//! small, or what arrived after a message; the rest of a large head is in the process's budget
//! ([`super::head_budget`]).

use std::{
    collections::VecDeque,
    io,
    pin::pin,
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt as _, ReadBuf};

use super::head_budget::FREE_BYTES_PER_CONNECTION;
use fairgate_base::socket::Socket;

/// Size of the pieces after the first.
const PIECE: usize = 16 << 10;

/// Bytes in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    pieces: VecDeque<BytesMut>,
    len: usize,
}

impl HeldBytes {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a copy of `bytes` at the end.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            let last = self.last_with_room(bytes.len());
            let fits = bytes.len().min(last.capacity() - last.len());
            last.extend_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
        }
    }

    /// Reads from `socket`. Ready with 0 at the end of the stream.
    pub(super) fn poll_fill(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let last = self.last_with_room(0);
        let read = pin!(socket.read_buf(last)).poll(cx);
        if let Poll::Ready(Ok(bytes)) = read {
            self.len += bytes;
        }
        read
    }

    /// The bytes from `start` on.
    pub(super) fn from(&self, start: usize) -> impl Iterator<Item = &[u8]> {
        let mut skip = start;
        self.pieces.iter().filter_map(move |piece| {
            let here = skip.min(piece.len());
            skip -= here;
            Some(&piece[here..]).filter(|rest| !rest.is_empty())
        })
    }

    /// Moves at most `max` bytes from the beginning to `buf`. Returns how many.
    pub(super) fn pass_on(&mut self, buf: &mut ReadBuf<'_>, max: usize) -> usize {
        let mut moved = 0;
        while let Some(first) = self.pieces.front_mut() {
            let here = first.len().min(max - moved).min(buf.remaining());
            buf.put_slice(&first[..here]);
            first.advance(here);
            moved += here;
            if !first.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
        self.len -= moved;
        moved
    }

    /// Drops all bytes, and frees their memory.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The last piece that is not full, or a new one; a first piece has room for `len` bytes, within bounds.
    fn last_with_room(&mut self, len: usize) -> &mut BytesMut {
        let full = self
            .pieces
            .back()
            .is_none_or(|last| last.len() == last.capacity());
        if full {
            let size = if self.pieces.is_empty() {
                len.clamp(FREE_BYTES_PER_CONNECTION, PIECE)
            } else {
                PIECE
            };
            self.pieces.push_back(BytesMut::with_capacity(size));
        }
        self.pieces.back_mut().expect("there is one now")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_returned_unchanged_and_in_order() {
        let all: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let mut held = HeldBytes::default();
        for piece in all.chunks(7_777) {
            held.push(piece);
        }
        assert_eq!(held.len(), all.len());
        assert_eq!(held.from(50_001).flatten().count(), all.len() - 50_001);
        assert!(held.from(50_001).flatten().eq(&all[50_001..]));
        let (mut out, mut room) = (Vec::new(), [0; 1000]);
        while !held.is_empty() {
            let mut buf = ReadBuf::new(&mut room);
            assert_eq!(held.pass_on(&mut buf, 999), buf.filled().len());
            out.extend_from_slice(buf.filled());
        }
        assert!(out == all);
        assert!(held.pieces.is_empty(), "nothing stays allocated");
    }
}
