//! What long heads of requests take in memory.
//!
//! The number of requests is bounded, and so is what heads of usual size take. A head may be much longer (`limits.headerBytes`), and the
//! memory of an HTTP/1 head is free only when all of it is: the target of a request is part of it, and so are headers that are not
//! forwarded. So what is beyond the usual size is charged to its user from authentication to the end of the request, whatever
//! the request does meanwhile: it waits for its body or in a queue, executes, is a watch, or its client does not read the response.
//! Before that, the heads of requests whose tokens are reviewed have a budget of their own (`crate::auth`).

use std::sync::Arc;

use fairgate_base::account::{ByteBudget, BytesHeld};
use fairgate_call::Call;

/// What a head may take that is charged to nobody. Heads with a token and some dozen lines take about half of it.
const USUAL_BYTES: usize = 8 << 10;

/// The long heads of requests, all cores together.
#[derive(Debug)]
pub struct LongHeads {
    budget: Arc<ByteBudget>,
}

/// There is no room for the head of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoomForHead;

impl LongHeads {
    pub(super) fn new(bytes: usize) -> Self {
        let budget = ByteBudget::new(bytes);
        Self { budget }
    }

    /// From now on so many bytes may be held. What is held already stays.
    pub(super) fn set_total(&self, bytes: usize) {
        self.budget.set_total(bytes);
    }

    /// Charges the user of a call for what its head takes beyond the usual size, if that is anything, until its context is dropped. A
    /// call that was charged before is not charged again: an eviction that waits is tried several times. A user may have at most
    /// as much as is still free.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub(super) fn charge(&self, call: &Call) -> Result<(), NoRoomForHead> {
        let bytes = call.context.head_bytes.saturating_sub(USUAL_BYTES);
        if bytes == 0 || call.context.head_share.get().is_some() {
            return Ok(());
        }
        let mut share = self.budget.share(&call.digest.user);
        if !share.take(bytes) {
            return Err(NoRoomForHead);
        }
        call.context.head_share.get_or_init(|| share);
        Ok(())
    }

    /// How many bytes are held, and the most that ever were.
    pub fn held(&self) -> BytesHeld {
        self.budget.held()
    }
}
