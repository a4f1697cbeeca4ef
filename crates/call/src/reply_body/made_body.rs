//! A response that the gateway made itself, and that is in memory as a whole.
//!
//! The connection gets it in pieces, copied where the bytes belong to this response alone: what a connection has not sent yet
//! keeps little memory, and the rest is free as soon as the client has read it. If many responses share the bytes, pieces are
//! parts of them and cost nothing.
//!
//! Once a client has read slowly, or for [`PATIENCE`], the response may be given up for a user who has less: its memory is free
//! then, although the connection may never ask for more.

use std::{cell::RefCell, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::{sync::Notify, task::AbortHandle};

use crate::{BodyError, ResponseShare};

/// Bytes that are passed to the connection at once. They may not be sent yet when the rest is dropped.
pub(super) const PIECE: usize = 16 << 10;
/// How long a client may read before its response may be given up for another user.
const PATIENCE: Duration = Duration::from_secs(30);

/// A response in memory.
pub(super) struct MadeBody {
    /// `None` once it was given up.
    rest: Rc<RefCell<Option<Rest>>>,
    /// Told when the client reads too slowly.
    is_slow: Rc<Notify>,
    /// The task that gives it up.
    task: Option<AbortHandle>,
}

struct Rest {
    bytes: Bytes,
    memory: MemoryOf,
}

/// Whose memory the bytes of a response are.
#[derive(Debug)]
pub enum MemoryOf {
    /// Many responses have the same bytes.
    All,
    /// They are charged to the user who gets the response.
    User(ResponseShare),
    /// They are charged to nobody, because there was no room: the response keeps its seat until it is read.
    Seat,
}

impl MadeBody {
    /// A response of these bytes. To be called on a data core.
    pub(super) fn new(bytes: Bytes, memory: MemoryOf) -> Self {
        Self::with_patience(bytes, memory, PATIENCE)
    }

    fn with_patience(bytes: Bytes, memory: MemoryOf, patience: Duration) -> Self {
        let can_be_given_up = matches!(memory, MemoryOf::User(_));
        let rest = Rc::new(RefCell::new(Some(Rest { bytes, memory })));
        let is_slow = Rc::<Notify>::default();
        let task = can_be_given_up.then(|| {
            let (rest, is_slow) = (Rc::clone(&rest), Rc::clone(&is_slow));
            let task = fairgate_base::turns::spawn_local(give_up(rest, is_slow, patience));
            task.abort_handle()
        });
        Self {
            rest,
            is_slow,
            task,
        }
    }

    /// The next piece; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        let mut rest = self.rest.borrow_mut();
        let Some(Rest { bytes, memory }) = &mut *rest else {
            return Some(Err(BodyError::TooSlow));
        };
        if bytes.is_empty() {
            return None;
        }
        let part = bytes.split_to(bytes.len().min(PIECE));
        let piece = match memory {
            MemoryOf::All => part,
            MemoryOf::User(_) | MemoryOf::Seat => Bytes::copy_from_slice(&part),
        };
        if bytes.is_empty() {
            // An empty rest would keep all of it in memory.
            *bytes = Bytes::new();
            *memory = MemoryOf::All;
        }
        Some(Ok(Frame::data(piece)))
    }

    /// Whether the client has all of it.
    pub(super) fn is_end(&self) -> bool {
        let rest = self.rest.borrow();
        rest.as_ref().is_some_and(|rest| rest.bytes.is_empty())
    }

    /// Whether it was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.rest.borrow().is_none()
    }

    /// Whether it may stay in memory without a seat.
    pub(super) fn needs_no_seat(&self) -> bool {
        let rest = self.rest.borrow();
        let rest = rest.as_ref();
        rest.is_none_or(|rest| !matches!(rest.memory, MemoryOf::Seat))
    }

    /// From now on it may be given up: its client reads too slowly.
    pub(super) fn is_read_slowly(&self) {
        self.is_slow.notify_one();
    }

    /// The number of bytes that the client has not got.
    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self.rest.borrow();
        let length = rest.as_ref().map_or(0, |rest| rest.bytes.len());
        SizeHint::with_exact(length as u64)
    }
}

impl Drop for MadeBody {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.rest.take();
    }
}

/// Drops the response once it has to make room.
async fn give_up(rest: Rc<RefCell<Option<Rest>>>, is_slow: Rc<Notify>, patience: Duration) {
    // Either way it may be given up from then on.
    let _ = tokio::time::timeout(patience, is_slow.notified()).await;
    let given_up = match &mut *rest.borrow_mut() {
        Some(Rest {
            memory: MemoryOf::User(share),
            ..
        }) => share.may_be_given_up(),
        _ => return,
    };
    given_up.notified().await;
    let dropped = rest.borrow_mut().take();
    if let Some(Rest {
        memory: MemoryOf::User(share),
        ..
    }) = dropped
    {
        share.count_given_up();
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::ResponseMemory;

    fn taken(body: &mut MadeBody) -> Option<usize> {
        let frame = body.next()?.ok()?;
        Some(frame.into_data().unwrap().len())
    }

    #[test]
    fn pieces_of_shared_bytes_are_not_copied() {
        let bytes = Bytes::from(vec![7; 2 * PIECE]);
        let mut body = MadeBody::new(bytes.clone(), MemoryOf::All);
        let piece = body.next().unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.as_ptr(), bytes.as_ptr());
        let mut body = MadeBody::new(bytes.clone(), MemoryOf::Seat);
        let piece = body.next().unwrap().unwrap().into_data().unwrap();
        assert_ne!(piece.as_ptr(), bytes.as_ptr());
        assert!(!body.needs_no_seat());
    }

    #[tokio::test]
    async fn the_memory_is_free_with_the_last_piece_and_not_with_the_body() {
        let bodies = async {
            let memory = ResponseMemory::new(1 << 20);
            let mut share = memory.share("a");
            assert!(share.resize(PIECE + 1));
            let bytes = Bytes::from(vec![7; PIECE + 1]);
            let mut body = MadeBody::new(bytes, MemoryOf::User(share));
            assert_eq!((taken(&mut body), taken(&mut body)), (Some(PIECE), Some(1)));
            assert_eq!(memory.held().now, 0);
            assert!(body.is_end() && taken(&mut body).is_none() && !body.is_given_up());
        };
        LocalSet::new().run_until(bodies).await;
    }

    #[tokio::test]
    async fn a_response_that_is_read_slowly_or_for_long_is_dropped_for_another_user() {
        for is_slow in [true, false] {
            let bodies = async {
                let memory = ResponseMemory::new(8 * PIECE);
                let mut share = memory.share("slow");
                assert!(share.resize(6 * PIECE));
                let patience = if is_slow { PATIENCE } else { Duration::ZERO };
                let bytes = Bytes::from(vec![7; 6 * PIECE]);
                let body = MadeBody::with_patience(bytes, MemoryOf::User(share), patience);
                assert!(!memory.share("other").resize(5 * PIECE), "it is still read");
                if is_slow {
                    body.is_read_slowly();
                }
                let room = memory.room("other", 4 * PIECE).await;
                while !body.is_given_up() {
                    tokio::task::yield_now().await;
                }
                assert!(room.is_some());
                assert_eq!((memory.held().now, memory.given_up()), (4 * PIECE, 1));
            };
            LocalSet::new().run_until(bodies).await;
        }
    }
}
