//! A connection that serves one request at a time.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use fairgate_base::socket::Socket;
use fairgate_call::{BodyError, ReadsResponse, UpstreamConnection};
use fairgate_http1::{ResponseHead, ResponseHeadLimits};
use http_body::{Frame, SizeHint};
use tokio::task::{AbortHandle, coop::poll_proceed};

use super::{
    super::{
        connection_event::OpenConnection, idle_connections::IdleConnection,
        retryable_body::RetryableBody,
    },
    exchange::{Ended, Exchange, ExchangeError, OutgoingHead, ReadBuffer, Unasked},
};

/// Keeps connections for the next request.
pub(in crate::forward) trait KeepsIdle {
    /// Keeps a connection that no request uses now.
    fn keep(&self, connection: Rc<Http1Connection>);
}

/// An HTTP/1 connection, used by one request at a time.
pub(in crate::forward) struct Http1Connection {
    /// `None` once it is closed.
    wire: RefCell<Option<Wire>>,
    /// The pool that it returns to after a request.
    pool: Weak<dyn KeepsIdle>,
    buffer: Rc<ReadBuffer>,
    limits: ResponseHeadLimits,
    /// Woken when something happens on the connection while it is idle.
    idle: Waker,
    /// The task that sends the rest of the request, if there is one, and who reads the response meanwhile.
    sender: RefCell<Option<AbortHandle>>,
    reader: Cell<Option<Waker>>,
    /// Why the request's body failed while the response was read.
    failure: Cell<Option<ExchangeError>>,
    /// Whether the response has ended, and the connection goes back to the pool once the request was sent.
    released: Cell<bool>,
    /// The task that closes the connection if the request is not sent in time.
    watcher: RefCell<Option<AbortHandle>>,
}

/// How long an upstream that has answered may take for the rest of the request. It cannot be waited for without a limit: a client that
/// has its response may be gone, and what it did not send will never come.
const REST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the connections of a lane share.
pub(in crate::forward) struct SharedByConnections {
    pub(in crate::forward) buffer: Rc<ReadBuffer>,
    pub(in crate::forward) limits: ResponseHeadLimits,
    /// Woken when something happens on an idle connection.
    pub(in crate::forward) idle: Waker,
}

struct Wire {
    exchange: Exchange<Socket, RetryableBody>,
    /// Reports the end of the connection.
    open: OpenConnection,
}

impl Wire {
    /// Whether nothing of the request has left. TLS does not tell what it has sent before an error.
    fn nothing_sent(&self) -> bool {
        self.exchange.nothing_sent() && matches!(self.exchange.socket(), Socket::Plain(_))
    }
}

impl Http1Connection {
    pub(in crate::forward) fn new(
        socket: Socket,
        open: OpenConnection,
        pool: Weak<dyn KeepsIdle>,
        shared: SharedByConnections,
    ) -> Rc<Self> {
        let exchange = Exchange::new(socket);
        Rc::new(Self {
            wire: RefCell::new(Some(Wire { exchange, open })),
            pool,
            buffer: shared.buffer,
            limits: shared.limits,
            idle: shared.idle,
            sender: RefCell::default(),
            reader: Cell::default(),
            failure: Cell::default(),
            released: Cell::default(),
            watcher: RefCell::default(),
        })
    }

    /// Begins a request; [`Self::read_head`] sends it.
    ///
    /// # Errors
    ///
    /// As [`Self::read_head`].
    pub(in crate::forward) fn begin(
        &self,
        head: &OutgoingHead<'_>,
        body: RetryableBody,
    ) -> Result<(), (ExchangeError, bool)> {
        match &mut *self.wire.borrow_mut() {
            Some(wire) => wire.exchange.begin(head, body, self.limits),
            None => return Err((ExchangeError::Closed, true)),
        }
        Ok(())
    }

    /// Sends the request, and reads the head of its response. After an error the connection is closed, and the body is dropped.
    ///
    /// # Errors
    ///
    /// The error, and whether nothing of the request has left, as far as that is certain.
    pub(in crate::forward) async fn read_head(
        self: &Rc<Self>,
    ) -> Result<ResponseHead, (ExchangeError, bool)> {
        let answered = poll_fn(|cx| match &mut *self.wire.borrow_mut() {
            Some(wire) => wire
                .exchange
                .poll_head(cx, &self.buffer)
                .map_err(|error| (error, wire.nothing_sent())),
            None => Poll::Ready(Err((ExchangeError::Closed, false))),
        });
        let head = answered.await.inspect_err(|_| self.close(false))?;
        let is_sending = |wire: &Wire| wire.exchange.is_sending();
        if self.wire.borrow().as_ref().is_some_and(is_sending) {
            self.send_rest();
        }
        Ok(head)
    }

    /// Sends the rest of the request in a task of its own: a client may read nothing of the response before it has sent everything.
    fn send_rest(self: &Rc<Self>) {
        let connection = Rc::clone(self);
        let sender = fairgate_base::turns::spawn_local_boxed(async move {
            let sent = poll_fn(|cx| match &mut *connection.wire.borrow_mut() {
                Some(wire) => wire.exchange.poll_send(cx),
                None => Poll::Ready(Ok(())),
            });
            let sent = sent.await;
            connection.sender.take();
            if connection.released.take() {
                if let Some(watcher) = connection.watcher.take() {
                    watcher.abort();
                }
                return connection.release(sent.is_ok());
            }
            if let Err(error) = sent {
                // The client's body failed: what fails of the connection is found by whoever reads the response.
                connection.failure.set(Some(error));
                connection.close(false);
                if let Some(reader) = connection.reader.take() {
                    reader.wake();
                }
            }
        });
        *self.sender.borrow_mut() = Some(sender.abort_handle());
    }

    /// Closes the connection, on which the rest of a request is sent after its response has ended, when the upstream closes it or
    /// takes too long.
    fn watch_rest(self: &Rc<Self>) {
        let connection = Rc::clone(self);
        let watcher = fairgate_base::turns::spawn_local_boxed(async move {
            let ended = poll_fn(|cx| match &mut *connection.wire.borrow_mut() {
                Some(wire) => wire.exchange.poll_idle(cx, &connection.buffer).map(|_| ()),
                None => Poll::Ready(()),
            });
            let _ = tokio::time::timeout(REST_TIMEOUT, ended).await;
            connection.watcher.take();
            connection.released.set(false);
            connection.close(false);
        });
        *self.watcher.borrow_mut() = Some(watcher.abort_handle());
    }

    /// Closes the connection; `lost` if it failed.
    fn close(&self, lost: bool) {
        // Nothing would wake it any more.
        if let Some(sender) = self.sender.take() {
            sender.abort();
        }
        let wire = self.wire.borrow_mut().take();
        if let Some(mut wire) = wire {
            wire.exchange.shut_down();
            if lost {
                wire.open.lost();
            }
        }
    }

    fn poll_wire(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let mut wire = self.wire.borrow_mut();
        let Some(wire) = &mut *wire else {
            let error = self.failure.take().unwrap_or(ExchangeError::Closed);
            return Poll::Ready(Some(Err(error)));
        };
        let polled = wire.exchange.poll_frame(cx, &self.buffer);
        if polled.is_pending() && self.sender.borrow().is_some() {
            self.reader.set(Some(cx.waker().clone()));
        }
        polled
    }

    /// Whether the connection, which is idle, is still open. If not, it is closed here.
    fn poll_open(&self) -> bool {
        let unasked = match &mut *self.wire.borrow_mut() {
            Some(wire) => {
                let mut cx = Context::from_waker(&self.idle);
                wire.exchange.poll_idle(&mut cx, &self.buffer)
            }
            None => return false,
        };
        match unasked {
            Poll::Pending => true,
            Poll::Ready(unasked) => {
                self.close(unasked != Unasked::End);
                false
            }
        }
    }
}

impl IdleConnection for Rc<Http1Connection> {
    fn is_open(&self) -> bool {
        self.poll_open()
    }
}

impl UpstreamConnection for Http1Connection {
    fn release(self: Rc<Self>, clean: bool) {
        self.reader.take();
        let ended = match &mut *self.wire.borrow_mut() {
            Some(wire) if clean => wire.exchange.end(),
            _ => Ended::InDoubt,
        };
        match ended {
            // The upstream may want all of the request although it has answered.
            Ended::StillSending if self.sender.borrow().is_some() => {
                self.released.set(true);
                self.watch_rest();
            }
            Ended::Reusable if self.poll_open() => {
                if let Some(pool) = self.pool.upgrade() {
                    pool.keep(self);
                }
            }
            _ => self.close(false),
        }
    }
}

impl ReadsResponse for Http1Connection {
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // Many frames may be in what was read at once: they count as turns, so that other tasks have theirs.
        let turn = ready!(poll_proceed(cx));
        let frame = ready!(self.poll_wire(cx));
        turn.made_progress();
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                self.close(true);
                error.into_body_error()
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.wire.borrow();
        wire.as_ref().is_some_and(|wire| wire.exchange.is_end())
    }

    fn size_hint(&self) -> SizeHint {
        let wire = self.wire.borrow();
        wire.as_ref()
            .map_or_else(SizeHint::default, |wire| wire.exchange.size_hint())
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
