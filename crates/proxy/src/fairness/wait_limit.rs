//! How long a request may wait in a queue, computed as in kube-apiserver.

use std::time::Duration;

use fairgate_core::time::Time;

/// The maximum wait, also of a request with a later deadline.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How long a request with the time limit `whole` may wait.
pub(super) fn wait_limit(whole: Duration) -> Duration {
    (whole / 4).min(MAX_WAIT)
}

/// The time until which a request may wait in a queue: a quarter of the time from its arrival to its deadline
/// (or of the default time limit, if it has none), at most a minute, and never past the deadline.
pub(super) fn wait_deadline(
    received: Time,
    deadline: Option<Time>,
    request_timeout: Duration,
) -> Time {
    let whole = deadline.map_or(request_timeout, |deadline| deadline.since(received));
    let until = received.plus(wait_limit(whole));
    deadline.map_or(until, |deadline| until.min(deadline))
}

/// How long a body may take at least, if the deadline is not before that: a client with a short time limit needs a round trip,
/// or two if it waits for `100 Continue`, and more where packets are lost.
const LEAST_BODY_TIME: Duration = Duration::from_secs(2);

/// The time until which the body of a request has to be there that is read before the request waits for a seat: as long as the
/// request may wait, which counts from its head.
pub(super) fn body_deadline(
    received: Time,
    deadline: Option<Time>,
    request_timeout: Duration,
) -> Time {
    let wait = wait_deadline(received, deadline, request_timeout);
    let until = wait.max(received.plus(LEAST_BODY_TIME));
    deadline.map_or(until, |deadline| until.min(deadline))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_quarter_of_the_time_may_be_spent_waiting() {
        // The request arrived at 100 s.
        assert_eq!(wait_deadline(at(100), Some(at(160)), MINUTE), at(115));
        assert_eq!(wait_deadline(at(100), None, MINUTE), at(115));
        assert_eq!(
            wait_deadline(at(100), Some(at(580)), MINUTE),
            at(160),
            "at most a minute"
        );
        assert_eq!(wait_deadline(at(100), None, 8 * MINUTE), at(160));
        assert_eq!(wait_deadline(at(100), Some(at(100)), MINUTE), at(100));
    }

    #[test]
    fn a_body_may_take_as_long_as_the_request_may_wait_and_two_seconds_before_a_close_deadline() {
        assert_eq!(body_deadline(at(100), None, MINUTE), at(115));
        assert_eq!(body_deadline(at(100), Some(at(160)), MINUTE), at(115));
        assert_eq!(body_deadline(at(100), Some(at(104)), MINUTE), at(102));
        assert_eq!(body_deadline(at(100), Some(at(101)), MINUTE), at(101));
    }
}
