//! How a request to the upstream gets the user's identity.

use http::HeaderMap;

use fairgate_call::{Call, Refusal};

/// Writes a call's user into the headers of the request to the upstream.
///
/// The headers it is given contain none that a client could have set to the same effect. A function with the
/// same arguments implements it as well.
pub trait WriteIdentity {
    /// Adds the headers that name the user of `call`, and those that authenticate the gateway itself.
    ///
    /// # Errors
    ///
    /// [`Refusal::IdentityNotRepresentable`] when a header cannot carry a name unchanged; then nothing is sent.
    fn write(&self, call: &Call, headers: &mut HeaderMap) -> Result<(), Refusal>;
}

impl<F: Fn(&Call, &mut HeaderMap) -> Result<(), Refusal>> WriteIdentity for F {
    fn write(&self, call: &Call, headers: &mut HeaderMap) -> Result<(), Refusal> {
        self(call, headers)
    }
}
