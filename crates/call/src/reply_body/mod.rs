//! The body of a reply.
//!
//! A reply's body comes from the upstream frame by frame, or is a short text from the gateway. It may
//! hold a [`ReplyGuard`], which is notified of the data and of how the body ends: a request's seat is held
//! by one. It also holds the upstream connection that it reads from, and releases it.
//!
//! A watch must never be reset: clients treat a reset as corruption and list everything again, whereas
//! after a clean end they only watch again. So a failure of the upstream during a watch becomes a clean end. In
//! any other reply it becomes an error, so that a client never takes a truncated list for a complete one.

pub(crate) mod made_body;
mod memory_body;
pub(crate) mod reply_guard;
pub(crate) mod reply_pipe;
pub(crate) mod response_memory;
mod response_source;
pub(crate) mod spool;
pub(crate) mod upstream_body;

use std::{
    cell::{Cell, RefCell},
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use self::{
    made_body::{MadeBody, MemoryOf, PIECE},
    memory_body::MemoryBody,
    reply_guard::GuardPair,
    response_source::ResponseSource,
    upstream_body::UpstreamBody,
};
use crate::{
    BodyEnd, BodyError, BodyReader, OnFailure, RemainingReply, ReplyGuard, ReplyPipe,
    RequestContext, RequestProgress, UpstreamGuard,
};

/// The body of a reply.
pub struct ReplyBody {
    source: BodySource,
    guard: Option<Box<dyn ReplyGuard>>,
    context: Option<Rc<RequestContext>>,
}

enum BodySource {
    Full(Option<Bytes>),
    Upstream(UpstreamBody),
    /// Made by the gateway, and in memory.
    Made(MadeBody),
    /// A response that can be read to its end, or kept in memory, without its client.
    Piped(Rc<ReplyPipe>),
    Tunnel(Rc<TunnelGuard>),
    Other(Pin<Box<dyn Body<Data = Bytes, Error = BodyError>>>),
}

/// Keeps the guard of a reply that became a tunnel: the reply's body ends long before the tunnel does.
#[derive(Default)]
pub struct TunnelGuard {
    guard: RefCell<Option<Box<dyn ReplyGuard>>>,
    /// Whether the upstream may continue although the tunnel has ended.
    abandoned: Cell<bool>,
}

impl TunnelGuard {
    /// Records that the tunnel ends for another reason than that the upstream ended it.
    pub fn abandoned(&self) {
        self.abandoned.set(true);
    }
}

impl Drop for TunnelGuard {
    fn drop(&mut self) {
        let how = if self.abandoned.get() {
            BodyEnd::Abandoned
        } else {
            BodyEnd::Complete
        };
        if let Some(guard) = self.guard.take() {
            guard.end(how);
        }
    }
}

impl ReplyBody {
    /// An empty body.
    pub fn empty() -> Self {
        Self::new(BodySource::Full(None))
    }

    /// A complete body with these bytes.
    pub fn full(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        Self::new(BodySource::Full((!data.is_empty()).then_some(data)))
    }

    /// A complete body that the gateway made. It is in memory until the client has read it. To be called on a data core.
    pub fn made(data: Bytes, memory: MemoryOf) -> Self {
        if data.len() <= PIECE {
            return Self::full(data);
        }
        Self::new(BodySource::Made(MadeBody::new(data, memory)))
    }

    /// The body of an upstream's response.
    ///
    /// `silence` bounds the time between two frames; `None` for watches and other streams.
    pub fn upstream(body: BodyReader, on_failure: OnFailure, silence: Option<Duration>) -> Self {
        Self::new(BodySource::Upstream(UpstreamBody::new(
            body, on_failure, silence,
        )))
    }

    /// The empty body of a `101`. The reply's guards move to `tunnel`.
    pub fn tunnel(tunnel: Rc<TunnelGuard>) -> Self {
        Self::new(BodySource::Tunnel(tunnel))
    }

    /// Any other body, for layers of other crates. It costs an allocation.
    pub fn boxed(body: impl Body<Data = Bytes, Error = BodyError> + 'static) -> Self {
        Self::new(BodySource::Other(Box::pin(body)))
    }

    /// A large body that must not stay in memory: after `limit` what the client has not read is dropped. It holds
    /// `permit` as long. To be called on a data core.
    pub fn in_memory<P: 'static>(data: Bytes, permit: P, limit: Duration) -> Self {
        Self::boxed(MemoryBody::new(data, permit, limit))
    }

    fn new(source: BodySource) -> Self {
        Self {
            source,
            guard: None,
            context: None,
        }
    }

    /// Makes the body hold `guard` until its end. Guards added later are polled first.
    pub fn hold(&mut self, guard: Box<dyn ReplyGuard>) {
        self.guard = Some(match self.guard.take() {
            None => guard,
            Some(inner) => Box::new(GuardPair {
                outer: guard,
                inner,
            }),
        });
    }

    /// Makes the body hold `guard` until the upstream is done, whether the client reads or not. With the pipe
    /// that is returned, the caller can have the rest read without the client. A response that the gateway has made is handled
    /// the same, as if the upstream were done once the rest may stay in memory.
    ///
    /// A guard that the body holds already stays with the client: it is notified of what the client takes, and when that ends.
    ///
    /// # Errors
    ///
    /// Returns `guard` if nothing is to come from the upstream, and the response is short.
    pub fn hold_upstream<H: UpstreamGuard + 'static>(
        &mut self,
        guard: H,
    ) -> Result<Rc<ReplyPipe>, H> {
        if self.is_end_stream() {
            return Err(guard);
        }
        let source = match std::mem::replace(&mut self.source, BodySource::Full(None)) {
            BodySource::Upstream(upstream) => ResponseSource::Upstream(upstream),
            BodySource::Made(made) => ResponseSource::Made(made),
            other => {
                self.source = other;
                return Err(guard);
            }
        };
        let pipe: Rc<ReplyPipe> = ReplyPipe::new(source, guard);
        self.source = BodySource::Piped(Rc::clone(&pipe));
        Ok(pipe)
    }

    /// Counts the body's bytes in `context`, which is also notified of the end.
    pub fn count_in(&mut self, context: Rc<RequestContext>) {
        self.context = Some(context);
    }

    /// Ends the body here: notifies the guard, and releases the connection.
    fn finish(&mut self, how: BodyEnd) {
        if how == BodyEnd::Abandoned
            && let Some(guard) = self.guard.take()
        {
            match self.take_rest() {
                Some(rest) => guard.abandoned(rest),
                None => guard.end(how),
            }
        }
        let done = match &mut self.source {
            BodySource::Upstream(upstream) => {
                let all = upstream.is_end_stream();
                // A connection from which not everything was read cannot serve another request: the rest would be
                // taken for its response.
                upstream.release(how == BodyEnd::Complete && all);
                all || upstream.has_ended()
            }
            BodySource::Piped(pipe) => {
                pipe.client_disconnected();
                pipe.is_done()
            }
            BodySource::Full(_)
            | BodySource::Made(_)
            | BodySource::Tunnel(_)
            | BodySource::Other(_) => false,
        };
        if let Some(context) = self.context.as_ref().filter(|_| done) {
            context.reached(RequestProgress::Done);
        }
        if let Some(guard) = self.guard.take() {
            guard.end(how);
        }
        if let Some(context) = &self.context {
            context.end(how);
        }
    }

    /// The rest of the upstream's response.
    fn take_rest(&mut self) -> Option<RemainingReply> {
        if !matches!(&self.source, BodySource::Upstream(upstream) if !upstream.has_ended()) {
            return None;
        }
        match std::mem::replace(&mut self.source, BodySource::Full(None)) {
            BodySource::Upstream(upstream) => Some(RemainingReply::new(upstream)),
            _ => None,
        }
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.source {
            BodySource::Full(data) => Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
            BodySource::Upstream(upstream) => upstream.poll_frame(cx),
            BodySource::Made(made) => Poll::Ready(made.next()),
            BodySource::Piped(pipe) => pipe.poll_frame(cx),
            BodySource::Tunnel(_) => Poll::Ready(None),
            BodySource::Other(body) => body.as_mut().poll_frame(cx),
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(guard) = &mut this.guard
            && guard.poll(cx).is_ready()
        {
            this.finish(BodyEnd::Complete);
            this.source = BodySource::Full(None);
            return Poll::Ready(None);
        }
        let polled = this.poll_source(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    if let Some(context) = &this.context {
                        context
                            .reply_bytes
                            .set(context.reply_bytes.get() + data.len() as u64);
                    }
                    if let Some(guard) = &mut this.guard {
                        guard.data(data);
                    }
                }
            }
            Poll::Ready(None) => this.finish(BodyEnd::Complete),
            Poll::Ready(Some(Err(_))) => this.finish(BodyEnd::Failed),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Full(data) => data.is_none(),
            BodySource::Upstream(upstream) => upstream.is_end_stream(),
            BodySource::Made(made) => made.is_end(),
            BodySource::Piped(pipe) => pipe.is_end_stream(),
            BodySource::Tunnel(_) => true,
            BodySource::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Full(data) => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            BodySource::Upstream(upstream) => upstream.size_hint(),
            BodySource::Made(made) => made.size_hint(),
            BodySource::Piped(pipe) => pipe.size_hint(),
            BodySource::Tunnel(_) => SizeHint::with_exact(0),
            BodySource::Other(body) => body.size_hint(),
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let BodySource::Tunnel(tunnel) = &self.source {
            *tunnel.guard.borrow_mut() = self.guard.take();
            return;
        }
        let how = if self.is_end_stream() {
            BodyEnd::Complete
        } else {
            BodyEnd::Abandoned
        };
        self.finish(how);
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyBody")
            .field("guarded", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{ReadsResponse, UpstreamConnection};

    struct Note(Rc<RefCell<Vec<String>>>, bool);

    impl ReplyGuard for Note {
        fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            if self.1 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
        fn data(&mut self, data: &Bytes) {
            self.0.borrow_mut().push(format!("{data:?}"));
        }
        fn end(self: Box<Self>, how: BodyEnd) {
            self.0.borrow_mut().push(format!("{how:?}"));
        }
    }

    fn poll(body: &mut ReplyBody) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_guard_sees_the_data_and_learns_of_the_end_once() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut body = ReplyBody::full("ab");
        body.hold(Box::new(Note(seen.clone(), false)));
        assert!(poll(&mut body).is_ready());
        drop(body);
        assert_eq!(*seen.borrow(), ["b\"ab\"", "Complete"]);
    }

    #[test]
    fn a_body_dropped_half_way_is_abandoned() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut body = ReplyBody::full("ab");
        body.hold(Box::new(Note(seen.clone(), false)));
        drop(body);
        assert_eq!(*seen.borrow(), ["Abandoned"]);
    }

    #[test]
    fn a_guard_may_end_the_body() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut body = ReplyBody::full("ab");
        body.hold(Box::new(Note(seen.clone(), false)));
        body.hold(Box::new(Note(seen.clone(), true)));
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(*seen.borrow(), ["Complete", "Complete"]);
    }

    /// A response that has begun, and of which the rest does not come.
    struct Unfinished(Cell<Option<Bytes>>);

    impl UpstreamConnection for Unfinished {
        fn release(self: Rc<Self>, _: bool) {}
    }

    impl ReadsResponse for Unfinished {
        fn poll_frame(&self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let begin = self.0.take().map(|data| Some(Ok(Frame::data(data))));
            begin.map_or(Poll::Pending, Poll::Ready)
        }

        fn is_end_stream(&self) -> bool {
            false
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::default()
        }
    }

    /// Notes what is heard of the upstream. The rest of its response is not to be read.
    struct NoteUpstream(Rc<RefCell<Vec<String>>>);

    impl UpstreamGuard for NoteUpstream {
        fn data(&mut self, data: &Bytes) {
            self.0.borrow_mut().push(format!("upstream: {data:?}"));
        }

        fn client_disconnected(&mut self) -> Option<u64> {
            self.0.borrow_mut().push("the client is gone".to_owned());
            None
        }

        fn end(&mut self, how: BodyEnd) {
            self.0.borrow_mut().push(format!("upstream: {how:?}"));
        }

        fn made(&mut self, _: bool) {
            panic!("the upstream made the response");
        }
    }

    #[test]
    fn a_body_with_a_guard_can_hold_another_until_the_upstream_is_done() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let begun = Rc::new(Unfinished(Cell::new(Some("ab".into()))));
        let mut body = ReplyBody::upstream(BodyReader::Own(begun), OnFailure::Error, None);
        body.hold(Box::new(Note(seen.clone(), false)));
        assert!(body.hold_upstream(NoteUpstream(seen.clone())).is_ok());
        assert!(poll(&mut body).is_ready());
        assert_eq!(*seen.borrow(), ["upstream: b\"ab\"", "b\"ab\""]);
        seen.borrow_mut().clear();
        drop(body);
        let ends = ["Abandoned", "the client is gone", "upstream: Abandoned"];
        assert_eq!(seen.take(), ends);
    }

    #[test]
    fn the_guard_of_a_tunnel_outlives_the_body() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let tunnel = Rc::new(TunnelGuard::default());
        let mut body = ReplyBody::tunnel(tunnel.clone());
        body.hold(Box::new(Note(seen.clone(), false)));
        drop(body);
        assert!(seen.borrow().is_empty());
        drop(tunnel);
        assert_eq!(*seen.borrow(), ["Complete"]);
    }
}
