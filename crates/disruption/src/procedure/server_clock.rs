//! An estimate of the upstream's clock from its `Date` headers.
//!
//! The time of a grant is stored in `disruptedPods`, and the controller expires it two minutes later by its
//! own clock. If a gateway whose clock is far behind wrote its own time, its entries would already have expired when
//! the controller reads them, and more pods would be evicted than the budget allows.

use jiff::{SignedDuration, Timestamp};

/// The difference between a local clock and the upstream's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerClock {
    ahead: SignedDuration,
}

/// The precision of the header `Date`, which is truncated to whole seconds.
const PRECISION: SignedDuration = SignedDuration::from_secs(1);

impl ServerClock {
    /// Updates the estimate from the header `Date: date` of a response to a request that was sent at `sent` and
    /// answered at `received`, by the local clock.
    ///
    /// The estimate becomes the smallest difference that is consistent with the header: zero if the clocks may
    /// agree.
    pub fn observe(&mut self, sent: Timestamp, received: Timestamp, date: Timestamp) {
        if received < sent {
            // The local clock was set back during the call, so the times cannot be compared.
            return;
        }
        let least = date.duration_since(received);
        let most = date.duration_since(sent).saturating_add(PRECISION);
        self.ahead = SignedDuration::ZERO.max(least).min(most);
    }

    /// The upstream's time when the local clock shows `local`.
    pub fn at(&self, local: Timestamp) -> Timestamp {
        local.saturating_add(self.ahead).unwrap_or(local)
    }

    /// The estimated lead of the upstream's clock over the local clock; negative if it is behind.
    pub fn ahead(&self) -> SignedDuration {
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap()
    }

    #[test]
    fn g04_a_clock_that_is_behind_or_ahead_is_corrected_by_the_upstreams_date() {
        let mut clock = ServerClock::default();
        // 3 min behind.
        clock.observe(at(0), at(10), at(180_000));
        assert_eq!(clock.at(at(10)), at(180_000));
        // 3 min ahead.
        clock.observe(at(200_000), at(200_010), at(20_000));
        assert_eq!(clock.at(at(200_000)), at(21_000));
    }

    #[test]
    fn a_clock_that_agrees_is_left_alone() {
        let mut clock = ServerClock::default();
        for (sent, received, date) in [(300, 310, 0), (900, 1100, 1000), (0, 5000, 3000)] {
            clock.observe(at(sent), at(received), at(date));
            assert_eq!(clock.ahead(), SignedDuration::ZERO);
        }
        // Set back while the request ran.
        clock.observe(at(5000), at(0), at(90_000));
        assert_eq!(clock.ahead(), SignedDuration::ZERO);
    }
}
