//! What the long heads of queued requests take in memory.
//!
//! The number of queued requests is bounded, and so is what heads of usual size take. A head may be much longer (`limits.headerBytes`), so what
//! is beyond the usual size is charged to its user while the request is queued, and a request for which there is no room is rejected, as if its
//! queue were full. A request that does not have to wait is charged nothing: its seat stands for its head.

use std::sync::Arc;

use fairgate_base::account::{ByteBudget, ByteShare, BytesHeld};
use fairgate_call::{Call, head_bytes};

/// What a head may take that is charged to nobody. Heads with a token and some dozen lines take about half of it.
const USUAL_BYTES: usize = 8 << 10;

/// The long heads of queued requests, all cores together.
#[derive(Debug)]
pub struct QueuedHeads {
    budget: Arc<ByteBudget>,
}

/// There is no room for the head of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoomForHead;

impl QueuedHeads {
    pub(super) fn new(bytes: usize) -> Self {
        let budget = ByteBudget::new(bytes);
        Self { budget }
    }

    /// From now on so many bytes may be held. What is held already stays.
    pub(super) fn set_total(&self, bytes: usize) {
        self.budget.set_total(bytes);
    }

    /// Charges the user of a call that is to be queued for what its head takes beyond the usual size, if that is anything, until
    /// the result is dropped. A user may have at most as much as is still free.
    pub(super) fn enter(&self, call: &Call) -> Result<Option<ByteShare>, NoRoomForHead> {
        let bytes = head_bytes(&call.request).saturating_sub(USUAL_BYTES);
        if bytes == 0 {
            return Ok(None);
        }
        let mut share = self.budget.share(&call.digest.user);
        if share.take(bytes) {
            Ok(Some(share))
        } else {
            Err(NoRoomForHead)
        }
    }

    /// How many bytes are held, and the most that ever were.
    pub fn held(&self) -> BytesHeld {
        self.budget.held()
    }
}
