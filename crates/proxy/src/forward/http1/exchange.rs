//! One request and its response on a socket.

use std::{
    cell::RefCell,
    future::Future as _,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use fairgate_call::BodyError;
use fairgate_http1::{
    BodyPiece, HeadProgress, Http1Error, RequestBodyEncoder, RequestFraming, RequestHeaderLines,
    ResponseBodyDecoder, ResponseHead, ResponseHeadLimits, ResponseHeadParser, write_request_head,
};
use http::Method;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::write_queue::WriteQueue;

/// How many bytes a core reads at once, at first.
const FIRST_READ: usize = 16 << 10;
/// How many bytes a connection makes room for at most before a read, when all reads before were full.
const LARGEST_READ: usize = 256 << 10;
/// How many bytes of the request wait for the socket before more of its body is read.
const MOST_QUEUED: usize = 64 << 10;

/// The buffer into which the connections of one core read, one after another. So a connection has no buffer of its own unless a
/// part of a head waits for the rest, or a body comes faster than by 16 KiB.
#[derive(Debug, Default)]
pub struct ReadBuffer(RefCell<BytesMut>);

/// Why a request could not be sent, or its response could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The upstream closed the connection before the response was complete.
    #[error("the upstream closed the connection")]
    Closed,
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The response cannot be read.
    #[error("the response cannot be read")]
    Response(#[source] Http1Error),
    /// The body of the request failed, or is not of the length that was announced.
    #[error("the request's body failed")]
    Request(#[source] BodyError),
}

impl ExchangeError {
    /// The error of a response's body for its reader.
    pub(super) fn into_body_error(self) -> BodyError {
        BodyError::Upstream(Box::new(self))
    }
}

/// The head of a request. Its headers say nothing about the length of the body.
#[derive(Debug)]
pub struct OutgoingHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query.
    pub target: &'a str,
    /// The header lines.
    pub lines: &'a RequestHeaderLines,
}

/// A socket and what happens on it.
pub struct Exchange<S, B> {
    socket: S,
    /// Received and not used yet.
    input: BytesMut,
    /// The length of the memory in which `input` lies.
    block: usize,
    /// How many bytes are read at once.
    read_size: usize,
    output: WriteQueue,
    /// Whether TLS may hold bytes that were written.
    unflushed: bool,
    sending: Option<Sending<B>>,
    /// Of this request.
    sent: u64,
    /// Nothing more of this request can be sent; a response may still come.
    send_error: Option<io::Error>,
    receiving: Receiving,
}

/// A body that was not read to its end yet.
struct Sending<B> {
    body: B,
    encoder: RequestBodyEncoder,
}

/// What is expected from the upstream.
enum Receiving {
    /// Nothing.
    Idle,
    Head(ResponseHeadParser, Method),
    Body {
        decoder: ResponseBodyDecoder,
        /// Whether the upstream serves another request after the response.
        keep_alive: bool,
    },
}

/// What can become of a connection whose response nobody reads any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It can serve another request: both messages are complete, and nothing else has come.
    Reusable,
    /// It could, once the rest of the request was sent.
    StillSending,
    /// It must be closed.
    InDoubt,
}

impl<S, B> Exchange<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error = BodyError> + Unpin,
{
    /// No request yet on `socket`.
    pub fn new(socket: S) -> Self {
        Self {
            socket,
            input: BytesMut::new(),
            block: 0,
            read_size: FIRST_READ,
            output: WriteQueue::default(),
            unflushed: false,
            sending: None,
            sent: 0,
            send_error: None,
            receiving: Receiving::Idle,
        }
    }

    /// Begins a request; [`Self::poll_head`] sends it. The last one has ended.
    pub fn begin(&mut self, head: &OutgoingHead<'_>, body: B, limits: ResponseHeadLimits) {
        let is_end = body.is_end_stream();
        let framing = RequestFraming::of(head.method, is_end, body.size_hint().exact());
        write_request_head(
            self.output.tail(),
            head.method,
            head.target,
            head.lines,
            framing,
        );
        let encoder = RequestBodyEncoder::new(framing);
        // A body that is not announced is not sent.
        self.sending = (framing != RequestFraming::None).then_some(Sending { body, encoder });
        self.sent = 0;
        self.receiving = Receiving::Head(ResponseHeadParser::new(limits), head.method.clone());
    }

    /// Whether nothing of the request has left.
    pub(super) fn nothing_sent(&self) -> bool {
        self.sent == 0
    }

    /// Whether some of the request is still to be sent, and can be.
    pub(super) fn is_sending(&self) -> bool {
        let is_left = self.sending.is_some() || self.output.bytes() > 0 || self.unflushed;
        is_left && self.send_error.is_none()
    }

    /// The socket.
    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Tells the upstream that the connection ends, as far as that is possible at once.
    pub(super) fn shut_down(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut self.socket).poll_shutdown(&mut cx);
    }

    /// Sends the request, and reads the head of the response.
    ///
    /// # Errors
    ///
    /// Why there is none. The connection is of no use then.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &ReadBuffer,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        // What comes then is no answer to this request.
        if let Some(error) = self.send_error.take_if(|_| self.sent == 0) {
            return Poll::Ready(Err(ExchangeError::Io(error)));
        }
        loop {
            if let Some(head) = self.parse_head()? {
                return Poll::Ready(Ok(head));
            }
            match ready!(self.poll_fill(cx, buffer)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(self.closed())),
                Err(error) => {
                    let error = self.send_error.take().unwrap_or(error);
                    return Poll::Ready(Err(ExchangeError::Io(error)));
                }
            }
        }
    }

    /// The head, if all of it is there.
    fn parse_head(&mut self) -> Result<Option<ResponseHead>, ExchangeError> {
        let Receiving::Head(parser, method) = &mut self.receiving else {
            return Err(ExchangeError::Closed);
        };
        if self.input.is_empty() {
            return Ok(None);
        }
        match parser.parse(&self.input, method) {
            Ok(HeadProgress::Incomplete { read }) => {
                self.consume(read);
                Ok(None)
            }
            Ok(HeadProgress::Head { head, read }) => {
                self.consume(read);
                let decoder = ResponseBodyDecoder::new(head.framing);
                self.receiving = Receiving::Body {
                    decoder,
                    keep_alive: head.keep_alive,
                };
                Ok(Some(head))
            }
            Err(error) => Err(ExchangeError::Response(error)),
        }
    }

    /// The error of a connection that the upstream has closed: why sending failed, if it did.
    fn closed(&mut self) -> ExchangeError {
        self.send_error
            .take()
            .map_or(ExchangeError::Closed, ExchangeError::Io)
    }

    /// Sends what is left of the request. Ready once nothing more can be sent; an error of the connection is kept, because the
    /// response may have come before it.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Request`].
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        while self.is_sending() {
            let read = self.poll_body(cx)?;
            if let Err(error) = ready!(self.poll_write(cx)) {
                self.send_error = Some(error);
                self.sending = None;
                break;
            }
            ready!(read);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is queued, and has TLS send it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unflushed |= self.output.bytes() > 0;
        ready!(self.output.poll_write(&mut self.socket, cx, &mut self.sent))?;
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Reads the body into the output, as far as there is room. Pending if more is to come from the client.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        while let Some(sending) = &mut self.sending
            && self.output.bytes() < MOST_QUEUED
        {
            let frame = ready!(Pin::new(&mut sending.body).poll_frame(cx));
            if let Some(frame) = frame {
                let frame = frame.map_err(ExchangeError::Request)?;
                // A client cannot send trailers: they are not in a request that was authenticated.
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    let after = sending.encoder.data(data.len(), self.output.tail());
                    let after = after.map_err(|error| other_length(&error))?;
                    self.output.push(data);
                    self.output.tail().extend_from_slice(after);
                }
                if !sending.body.is_end_stream() {
                    continue;
                }
            }
            let end = sending
                .encoder
                .end()
                .map_err(|error| other_length(&error))?;
            self.output.tail().extend_from_slice(end);
            self.sending = None;
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame of the response's body; `None` at its end. What is left of the request is for `poll_send`.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &ReadBuffer,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        loop {
            if let Some(frame) = self.decode().transpose() {
                return Poll::Ready(Some(frame));
            }
            if self.is_end() {
                return Poll::Ready(None);
            }
            match ready!(self.poll_fill(cx, buffer)) {
                Ok(true) => {}
                Ok(false) => {
                    let ended = self.end_of_input();
                    return Poll::Ready(ended.err().map(Err));
                }
                Err(error) => return Poll::Ready(Some(Err(ExchangeError::Io(error)))),
            }
        }
    }

    /// The next frame of what was received; `None` if more is needed, or the body has ended.
    fn decode(&mut self) -> Result<Option<Frame<Bytes>>, ExchangeError> {
        while !self.input.is_empty()
            && let Receiving::Body { decoder, .. } = &mut self.receiving
            && !decoder.is_end()
        {
            let decoded = decoder.next(&self.input).map_err(ExchangeError::Response)?;
            match decoded {
                BodyPiece::More { read } | BodyPiece::End { read } => self.consume(read),
                BodyPiece::Trailers { trailers, read } => {
                    self.consume(read);
                    return Ok(Some(Frame::trailers(trailers)));
                }
                BodyPiece::Data { at } => {
                    let data = self.take(at);
                    return Ok(Some(Frame::data(data)));
                }
            }
        }
        Ok(None)
    }

    /// These bytes of the input, and everything before them is used.
    fn take(&mut self, at: std::ops::Range<usize>) -> Bytes {
        // Few bytes must not keep a large block.
        if at.len() < self.block / 8 {
            let data = Bytes::copy_from_slice(&self.input[at.clone()]);
            self.consume(at.end);
            return data;
        }
        self.input.advance(at.start);
        let data = self.input.split_to(at.len()).freeze();
        self.consume(0);
        data
    }

    /// Drops used bytes, and the buffer with the last of them.
    fn consume(&mut self, count: usize) {
        self.input.advance(count);
        if self.input.is_empty() {
            // Its block is the core's again.
            self.input = BytesMut::new();
            self.block = 0;
        }
    }

    /// The upstream sends nothing more: the end of a body without a length.
    fn end_of_input(&mut self) -> Result<(), ExchangeError> {
        match &mut self.receiving {
            Receiving::Body { decoder, .. } => decoder.eof().map_err(|_| ExchangeError::Closed),
            Receiving::Idle | Receiving::Head(..) => Err(ExchangeError::Closed),
        }
    }

    /// Reads more; false if nothing more comes.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &ReadBuffer) -> Poll<io::Result<bool>> {
        let shared = self.input.is_empty() && self.read_size == FIRST_READ;
        let mut core_buffer = buffer.0.borrow_mut();
        let target = if shared {
            &mut *core_buffer
        } else {
            &mut self.input
        };
        target.reserve(self.read_size);
        let (room, capacity) = (target.capacity() - target.len(), target.capacity());
        let count = ready!(pin!(self.socket.read_buf(target)).poll(cx))?;
        self.block = self.block.max(capacity);
        if shared {
            self.block = FIRST_READ;
            self.input = core_buffer.split();
        }
        self.read_size = if count == room {
            (2 * self.read_size).min(LARGEST_READ)
        } else {
            FIRST_READ
        };
        Poll::Ready(Ok(count > 0))
    }

    /// Whether the response has ended.
    pub fn is_end(&self) -> bool {
        match &self.receiving {
            Receiving::Body { decoder, .. } => decoder.is_end(),
            Receiving::Idle => true,
            Receiving::Head(..) => false,
        }
    }

    /// How much of the response's body is to come.
    pub fn size_hint(&self) -> SizeHint {
        match &self.receiving {
            Receiving::Body { decoder, .. } => decoder
                .remaining()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Receiving::Idle => SizeHint::with_exact(0),
            Receiving::Head(..) => SizeHint::default(),
        }
    }

    /// Ends the response.
    pub(super) fn end(&mut self) -> Ended {
        let keep_alive = match &self.receiving {
            Receiving::Body {
                decoder,
                keep_alive,
            } => decoder.is_end() && *keep_alive,
            Receiving::Idle => true,
            Receiving::Head(..) => false,
        };
        self.read_size = FIRST_READ;
        if !keep_alive || self.send_error.is_some() || !self.input.is_empty() {
            return Ended::InDoubt;
        }
        self.receiving = Receiving::Idle;
        if self.is_sending() {
            Ended::StillSending
        } else {
            Ended::Reusable
        }
    }

    /// Ends the response. Whether the connection can serve another request.
    pub fn end_is_clean(&mut self) -> bool {
        self.end() == Ended::Reusable
    }

    /// Whether the connection, on which there is no request, is still open. When that changes, `idle` is woken.
    pub fn is_open(&mut self, idle: &Waker, buffer: &ReadBuffer) -> bool {
        let mut cx = Context::from_waker(idle);
        self.poll_idle(&mut cx, buffer).is_pending()
    }

    /// Waits, between requests, until the upstream closes the connection, or sends what nobody has asked for.
    pub(super) fn poll_idle(&mut self, cx: &mut Context<'_>, buffer: &ReadBuffer) -> Poll<Unasked> {
        match ready!(self.poll_fill(cx, buffer)) {
            Ok(true) => Poll::Ready(Unasked::Bytes),
            Ok(false) => Poll::Ready(Unasked::End),
            Err(_) => Poll::Ready(Unasked::Failure),
        }
    }
}

/// What an upstream does on an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// It closes it.
    End,
    /// It sends something.
    Bytes,
    /// It resets it, or cannot be reached any more.
    Failure,
}

fn other_length(error: &Http1Error) -> ExchangeError {
    ExchangeError::Request(BodyError::Other(error.to_string().into()))
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
