//! Bearer tokens, and the keyed hash by which they are looked up.
//!
//! No table is keyed by a token itself: a memory dump or timing differences would reveal it. The hash is HMAC-SHA-256
//! with a random key of the process, so that equal digests mean equal tokens, and clients cannot provoke collisions.

use std::{fmt, sync::Arc};

use ring::{hmac, rand::SystemRandom};

/// The key of the hash; one per process. Cloning shares it.
#[derive(Clone)]
pub struct TokenKey(Arc<hmac::Key>);

/// The keyed hash of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

/// A bearer token: never empty, and never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Box<[u8]>);

/// The operating system provides no random bytes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system provides no random bytes for the key of the token tables")]
pub struct NoRandomness;

impl TokenKey {
    /// A random key from the operating system.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn random() -> Result<Self, NoRandomness> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_unspecified| NoRandomness)?;
        Ok(Self(Arc::new(key)))
    }

    /// The digest of `token`; allocates nothing, and takes about a microsecond for a usual token.
    pub fn digest(&self, token: &[u8]) -> TokenDigest {
        let tag = hmac::sign(&self.0, token);
        let mut digest = [0; 32];
        digest.copy_from_slice(tag.as_ref()); // SHA-256 gives 32 bytes
        TokenDigest(digest)
    }
}

impl TokenDigest {
    /// The bytes of the digest, for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The digest with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A number that is distributed evenly over tokens; the same for the same token.
    pub(super) fn spread(&self) -> u16 {
        u16::from_le_bytes([self.0[0], self.0[1]])
    }
}

impl BearerToken {
    /// A token of these bytes; `None` if there are none, which is not a credential.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        (!bytes.is_empty()).then_some(Self(bytes))
    }

    /// The bytes of the token: a secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenDigest({:04x}..)", self.spread())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BearerToken({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tokens_have_equal_digests_under_one_key_only() {
        let (one, other) = (TokenKey::random().unwrap(), TokenKey::random().unwrap());
        assert_eq!(one.digest(b"secret"), one.clone().digest(b"secret"));
        assert_ne!(one.digest(b"secret"), one.digest(b"secres"));
        assert_ne!(one.digest(b"secret"), other.digest(b"secret"));
    }

    #[test]
    fn neither_token_nor_digest_is_printed() {
        let token = BearerToken::new(*b"hunter2").unwrap();
        let key = TokenKey::random().unwrap();
        let printed = format!("{token:?} {key:?} {:?}", key.digest(token.as_bytes()));
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("7 bytes"), "{printed}");
    }

    #[test]
    fn an_empty_token_is_not_a_credential() {
        assert_eq!(BearerToken::new([]), None);
    }
}
