//! How many requests a client may reset before they are answered: a leaky bucket.

use std::time::Duration;

/// How many requests a client may reset before they are answered.
#[derive(Clone, Copy, Debug)]
pub struct ResetLimits {
    /// A reset is premature if it comes sooner than this after the request.
    pub premature_within: Duration,
    /// How many premature resets are allowed in a burst. Beyond that the connection is closed, or the user's
    /// requests are refused until half of the resets no longer count.
    pub burst: u32,
    /// How long it takes until one of them no longer counts; not zero.
    pub interval: Duration,
}

impl ResetLimits {
    /// For one connection: 100 at once, 10 a second.
    pub const PER_CONNECTION: Self = Self {
        premature_within: Duration::from_secs(1),
        burst: 100,
        interval: Duration::from_millis(100),
    };

    /// For one user, on all connections: 500 at once, 50 a second.
    pub const PER_USER: Self = Self {
        premature_within: Duration::from_secs(1),
        burst: 500,
        interval: Duration::from_millis(20),
    };
}
