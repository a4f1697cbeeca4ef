//! Limits on requests that clients reset before they get a response.

use std::time::Duration;

/// How many requests a client may reset before they get a response: a leaky bucket.
#[derive(Clone, Copy, Debug)]
pub struct ResetLimits {
    /// A reset is premature if it comes less than this long after the request.
    pub premature_within: Duration,
    /// How many premature resets are allowed in a burst. Beyond that the connection is closed, or the user's
    /// requests are refused until half of the resets no longer count.
    pub burst: u32,
    /// The time after which a reset no longer counts; not zero.
    pub interval: Duration,
}

impl ResetLimits {
    /// The limits of one connection: a burst of 100, then 10 per second.
    pub const PER_CONNECTION: Self = Self {
        premature_within: Duration::from_secs(1),
        burst: 100,
        interval: Duration::from_millis(100),
    };

    /// The limits of one user, on all connections: a burst of 500, then 50 per second.
    pub const PER_USER: Self = Self {
        premature_within: Duration::from_secs(1),
        burst: 500,
        interval: Duration::from_millis(20),
    };
}
