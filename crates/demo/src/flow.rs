//! One user of the gateway, and the outcome of its requests.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::{
    client::{ClientError, ClientResponse},
    figures::{percentile, percentile_among},
    gateway::DemoUser,
};
use fairgate_core::{
    sync::{Arc, Mutex, lock},
    time::Time,
};

/// One user. Its name begins with `elephant` or `mouse`.
#[derive(Debug)]
pub(super) struct DemoFlow {
    name: String,
    tally: Mutex<Tally>,
}

/// The outcome of a flow's requests. Only requests that start after the warm-up are counted. Latency is
/// measured from the intended moment of sending to the end of the response.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Requests that are counted.
    pub(super) requests: u64,
    /// Of these, those that succeeded.
    pub(super) ok: u64,
    /// Those that were rejected with 429.
    pub(super) rejected: u64,
    /// Requests in flight, counted or not.
    pub(super) open: u64,
    /// The last error of a request that was neither served nor rejected.
    pub(super) failure: Option<String>,
    /// The latencies of those that succeeded.
    latencies: Vec<Duration>,
}

/// A request in flight. Dropped without [`OpenRequest::end`], it counts as failed.
#[derive(Debug)]
pub(super) struct OpenRequest {
    flow: Arc<DemoFlow>,
    intended: Time,
    counts: bool,
}

impl DemoFlow {
    pub(super) fn new(name: String) -> Arc<Self> {
        let tally = Mutex::default();
        Arc::new(Self { name, tally })
    }

    /// The user's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The user, as gateways know it.
    pub(super) fn user(&self) -> DemoUser {
        DemoUser {
            name: self.name.clone(),
            token: format!("demo-{}", self.name),
        }
    }

    /// The `Authorization` header with the token.
    pub(super) fn authorization(&self) -> Result<HeaderValue, http::Error> {
        Ok(HeaderValue::try_from(format!(
            "Bearer {}",
            self.user().token
        ))?)
    }

    /// The results so far.
    pub(super) fn tally(&self) -> Tally {
        lock(&self.tally).clone()
    }

    /// Starts a request that is meant to be sent at `intended`; `counts` says whether it is counted.
    pub(super) fn begin(self: &Arc<Self>, intended: Time, counts: bool) -> OpenRequest {
        let mut tally = lock(&self.tally);
        tally.open += 1;
        tally.requests += u64::from(counts);
        OpenRequest {
            flow: Arc::clone(self),
            intended,
            counts,
        }
    }
}

impl OpenRequest {
    /// Ends the request.
    pub(super) fn end(self, now: Time, response: &Result<ClientResponse, ClientError>) {
        let mut tally = lock(&self.flow.tally);
        match response {
            Ok(response) if response.status == StatusCode::OK => {
                if self.counts {
                    tally.ok += 1;
                    tally.latencies.push(now.since(self.intended));
                }
            }
            Ok(response) if response.status == StatusCode::TOO_MANY_REQUESTS => {
                tally.rejected += u64::from(self.counts);
            }
            Ok(response) => tally.failure = Some(format!("response {}", response.status)),
            Err(error) => tally.failure = Some(error.to_string()),
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        lock(&self.flow.tally).open -= 1;
    }
}

impl Tally {
    /// The percentile `percent` of the latencies. O(served).
    pub(super) fn latency(&mut self, percent: usize) -> Option<Duration> {
        percentile(&mut self.latencies, percent)
    }

    /// The same of all counted requests: those without success are infinite, [`Duration::MAX`]. O(served).
    pub(super) fn latency_of_all(&mut self, percent: usize) -> Option<Duration> {
        let all = usize::try_from(self.requests).unwrap_or(usize::MAX);
        percentile_among(&mut self.latencies, all, percent)
    }

    /// Counted requests that were neither served nor rejected.
    pub(super) fn failed(&self) -> u64 {
        self.requests.saturating_sub(self.ok + self.rejected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: ClientResponse = ClientResponse {
        status: StatusCode::OK,
        retry_after: None,
    };

    fn at(ms: u64) -> Time {
        Time::ZERO.plus(Duration::from_millis(ms))
    }

    #[test]
    fn time_counts_from_the_moment_a_request_was_meant_to_be_sent() {
        let flow = DemoFlow::new("mouse-1".to_owned());
        flow.begin(at(100), true).end(at(350), &Ok(OK));
        let mut tally = flow.tally();
        assert_eq!((tally.requests, tally.ok, tally.open), (1, 1, 0));
        assert_eq!(tally.latency(99), Some(Duration::from_millis(250)));
    }

    #[test]
    fn requests_of_the_warm_up_are_not_counted() {
        let flow = DemoFlow::new("elephant".to_owned());
        let open = flow.begin(at(0), false);
        assert_eq!(flow.tally().open, 1);
        open.end(at(50), &Ok(OK));
        let mut tally = flow.tally();
        assert_eq!((tally.requests, tally.ok, tally.open), (0, 0, 0));
        assert_eq!(tally.latency(50), None);
    }

    #[test]
    fn served_rejected_and_failed_requests_are_counted_separately() {
        let flow = DemoFlow::new("elephant".to_owned());
        let refused = ClientResponse {
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after: Some(Duration::from_secs(1)),
        };
        let broken = ClientResponse {
            status: StatusCode::BAD_GATEWAY,
            ..OK
        };
        flow.begin(at(0), true).end(at(1), &Ok(OK));
        flow.begin(at(0), true).end(at(1), &Ok(refused));
        flow.begin(at(0), true).end(at(1), &Ok(broken));
        drop(flow.begin(at(0), true));
        let mut tally = flow.tally();
        assert_eq!((tally.requests, tally.ok, tally.rejected), (4, 1, 1));
        assert_eq!(tally.latency(99), Some(Duration::from_millis(1)));
        assert_eq!(tally.latency_of_all(25), Some(Duration::from_millis(1)));
        assert_eq!(tally.latency_of_all(26), Some(Duration::MAX));
        assert_eq!(tally.failed(), 2);
        assert_eq!(tally.failure.as_deref(), Some("response 502 Bad Gateway"));
    }
}
