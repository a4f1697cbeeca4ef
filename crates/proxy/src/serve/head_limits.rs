//! Limits of request heads.

use std::time::Duration;

/// How much a client may send as a head, and in what time.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    /// Largest head.
    pub(super) bytes: usize,
    /// Time for a whole head, from its first byte.
    pub(super) timeout: Duration,
}
