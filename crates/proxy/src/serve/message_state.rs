//! Where in its HTTP/1 conversation a connection is: what its bytes belong to.
//!
//! The reading end of the connection ([`super::http1`]) follows the bytes and passes them to hyper
//! one message at a time; the service ([`super::connection_service`]) knows what hyper made of the head. Between
//! them they tell where each request ends, so that no byte of one is ever taken for another's.

use std::task::{Context, Waker};

use super::{chunked::ChunkScanner, head_scan::HeadFacts};
use fairgate_core::sync::{Mutex, lock};

/// What the next bytes of the connection belong to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Stage {
    /// A head, or nothing yet.
    #[default]
    Head,
    /// A whole head was passed on, and hyper has yet to say what it reads in it.
    Parsing,
    /// A body of which so many bytes are to come; at least one.
    Length(u64),
    /// A chunked body.
    Chunked(ChunkScanner),
    /// Another request, which has to wait until this one is answered.
    Complete,
    /// Something that is not HTTP any more.
    Tunnel,
}

/// What follows a head, in hyper's reading.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// What was found out about a head before hyper got it.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadCheck {
    /// Its bytes tell this.
    Read(HeadFacts),
    /// It was too large; hyper got another one in its place.
    TooLarge,
}

/// How much of a request's body has yet to be read off the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnreadBody {
    Nothing,
    Bytes(u64),
    /// It is chunked.
    Unknown,
}

/// Where a connection is. Shared by its reading end and its service.
#[derive(Debug, Default)]
pub(crate) struct MessageState(Mutex<State>);

#[derive(Debug)]
struct State {
    stage: Stage,
    head: HeadCheck,
    /// Whether the request that is being read was answered already.
    answered: bool,
    /// Who waits for an answer to be over.
    waiting: Option<Waker>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            stage: Stage::Head,
            head: HeadCheck::Read(HeadFacts::default()),
            answered: false,
            waiting: None,
        }
    }
}

impl MessageState {
    /// Where the connection is.
    pub(super) fn stage(&self) -> Stage {
        lock(&self.0).stage
    }

    /// Has `cx` woken when there may be something to read again.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        lock(&self.0).waiting = Some(cx.waker().clone());
    }

    /// A head is on its way to hyper.
    pub(super) fn head_is_whole(&self, head: HeadCheck) {
        let mut state = lock(&self.0);
        state.stage = Stage::Parsing;
        state.head = head;
    }

    /// hyper has read the head, and a body of this framing follows. Returns what was found out about
    /// the head before.
    pub(super) fn parsed(&self, framing: Framing) -> HeadCheck {
        let mut state = lock(&self.0);
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

    /// More of the body was read; this is left.
    pub(super) fn read_on(&self, stage: Stage) {
        let mut state = lock(&self.0);
        state.stage = match stage {
            Stage::Complete if state.answered => Stage::Head,
            stage => stage,
        };
    }

    /// The request has been answered.
    pub(super) fn answered(&self) {
        let mut state = lock(&self.0);
        state.answered = true;
        if matches!(state.stage, Stage::Complete) {
            state.stage = Stage::Head;
        }
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// From here on the connection is a tunnel.
    pub(super) fn becomes_a_tunnel(&self) {
        lock(&self.0).stage = Stage::Tunnel;
    }

    /// How much of the request's body is still to come.
    pub(super) fn left(&self) -> UnreadBody {
        match lock(&self.0).stage {
            Stage::Length(bytes) => UnreadBody::Bytes(bytes),
            Stage::Chunked(_) => UnreadBody::Unknown,
            Stage::Head | Stage::Parsing | Stage::Complete | Stage::Tunnel => UnreadBody::Nothing,
        }
    }
}
