//! What was read of a body and is kept: before it is wanted, or in case it is wanted again.
//!
//! A large chunk is kept as it came, small ones are joined: a client that sends single bytes would otherwise make each of them
//! take many times its length, and hold the buffer that it arrived in.

use std::{collections::VecDeque, mem};

use bytes::Bytes;

/// Chunks from this length on are kept as they came.
const LARGE_CHUNK: usize = 2 << 10;

/// The beginning of a body, as chunks. It takes little more memory than it has bytes, however small the pieces are in which
/// they arrive. A body of one chunk costs no copy and no allocation.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// The first chunk, so that a body of one chunk needs no memory for a list. Empty: there are no large chunks.
    first: Bytes,
    /// The following ones.
    chunks: VecDeque<Bytes>,
    /// Small chunks, which come after those.
    joined: Vec<u8>,
    bytes: usize,
}

impl ReadAhead {
    /// The only chunk of a body.
    pub(super) fn only(data: Bytes) -> Self {
        let mut only = Self::default();
        only.push_whole(data);
        only
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a chunk; `is_last` is whether it completes the body. A chunk below 2 KiB is copied, unless it is the only one.
    pub fn push(&mut self, data: Bytes, is_last: bool) {
        let is_only = is_last && self.bytes == 0;
        if data.len() >= LARGE_CHUNK || is_only {
            self.push_whole(data);
        } else {
            self.bytes += data.len();
            self.joined.extend_from_slice(&data);
        }
    }

    /// Adds a chunk as it came.
    fn push_whole(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.end_joined();
        self.bytes += data.len();
        self.add(data);
    }

    fn add(&mut self, data: Bytes) {
        if self.first.is_empty() {
            self.first = data;
        } else {
            self.chunks.push_back(data);
        }
    }

    /// Puts a chunk before all others.
    pub(super) fn put_back(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.bytes += data.len();
        let second = mem::replace(&mut self.first, data);
        if !second.is_empty() {
            self.chunks.push_front(second);
        }
    }

    /// Takes the first chunk.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.first.is_empty() {
            self.end_joined();
        }
        if self.first.is_empty() {
            return None;
        }
        let next = self.chunks.pop_front().unwrap_or_default();
        let data = mem::replace(&mut self.first, next);
        self.bytes -= data.len();
        Some(data)
    }

    /// The chunks, in order.
    pub fn into_chunks(mut self) -> impl DoubleEndedIterator<Item = Bytes> {
        self.end_joined();
        let first = (!self.first.is_empty()).then_some(self.first);
        first.into_iter().chain(self.chunks)
    }

    fn end_joined(&mut self) {
        if !self.joined.is_empty() {
            let joined = mem::take(&mut self.joined);
            self.add(joined.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_take_little_more_than_their_length() {
        let mut ahead = ReadAhead::default();
        for _ in 0..1000 {
            ahead.push(Bytes::from_static(b"x"), false);
        }
        assert_eq!((ahead.bytes(), ahead.chunks.len()), (1000, 0));
        assert!(ahead.joined.capacity() <= 2000);
        assert_eq!(ahead.pop().unwrap(), vec![b'x'; 1000]);
        assert_eq!((ahead.bytes(), ahead.pop()), (0, None));
    }

    #[test]
    fn chunks_stay_in_order_and_large_ones_are_not_copied() {
        let large = Bytes::from(vec![b'l'; LARGE_CHUNK]);
        let mut ahead = ReadAhead::default();
        ahead.push(Bytes::from_static(b"a"), false);
        ahead.push(Bytes::from_static(b"b"), false);
        ahead.push(large.clone(), false);
        ahead.push(Bytes::from_static(b"c"), true);
        ahead.put_back(Bytes::from_static(b"first"));
        assert_eq!(ahead.bytes(), 8 + LARGE_CHUNK);
        let all: Vec<_> = std::iter::from_fn(|| ahead.pop()).collect();
        assert_eq!(
            all,
            [
                Bytes::from_static(b"first"),
                Bytes::from_static(b"ab"),
                large.clone(),
                Bytes::from_static(b"c")
            ]
        );
        assert_eq!(all[2].as_ptr(), large.as_ptr());
        let mut ahead = ReadAhead::default();
        for data in &all {
            ahead.push(data.clone(), false);
        }
        let whole = ["firstab".into(), large, "c".into()];
        assert_eq!(ahead.into_chunks().collect::<Vec<_>>(), whole);
        assert_eq!(ReadAhead::default().into_chunks().count(), 0);
        let mut ahead = ReadAhead::default();
        let small = Bytes::from(vec![b's'; 3]);
        ahead.push(small.clone(), true);
        assert_eq!(
            ahead.pop().unwrap().as_ptr(),
            small.as_ptr(),
            "the only chunk of a body is not copied"
        );
    }
}
