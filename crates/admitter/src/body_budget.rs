//! The bodies of requests that are being judged, within a budget of bytes for each core.

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;
use fairgate_call::ClientBody;
use http_body_util::BodyExt as _;

/// The longest body that is judged, in bytes, as in kube-apiserver.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// How many bytes of bodies and objects a core may hold. Decoded objects take several times as much.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    used: Cell<usize>,
    total: usize,
}

/// A part of the budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: Rc<BodyBudget>,
    bytes: usize,
}

impl BodyBudget {
    pub(crate) fn new(total: usize) -> Rc<Self> {
        Rc::new(Self {
            used: Cell::new(0),
            total,
        })
    }

    /// A share of no bytes yet.
    pub(crate) fn share(self: &Rc<Self>) -> BodyShare {
        BodyShare {
            budget: Rc::clone(self),
            bytes: 0,
        }
    }
}

impl BodyShare {
    /// The number of bytes of this share.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes. `false` if there are not so many.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let used = self.budget.used.get() + bytes;
        if used > self.budget.total {
            return false;
        }
        self.budget.used.set(used);
        self.bytes += bytes;
        true
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        let used = self.budget.used.get();
        self.budget.used.set(used.saturating_sub(self.bytes));
    }
}

/// A body that was read, or why it was not.
#[derive(Debug)]
pub(crate) enum BufferedBody {
    Whole(Bytes),
    /// It is longer than [`MAX_BODY`].
    TooLong,
    /// The budget is used up.
    NoRoom,
    /// The client did not send all of it.
    Broken,
}

/// Reads a body, and puts it back, so that it can be forwarded.
pub(crate) async fn read(body: &mut ClientBody, share: &mut BodyShare) -> BufferedBody {
    let mut read = Vec::new();
    let mut length = 0;
    let end = loop {
        let data = match body.frame().await {
            None => break BufferedBody::Whole(joined(&read)),
            Some(Err(_)) => return BufferedBody::Broken,
            Some(Ok(frame)) => frame.into_data(),
        };
        let Ok(data) = data else { continue };
        length += data.len();
        let has_room = share.take(data.len());
        read.push(data);
        if length > MAX_BODY {
            break BufferedBody::TooLong;
        }
        if !has_room {
            break BufferedBody::NoRoom;
        }
    };
    body.put_back(read);
    end
}

fn joined(read: &[Bytes]) -> Bytes {
    match read {
        [only] => only.clone(),
        many => many.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_is_read_within_the_budget_and_can_be_read_again() {
        let budget = BodyBudget::new(8 << 20);
        for (length, is_whole) in [
            (0, true),
            (5, true),
            (MAX_BODY, true),
            (MAX_BODY + 1, false),
        ] {
            let mut body = ClientBody::full(vec![b'x'; length]);
            let mut share = budget.share();
            let whole = match read(&mut body, &mut share).await {
                BufferedBody::Whole(bytes) => bytes.len() == length,
                BufferedBody::TooLong => false,
                other => panic!("{other:?}"),
            };
            assert_eq!(whole, is_whole, "{length}");
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), length);
        }
        assert_eq!(budget.used.get(), 0, "shares are returned");
    }

    #[tokio::test]
    async fn without_room_nothing_more_is_read() {
        let budget = BodyBudget::new(10);
        let mut first = budget.share();
        assert!(first.take(6));
        let mut body = ClientBody::full("12345");
        let mut share = budget.share();
        assert!(matches!(
            read(&mut body, &mut share).await,
            BufferedBody::NoRoom
        ));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "12345");
        drop(first);
        let mut body = ClientBody::full("12345");
        assert!(matches!(
            read(&mut body, &mut share).await,
            BufferedBody::Whole(_)
        ));
    }
}
