//! The body of a client's request, which may be read ahead while the request waits.
//!
//! While a request is queued its body is not read, so the end of the connection can be hidden behind
//! unread bytes: a client that disconnects would keep its place in the queue. Reading ahead, within a budget,
//! detects that end. The bytes read are replayed when the request is forwarded.
//!
//! With `Expect: 100-continue` a client sends nothing before it gets `100 Continue`, which the first
//! read sends. Such a body is not read ahead while its request is queued.
//!
//! A short body is read as a whole before its request gets a seat ([`ClientBody::poll_receive`]).
//!
//! Trailers are dropped: they could add a header field to a request after its authentication.

pub(crate) mod body_progress;
pub(crate) mod read_ahead;
pub(crate) mod read_ahead_budget;
pub(crate) mod stream_windows;

use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use fairgate_base::account::ByteShare;
use fairgate_core::digest::User;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use self::{
    body_progress::Observed, read_ahead::ReadAhead, read_ahead_budget::ReadAheadBudget,
    stream_windows::StreamWindows,
};
use crate::{BodyError, BodyProgress};

/// The body of a client's request.
pub struct ClientBody {
    ahead: ReadAhead,
    rest: Rest,
    /// `None` if the body must not be read ahead while its request is queued.
    budget: Option<Rc<ReadAheadBudget>>,
    /// What is charged once its request is queued. Boxed, because most requests are not.
    waiting: Option<Box<WaitingShares>>,
    /// Told what arrives, while the request holds a seat.
    observed: Observed,
    unread_handler: Option<Rc<dyn UnreadBodyHandler>>,
}

/// Receives the rest of a body that was dropped before it was read to its end.
pub trait UnreadBodyHandler {
    /// Takes `rest`, which has not ended. May be called while the runtime shuts down.
    fn take_unread(&self, rest: Incoming);

    /// What the client may send before it is read; `None` if it cannot send what is not read.
    fn windows(&self) -> Option<&StreamWindows> {
        None
    }
}

impl UnreadBodyHandler for StreamWindows {
    /// Ends the stream.
    fn take_unread(&self, rest: Incoming) {
        drop(rest);
    }

    fn windows(&self) -> Option<&StreamWindows> {
        Some(self)
    }
}

/// What the user of a queued request is charged for its body.
struct WaitingShares {
    /// What was read of it.
    read: Option<ByteShare>,
    /// What its stream may hold, until all of it was read, or its request has a seat.
    unread: Option<ByteShare>,
}

enum Rest {
    Done,
    Unread(Incoming),
    /// The client did not send all of it, which was reported.
    Failed,
}

impl ClientBody {
    /// No body at all.
    pub fn empty() -> Self {
        Self::new(Rest::Done, None)
    }

    fn new(rest: Rest, budget: Option<Rc<ReadAheadBudget>>) -> Self {
        Self {
            ahead: ReadAhead::default(),
            rest,
            budget,
            waiting: None,
            observed: None,
            unread_handler: None,
        }
    }

    /// Hands the rest to `unread_handler` if the body is dropped before all of it was read.
    pub fn hand_unread_to(&mut self, unread_handler: Rc<dyn UnreadBodyHandler>) {
        self.unread_handler = Some(unread_handler);
    }

    /// A body from the network. Without a `budget` it is never read ahead.
    pub fn incoming(body: Incoming, budget: Option<Rc<ReadAheadBudget>>) -> Self {
        let rest = if body.is_end_stream() {
            Rest::Done
        } else {
            Rest::Unread(body)
        };
        Self::new(rest, budget)
    }

    /// Its client may send as much as a window before it is read.
    #[must_use]
    pub fn on_stream_of(mut self, windows: &Rc<StreamWindows>) -> Self {
        if matches!(self.rest, Rest::Unread(_)) {
            self.unread_handler = Some(Rc::clone(windows) as _);
        }
        self
    }

    fn windows(&self) -> Option<&StreamWindows> {
        self.unread_handler.as_ref()?.windows()
    }

    /// A complete body with these bytes.
    pub fn full(data: impl Into<Bytes>) -> Self {
        let mut body = Self::empty();
        body.ahead = ReadAhead::only(data.into());
        body
    }

    /// Whether there is room for what the client may send while the request of `user` is queued. Costs nothing if the body is
    /// complete.
    pub fn may_wait(&self, user: &User) -> bool {
        let windows = self.windows().zip(self.unread_rest());
        windows.is_none_or(|(windows, rest)| windows.has_room(user, &rest))
    }

    /// How many bytes of it the client may have sent, or may send, that nobody has read: the window of its stream, or the rest of the
    /// body. 0 with HTTP/1.
    pub fn sendable_bytes(&self) -> usize {
        let windows = self.windows().zip(self.unread_rest());
        windows.map_or(0, |(windows, rest)| windows.bytes(&rest))
    }

    /// How much of it was not read; `None` if nothing is left.
    fn unread_rest(&self) -> Option<SizeHint> {
        match &self.rest {
            Rest::Unread(body) if !body.is_end_stream() => Some(body.size_hint()),
            Rest::Unread(_) | Rest::Done | Rest::Failed => None,
        }
    }

    /// The request of `user` is queued: what was read of the body, and what will be, is charged to that user. Costs nothing if
    /// there is no body.
    pub fn begin_waiting(&mut self, user: &Arc<User>) {
        let windows = self.windows().zip(self.unread_rest());
        let unread = windows.map(|(windows, rest)| windows.waits(user, &rest));
        let budget = self.budget.as_ref().filter(|_| !self.is_end_stream());
        let read = budget.map(|budget| budget.waits(user, self.ahead.bytes()));
        if read.is_some() || unread.is_some() {
            self.waiting = Some(Box::new(WaitingShares { read, unread }));
        }
    }

    /// Reads ahead into memory, as far as the budget allows. To be polled while the request waits.
    ///
    /// Ready when there is nothing more to read: the body is complete, or the budget is used up, or the user has
    /// at most as much as is still free, or the body is not to be read ahead. Pending while the client has more to send.
    ///
    /// # Errors
    ///
    /// When the body is incomplete, usually because the client disconnected.
    pub fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let Some(budget) = self.budget.clone() else {
            return Poll::Ready(Ok(()));
        };
        while self.may_read_more(&budget) && ready!(self.poll_one_ahead(cx))?.is_some() {}
        Poll::Ready(self.complete().map(|_| ()))
    }

    /// Whether more of a body may be read while its request is queued.
    fn may_read_more(&self, budget: &ReadAheadBudget) -> bool {
        let read = self
            .waiting
            .as_ref()
            .and_then(|waiting| waiting.read.as_ref());
        budget.has_room(self.ahead.bytes()) && read.is_none_or(|read| read.has_room(1))
    }

    /// Reads a body of `user` of at most `limit` bytes as a whole. What was read stays part of the body. `counts` is told how many
    /// bytes are read, and returns whether there is room for them.
    ///
    /// Ready with `true` when the body is complete, and with `false` when it is longer, or there is no room, for all or for this
    /// user. Pending while the client has more to send. This sends `100 Continue`, if the client waits for it.
    ///
    /// # Errors
    ///
    /// When the body is incomplete, usually because the client disconnected.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        user: &User,
        limit: usize,
        mut counts: impl FnMut(usize) -> bool,
    ) -> Poll<Result<bool, BodyError>> {
        loop {
            let budget = self.budget.as_ref();
            let has_room =
                budget.is_none_or(|budget| budget.has_room_for(user, self.ahead.bytes()));
            if self.ahead.bytes() > limit || !has_room {
                return Poll::Ready(self.complete());
            }
            match ready!(self.poll_one_ahead(cx))? {
                Some(bytes) if !self.is_whole() && !counts(bytes) => {
                    return Poll::Ready(Ok(false));
                }
                Some(_) => {}
                None => return Poll::Ready(self.complete()),
            }
        }
    }

    /// Whether reading it may make the client send more: it waits for `100 Continue`, or did until it was read from.
    pub fn awaits_continue(&self) -> bool {
        self.budget.is_none() && matches!(self.rest, Rest::Unread(_))
    }

    /// How many bytes were read of it, and have not been taken.
    pub fn ahead_bytes(&self) -> usize {
        self.ahead.bytes()
    }

    /// From now on the result is told what arrives, and can end the body.
    pub fn observe(&mut self) -> Rc<BodyProgress> {
        Rc::clone(self.observed.get_or_insert_default())
    }

    /// Reads one frame ahead, and returns its length; `None` if there are no more.
    fn poll_one_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, BodyError>> {
        let Rest::Unread(incoming) = &mut self.rest else {
            return Poll::Ready(self.complete().map(|_| None));
        };
        let mut bytes = 0;
        match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                let is_last = incoming.is_end_stream();
                if let Ok(data) = frame.into_data() {
                    bytes = data.len();
                    self.take(bytes);
                    self.ahead.push(data, is_last);
                }
                if is_last {
                    self.end(Rest::Done);
                }
            }
            Some(Err(error)) => {
                self.end(Rest::Failed);
                return Poll::Ready(Err(BodyError::Client(error)));
            }
            None if self.is_reset() => {
                self.end(Rest::Failed);
                return Poll::Ready(Err(BodyError::Abandoned));
            }
            None => {
                self.end(Rest::Done);
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(Some(bytes)))
    }

    /// Whether nothing more comes although the client has not ended the body. hyper takes a reset with the reason `NO_ERROR` for the end,
    /// as it is where a server has responded early. Of a client it means what any reset does: what has arrived is not all.
    fn is_reset(&self) -> bool {
        let is_unended = |rest: &Rest| matches!(rest, Rest::Unread(rest) if !rest.is_end_stream());
        // Only streams of HTTP/2 have windows.
        self.windows().is_some() && is_unended(&self.rest)
    }

    /// Nothing more comes.
    fn end(&mut self, how: Rest) {
        self.rest = how;
        self.release_unread();
    }

    /// Releases what is charged for data that may be unread.
    fn release_unread(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.unread = None;
        }
    }

    /// Whether everything was read from the client.
    fn complete(&self) -> Result<bool, BodyError> {
        match &self.rest {
            Rest::Failed => Err(BodyError::Abandoned),
            Rest::Done => Ok(true),
            Rest::Unread(_) => Ok(false),
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self.rest, Rest::Done)
    }

    /// Whether the client has nothing more to send: a request that waits does not wait for it.
    pub fn has_arrived(&self) -> bool {
        match &self.rest {
            Rest::Done => true,
            Rest::Unread(rest) => rest.is_end_stream(),
            Rest::Failed => false,
        }
    }

    /// Puts back chunks that were read from it, in the order in which they were read.
    pub fn put_back(
        &mut self,
        read: impl IntoIterator<Item = Bytes, IntoIter: DoubleEndedIterator>,
    ) {
        for data in read.into_iter().rev() {
            self.take(data.len());
            self.ahead.put_back(data);
        }
    }

    /// So many bytes are read ahead.
    fn take(&mut self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.take(bytes);
        }
        if let Some(read) = self.read_share() {
            read.take_beyond(bytes);
        }
    }

    fn pop_ahead(&mut self) -> Option<Bytes> {
        let data = self.ahead.pop()?;
        if let Some(budget) = &self.budget {
            budget.give_back(data.len());
        }
        if let Some(read) = self.read_share() {
            read.give_back(data.len());
        }
        Some(data)
    }

    fn read_share(&mut self) -> Option<&mut ByteShare> {
        self.waiting.as_mut()?.read.as_mut()
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        // Its request has a seat.
        this.release_unread();
        if let Some(data) = this.pop_ahead() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Rest::Unread(_) = &this.rest
            && this
                .observed
                .as_ref()
                .is_some_and(|progress| progress.is_cut())
        {
            this.rest = Rest::Failed;
            return Poll::Ready(Some(Err(BodyError::SentTooSlowly)));
        }
        loop {
            return match &mut this.rest {
                Rest::Done => Poll::Ready(None),
                Rest::Failed => Poll::Ready(Some(Err(BodyError::Abandoned))),
                Rest::Unread(body) => match Pin::new(body).poll_frame(cx) {
                    Poll::Pending => {
                        if let Some(progress) = &this.observed {
                            progress.awaited_by(cx.waker());
                        }
                        Poll::Pending
                    }
                    Poll::Ready(Some(Ok(frame))) => {
                        let Some(data) = frame.data_ref() else {
                            // Trailers.
                            continue;
                        };
                        if let Some(progress) = &this.observed {
                            progress.arrived(data.len());
                        }
                        Poll::Ready(Some(Ok(frame)))
                    }
                    Poll::Ready(Some(Err(error))) => {
                        this.rest = Rest::Failed;
                        Poll::Ready(Some(Err(BodyError::Client(error))))
                    }
                    Poll::Ready(None) if this.is_reset() => {
                        this.rest = Rest::Failed;
                        Poll::Ready(Some(Err(BodyError::Abandoned)))
                    }
                    Poll::Ready(None) => {
                        this.rest = Rest::Done;
                        Poll::Ready(None)
                    }
                },
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.bytes() == 0
            && match &self.rest {
                Rest::Done => true,
                Rest::Unread(body) => body.is_end_stream(),
                Rest::Failed => false,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.bytes() as u64;
        match &self.rest {
            Rest::Done => SizeHint::with_exact(ahead),
            Rest::Failed => SizeHint::default(),
            Rest::Unread(body) => match body.size_hint().exact() {
                Some(rest) => SizeHint::with_exact(ahead + rest),
                None => SizeHint::default(),
            },
        }
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.ahead.bytes());
        }
        if let Some(unread_handler) = &self.unread_handler
            && let Rest::Unread(rest) = std::mem::replace(&mut self.rest, Rest::Done)
            && !rest.is_end_stream()
        {
            unread_handler.take_unread(rest);
        }
    }
}

impl fmt::Debug for ClientBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBody")
            .field("ahead_bytes", &self.ahead.bytes())
            .field("unread", &matches!(self.rest, Rest::Unread(_)))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_are_put_back_are_read_again_in_order() {
        let mut body = ClientBody::full("c");
        body.put_back(vec![Bytes::from("a"), Bytes::from("b")]);
        assert_eq!(body.size_hint().exact(), Some(3));
        let read: Vec<_> = std::iter::from_fn(|| body.pop_ahead()).collect();
        assert_eq!(read, ["a", "b", "c"]);
    }

    #[test]
    fn a_body_that_the_gateway_has_has_arrived_and_one_that_failed_never_does() {
        let mut body = ClientBody::full("abc");
        assert!(body.has_arrived() && ClientBody::empty().has_arrived());
        body.end(Rest::Failed);
        assert!(!body.has_arrived());
    }

    #[test]
    fn a_full_body_knows_its_length() {
        let body = ClientBody::full("abc");
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
        assert!(ClientBody::full("").is_end_stream());
    }
}
