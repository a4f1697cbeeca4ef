//! A copy of a response, which is taken while the response is sent.

use bytes::Bytes;
use fairgate_call::{BodyEnd, ReplyGuard};
use tokio::sync::oneshot;

use crate::{limits::body_budget::BodyShare, replies::dry_run::MAX_RESPONSE};

/// A response, with what counts its bytes.
pub(crate) type CountedReply = (Bytes, BodyShare);

/// Copies a response while it is sent to the client, and hands it over at its end.
pub(crate) struct ReplyCopy {
    sender: Option<oneshot::Sender<CountedReply>>,
    bytes: Vec<u8>,
    share: BodyShare,
}

impl ReplyCopy {
    /// A copy that is handed to the receiver.
    pub(crate) fn new(share: BodyShare) -> (Box<Self>, oneshot::Receiver<CountedReply>) {
        let (sender, receiver) = oneshot::channel();
        let copy = Self {
            sender: Some(sender),
            bytes: Vec::new(),
            share,
        };
        (Box::new(copy), receiver)
    }
}

impl ReplyGuard for ReplyCopy {
    fn data(&mut self, data: &Bytes) {
        let fits = self.bytes.len() + data.len() <= MAX_RESPONSE;
        let is_wanted = self
            .sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed());
        if is_wanted && fits && self.share.take(data.len()) {
            self.bytes.extend_from_slice(data);
        } else {
            self.sender = None;
            self.bytes = Vec::new();
            self.share = self.share.another();
        }
    }

    fn end(self: Box<Self>, how: BodyEnd) {
        if let Some(sender) = self.sender
            && how == BodyEnd::Complete
        {
            let _ = sender.send((self.bytes.into(), self.share));
        }
    }
}
