//! How a review travels to whoever decides it.
//!
//! A review is an object that is posted and comes back with its status filled in.

use std::pin::Pin;

use bytes::Bytes;
use http::uri::PathAndQuery;

use crate::client::{ApiClient, RequestError};

/// Carries the body of a review to whoever decides it, and brings back the body of the answer.
///
/// An implementation need not limit time nor repeat.
pub trait ReviewTransport: Send + Sync + 'static {
    /// Posts `body`, JSON; gives the body of an answer of status 200 or 201.
    fn post(&self, body: Bytes) -> PostFuture<'_>;
}

/// The answer to a posted review.
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
