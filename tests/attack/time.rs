//! Time, of which a black box can only be told by the clock.

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

/// Random numbers by seed (`SplitMix64`), for schedules that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
