//! An exchange with a scripted upstream, without a network.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use fairgate_call::BodyError;
use fairgate_http1::ResponseHeadLimits;
use http::Method;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// What the upstream does next.
#[derive(Debug)]
enum Step {
    Sends(&'static [u8]),
    /// As many bytes.
    SendsMany(usize),
    Closes,
    Fails,
}

/// A socket whose other end plays steps, one for each read; without one nothing comes.
#[derive(Clone, Default)]
struct Script(Rc<RefCell<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    steps: VecDeque<Step>,
    received: Vec<u8>,
    /// Fails when something is written.
    refuses: bool,
    /// Takes nothing.
    full: bool,
    /// Has not sent what it took, as TLS.
    holds: bool,
}

impl Script {
    fn plays(&self, steps: impl IntoIterator<Item = Step>) {
        self.0.borrow_mut().steps.extend(steps);
    }

    fn received(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.borrow_mut().received)).unwrap()
    }
}

impl AsyncRead for Script {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        let (bytes, again) = match state.steps.pop_front() {
            None => return Poll::Pending,
            Some(Step::Closes) => (Vec::new(), Some(Step::Closes)),
            Some(Step::Fails) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Step::Sends(bytes)) => (bytes.to_vec(), None),
            Some(Step::SendsMany(count)) => {
                let now = count.min(buffer.remaining());
                let rest = (count > now).then_some(Step::SendsMany(count - now));
                (vec![b'x'; now], rest)
            }
        };
        buffer.put_slice(&bytes);
        if let Some(step) = again {
            state.steps.push_front(step);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        if state.refuses {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.full {
            return Poll::Pending;
        }
        state.received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.borrow().holds {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request's body in these pieces; `None` is a pause.
#[derive(Default)]
struct Pieces {
    pieces: VecDeque<Option<Result<&'static str, BodyError>>>,
    length: Option<u64>,
}

impl Pieces {
    fn of(length: Option<u64>, pieces: impl IntoIterator<Item = Option<&'static str>>) -> Self {
        Self {
            pieces: pieces.into_iter().map(|piece| piece.map(Ok)).collect(),
            length,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.pieces.pop_front() {
            Some(None) => Poll::Pending,
            Some(Some(piece)) => Poll::Ready(Some(piece.map(|text| Frame::data(text.into())))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

const LIMITS: ResponseHeadLimits = ResponseHeadLimits {
    bytes: 4096,
    lines: 100,
};

struct Tested {
    exchange: Exchange<Script, Pieces>,
    script: Script,
    buffer: ReadBuffer,
}

impl Tested {
    fn new() -> Self {
        let script = Script::default();
        Self {
            exchange: Exchange::new(script.clone()),
            script,
            buffer: ReadBuffer::default(),
        }
    }

    fn begin(&mut self, method: &Method, body: Pieces) {
        let mut lines = RequestHeaderLines::default();
        assert!(lines.add_text(&http::header::HOST, "upstream"));
        let head = OutgoingHead {
            method,
            target: "/a?b",
            lines: &lines,
        };
        self.exchange.begin(&head, body, LIMITS);
    }

    fn head(&mut self) -> Poll<Result<ResponseHead, ExchangeError>> {
        let mut cx = Context::from_waker(Waker::noop());
        self.exchange.poll_head(&mut cx, &self.buffer)
    }

    fn frame(&mut self) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let mut cx = Context::from_waker(Waker::noop());
        self.exchange.poll_frame(&mut cx, &self.buffer)
    }

    /// The rest of the body, if nothing fails.
    fn body(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Poll::Ready(Some(frame)) = self.frame() {
            all.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        all
    }

    fn status(&mut self) -> u16 {
        match self.head() {
            Poll::Ready(Ok(head)) => head.status.as_u16(),
            other => panic!("no head: {other:?}"),
        }
    }
}

#[test]
fn a_get_leaves_in_one_write_and_its_connection_serves_the_next_request() {
    let mut tested = Tested::new();
    for _ in 0..3 {
        tested.begin(&Method::GET, Pieces::default());
        assert!(tested.head().is_pending());
        assert_eq!(
            tested.script.received(),
            "GET /a?b HTTP/1.1\r\nhost: upstream\r\n\r\n"
        );
        tested.script.plays([
            Step::Sends(b"HTTP/1.1 200 OK\r\nContent-"),
            Step::Sends(b"Length: 5\r\nA: b\r\n\r\nhel"),
            Step::Sends(b"lo"),
        ]);
        let Poll::Ready(Ok(head)) = tested.head() else {
            panic!("no head")
        };
        assert_eq!(head.headers["a"], "b");
        assert!(!tested.exchange.is_end());
        assert_eq!(tested.body(), b"hello");
        assert_eq!(tested.exchange.end(), Ended::Reusable);
        assert!(tested.exchange.input.is_empty() && tested.exchange.input.capacity() == 0);
    }
}

#[test]
fn a_short_body_leaves_with_the_head_and_a_long_one_as_the_client_sends_it() {
    let mut tested = Tested::new();
    tested.begin(&Method::POST, Pieces::of(Some(2), [Some("ab")]));
    assert!(tested.head().is_pending());
    assert!(
        tested
            .script
            .received()
            .ends_with("content-length: 2\r\n\r\nab")
    );
    assert!(!tested.exchange.is_sending());

    let mut tested = Tested::new();
    tested.begin(
        &Method::POST,
        Pieces::of(None, [Some("abc"), None, Some("d")]),
    );
    assert!(tested.head().is_pending());
    let first = tested.script.received();
    assert!(
        first.ends_with("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        "{first}"
    );
    assert!(tested.exchange.is_sending());
    assert!(tested.head().is_pending());
    assert_eq!(tested.script.received(), "1\r\nd\r\n0\r\n\r\n");
    assert!(!tested.exchange.is_sending());
}

#[test]
fn a_get_whose_body_has_no_known_length_is_sent_without_it() {
    let mut tested = Tested::new();
    tested.begin(&Method::GET, Pieces::of(None, [Some("abc"), None]));
    assert!(tested.head().is_pending());
    assert!(tested.script.received().ends_with("upstream\r\n\r\n"));
    assert!(!tested.exchange.is_sending());
}

#[test]
fn the_rest_of_a_request_is_sent_while_its_response_is_read() {
    let mut tested = Tested::new();
    let pauses = [Some("abc"), None, None, Some("d")];
    tested.begin(&Method::POST, Pieces::of(Some(4), pauses));
    tested.script.plays([Step::Sends(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nh",
    )]);
    assert_eq!(tested.status(), 200);
    assert!(tested.exchange.is_sending());
    assert!(matches!(tested.frame(), Poll::Ready(Some(Ok(_)))));
    assert!(tested.frame().is_pending());
    let mut cx = Context::from_waker(Waker::noop());
    while tested.exchange.poll_send(&mut cx).is_pending() {}
    assert!(tested.script.received().ends_with("abcd"));
    tested.script.plays([Step::Sends(b"i")]);
    assert_eq!(tested.body(), b"i");
    assert_eq!(tested.exchange.end(), Ended::Reusable);
}

#[test]
fn a_connection_is_not_used_again_after_what_leaves_it_in_doubt() {
    let cases: [(&str, Method, Pieces, &'static [u8]); 6] = [
        (
            "the request was not sent",
            Method::POST,
            Pieces::of(Some(9), [Some("abc"), None, None, None]),
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "the upstream closes it",
            Method::GET,
            Pieces::default(),
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "more than the response has come",
            Method::GET,
            Pieces::default(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc",
        ),
        (
            "a body where there is none",
            Method::HEAD,
            Pieces::default(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        ),
        (
            "the body is not read",
            Method::GET,
            Pieces::default(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n",
        ),
        (
            "its end is that of the connection",
            Method::GET,
            Pieces::default(),
            b"HTTP/1.1 200 OK\r\n\r\nabc",
        ),
    ];
    for (what, method, body, answer) in cases {
        let mut tested = Tested::new();
        tested.begin(&method, body);
        tested.script.plays([Step::Sends(answer)]);
        assert_eq!(tested.status(), 200, "{what}");
        let _ = tested.body();
        let expected = if tested.exchange.is_sending() {
            Ended::StillSending
        } else {
            Ended::InDoubt
        };
        assert_eq!(tested.exchange.end(), expected, "{what}");
    }
}

#[test]
fn what_tls_holds_back_is_flushed_when_there_is_room() {
    let mut tested = Tested::new();
    tested.script.0.borrow_mut().holds = true;
    tested.begin(&Method::POST, Pieces::of(Some(3), [Some("abc")]));
    assert!(tested.head().is_pending());
    tested
        .script
        .plays([Step::Sends(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")]);
    assert_eq!(tested.status(), 200);
    assert!(tested.exchange.is_sending());
    assert_eq!(tested.exchange.end(), Ended::StillSending);
    tested.script.0.borrow_mut().holds = false;
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(
        tested.exchange.poll_send(&mut cx),
        Poll::Ready(Ok(()))
    ));
    assert!(!tested.exchange.is_sending());
    assert_eq!(tested.exchange.end(), Ended::Reusable);
}

#[test]
fn what_comes_before_anything_was_sent_is_no_answer() {
    let mut tested = Tested::new();
    tested.begin(&Method::POST, Pieces::of(Some(3), [Some("abc")]));
    tested.script.0.borrow_mut().refuses = true;
    tested
        .script
        .plays([Step::Sends(b"HTTP/1.1 408 No\r\ncontent-length: 0\r\n\r\n")]);
    let failed = tested.head();
    assert!(
        matches!(failed, Poll::Ready(Err(ExchangeError::Io(_)))),
        "{failed:?}"
    );
    assert!(tested.exchange.nothing_sent());
}

#[test]
fn an_early_answer_is_read_although_the_upstream_takes_no_more() {
    let mut tested = Tested::new();
    tested.begin(
        &Method::POST,
        Pieces::of(Some(6), [Some("abc"), None, Some("def")]),
    );
    assert!(tested.head().is_pending());
    tested.script.0.borrow_mut().refuses = true;
    tested
        .script
        .plays([Step::Sends(b"HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n")]);
    assert_eq!(tested.status(), 413);
    assert_eq!(tested.exchange.end(), Ended::InDoubt);
}

#[test]
fn the_error_says_whether_something_was_sent() {
    for (steps, refuses, nothing_sent) in [
        (vec![Step::Closes], true, true),
        (vec![Step::Closes], false, false),
        (vec![Step::Fails], false, false),
        (vec![Step::Sends(b"HTTP/1.1 2"), Step::Closes], false, false),
    ] {
        let mut tested = Tested::new();
        tested.begin(&Method::GET, Pieces::default());
        tested.script.0.borrow_mut().refuses = refuses;
        tested.script.plays(steps);
        let failed = tested.head();
        assert!(
            matches!(
                failed,
                Poll::Ready(Err(ExchangeError::Closed | ExchangeError::Io(_)))
            ),
            "{failed:?}"
        );
        assert_eq!(tested.exchange.nothing_sent(), nothing_sent);
    }
}

#[test]
fn a_body_that_fails_fails_the_request() {
    let mut tested = Tested::new();
    let mut body = Pieces::of(Some(9), [Some("abc")]);
    body.pieces.push_back(Some(Err(BodyError::SentTooSlowly)));
    tested.begin(&Method::POST, body);
    let failed = tested.head();
    assert!(
        matches!(
            failed,
            Poll::Ready(Err(ExchangeError::Request(BodyError::SentTooSlowly)))
        ),
        "{failed:?}"
    );
    // A body shorter than announced.
    let mut tested = Tested::new();
    tested.begin(&Method::POST, Pieces::of(Some(9), [Some("abc")]));
    let failed = tested.head();
    assert!(
        matches!(failed, Poll::Ready(Err(ExchangeError::Request(_)))),
        "{failed:?}"
    );
}

#[test]
fn a_truncated_response_is_an_error() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let mut tested = Tested::new();
        tested.begin(&Method::GET, Pieces::default());
        tested.script.plays([Step::Sends(answer), Step::Closes]);
        assert_eq!(tested.status(), 200);
        assert!(matches!(tested.frame(), Poll::Ready(Some(Ok(_)))));
        assert!(matches!(
            tested.frame(),
            Poll::Ready(Some(Err(ExchangeError::Closed)))
        ));
    }
}

#[test]
fn an_idle_connection_tells_what_the_upstream_does() {
    for (step, expected) in [
        (Step::Closes, Unasked::End),
        (Step::Fails, Unasked::Failure),
        (Step::Sends(b"HTTP/1.1 200 OK\r\n\r\n"), Unasked::Bytes),
    ] {
        let mut tested = Tested::new();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            tested
                .exchange
                .poll_idle(&mut cx, &tested.buffer)
                .is_pending()
        );
        tested.script.plays([step]);
        let unasked = tested.exchange.poll_idle(&mut cx, &tested.buffer);
        assert_eq!(unasked, Poll::Ready(expected));
    }
}

#[test]
fn a_long_body_is_read_in_growing_pieces_and_leaves_no_buffer_behind() {
    const LENGTH: usize = 5 << 20;
    let mut tested = Tested::new();
    tested.begin(&Method::GET, Pieces::default());
    tested.script.plays([
        Step::Sends(b"HTTP/1.1 200 OK\r\ncontent-length: 5242880\r\n\r\n"),
        Step::SendsMany(LENGTH),
    ]);
    assert_eq!(tested.status(), 200);
    let (mut length, mut pieces, mut longest) = (0, 0, 0);
    while let Poll::Ready(Some(frame)) = tested.frame() {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.iter().all(|byte| *byte == b'x'));
        length += data.len();
        pieces += 1;
        longest = longest.max(data.len());
    }
    assert_eq!(length, LENGTH);
    assert!(pieces < 40, "{pieces}");
    assert!(longest <= LARGEST_READ, "{longest}");
    assert_eq!(tested.exchange.end(), Ended::Reusable);
    assert_eq!(tested.exchange.input.capacity(), 0);
}

#[test]
fn a_full_socket_bounds_what_is_read_of_the_requests_body() {
    const PIECE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let mut tested = Tested::new();
    tested.script.0.borrow_mut().full = true;
    tested.begin(&Method::PUT, Pieces::of(None, vec![Some(PIECE); 10_000]));
    assert!(tested.head().is_pending());
    assert!(tested.exchange.output.bytes() <= MOST_QUEUED + 2 * PIECE.len());
    tested.script.0.borrow_mut().full = false;
    assert!(tested.head().is_pending());
    assert!(tested.script.received().len() > 640_000);
    assert!(!tested.exchange.is_sending());
}
