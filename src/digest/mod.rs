//! What policy may know of a request.
//!
//! A [`RequestDigest`] is the whole input of classification and work estimation. Nothing after it
//! reads a header to decide. No credential and no body is in here.

pub mod info;
pub mod user;

use std::sync::Arc;

pub use info::{InfoError, ListOptions, RequestInfo, Verb};
pub use user::User;

/// A request as classification sees it: who asks, and for what.
#[derive(Clone, Debug)]
pub struct RequestDigest {
    /// What the method, path and query ask for.
    pub info: RequestInfo,
    /// Who asks; shared, because a user is resolved once per connection or token.
    pub user: Arc<User>,
}
