//! The waits of a client: until its next request is due, and after it was refused.

use std::time::Duration;

use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use http::{HeaderMap, header::RETRY_AFTER};
use tokio::sync::watch;

/// Waits for `moment`, or until `stop` turns true. Returns whether the load goes on.
pub async fn wait_until(clock: &Clock, stop: &mut watch::Receiver<bool>, moment: Time) -> bool {
    if moment > clock.now() {
        tokio::select! {
            () = tokio::time::sleep_until(clock.instant(moment)) => {}
            _ = stop.wait_for(|stop| *stop) => return false,
        }
    }
    !*stop.borrow()
}

/// The pause that a response asks for by `Retry-After`, in whole seconds; `None` if it asks for none, or by a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_when_the_load_is_over() {
        let clock = Clock::manual(Time::ZERO);
        let (stopping, mut stop) = watch::channel(false);
        assert!(wait_until(&clock, &mut stop, Time::ZERO).await);
        stopping.send_replace(true);
        assert!(!wait_until(&clock, &mut stop, Time::ZERO).await);
        let later = Time::ZERO.plus(Duration::from_secs(3600));
        assert!(!wait_until(&clock, &mut stop, later).await);
    }

    #[test]
    fn a_pause_is_a_number_of_seconds() {
        let with = |value: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            retry_after(&headers)
        };
        assert_eq!(with("3"), Some(Duration::from_secs(3)));
        assert_eq!(with("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
