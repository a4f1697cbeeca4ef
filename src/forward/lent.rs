//! A client's body while it is lent to an upstream connection.
//!
//! If a connection turns out to be dead before it took a byte, the body comes back whole and the
//! request can be sent again.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::call::{BodyError, ClientBody, Trace};

/// Where a lent body ends up. Allocates nothing for a body that is empty from the start.
#[derive(Clone)]
pub(super) struct Fate(Option<Rc<Inner>>);

#[derive(Default)]
struct Inner {
    back: Cell<Option<ClientBody>>,
    client_failed: Cell<bool>,
}

/// What became of a lent body.
pub(super) enum Recovered {
    /// Nobody read from it.
    Untouched(ClientBody),
    /// Some of it is gone.
    Spent,
    /// The client did not send all of it.
    ClientFailed,
}

impl Fate {
    pub(super) fn of(body: &ClientBody) -> Self {
        Self((!body.is_end_stream()).then(Rc::default))
    }

    /// To be asked once the connection has let go of the body.
    pub(super) fn recover(&self) -> Recovered {
        match &self.0 {
            None => Recovered::Untouched(ClientBody::empty()),
            Some(inner) if inner.client_failed.get() => Recovered::ClientFailed,
            Some(inner) => match inner.back.take() {
                Some(body) => Recovered::Untouched(body),
                None => Recovered::Spent,
            },
        }
    }
}

/// A client's body, lent to a connection.
pub struct Lent {
    body: Option<ClientBody>,
    fate: Fate,
    touched: bool,
    trace: Rc<Trace>,
}

impl Lent {
    pub(super) fn new(body: ClientBody, fate: Fate, trace: Rc<Trace>) -> Self {
        Self {
            body: Some(body),
            fate,
            touched: false,
            trace,
        }
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                this.touched = true;
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                let seen = &this.trace.request_bytes;
                seen.set(seen.get() + bytes);
            }
            Some(Err(_)) => {
                this.trace.broke_off.set(true);
                if let Fate(Some(inner)) = &this.fate {
                    inner.client_failed.set(true);
                }
            }
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ClientBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), ClientBody::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Fate(Some(inner)) = &self.fate
            && !self.touched
        {
            inner.back.set(self.body.take());
        }
    }
}
