//! How many requests a client may reset before they are answered.

use std::time::Duration;

/// How many requests a client may reset before they are answered.
#[derive(Clone, Copy, Debug)]
pub struct ResetLimits {
    /// A reset is premature if it comes sooner than this after the request.
    pub young: Duration,
    /// How many premature resets are allowed in a burst. Beyond that the connection is closed, or the user's
    /// requests are refused until half of the resets are forgotten.
    pub at_once: u32,
    /// How long it takes until one of them is forgotten; not zero.
    pub forgotten_after: Duration,
}

impl ResetLimits {
    /// For one connection: 100 at once, 10 a second.
    pub const PER_CONNECTION: Self = Self {
        young: Duration::from_secs(1),
        at_once: 100,
        forgotten_after: Duration::from_millis(100),
    };

    /// For one user, on all connections: 500 at once, 50 a second.
    pub const PER_USER: Self = Self {
        young: Duration::from_secs(1),
        at_once: 500,
        forgotten_after: Duration::from_millis(20),
    };
}
