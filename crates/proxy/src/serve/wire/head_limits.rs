//! Limits of request heads.

use std::time::Duration;

/// How much a client may send as a head, and in what time.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct HeadLimits {
    /// The size limit of a head, in bytes.
    pub(in crate::serve) bytes: usize,
    /// The time limit of a whole head, from its first byte.
    pub(in crate::serve) timeout: Duration,
}
