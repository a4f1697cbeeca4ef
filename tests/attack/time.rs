//! Helpers for time limits, which can be measured from outside only with the clock.

use std::time::{Duration, Instant};

/// The current time.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// After this time something counts as lost that is awaited without a limit of its own: far longer than a busy machine stops
/// a process.
pub(crate) const LIVENESS: Duration = ms(60_000);

/// The same, for what has the lowest priority, and gets a small part of a core that others use: beside forty busy
/// processes, what takes five seconds took more than four minutes.
pub(crate) const LOW_PRIORITY_LIVENESS: Duration = ms(900_000);

/// A duration in milliseconds.
pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `holds` returns true, for at most `limit`. Returns whether it did.
pub(crate) async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let (begun, mut pause) = (now(), ms(1));
    while !holds() {
        if begun.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(ms(16));
    }
    true
}
