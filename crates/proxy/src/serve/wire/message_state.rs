//! The state of an HTTP/1 connection: what its next bytes belong to.
//!
//! The reader of the connection ([`super::http1`]) follows the bytes and passes them to hyper one message at a time;
//! the service (`connection/connection_service.rs`) knows how hyper parsed the head. Together they know where each
//! request ends, so that no byte of one is ever taken for a part of another.
//!
//! Both sides run on the same thread, and a lock is never contended. It is there because hyper's `upgrade` needs a
//! connection that is `Send`, and the reader is a part of it.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    task::{Context, Waker},
};

use super::{chunked::ChunkScanner, head_scan::HeadFacts};
use fairgate_core::sync::{Mutex, lock};

/// What the next bytes of the connection belong to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Stage {
    /// A head, or nothing yet.
    #[default]
    Head,
    /// A complete head was passed on, and hyper has not parsed it yet.
    Parsing,
    /// A body of which this many bytes are to come; at least one.
    Length(u64),
    /// A chunked body.
    Chunked(ChunkScanner),
    /// The next request, which has to wait until this one is answered.
    Complete,
    /// A tunnel: bytes that are not HTTP.
    Tunnel,
}

/// What follows a head, as hyper parsed it.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) enum Framing {
    /// A body of this many bytes.
    Length(u64),
    /// A chunked body.
    Chunked,
}

/// The result of scanning a head before it was passed to hyper.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) enum HeadCheck {
    /// What its bytes showed.
    Scanned(HeadFacts),
    /// It was too large; hyper got another one in its place.
    TooLarge,
}

/// How much of a request's body was not read from the connection yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum UnreadBody {
    Nothing,
    Bytes(u64),
    /// It is chunked.
    Unknown,
}

/// The state of a connection. Shared by its reader, its service and its task.
#[derive(Debug, Default)]
pub(crate) struct MessageState {
    state: Mutex<State>,
    parser: AtomicU8,
}

/// A value of `MessageState::parser`: a head has more lines than hyper's parser has room for, and waits for another parser. At first
/// it is 0: a parser with the usual room. Room is made anew for each head, so more of it costs each request.
const TOO_SMALL: u8 = 1;
/// The parser has room for all lines that a head may have.
const LARGE: u8 = 2;

#[derive(Debug)]
struct State {
    stage: Stage,
    head: HeadCheck,
    /// Whether a part of the next head has arrived.
    head_begun: bool,
    /// Whether the request that is being read already got its response.
    answered: bool,
    /// The reader, while it waits for a reply to end.
    waiting: Option<Waker>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            stage: Stage::Head,
            head: HeadCheck::Scanned(HeadFacts::default()),
            head_begun: false,
            answered: false,
            waiting: None,
        }
    }
}

impl MessageState {
    /// What the next bytes belong to.
    pub(super) fn stage(&self) -> Stage {
        lock(&self.state).stage
    }

    /// Wakes `cx` when reading can continue.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        lock(&self.state).waiting = Some(cx.waker().clone());
    }

    /// Whether no byte has arrived since the last message.
    pub(in crate::serve) fn is_between(&self) -> bool {
        let state = lock(&self.state);
        matches!(state.stage, Stage::Head) && !state.head_begun
    }

    /// A part of a head has arrived.
    pub(super) fn head_begun(&self) {
        lock(&self.state).head_begun = true;
    }

    /// The parser has to have more room before the head is passed on, unless it has already.
    pub(super) fn need_large_parser(&self) {
        if !self.has_large_parser() {
            self.parser.store(TOO_SMALL, Ordering::Relaxed);
        }
    }

    /// Whether a head waits for a parser with more room.
    pub(in crate::serve) fn needs_large_parser(&self) -> bool {
        self.parser.load(Ordering::Relaxed) == TOO_SMALL
    }

    /// From now on the parser has room for all lines that a head may have.
    pub(in crate::serve) fn set_large_parser(&self) {
        self.parser.store(LARGE, Ordering::Relaxed);
    }

    /// Whether the parser has room for all lines that a head may have.
    pub(in crate::serve) fn has_large_parser(&self) -> bool {
        self.parser.load(Ordering::Relaxed) == LARGE
    }

    /// A head is passed to hyper.
    pub(super) fn head_complete(&self, head: HeadCheck) {
        let mut state = lock(&self.state);
        state.head_begun = false;
        state.stage = Stage::Parsing;
        state.head = head;
    }

    /// hyper has parsed the head, and a body with this framing follows. Returns the result of
    /// scanning the head.
    pub(in crate::serve) fn parsed(&self, framing: Framing) -> HeadCheck {
        let mut state = lock(&self.state);
        state.answered = false;
        state.stage = match framing {
            Framing::Length(0) => Stage::Complete,
            Framing::Length(bytes) => Stage::Length(bytes),
            Framing::Chunked => Stage::Chunked(ChunkScanner::default()),
        };
        let (head, waiting) = (state.head, state.waiting.take());
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        head
    }

    /// More of the body was read; `stage` is what follows.
    pub(super) fn body_read(&self, stage: Stage) {
        let mut state = lock(&self.state);
        state.stage = match stage {
            Stage::Complete if state.answered => Stage::Head,
            stage => stage,
        };
    }

    /// The request has ended, so the next one may be parsed.
    pub(in crate::serve) fn answered(&self) {
        let mut state = lock(&self.state);
        state.answered = true;
        if matches!(state.stage, Stage::Complete) {
            state.stage = Stage::Head;
        }
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// From now on the connection is a tunnel.
    pub(in crate::serve) fn becomes_a_tunnel(&self) {
        lock(&self.state).stage = Stage::Tunnel;
    }

    /// How much of the request's body was not read yet.
    pub(in crate::serve) fn unread(&self) -> UnreadBody {
        match lock(&self.state).stage {
            Stage::Length(bytes) => UnreadBody::Bytes(bytes),
            Stage::Chunked(_) => UnreadBody::Unknown,
            Stage::Head | Stage::Parsing | Stage::Complete | Stage::Tunnel => UnreadBody::Nothing,
        }
    }
}
