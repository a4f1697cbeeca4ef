//! Who lent an upstream connection, and what is left on it when nobody wants the answer any more.

use std::{cell::Cell, fmt, future::Future, pin::Pin, rc::Rc};

use hyper::body::Incoming;

use super::trace::Unfinished;

/// What is under way on an upstream connection and wanted by nobody. Dropping it cancels it upstream.
pub enum Unwanted {
    /// The answer has not begun. Whoever runs it gives its stream back.
    Answer(Unfinished),
    /// The rest of an answer.
    Body(Incoming),
}

/// Completes when a stream may be reset.
pub type Turn = Pin<Box<dyn Future<Output = ()>>>;

/// Who lent the upstream connection that an answer is read from.
pub trait Lender {
    /// Takes it back. `clean` tells that the answer was read to its end.
    fn give_back(self: Rc<Self>, clean: bool);

    /// Takes it back with what is under way on it. Unless the lender knows better that is cancelled at
    /// once.
    fn abandon(self: Rc<Self>, unwanted: Unwanted) {
        let is_body = matches!(unwanted, Unwanted::Body(_));
        drop(unwanted);
        if is_body {
            self.give_back(false);
        }
    }

    /// To be awaited before anything else is done that resets the stream; `None`: it may be done now.
    fn turn(self: Rc<Self>) -> Option<Turn> {
        None
    }
}

/// The connection on which an answer is awaited.
#[derive(Default)]
pub struct Awaited(Cell<Option<Rc<dyn Lender>>>);

impl Awaited {
    /// The answer is awaited on a connection that `lender` lent; or no longer.
    pub fn set(&self, lender: Option<Rc<dyn Lender>>) {
        self.0.set(lender);
    }

    /// Who lent the connection, if an answer is awaited.
    pub fn take(&self) -> Option<Rc<dyn Lender>> {
        self.0.take()
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}
