//! The body of a client's request, which may be read ahead while the request waits.
//!
//! While a request is queued its body is not read, so the end of the connection can be hidden behind
//! unread bytes: a client that disconnects would keep its place in the queue. Reading ahead, within a budget,
//! detects that end. The bytes read are replayed when the request is forwarded.
//!
//! With `Expect: 100-continue` a client sends nothing before it gets `100 Continue`, which the first
//! read sends. Such a body is never read ahead.
//!
//! Trailers are dropped: they could add a header field to a request after its authentication.

use std::{
    cell::Cell,
    collections::VecDeque,
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BodyError;

/// How many bytes of waiting requests one core may hold.
///
/// A request may take up to `small` bytes while the core's total is not used up, and up to `large` bytes
/// while less than half of it is used: so a few large bodies cannot use up the budget of all others.
#[derive(Debug)]
pub struct ReadAheadBudget {
    used: Cell<usize>,
    total: usize,
    small: usize,
    large: usize,
}

impl ReadAheadBudget {
    /// A budget of `total` bytes, of which one request takes up to `small`, or up to `large` while at most
    /// half of the total is used.
    pub fn new(total: usize, small: usize, large: usize) -> Rc<Self> {
        Rc::new(Self {
            used: Cell::new(0),
            total,
            small,
            large,
        })
    }

    /// The number of bytes held now.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    fn has_room(&self, held: usize) -> bool {
        let used = self.used.get();
        (held < self.small && used < self.total) || (held < self.large && used < self.total / 2)
    }

    fn take(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes);
    }

    fn give_back(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }
}

/// The body of a client's request.
pub struct ClientBody {
    /// Frames that were read ahead, oldest first.
    ahead: VecDeque<Bytes>,
    ahead_bytes: usize,
    rest: Rest,
    /// `None` if the body must not be read ahead.
    budget: Option<Rc<ReadAheadBudget>>,
    unread_handler: Option<Rc<dyn UnreadBodyHandler>>,
}

/// Receives the rest of a body that was dropped before it was read to its end.
pub trait UnreadBodyHandler {
    /// Takes `rest`, which has not ended. May be called while the runtime shuts down.
    fn take_unread(&self, rest: Incoming);
}

enum Rest {
    Done,
    Unread(Incoming),
    Failed(Option<BodyError>),
}

impl ClientBody {
    /// No body at all.
    pub fn empty() -> Self {
        Self::new(Rest::Done, None)
    }

    fn new(rest: Rest, budget: Option<Rc<ReadAheadBudget>>) -> Self {
        Self {
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            rest,
            budget,
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

    /// A complete body with these bytes.
    pub fn full(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        let mut body = Self::empty();
        body.ahead_bytes = data.len();
        if !data.is_empty() {
            body.ahead.push_back(data);
        }
        body
    }

    /// Reads ahead into memory, as far as the budget allows. To be polled while the request waits.
    ///
    /// Ready when there is nothing more to read: the body is complete, or the budget is used up, or
    /// the body is not to be read ahead. Pending while the client has more to send.
    ///
    /// # Errors
    ///
    /// When the body is incomplete, usually because the client disconnected.
    pub fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let Some(budget) = self.budget.clone() else {
            return Poll::Ready(Ok(()));
        };
        while let Rest::Unread(incoming) = &mut self.rest {
            if !budget.has_room(self.ahead_bytes) {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        budget.take(data.len());
                        self.ahead_bytes += data.len();
                        self.ahead.push_back(data);
                    }
                    if incoming.is_end_stream() {
                        self.rest = Rest::Done;
                    }
                }
                Some(Err(error)) => self.rest = Rest::Failed(Some(BodyError::Client(error))),
                None => self.rest = Rest::Done,
            }
        }
        match &mut self.rest {
            Rest::Failed(error) => Poll::Ready(Err(error.take().unwrap_or(BodyError::Abandoned))),
            Rest::Done | Rest::Unread(_) => Poll::Ready(Ok(())),
        }
    }

    /// Puts back chunks that were read from it, in the order in which they were read.
    pub fn put_back(&mut self, read: Vec<Bytes>) {
        for data in read.into_iter().rev() {
            if let Some(budget) = &self.budget {
                budget.take(data.len());
            }
            self.ahead_bytes += data.len();
            self.ahead.push_front(data);
        }
    }

    fn pop_ahead(&mut self) -> Option<Bytes> {
        let data = self.ahead.pop_front()?;
        self.ahead_bytes -= data.len();
        if let Some(budget) = &self.budget {
            budget.give_back(data.len());
        }
        Some(data)
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
        if let Some(data) = this.pop_ahead() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        loop {
            return match &mut this.rest {
                Rest::Done => Poll::Ready(None),
                Rest::Failed(error) => {
                    let error = error.take().unwrap_or(BodyError::Abandoned);
                    Poll::Ready(Some(Err(error)))
                }
                Rest::Unread(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) if frame.is_data() => Poll::Ready(Some(Ok(frame))),
                    Some(Ok(_trailers)) => continue,
                    Some(Err(error)) => {
                        this.rest = Rest::Failed(None);
                        Poll::Ready(Some(Err(BodyError::Client(error))))
                    }
                    None => {
                        this.rest = Rest::Done;
                        Poll::Ready(None)
                    }
                },
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty()
            && match &self.rest {
                Rest::Done => true,
                Rest::Unread(body) => body.is_end_stream(),
                Rest::Failed(_) => false,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead_bytes as u64;
        match &self.rest {
            Rest::Done => SizeHint::with_exact(ahead),
            Rest::Failed(_) => SizeHint::default(),
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
            budget.give_back(self.ahead_bytes);
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
            .field("ahead_bytes", &self.ahead_bytes)
            .field("unread", &matches!(self.rest, Rest::Unread(_)))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_takes_the_large_share_only_while_the_core_is_quiet() {
        let budget = ReadAheadBudget::new(100, 10, 40);
        assert!(budget.has_room(39), "quiet: up to the large share");
        assert!(!budget.has_room(40));
        budget.take(50);
        assert!(budget.has_room(9), "busy: up to the small share");
        assert!(!budget.has_room(10));
        budget.take(50);
        assert!(!budget.has_room(0), "nothing left");
        budget.give_back(100);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn chunks_that_are_put_back_are_read_again_in_order() {
        let mut body = ClientBody::full("c");
        body.put_back(vec![Bytes::from("a"), Bytes::from("b")]);
        assert_eq!(body.size_hint().exact(), Some(3));
        let read: Vec<_> = std::iter::from_fn(|| body.pop_ahead()).collect();
        assert_eq!(read, ["a", "b", "c"]);
    }

    #[test]
    fn a_full_body_knows_its_length() {
        let body = ClientBody::full("abc");
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
        assert!(ClientBody::full("").is_end_stream());
    }
}
