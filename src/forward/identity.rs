//! How the upstream learns who the user is.

use http::HeaderMap;

use crate::{call::Refusal, digest::User};

/// Writes a user into the headers of a request to the upstream.
///
/// The list it is given holds no header a client could have set to the same effect. A function of the
/// same form is one too.
pub trait UpstreamIdentity {
    /// Adds the headers that say who `user` is, and those that prove that we may say so.
    ///
    /// # Errors
    ///
    /// [`Refusal::IdentityNotRepresentable`] when a name cannot be carried in a header unchanged;
    /// then nothing is sent.
    fn write(&self, user: &User, headers: &mut HeaderMap) -> Result<(), Refusal>;
}

impl<F: Fn(&User, &mut HeaderMap) -> Result<(), Refusal>> UpstreamIdentity for F {
    fn write(&self, user: &User, headers: &mut HeaderMap) -> Result<(), Refusal> {
        self(user, headers)
    }
}
