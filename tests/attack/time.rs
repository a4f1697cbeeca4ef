//! Limits of time, which can be measured from outside only by the clock.

use std::time::{Duration, Instant};

/// The time. A measurement reads the clock.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// So many milliseconds.
pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits at most `limit` until `holds`. Whether it came true.
pub(crate) async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = now();
    while !holds() {
        if begun.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(ms(10)).await;
    }
    true
}
