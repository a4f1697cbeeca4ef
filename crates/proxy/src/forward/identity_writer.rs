//! How the upstream learns who the user is.

use http::HeaderMap;

use fairgate_call::{Call, Refusal};

/// Writes a call's user into the headers of the request to the upstream.
///
/// The list it is given holds no header a client could have set to the same effect. A function of the
/// same form is one too.
pub trait WriteIdentity {
    /// Adds the headers that say who the user of `call` is, and those that prove that we may say so.
    ///
    /// # Errors
    ///
    /// [`Refusal::IdentityNotRepresentable`] when a name cannot be carried in a header unchanged;
    /// then nothing is sent.
    fn write(&self, call: &Call, headers: &mut HeaderMap) -> Result<(), Refusal>;
}

impl<F: Fn(&Call, &mut HeaderMap) -> Result<(), Refusal>> WriteIdentity for F {
    fn write(&self, call: &Call, headers: &mut HeaderMap) -> Result<(), Refusal> {
        self(call, headers)
    }
}
