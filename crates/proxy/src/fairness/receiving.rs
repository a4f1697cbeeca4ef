//! Reads the short body of a request before the request asks for a seat.
//!
//! A request that holds a seat while its client still sends the body keeps others from executing, and the upstream has nothing to
//! execute. So a body of up to [`SHORT_BODY`] bytes, which nearly all objects have, has to be complete first. What such requests
//! take in memory comes from a budget that users share fairly ([`fairgate_base::account`]): where it has no room for a user, or
//! another one who has less needs the room, the request asks for its seat without its body, as one with a longer body does. Then
//! the client has to send it at a least rate while no seat of the level is free ([`super::slow_senders`]).
//!
//! A body that is there when the request arrives costs neither an allocation nor a lock. Whatever needs no queue is decided before the client is
//! asked for its body: who has no seat to wait for is rejected at once.

use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use fairgate_base::account::ByteShare;
use fairgate_call::{Call, Refusal, RequestKind};
use fairgate_core::apf::policy::{LevelKind, LimitResponse};
use http_body::Body as _;
use tokio::{sync::futures::OwnedNotified, time::Sleep};

use super::{
    flow_control::FlowControl, gate::Gate, level_fullness::is_full, settings::Enforcement,
    unfinished_bodies::LateBody, wait_limit::body_deadline,
};

/// Bodies up to this length are read before their request gets a seat.
pub(super) const SHORT_BODY: usize = 16 << 10;
/// What a request takes in memory while it waits for its body, besides the body: its head, its stream, its timer.
const REQUEST_BYTES: usize = 2 << 10;

/// A request whose body is read before it asks for a seat.
#[derive(Debug, Default)]
pub(super) struct ReceivingBody {
    /// Once the client has to send something.
    awaited: Option<Box<AwaitedBody>>,
}

/// What a request holds while its client sends the body.
#[derive(Debug)]
struct AwaitedBody {
    flow_control: Arc<FlowControl>,
    share: ByteShare,
    /// Completes when a user who has less needs the share.
    given_up: Pin<Box<OwnedNotified>>,
    timer: Pin<Box<Sleep>>,
}

/// Whether the body of a call is to be read before it asks for a seat.
pub(super) fn comes_first(call: &Call, gate: &Gate) -> bool {
    let body = call.request.body();
    // Streams have no seat.
    if body.is_end_stream() || call.kind == RequestKind::LongRunning || !gate.enforces() {
        return false;
    }
    let length = body.size_hint().exact();
    length.is_none_or(|length| length <= SHORT_BODY as u64)
}

impl ReceivingBody {
    /// Ready when the request is to ask for its seat.
    pub(super) fn poll(
        &mut self,
        gate: &Rc<Gate>,
        call: &mut Call,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        let body = call.request.body_mut();
        // Its client sends the body when it is read from, and must not if the request is then rejected.
        if self.awaited.is_none() && body.awaits_continue() && !gate.waits_for_body(call) {
            return Poll::Ready(Ok(()));
        }
        let awaited = &mut self.awaited;
        let counts = |bytes| {
            let share = awaited.as_mut().map(|awaited| &mut awaited.share);
            share.is_none_or(|share| share.take(bytes))
        };
        match call
            .request
            .body_mut()
            .poll_receive(cx, &call.digest.user, SHORT_BODY, counts)
        {
            Poll::Ready(Ok(_)) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "a body is incomplete");
                let incomplete = Refusal::Malformed("the request's body is incomplete");
                return Poll::Ready(Err(incomplete));
            }
            Poll::Pending => {}
        }
        if self.awaited.is_none() && gate.waits_for_body(call) {
            self.awaited = AwaitedBody::begin(gate, call);
        }
        match &mut self.awaited {
            // There is no room, or nothing to wait for.
            None => Poll::Ready(Ok(())),
            Some(awaited) => awaited.poll(cx),
        }
    }
}

impl AwaitedBody {
    /// Begins to wait for a body, if the budget has room.
    fn begin(gate: &Gate, call: &Call) -> Option<Box<Self>> {
        let flow_control = Arc::clone(gate.flow_control());
        let bodies = &flow_control.bodies;
        let mut share = bodies.budget().share(&call.digest.user);
        if !share.take(REQUEST_BYTES + call.request.body().ahead_bytes()) {
            return None;
        }
        let given_up = Box::pin(share.begin_unfinished().notified_owned());
        let until = body_deadline(call.received, call.deadline, gate.policy().request_timeout);
        bodies.begin_waiting();
        Some(Box::new(Self {
            share,
            given_up,
            timer: Box::pin(tokio::time::sleep_until(gate.clock().instant(until))),
            flow_control,
        }))
    }

    /// Ready when the body is not waited for any longer.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        if self.given_up.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.timer.as_mut().poll(cx));
        self.flow_control.bodies.count_late(LateBody::WaitLimit);
        Poll::Ready(Err(Refusal::BodyTooSlow))
    }
}

impl Drop for AwaitedBody {
    fn drop(&mut self) {
        self.flow_control.bodies.end_waiting();
    }
}

impl Gate {
    /// Whether a request has to wait for its body: not if it needs no seat that others could use, and not if it would be rejected
    /// at once. Counts nothing. Takes the lock of a level that rejects.
    fn waits_for_body(&self, call: &Call) -> bool {
        let policy = self.policy();
        if policy.enforcement != Enforcement::Enforce {
            return false;
        }
        let flow = policy.view.policy().classify(&call.digest);
        let level = policy.view.level(flow.level);
        let spec = &policy.view.policy().levels()[flow.level.0 as usize];
        match spec.kind {
            LevelKind::Exempt => false,
            LevelKind::Limited {
                response: LimitResponse::Reject,
                ..
            } => !is_full(level),
            LevelKind::Limited { .. } => {
                self.flow_control().queued() < policy.max_queued || !is_full(level)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn};

    use bytes::Bytes;
    use fairgate_base::account::ByteBudget;
    use fairgate_call::{ClientBody, ReadAheadBudget, StreamWindows};
    use fairgate_core::digest::User;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty};
    use hyper::{
        body::Incoming,
        server::conn::{http1, http2},
        service::service_fn,
    };
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use fairgate_call::BodyError;
    use h2::SendStream;

    use super::*;

    /// Reads the body of a request as a whole. Returns how many allocations that takes, besides those of the connection.
    async fn read(request: Request<Incoming>) -> u64 {
        let budget = ReadAheadBudget::new(1 << 20, SHORT_BODY, SHORT_BODY);
        let mut body = ClientBody::incoming(request.into_body(), Some(budget));
        let user = User::default();
        let mut allocations = 0;
        let whole = poll_fn(|cx| {
            let mut polled = Poll::Pending;
            let counted = allocation_counter::measure(|| {
                polled = body.poll_receive(cx, &user, SHORT_BODY, |_| true);
            });
            allocations += counted.count_total;
            polled
        });
        assert!(whole.await.unwrap(), "the body is complete");
        allocations
    }

    /// The allocations for a request that arrives in these pieces.
    async fn allocations(pieces: &[&str]) -> u64 {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (counted, found) = std::sync::mpsc::channel();
        let service = service_fn(|request| {
            let counted = counted.clone();
            async move {
                counted.send(read(request).await).unwrap();
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let serving = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let sending = async {
            for piece in pieces {
                client.write_all(piece.as_bytes()).await.unwrap();
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            }
            let mut status = [0; 12];
            client.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 200");
        };
        tokio::select! {
            _ = serving => panic!("the connection has ended"),
            () = sending => found.recv().unwrap(),
        }
    }

    #[tokio::test]
    async fn a_short_body_that_is_there_costs_no_allocation() {
        let head = "POST / HTTP/1.1\r\nHost: gate\r\nContent-Length: 8\r\n\r\n";
        assert_eq!(allocations(&[&format!("{head}12345678")]).await, 0);
        assert_eq!(allocations(&[head, "12345678"]).await, 0);
        // Single bytes are joined: a buffer for all of them.
        assert_eq!(allocations(&[head, "1234", "5", "6", "7", "8"]).await, 1);
    }

    /// A body of so many bytes, which are there, and its client.
    async fn arrived(budget: &Rc<ReadAheadBudget>, length: usize) -> (ClientBody, DuplexStream) {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (bodies, mut found) = tokio::sync::mpsc::unbounded_channel();
        let budget = Rc::clone(budget);
        let service = service_fn(move |request: Request<Incoming>| {
            let body = ClientBody::incoming(request.into_body(), Some(Rc::clone(&budget)));
            let _ = bodies.send(body);
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
        });
        fairgate_base::turns::spawn_local(
            http1::Builder::new().serve_connection(TokioIo::new(server), service),
        );
        let head = format!("POST / HTTP/1.1\r\nHost: gate\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; length]).await.unwrap();
        (found.recv().await.unwrap(), client)
    }

    /// A stream over HTTP/2 whose client has sent these bytes of its body, and not its end. The length of the body may be stated.
    async fn unended(
        sent: &'static [u8],
        length: Option<usize>,
    ) -> (ClientBody, SendStream<Bytes>) {
        let budget = ReadAheadBudget::new(1 << 20, SHORT_BODY, SHORT_BODY);
        unended_within(&budget, &ByteBudget::new(1 << 20), sent, length).await
    }

    /// The same with these budgets, of what is read ahead and of what may be unread.
    async fn unended_within(
        ahead: &Rc<ReadAheadBudget>,
        unread: &Arc<ByteBudget>,
        sent: &'static [u8],
        length: Option<usize>,
    ) -> (ClientBody, SendStream<Bytes>) {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (bodies, mut found) = tokio::sync::mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Incoming>| {
            let _ = bodies.send(request.into_body());
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
        });
        tokio::spawn(
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(server), service),
        );
        let (mut requests, connection) = h2::client::handshake(client).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post("http://gate/");
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let request = request.body(()).unwrap();
        let (_, mut stream) = requests.send_request(request, false).unwrap();
        stream.send_data(Bytes::from_static(sent), false).unwrap();
        let windows = StreamWindows::new(Arc::clone(unread), 1 << 16);
        let body = ClientBody::incoming(found.recv().await.unwrap(), Some(Rc::clone(ahead)));
        (body.on_stream_of(&windows), stream)
    }

    /// Whether a body is whole, once its client has ended it so. Before that it is not.
    async fn is_whole_after(
        length: Option<usize>,
        end: impl FnOnce(&mut SendStream<Bytes>),
    ) -> Result<bool, BodyError> {
        let (mut body, mut stream) = unended(b"12345678", length).await;
        let user = User::default();
        while body.ahead_bytes() < 8 {
            let polled = poll_fn(|cx| {
                let polled = body.poll_receive(cx, &user, SHORT_BODY, |_| true);
                Poll::Ready(polled)
            });
            assert!(polled.await.is_pending(), "there is no end yet");
            tokio::task::yield_now().await;
        }
        assert!(!body.has_arrived());
        end(&mut stream);
        poll_fn(|cx| body.poll_receive(cx, &user, SHORT_BODY, |_| true)).await
    }

    #[tokio::test]
    async fn a_body_over_http2_is_whole_when_the_stream_has_ended_and_not_before() {
        for length in [None, Some(8)] {
            let whole = is_whole_after(length, |stream| {
                stream.send_data(Bytes::new(), true).unwrap();
            });
            assert!(whole.await.unwrap());
            let whole = is_whole_after(length, |stream| {
                stream.send_trailers(http::HeaderMap::new()).unwrap();
            });
            assert!(whole.await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_body_whose_stream_is_reset_is_incomplete_whatever_the_reason() {
        use h2::Reason;
        for reason in [Reason::CANCEL, Reason::NO_ERROR, Reason::INTERNAL_ERROR] {
            for length in [None, Some(8), Some(9)] {
                let whole = is_whole_after(length, |stream| stream.send_reset(reason));
                assert!(whole.await.is_err(), "{reason:?}, {length:?}");
            }
            // The same if a request that has its seat reads it.
            let (body, mut stream) = unended(b"12345678", None).await;
            stream.send_reset(reason);
            assert!(body.collect().await.is_err(), "{reason:?}");
        }
    }

    /// A user may have half of each budget, so what one request does not give back the next ones lack.
    #[tokio::test]
    async fn what_a_queued_body_has_taken_is_given_back_after_its_stream_is_reset() {
        use h2::Reason;
        let user = Arc::new(User::new("alice", [""; 0]));
        let ahead = ReadAheadBudget::new(20, SHORT_BODY, SHORT_BODY);
        let unread = ByteBudget::new(1 << 17);
        for reason in [Reason::CANCEL, Reason::NO_ERROR].repeat(4) {
            let (mut body, mut stream) =
                unended_within(&ahead, &unread, b"12345678", Some(9)).await;
            assert!(body.may_wait(&user), "{reason:?}");
            body.begin_waiting(&user);
            while body.ahead_bytes() < 8 {
                let polled = poll_fn(|cx| Poll::Ready(body.poll_read_ahead(cx))).await;
                assert!(polled.is_pending(), "there is room: {reason:?}");
                tokio::task::yield_now().await;
            }
            assert_eq!(ahead.used(), 8);
            assert!(unread.held_by("alice") > 0);
            stream.send_reset(reason);
            let read = poll_fn(|cx| body.poll_read_ahead(cx)).await;
            assert!(read.is_err(), "{reason:?}");
            assert_eq!(unread.held_by("alice"), 0, "{reason:?}");
            drop(body);
            assert_eq!(ahead.used(), 0, "{reason:?}");
        }
    }

    #[tokio::test]
    async fn queued_bodies_of_one_user_leave_room_for_the_body_of_another() {
        let [many, other] = ["many", "other"].map(|name| Arc::new(User::new(name, [""; 0])));
        let budget = ReadAheadBudget::new(4 * SHORT_BODY, SHORT_BODY, SHORT_BODY);
        let receive = async |user: &Arc<User>| {
            let (mut body, client) = arrived(&budget, 10_000).await;
            let is_whole = poll_fn(|cx| body.poll_receive(cx, user, SHORT_BODY, |_| true))
                .await
                .unwrap();
            body.begin_waiting(user);
            (is_whole, body, client)
        };
        let received = async {
            let mut queued = Vec::new();
            for _ in 0..20 {
                queued.push(receive(&many).await);
            }
            let whole = queued.iter().filter(|(is_whole, ..)| *is_whole).count();
            assert!(
                (2..=4).contains(&whole),
                "about half of the budget: {whole}"
            );
            assert!(receive(&other).await.0, "the other's body is read");
            // When they get their seats, others may wait.
            for (_, body, _client) in queued {
                assert_eq!(body.collect().await.unwrap().to_bytes().len(), 10_000);
            }
            assert_eq!(budget.used(), 0);
            assert!(receive(&many).await.0);
        };
        tokio::task::LocalSet::new().run_until(received).await;
    }
}
