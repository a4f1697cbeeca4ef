//! The body of an answer, and what lasts as long as it does.
//!
//! A reply's body comes from upstream frame by frame, or is a few bytes of our own. It may hold a
//! [`ReplyGuard`], which sees the frames pass and learns of the end, however that comes: the seat of
//! a request is held by one. It holds the upstream connection it reads from, and gives it back.
//!
//! A watch must never be cut: clients take a reset for corruption and list everything again, whereas
//! a clean end only makes them watch on. So a failure of the upstream during a watch becomes a clean
//! end, and of anything else an error, lest half a list pass for a whole one.

use std::{
    cell::{Cell, RefCell},
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::{AbandonedResponse, Holder, Pipe, Progress, RequestContext, UpstreamConnection};

/// Why a body was not completed.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client did not send it all.
    #[error("the client's body broke off")]
    Client(#[source] hyper::Error),
    /// The upstream did not send it all.
    #[error("the upstream's body broke off")]
    Upstream(#[source] hyper::Error),
    /// The upstream stopped sending for longer than is allowed.
    #[error("the upstream sent nothing for too long")]
    Idle,
    /// The client did not take it fast enough, and others had to wait for that.
    #[error("the client read too slowly")]
    TooSlow,
    /// Whoever was to send it has gone.
    #[error("the body was abandoned")]
    Abandoned,
    /// A layer of the user's own failed.
    #[error("{0}")]
    Other(Box<str>),
}

/// How a reply's body came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it was handed to the client's connection.
    Complete,
    /// The upstream broke off.
    Failed,
    /// The client did not want the rest of it.
    Abandoned,
}

/// Something that lasts as long as a reply's body.
pub trait ReplyGuard {
    /// Polled before the body is, with the connection's waker, so that a guard may keep timers.
    /// Ready ends the body, cleanly, here and now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Pending
    }

    /// Sees a piece of the body pass.
    fn data(&mut self, data: &Bytes) {
        let _ = data;
    }

    /// Learns of the end. Called exactly once, unless [`abandoned`](Self::abandoned) is.
    fn end(self: Box<Self>, how: BodyEnd);

    /// The client has left, and this is the rest of the upstream's answer. Unless somebody wants to
    /// know how that ends, it is cancelled.
    fn abandoned(self: Box<Self>, rest: Rest) {
        drop(rest);
        self.end(BodyEnd::Abandoned);
    }
}

/// What is left of an upstream's answer when its client has left. Dropping it cancels it upstream.
pub struct Rest(Upstream);

impl Rest {
    /// The next piece; `None` once the upstream is done. There is no bound to how long it may be
    /// silent.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.wait_on();
        loop {
            match ready!(self.0.poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(data));
                    }
                }
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.release(false);
    }
}

/// What to tell the client when the upstream breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// A broken body: a reset stream, or a closed connection.
    Error,
    /// A clean end; only for watches that have begun.
    EndCleanly,
}

/// What the last poll of a reply's body on this thread came to. A stream whose body handed out a
/// piece and is not asked for another is held up by its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// No body was polled.
    #[default]
    None,
    /// A piece was handed out.
    HandedOut,
    /// There was nothing to hand out.
    Waiting,
}

thread_local! {
    static ACTIVITY: Cell<Activity> = const { Cell::new(Activity::None) };
}

/// What the last poll of a reply's body on this thread came to, since the last time of asking.
pub fn take_activity() -> Activity {
    ACTIVITY.take()
}

/// The body of an answer.
pub struct ReplyBody {
    source: Source,
    guard: Option<Box<dyn ReplyGuard>>,
    context: Option<Rc<RequestContext>>,
}

enum Source {
    Full(Option<Bytes>),
    Upstream(Upstream),
    /// An upstream's answer that can be read on without its client.
    Piped(Rc<Pipe>),
    Tunnel(Rc<TunnelGuard>),
    Other(Pin<Box<dyn Body<Data = Bytes, Error = BodyError>>>),
}

/// What is read from the upstream.
pub(super) struct Upstream {
    /// `None` once nobody wants the rest of it.
    body: Option<Incoming>,
    connection: Option<Rc<dyn UpstreamConnection>>,
    on_failure: OnFailure,
    /// How long the upstream may be silent.
    silence: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the upstream has nothing more to say.
    ended: bool,
}

/// Keeps the guard of a reply that became a tunnel, whose body ends long before the tunnel does.
#[derive(Default)]
pub struct TunnelGuard {
    guard: RefCell<Option<Box<dyn ReplyGuard>>>,
    /// Whether the upstream may be working on although the tunnel has ended.
    abandoned: Cell<bool>,
}

impl TunnelGuard {
    /// The tunnel ends before the upstream has ended it.
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
    /// No body.
    pub fn empty() -> Self {
        Self::new(Source::Full(None))
    }

    /// A few bytes of our own.
    pub fn full(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        Self::new(Source::Full((!data.is_empty()).then_some(data)))
    }

    /// The body of an upstream's answer, read over a connection lent by `connection`.
    ///
    /// `silence` bounds the time between two pieces; `None` for watches and other streams.
    pub fn upstream(
        body: Incoming,
        connection: Rc<dyn UpstreamConnection>,
        on_failure: OnFailure,
        silence: Option<Duration>,
    ) -> Self {
        Self::new(Source::Upstream(Upstream {
            body: Some(body),
            connection: Some(connection),
            on_failure,
            silence,
            timer: None,
            ended: false,
        }))
    }

    /// The body of a `101`: none. The reply's guard outlives it in `tunnel`.
    pub fn tunnel(tunnel: Rc<TunnelGuard>) -> Self {
        Self::new(Source::Tunnel(tunnel))
    }

    /// Any other body, for layers of the user's own. Costs an allocation.
    pub fn boxed(body: impl Body<Data = Bytes, Error = BodyError> + 'static) -> Self {
        Self::new(Source::Other(Box::pin(body)))
    }

    fn new(source: Source) -> Self {
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
            Some(inner) => Box::new(Pair {
                outer: guard,
                inner,
            }),
        });
    }

    /// Makes the body hold `holder` until the upstream is done, whether the client reads or not. Whoever
    /// gets the pipe may have it read on.
    ///
    /// # Errors
    ///
    /// Gives `holder` back if nothing is to come from the upstream.
    pub fn hold_upstream<H: Holder + 'static>(&mut self, holder: H) -> Result<Rc<Pipe>, H> {
        if self.guard.is_some() || self.is_end_stream() {
            return Err(holder);
        }
        match std::mem::replace(&mut self.source, Source::Full(None)) {
            Source::Upstream(upstream) => {
                let pipe: Rc<Pipe> = Pipe::new(upstream, holder);
                self.source = Source::Piped(Rc::clone(&pipe));
                Ok(pipe)
            }
            other => {
                self.source = other;
                Err(holder)
            }
        }
    }

    /// Counts the body's bytes in `trace`.
    pub fn count_in(&mut self, context: Rc<RequestContext>) {
        self.context = Some(context);
    }

    /// Ends the body here: the guard learns of it, and the connection goes back.
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
            Source::Upstream(upstream) => {
                let all = upstream.is_end_stream();
                upstream.release(how == BodyEnd::Complete && all);
                all || upstream.ended
            }
            Source::Piped(pipe) => {
                pipe.client_left();
                pipe.is_done()
            }
            Source::Full(_) | Source::Tunnel(_) | Source::Other(_) => false,
        };
        if let Some(context) = self.context.as_ref().filter(|_| done) {
            context.reached(Progress::Done);
        }
        if let Some(guard) = self.guard.take() {
            guard.end(how);
        }
        if let Some(context) = &self.context {
            context.end(how);
        }
    }

    /// What is left of the upstream's answer.
    fn take_rest(&mut self) -> Option<Rest> {
        if !matches!(&self.source, Source::Upstream(upstream) if !upstream.ended) {
            return None;
        }
        match std::mem::replace(&mut self.source, Source::Full(None)) {
            Source::Upstream(upstream) => Some(Rest(upstream)),
            _ => None,
        }
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.source {
            Source::Full(data) => Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
            Source::Upstream(upstream) => upstream.poll_frame(cx),
            Source::Piped(pipe) => pipe.poll_frame(cx),
            Source::Tunnel(_) => Poll::Ready(None),
            Source::Other(body) => body.as_mut().poll_frame(cx),
        }
    }
}

impl Upstream {
    /// Whether the upstream has nothing more to say.
    pub(super) fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }

    /// From now on the upstream may be silent for as long as it likes.
    pub(super) fn wait_on(&mut self) {
        self.silence = None;
        self.timer = None;
    }

    /// Gives the connection back, with the rest of the answer if there is one.
    pub(super) fn release(&mut self, clean: bool) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match self
            .body
            .take_if(|body| !self.ended && !body.is_end_stream())
        {
            Some(rest) => connection.abandon(AbandonedResponse::Body(rest)),
            None => connection.release(clean),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timer = None;
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.ended = true;
                self.release(true);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.ended = true;
                self.release(false);
                Poll::Ready(match self.on_failure {
                    OnFailure::Error => Some(Err(BodyError::Upstream(error))),
                    OnFailure::EndCleanly => None,
                })
            }
            Poll::Pending => {
                let Some(silence) = self.silence else {
                    return Poll::Pending;
                };
                let timer = self
                    .timer
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(silence)));
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // Our own doing: the upstream may still be working.
                Poll::Ready(Some(Err(BodyError::Idle)))
            }
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
            this.source = Source::Full(None);
            return Poll::Ready(None);
        }
        let polled = this.poll_source(cx);
        match &polled {
            Poll::Pending => ACTIVITY.set(Activity::Waiting),
            Poll::Ready(Some(Ok(frame))) => {
                ACTIVITY.set(Activity::HandedOut);
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
            Source::Full(data) => data.is_none(),
            Source::Upstream(upstream) => upstream.is_end_stream(),
            Source::Piped(pipe) => pipe.is_end_stream(),
            Source::Tunnel(_) => true,
            Source::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Full(data) => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Source::Upstream(upstream) => upstream.size_hint(),
            Source::Piped(pipe) => pipe.size_hint(),
            Source::Tunnel(_) => SizeHint::with_exact(0),
            Source::Other(body) => body.size_hint(),
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Source::Tunnel(tunnel) = &self.source {
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

/// Two guards of one body.
struct Pair {
    outer: Box<dyn ReplyGuard>,
    inner: Box<dyn ReplyGuard>,
}

impl ReplyGuard for Pair {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.outer.poll(cx).is_ready() || self.inner.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn data(&mut self, data: &Bytes) {
        self.outer.data(data);
        self.inner.data(data);
    }

    fn end(self: Box<Self>, how: BodyEnd) {
        self.outer.end(how);
        self.inner.end(how);
    }

    fn abandoned(self: Box<Self>, rest: Rest) {
        self.outer.end(BodyEnd::Abandoned);
        self.inner.abandoned(rest);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

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
