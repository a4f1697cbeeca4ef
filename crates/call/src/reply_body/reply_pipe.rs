//! The response to an ordinary request, which can be read to its end without its client.
//!
//! A seat is released when the upstream is known to be done, which the end of its response shows. A client must
//! not be able to delay that end or hide it. So when a client disconnects, the rest of the response is read and
//! discarded. When a client reads too slowly, the rest is spooled: read into bounded memory, from which the
//! client reads at its own pace.
//!
//! As long as the client keeps up, this costs nothing: data goes from the upstream's connection to the
//! client's without a copy and without a task. `fairness` checks the pipes of replies that hold seats at
//! regular intervals ([`ReplyPipe::check_pace`]); spooling only begins in such a check.
//!
//! A response that the gateway made itself is in memory already, charged to its user. So there is nothing to read: where a
//! response of the upstream would be spooled, this one only stops holding a seat. While it holds one, it does so for the same
//! reason: a client gets the next response for its seat once it has read this one, or leaves it in its own part of the memory.
//!
//! Not here: seats, and the decision which clients are disconnected (`fairness`).

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::task::AbortHandle;

use super::{
    made_body::MadeBody,
    response_source::ResponseSource,
    spool::{Spool, SpoolLimits, SpoolShare},
};
use crate::{BodyEnd, BodyError};

/// The number of checks over which a client's rate is measured.
const CHECKS: u32 = 8;

/// What is held until the upstream is done with a request.
pub trait UpstreamGuard {
    /// Called with data of the response, as it is read.
    fn data(&mut self, data: &Bytes) {
        let _ = data;
    }

    /// The client disconnected, or its reply was ended early. Returns the maximum number of bytes of the rest
    /// that are read to find its end; `None` if the request is to be cancelled at once.
    fn client_disconnected(&mut self) -> Option<u64>;

    /// The upstream is done, or the request was cancelled, which is [`BodyEnd::Abandoned`]. Called exactly
    /// once, unless [`made`](Self::made) is.
    fn end(&mut self, how: BodyEnd);

    /// The gateway made the response itself, so nothing is done for the request any more. `is_read` is whether the client has
    /// got all of it.
    fn made(&mut self, is_read: bool);
}

/// An upstream's response on its way to a client, and what is held until it ends: one allocation for both.
pub struct ReplyPipe<H: ?Sized = dyn UpstreamGuard> {
    state: RefCell<PipeState>,
    guard: RefCell<H>,
}

struct PipeState {
    /// `None` once the upstream is done.
    source: Option<ResponseSource>,
    /// The rest of a response of the gateway that holds nothing any more.
    made: Option<MadeBody>,
    /// Frames that were read but not yet sent to the client. `None` until there are some: the end of an empty queue takes a
    /// hundred instructions.
    spooled: Option<VecDeque<Frame<Bytes>>>,
    held: Option<SpoolShare>,
    /// What the client gets after the spooled frames.
    error: Option<BodyError>,
    /// The task that reads the rest without the client.
    reader: Option<AbortHandle>,
    /// How many bytes may still be read and discarded; `None` while there is a client.
    unwanted: Option<u64>,
    /// Whether the client got a frame, and has not polled for another.
    has_unread_frame: bool,
    /// The length of that frame, in bytes: its connection holds it until the client reads.
    unread: usize,
    /// The number of bytes that the client has received.
    given: u64,
    pace: Pace,
    /// The pace at which the client reads what is spooled.
    lag: Pace,
}

/// How fast a client reads.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Bytes that it had got at the last check.
    seen: u64,
    /// Checks since its rate was last measured, and the bytes that it got since.
    checks: u32,
    bytes: u64,
    /// Whether it was below the minimum when it was last measured.
    is_slow: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderPace {
    /// The client keeps up, or the upstream is the slow side.
    KeepsUp,
    /// The client does not keep up, and spooling its reply began with this check.
    SpoolingStarted,
    /// The reply does not fit into the spool, and the client reads below the minimum rate.
    TooSlow,
}

impl<H: UpstreamGuard> ReplyPipe<H> {
    /// The response from `source`; `guard` is held to its end.
    pub(super) fn new(source: ResponseSource, guard: H) -> Rc<Self> {
        Rc::new(Self {
            state: RefCell::new(PipeState {
                source: Some(source),
                made: None,
                spooled: None,
                held: None,
                error: None,
                reader: None,
                unwanted: None,
                has_unread_frame: false,
                unread: 0,
                given: 0,
                pace: Pace::default(),
                lag: Pace::default(),
            }),
            guard: RefCell::new(guard),
        })
    }
}

impl ReplyPipe {
    /// Checks how the client reads; to be called at regular intervals, in each of which a client has to read
    /// `limits.min_read_bytes`, or all that is available if that is less. If it does not, its reply is
    /// spooled for its `user` as far as the limits allow.
    pub fn check_pace(
        self: &Rc<Self>,
        limits: SpoolLimits,
        spool: &Spool,
        user: &str,
    ) -> ReaderPace {
        let mut state = self.state.borrow_mut();
        let given = state.given;
        let taken = given - std::mem::replace(&mut state.pace.seen, given);
        if state.is_given_up() {
            drop(state);
            self.cut();
            return ReaderPace::KeepsUp;
        }
        if state.source.is_none() || state.unwanted.is_some() || !state.has_unread_frame {
            state.pace = Pace {
                seen: given,
                ..Pace::default()
            };
            return ReaderPace::KeepsUp;
        }
        state.pace.checks += 1;
        state.pace.bytes += taken;
        if state.reader.is_some() {
            return ReaderPace::KeepsUp;
        }
        // Even with a minimum rate of zero, a client that reads nothing is slow.
        if taken < limits.min_read_bytes.max(1) && state.has_room(limits, spool, user) {
            if let Some(made) = state.take_made() {
                state.made = Some(made);
                drop(state);
                self.guard.borrow_mut().made(false);
                return ReaderPace::SpoolingStarted;
            }
            let is_first = state.held.is_none();
            let unread = state.unread;
            let held = state
                .held
                .get_or_insert_with(|| SpoolShare::new(spool, user));
            // From now on the seat may be given to others while the client leaves this unread.
            held.set_unread(unread);
            state.reader = Some(self.read_on(limits));
            return if is_first {
                ReaderPace::SpoolingStarted
            } else {
                ReaderPace::KeepsUp
            };
        }
        if state.pace.checks < CHECKS {
            return ReaderPace::KeepsUp;
        }
        let slow = state.pace.bytes < limits.min_read_bytes * u64::from(CHECKS);
        state.pace.checks = 0;
        state.pace.bytes = 0;
        state.pace.is_slow = slow;
        if slow {
            ReaderPace::TooSlow
        } else {
            ReaderPace::KeepsUp
        }
    }

    /// Whether the client read below the minimum rate when it was last measured, and its reply did not fit into the
    /// spool.
    pub fn is_slow(&self) -> bool {
        self.state.borrow().pace.is_slow
    }

    /// Whether a part of the reply is in the spool, or can still be spooled.
    pub fn is_unread(&self) -> bool {
        let state = self.state.borrow();
        state.made.as_ref().is_some_and(|made| !made.is_end())
            || state.held.is_some() && (state.source.is_some() || state.has_spooled())
    }

    /// The user in whose part of the spool a part of the reply is, if that user may have no more.
    pub fn user_without_room(&self) -> Option<String> {
        let state = self.state.borrow();
        let held = state.held.as_ref().filter(|held| !held.has_room())?;
        Some(held.user().to_owned())
    }

    /// Whether the response is one of the gateway's own, which its client may leave in the memory that is its user's part.
    pub fn is_made(&self) -> bool {
        self.state.borrow().made.is_some()
    }

    /// A response of the gateway may be given up for another user from now on, because its client reads too slowly.
    pub fn may_be_given_up(&self) {
        if let Some(made) = &self.state.borrow().made {
            made.is_read_slowly();
        }
    }

    /// Whether the client reads too slowly from the spool: less than `limits.min_read_bytes` before each of the
    /// last checks.
    pub fn leaves_spooled(&self, limits: SpoolLimits) -> bool {
        let mut state = self.state.borrow_mut();
        let given = state.given;
        // Of what the client's connection has taken, nothing can be freed.
        let is_empty = !state.has_spooled() && state.made.is_none();
        let idle = !state.has_unread_frame || is_empty;
        let lag = &mut state.lag;
        let taken = given - std::mem::replace(&mut lag.seen, given);
        lag.checks = if taken < limits.min_read_bytes && !idle {
            lag.checks + 1
        } else {
            0
        };
        lag.checks >= CHECKS
    }

    /// Ends the reply for its client, which reads too slowly. The rest of the response is read and discarded.
    pub fn cut(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        state.forget_spooled();
        state.error = Some(BodyError::TooSlow);
        drop(state);
        self.discard_rest();
    }

    /// The request's time limit has passed: a response without a client is cancelled.
    pub fn time_is_up(&self) {
        if self.state.borrow().unwanted.is_some() {
            self.cancel();
        }
    }

    /// The next frame for the client.
    pub(super) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.borrow_mut();
        state.set_unread(None);
        if let Some(frame) = state.take_spooled() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = state.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if state.unwanted.is_some() {
            return Poll::Ready(None);
        }
        if state.made.is_some() {
            return Poll::Ready(state.take_from_memory());
        }
        let Some(source) = &mut state.source else {
            return Poll::Ready(None);
        };
        let polled = source.poll_frame(cx);
        // The client has caught up: from here on its own task is woken, not the reader's.
        if let Some(reader) = state.reader.take() {
            reader.abort();
        }
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.data_ref();
                state.set_unread(Some(frame));
                if let Some(data) = data {
                    self.guard.borrow_mut().data(data);
                }
            }
            Poll::Ready(None) => self.ended(state, BodyEnd::Complete),
            // The upstream may continue; the drop of the pipe handles the rest.
            Poll::Ready(Some(Err(BodyError::Idle))) | Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => self.ended(state, BodyEnd::Failed),
        }
        polled
    }

    /// Whether the response has ended, and the client has all of it.
    pub(super) fn is_end_stream(&self) -> bool {
        let state = self.state.borrow();
        !state.has_spooled()
            && state.error.is_none()
            && state.unwanted.is_none()
            && state.made.as_ref().is_none_or(MadeBody::is_end)
            && state
                .source
                .as_ref()
                .is_none_or(ResponseSource::is_end_stream)
    }

    /// Whether the upstream is done.
    pub(super) fn is_done(&self) -> bool {
        self.state.borrow().source.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let state = self.state.borrow();
        let ahead = state.spooled.iter().flatten();
        let ahead = ahead.filter_map(Frame::data_ref);
        let ahead: u64 = ahead.map(|data| data.len() as u64).sum();
        if let Some(made) = &state.made {
            return made.size_hint();
        }
        match state.source.as_ref().map(ResponseSource::size_hint) {
            None => SizeHint::with_exact(ahead),
            Some(rest) => rest
                .exact()
                .map_or_else(SizeHint::default, |rest| SizeHint::with_exact(ahead + rest)),
        }
    }

    /// The client has received the whole reply, or disconnected.
    pub(super) fn client_disconnected(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        state.forget();
        match &mut state.source {
            None => {}
            Some(source) if source.is_end_stream() => {
                source.release(true);
                self.ended(state, BodyEnd::Complete);
            }
            Some(ResponseSource::Made(_)) => self.ended(state, BodyEnd::Abandoned),
            Some(ResponseSource::Upstream(_)) => {
                drop(state);
                self.discard_rest();
            }
        }
    }

    /// Reads and discards what the upstream still sends, as far as the guard allows.
    fn discard_rest(self: &Rc<Self>) {
        let state = self.state.borrow();
        match state.source {
            Some(ResponseSource::Upstream(_)) if state.unwanted.is_none() => {}
            Some(ResponseSource::Made(_)) => {
                drop(state);
                return self.ended(self.state.borrow_mut(), BodyEnd::Abandoned);
            }
            Some(ResponseSource::Upstream(_)) | None => return,
        }
        drop(state);
        // The state must not be borrowed during the call: the guard may use its pipe.
        let unread = self.guard.borrow_mut().client_disconnected();
        let Some(unread) = unread.filter(|_| !std::thread::panicking()) else {
            return self.cancel();
        };
        let mut state = self.state.borrow_mut();
        state.unwanted = Some(unread);
        if let Some(reader) = state.reader.take() {
            reader.abort();
        }
        state.reader = Some(self.read_on(SpoolLimits::NONE));
    }

    /// Cancels the request upstream.
    fn cancel(&self) {
        let mut state = self.state.borrow_mut();
        if let Some(source) = &mut state.source {
            source.release(false);
            self.ended(state, BodyEnd::Abandoned);
        }
    }

    /// The upstream is done.
    fn ended(&self, mut state: std::cell::RefMut<'_, PipeState>, how: BodyEnd) {
        let source = state.source.take();
        if let Some(reader) = state.reader.take() {
            reader.abort();
        }
        drop(state);
        let is_made = matches!(source, Some(ResponseSource::Made(_)));
        drop(source);
        let mut guard = self.guard.borrow_mut();
        if is_made {
            guard.made(how == BodyEnd::Complete);
        } else {
            guard.end(how);
        }
    }

    /// Reads the rest without the client.
    fn read_on(self: &Rc<Self>, limits: SpoolLimits) -> AbortHandle {
        let pipe = Rc::clone(self);
        let read = async move { poll_fn(|cx| pipe.poll_read_on(cx, limits)).await };
        fairgate_base::turns::spawn_local(read).abort_handle()
    }

    /// Ready when there is nothing more to read, or no room for it.
    fn poll_read_on(&self, cx: &mut Context<'_>, limits: SpoolLimits) -> Poll<()> {
        loop {
            let mut locked = self.state.borrow_mut();
            let state = &mut *locked;
            if state.unwanted.is_none() && !state.may_spool(limits) {
                state.reader = None;
                return Poll::Ready(());
            }
            let Some(source) = &mut state.source else {
                return Poll::Ready(());
            };
            let Poll::Ready(frame) = source.poll_frame(cx) else {
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.guard.borrow_mut().data(data);
                    }
                    if !state.keep(frame) {
                        drop(locked);
                        self.cancel();
                        return Poll::Ready(());
                    }
                }
                None => {
                    self.ended(locked, BodyEnd::Complete);
                    return Poll::Ready(());
                }
                Some(Err(BodyError::Idle)) => {
                    source.allow_silence();
                    if state.unwanted.is_none() {
                        state.error = Some(BodyError::Idle);
                        state.unwanted = Some(u64::MAX);
                    }
                }
                Some(Err(error)) => {
                    if state.unwanted.is_none() {
                        state.error = Some(error);
                    }
                    self.ended(locked, BodyEnd::Failed);
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl PipeState {
    /// Whether the rest fits into the spool, as far as its length is known.
    fn has_room(&self, limits: SpoolLimits, spool: &Spool, user: &str) -> bool {
        if let Some(ResponseSource::Made(made)) = &self.source {
            return made.needs_no_seat();
        }
        let rest = self.source.as_ref().and_then(|up| up.size_hint().exact());
        rest.is_none_or(|rest| rest <= limits.per_answer)
            && self.held.as_ref().map_or(0, SpoolShare::bytes) < limits.per_answer
            && spool.has_room(user)
    }

    fn may_spool(&self, limits: SpoolLimits) -> bool {
        self.held.as_ref().is_some_and(|held| held.may_grow(limits))
    }

    /// Spools a frame for the client, or discards it if there is none. False when more was discarded than
    /// allowed.
    fn keep(&mut self, frame: Frame<Bytes>) -> bool {
        if let Some(unwanted) = &mut self.unwanted {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            let left = unwanted.checked_sub(bytes);
            *unwanted = left.unwrap_or(0);
            return left.is_some();
        }
        // Copied, because a small frame may keep a large buffer alive.
        let frame = frame.map_data(|data| Bytes::copy_from_slice(&data));
        if let Some(held) = &mut self.held {
            held.take(cost(&frame));
        }
        self.spooled.get_or_insert_default().push_back(frame);
        true
    }

    /// Whether there are frames for the client that were read already.
    fn has_spooled(&self) -> bool {
        self.spooled
            .as_ref()
            .is_some_and(|spooled| !spooled.is_empty())
    }

    fn take_spooled(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.spooled.as_mut()?.pop_front()?;
        if let Some(held) = &mut self.held {
            held.give_back(cost(&frame));
        }
        self.set_unread(Some(&frame));
        Some(frame)
    }

    /// The client's connection takes this frame, and so has no other; or none, because it asks for the next one.
    fn set_unread(&mut self, frame: Option<&Frame<Bytes>>) {
        self.has_unread_frame = frame.is_some();
        self.unread = frame.and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.given += self.unread as u64;
        if let Some(held) = &mut self.held {
            held.set_unread(self.unread);
        }
    }

    /// Takes the source if the gateway made the response.
    fn take_made(&mut self) -> Option<MadeBody> {
        match self.source.take() {
            Some(ResponseSource::Made(made)) => Some(made),
            other => {
                self.source = other;
                None
            }
        }
    }

    /// The next piece of a response of the gateway that holds nothing any more.
    fn take_from_memory(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        let piece = self.made.as_mut().and_then(MadeBody::next);
        self.has_unread_frame = piece.is_some();
        if let Some(Ok(piece)) = &piece {
            self.given += piece.data_ref().map_or(0, Bytes::len) as u64;
        }
        piece
    }

    /// Whether a response of the gateway that still holds something was given up.
    fn is_given_up(&self) -> bool {
        matches!(&self.source, Some(ResponseSource::Made(made)) if made.is_given_up())
    }

    /// Discards what is spooled. What the client's connection has taken stays there, and is still counted.
    fn forget_spooled(&mut self) {
        self.spooled = None;
        if let Some(held) = &mut self.held {
            held.give_back_all();
        }
        self.made = None;
    }

    /// Discards all that is held.
    fn forget(&mut self) {
        self.forget_spooled();
        self.held = None;
    }
}

/// Bytes of memory that a spooled frame takes, approximately.
fn cost(frame: &Frame<Bytes>) -> usize {
    let data = frame.data_ref().map_or(0, Bytes::len);
    data + size_of::<Frame<Bytes>>()
}

impl fmt::Debug for ReplyPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyPipe").finish_non_exhaustive()
    }
}
