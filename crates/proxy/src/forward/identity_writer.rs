//! How a request to the upstream gets the user's identity.

use fairgate_call::{Call, HeaderLines, Refusal};

/// Writes a call's user into the headers of the request to the upstream.
///
/// The lines before it are none that a client could have set to the same effect. A function with the same arguments
/// as [`write`](Self::write) implements it as well.
pub trait WriteIdentity {
    /// Adds the headers that name the user of `call`, and those that authenticate the gateway itself.
    ///
    /// # Errors
    ///
    /// [`Refusal::IdentityNotRepresentable`] when a header cannot carry a name unchanged; then nothing is sent.
    fn write(&self, call: &Call, lines: &mut dyn HeaderLines) -> Result<(), Refusal>;

    /// Whether a client's header of this name, in lower case, would be taken for a part of what [`write`](Self::write) adds. A
    /// request that still has one is refused: two identities must not mix.
    fn is_identity(&self, _name: &str) -> bool {
        false
    }
}

impl<F: Fn(&Call, &mut dyn HeaderLines) -> Result<(), Refusal>> WriteIdentity for F {
    fn write(&self, call: &Call, lines: &mut dyn HeaderLines) -> Result<(), Refusal> {
        self(call, lines)
    }
}
