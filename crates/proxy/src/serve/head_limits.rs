//! Limits of request heads.

use std::time::Duration;

/// How much a client may send as a head, and in what time.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    /// The size limit of a head, in bytes.
    pub(super) bytes: usize,
    /// The time limit of a whole head, from its first byte.
    pub(super) timeout: Duration,
}
