//! Sends reviews.
//!
//! A review is an object that is posted, and returned with its status filled in.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::time::{sleep, timeout};

use crate::{
    client::{ApiClient, RequestError},
    lookup::LookupFailure,
};

/// Sends reviews and returns the responses.
///
/// An implementation needs neither time-outs nor retries.
pub trait ReviewTransport: Send + Sync + 'static {
    /// Posts `body`, JSON; returns the body of a response of status 200 or 201.
    fn post(&self, body: Bytes) -> PostFuture<'_>;
}

/// The response to a review.
pub type PostFuture<'a> = Pin<Box<dyn Future<Output = Result<Bytes, RequestError>> + Send + 'a>>;

/// Posts reviews of one kind to the upstream.
#[derive(Clone, Debug)]
pub struct ReviewClient {
    client: ApiClient,
    path: PathAndQuery,
}

impl ReviewClient {
    /// Posts a `TokenReview`.
    pub fn tokens(client: ApiClient) -> Self {
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        Self::new(client, path)
    }

    /// Posts a `SubjectAccessReview`.
    pub fn access(client: ApiClient) -> Self {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        Self::new(client, path)
    }

    fn new(client: ApiClient, path: &'static str) -> Self {
        let path = PathAndQuery::from_static(path);
        Self { client, path }
    }
}

impl ReviewTransport for ReviewClient {
    fn post(&self, body: Bytes) -> PostFuture<'_> {
        Box::pin(self.client.post_json(self.path.clone(), body))
    }
}

/// How often a review is sent, and with what pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// The maximum number of attempts; at least 1.
    pub(crate) tries: u32,
    /// The limit of one attempt.
    pub(crate) try_limit: Duration,
    /// The pause after the first failed attempt.
    pub(crate) first_pause: Duration,
    /// By how much each further pause is longer than the one before.
    pub(crate) factor: f64,
    /// The fraction by which pauses are lengthened, so that equal failures are not all retried at once.
    pub(crate) jitter: f64,
}

/// Posts a review, and retries it if that may help. An attempt that takes too long is not retried: the upstream may
/// still be working on it.
pub(crate) async fn post<E: From<RequestError> + From<LookupFailure>>(
    transport: &dyn ReviewTransport,
    review: &Bytes,
    retry: RetryPolicy,
) -> Result<Bytes, E> {
    let mut pause = retry.first_pause;
    let mut attempt = 1;
    loop {
        let posted = timeout(retry.try_limit, transport.post(review.clone())).await;
        let error = match posted {
            Ok(Ok(body)) => return Ok(body),
            Ok(Err(error)) => error,
            Err(_elapsed) => return Err(LookupFailure::TimedOut.into()),
        };
        let Some(at_least) = error.retry_delay().filter(|_| attempt < retry.tries) else {
            return Err(error.into());
        };
        sleep(at_least.max(pause + pause.mul_f64(retry.jitter))).await;
        pause = pause.mul_f64(retry.factor);
        attempt += 1;
    }
}
