//! Log lines about requests that the upstream took and did not answer.
//!
//! A client gets a 502, 503 or 504 for them. Clients can cause any number, so few are logged; the access log has all.

use std::error::Error;

use fairgate_base::log_limit::LogLimit;
use fairgate_core::time::Time;
use fairgate_upstream::client::with_causes;

static LOST: LogLimit = LogLimit::new(2);
static TIMED_OUT: LogLimit = LogLimit::new(2);

/// The connection failed before a request that arrived at this time was answered.
pub(super) fn lost(arrived: Time, upstream: &str, error: &(dyn Error + 'static)) {
    if let Some(left_out) = LOST.next_line(arrived) {
        let error = with_causes(error);
        tracing::warn!(
            upstream,
            error,
            left_out,
            "the upstream closed a connection before it answered; read its log, and check that upstream.url has the scheme that it serves"
        );
    }
}

/// A request that arrived at this time was not answered in time.
pub(super) fn timed_out(arrived: Time, upstream: &str) {
    if let Some(left_out) = TIMED_OUT.next_line(arrived) {
        tracing::warn!(
            upstream,
            left_out,
            "the upstream did not answer a request in time; check its health, or raise timeouts.request if the request may take longer"
        );
    }
}
