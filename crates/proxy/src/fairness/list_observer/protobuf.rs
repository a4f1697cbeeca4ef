//! Counts a list in the Kubernetes protobuf format.
//!
//! The format has four bytes of magic, then an envelope (`runtime.Unknown`) with type and content; the content is a
//! list with metadata and objects. Every object begins with its length, so objects are skipped without parsing them.

use super::ListFacts;

const MAGIC: [u8; 4] = *b"k8s\0";

/// The longest type or list metadata that is parsed.
const MAX_HELD: u64 = 4 << 10;

/// Counts the objects of a list.
#[derive(Debug, Default)]
pub(super) struct ProtobufList {
    position: u64,
    state: State,
    message: Message,
    /// Where the content ends.
    list_end: u64,
    /// Where the current field starts.
    field_start: u64,
    varint: Varint,
    /// The bytes of a field that is parsed as a whole.
    held: Vec<u8>,
    has_kind: bool,
    facts: ListFacts,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// This byte of the magic.
    Magic(usize),
    Tag,
    /// The length of a field.
    Length(u64),
    /// A number that is skipped.
    Number,
    /// Bytes up to this position, which are skipped.
    Skip(u64),
    /// A field up to this position, which is kept.
    Hold(u64),
    /// It is not this format.
    Broken,
}

impl Default for State {
    fn default() -> Self {
        Self::Magic(0)
    }
}

/// The message whose fields are being parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Message {
    #[default]
    Envelope,
    List,
    /// Nothing: the list has ended.
    Rest,
}

impl ProtobufList {
    /// Reads a part of the body. The cost depends on the number of objects that start in it, not on its length.
    pub(super) fn read(&mut self, data: &[u8]) {
        let mut rest = data;
        // What follows the list does not matter, and need not be decompressed either.
        while self.state != State::Broken && self.message != Message::Rest && !rest.is_empty() {
            let read = match self.state {
                State::Skip(end) => self.advance(end, rest),
                State::Hold(end) => {
                    let read = self.advance(end, rest);
                    self.held.extend_from_slice(&rest[..read]);
                    if self.position == end {
                        self.digest_held();
                    }
                    read
                }
                _ => {
                    self.step(rest[0]);
                    1
                }
            };
            rest = &rest[read..];
            self.leave_list();
        }
    }

    /// Whether the sample is not large enough yet, where objects cannot be skipped.
    pub(super) fn wants_more(&self) -> bool {
        self.state != State::Broken
            && !self.facts.is_other
            && self.message != Message::Rest
            && !self.facts.is_sampled(self.position)
    }

    /// What was found.
    pub(super) fn finish(mut self) -> ListFacts {
        if self.state == State::Broken {
            return ListFacts::default();
        }
        self.facts.has_items = self.has_kind && self.message != Message::Envelope;
        // The metadata, if any, is before the objects.
        self.facts.has_metadata |= self.facts.items > 0 || self.facts.all_items;
        self.facts
    }

    /// Moves on to `end`, or as far as there is data; returns how far.
    fn advance(&mut self, end: u64, data: &[u8]) -> usize {
        let left = end.saturating_sub(self.position);
        let read = usize::try_from(left).map_or(data.len(), |left| left.min(data.len()));
        self.position += read as u64;
        if self.position >= end {
            self.state = State::Tag;
        }
        read
    }

    /// Parses one byte of a tag, a length or a number.
    fn step(&mut self, byte: u8) {
        if let State::Magic(index) = self.state {
            self.state = match MAGIC.get(index) {
                Some(&magic) if magic != byte => State::Broken,
                _ if index + 1 == MAGIC.len() => State::Tag,
                _ => State::Magic(index + 1),
            };
            self.position += 1;
            return;
        }
        if self.state == State::Tag && self.varint.is_fresh() {
            self.field_start = self.position;
        }
        self.position += 1;
        match self.varint.push(byte) {
            Ok(None) => {}
            Ok(Some(value)) => self.value(value),
            Err(TooLong) => self.state = State::Broken,
        }
    }

    fn value(&mut self, value: u64) {
        self.state = match self.state {
            State::Tag => match (value >> 3, value & 7) {
                (0, _) => State::Broken,
                (_, 0) => State::Number,
                (_, 1) => self.skip(8),
                (field, 2) => State::Length(field),
                (_, 5) => self.skip(4),
                _ => State::Broken,
            },
            State::Length(field) => self.content(field, value),
            _ => State::Tag,
        };
    }

    /// A field of `length` bytes begins.
    fn content(&mut self, field: u64, length: u64) -> State {
        match (self.message, field) {
            (Message::Envelope | Message::List, 1) => self.hold(length),
            (Message::Envelope, 2) => {
                let Some(end) = self.position.checked_add(length) else {
                    return State::Broken;
                };
                self.list_end = end;
                self.message = Message::List;
                State::Tag
            }
            (Message::List, 2) => {
                let state = self.skip(length);
                if state != State::Broken {
                    self.count(length);
                }
                state
            }
            _ => self.skip(length),
        }
    }

    fn count(&mut self, length: u64) {
        if self.facts.items == 0 {
            self.facts.items_start = self.field_start;
        }
        self.facts.items += 1;
        self.facts.items_bytes = self.position + length - self.facts.items_start;
    }

    fn skip(&self, length: u64) -> State {
        match self.position.checked_add(length) {
            Some(end) if self.message == Message::List && end > self.list_end => State::Broken,
            Some(end) if end == self.position => State::Tag,
            Some(end) => State::Skip(end),
            None => State::Broken,
        }
    }

    fn hold(&mut self, length: u64) -> State {
        self.held.clear();
        match self.skip(length) {
            _ if length > MAX_HELD => State::Broken,
            State::Skip(end) => State::Hold(end),
            state => state,
        }
    }

    /// Parses the type or the list's metadata.
    fn digest_held(&mut self) {
        let mut fields = Fields(&self.held);
        while let Some((field, value)) = fields.next() {
            match (self.message, field, value) {
                (Message::Envelope, 1, Value::Bytes(version)) => {
                    self.facts.check_api_version(version);
                }
                (Message::Envelope, 2, Value::Bytes(kind)) => {
                    self.has_kind = true;
                    self.facts.check_kind(kind);
                }
                (Message::List, 3, Value::Bytes(token)) => {
                    self.facts.has_continue = !token.is_empty();
                }
                (Message::List, 4, Value::Number(remaining)) => {
                    self.facts.remaining = i64::try_from(remaining).ok().map(i64::unsigned_abs);
                }
                _ => {}
            }
        }
        if !fields.0.is_empty() {
            self.state = State::Broken;
        }
    }

    /// Leaves the content at its end.
    fn leave_list(&mut self) {
        if self.message == Message::List && self.position >= self.list_end {
            if self.state == State::Tag && self.varint.is_fresh() {
                self.message = Message::Rest;
                self.facts.all_items = true;
            } else {
                self.state = State::Broken;
            }
        }
    }
}

/// A varint, as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Varint {
    value: u64,
    shift: u32,
}

/// A varint has more than ten bytes.
struct TooLong;

impl Varint {
    const fn is_fresh(self) -> bool {
        self.shift == 0
    }

    /// Takes the next byte. Returns the number if it is complete.
    fn push(&mut self, byte: u8) -> Result<Option<u64>, TooLong> {
        if self.shift > 63 {
            return Err(TooLong);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        Ok(Some(std::mem::take(self).value))
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a complete message. What cannot be parsed is left over.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        let mut rest = self.0;
        let tag = number(&mut rest)?;
        let value = match tag & 7 {
            0 => Value::Number(number(&mut rest)?),
            1 => take(&mut rest, 8).map(|_| Value::Other)?,
            2 => {
                let length = number(&mut rest)?;
                Value::Bytes(take(&mut rest, length)?)
            }
            5 => take(&mut rest, 4).map(|_| Value::Other)?,
            _ => return None,
        };
        self.0 = rest;
        Some((tag >> 3, value))
    }
}

fn number(data: &mut &[u8]) -> Option<u64> {
    let mut varint = Varint::default();
    loop {
        let (&byte, rest) = data.split_first()?;
        *data = rest;
        if let Some(value) = varint.push(byte).ok()? {
            return Some(value);
        }
    }
}

fn take<'a>(data: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = data.split_at_checked(usize::try_from(length).ok()?)?;
    *data = rest;
    Some(taken)
}
