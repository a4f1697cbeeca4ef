//! What a connection keeps of the authentication of its requests.
//!
//! A certificate chain is not verified for every request. A result is valid
//! for one set of settings, and until the first certificate of the chain expires. A rejected certificate is
//! verified again after a short while, since it may not be valid *yet*.
//!
//! The digest of a bearer token is not computed for every request either, since most clients send the same token again. Only the
//! digest is kept: whether the token is valid, and whose it is, is looked up each time, so a token that expires or is revoked has no
//! effect any longer than without this. Of what is found, a connection has a copy.
//!
//! Not here: how a chain is verified, and how a token is looked up (`auth`).

use std::{fmt, hint::black_box, sync::Arc};

use crate::Identity;

/// What one connection keeps of the authentication of its requests; empty at first.
///
/// A client cannot change its certificate within a connection. Its token it can.
#[derive(Debug, Default)]
pub struct PeerIdentityCache {
    /// The version of the settings for which all of it is valid.
    version: u64,
    /// Whether the client is a front proxy.
    pub front_proxy: CachedVerification<(), FrontProxyError>,
    /// The user that the certificate names; `None` if it names none.
    pub user: CachedVerification<Option<Arc<Identity>>, CertificateError>,
    /// The digest of the last token, by the key of these settings.
    pub token: LastToken,
    /// A copy of the last identity that connections share.
    pub last: OwnIdentity,
}

/// A connection's own copy of an identity that many connections share. Each request refers to its identity several times, and
/// cores that count their references in the same memory wait for each other.
#[derive(Debug, Default)]
pub enum OwnIdentity {
    /// No request so far.
    #[default]
    None,
    /// One request, for which no copy was made: some connections have no other.
    Shared(Arc<Identity>),
    /// Several requests.
    Copied {
        /// The identity that connections share.
        of: Arc<Identity>,
        /// The copy.
        own: Arc<Identity>,
    },
}

/// The last bearer token of a connection, with its digest.
#[derive(Default)]
pub struct LastToken {
    token: Vec<u8>,
    digest: [u8; 32],
}

/// The longest token that a connection keeps, in bytes. Tokens of service accounts have about 1 100.
const LONGEST_KEPT: usize = 4 << 10;

/// A verified value, and the last second (Unix time) at which it is valid.
pub type Verification<T, E> = Result<(T, i64), E>;

/// The result of one verification, cached while it is valid.
#[derive(Debug)]
pub struct CachedVerification<T, E>(Option<CachedResult<T, E>>);

#[derive(Debug)]
struct CachedResult<T, E> {
    /// First and last second (Unix time) at which it is valid.
    from: i64,
    until: i64,
    result: Result<T, E>,
}

/// For how many seconds a rejected certificate is not verified again.
const REJECTED_SECONDS: i64 = 10;

/// Why a certificate chain is not trusted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChainError {
    /// It has expired, is of an unknown authority, is not for client authentication, or the like.
    #[error("{0}")]
    Rejected(Arc<rustls::Error>),
    /// All authorities of the bundle have expired, or are not valid yet.
    #[error("no certificate authority of the bundle is valid now")]
    NoAuthority,
}

/// Why the subject of a certificate cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// Not DER, or not a certificate.
    #[error("the certificate cannot be parsed")]
    Malformed,
    /// An attribute of a type that holds no text, or with bytes that its type does not allow.
    #[error("the certificate's subject has an attribute that is not text")]
    NotText,
    /// Several uids, or an empty one.
    #[error("the certificate's subject must have at most one uid, and it must not be empty")]
    Uid,
}

/// Why a client certificate does not authenticate a user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CertificateError {
    /// It is not trusted.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// It is trusted, but its subject cannot be read.
    #[error(transparent)]
    Subject(#[from] SubjectError),
}

/// Why a client is not trusted as a front proxy, or its headers cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum FrontProxyError {
    /// The client's certificate is not of an authority for front proxies; true of every ordinary client.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The client's certificate is trusted, but its subject cannot be read.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The common name of its certificate is not allowed.
    #[error("x509: subject with cn={common_name} is not in the allowed list")]
    NotAllowed { common_name: Arc<str> },
    /// A header is not UTF-8.
    #[error("header {name}: not UTF-8")]
    NotText { name: http::HeaderName },
}

impl PeerIdentityCache {
    /// Drops everything if it is of another version of the settings.
    pub fn for_version(&mut self, version: u64) -> &mut Self {
        if self.version != version {
            *self = Self {
                version,
                ..Self::default()
            };
        }
        self
    }
}

impl OwnIdentity {
    /// An identity equal to `shared`: from the second request in a row that has it, a copy of it. Costs O(its size) for that
    /// one, and no allocation for all others.
    pub fn of(&mut self, shared: &Arc<Identity>) -> Arc<Identity> {
        match self {
            Self::Copied { of, own } if Arc::ptr_eq(of, shared) => return Arc::clone(own),
            // By address: caches share one allocation for each user, and comparing contents would cost as much as the copy.
            Self::Shared(first) if Arc::ptr_eq(first, shared) => {
                let own = Arc::new(shared.copied());
                *self = Self::Copied {
                    of: Arc::clone(shared),
                    own: Arc::clone(&own),
                };
                return own;
            }
            _ => *self = Self::Shared(Arc::clone(shared)),
        }
        Arc::clone(shared)
    }
}

impl LastToken {
    /// The digest of `token`: `digest(token)`, computed only if the last token was another one.
    ///
    /// `digest` must be the same function each time. Costs one comparison if the token is the last one; copies it if
    /// not, unless it is longer than 4 KiB.
    pub fn digest(&mut self, token: &[u8], digest: impl FnOnce(&[u8]) -> [u8; 32]) -> [u8; 32] {
        // An empty `self.token` stands for none, so the digest of an empty token cannot be the kept one.
        if !token.is_empty() && equal_in_constant_time(&self.token, token) {
            return self.digest;
        }
        let digest = digest(token);
        // Also if the new token is too long to be kept: the new digest does not belong to the old token.
        self.token.clear();
        if token.len() <= LONGEST_KEPT {
            self.token.extend_from_slice(token);
        }
        self.digest = digest;
        digest
    }
}

/// Whether both are equal. How long it takes depends on their lengths only: a proxy may send requests of several users on one
/// connection, and none of them shall learn the token of another by guessing it byte by byte.
fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && {
        let pairs = one.iter().zip(other);
        black_box(pairs.fold(0, |differences, (one, other)| differences | (one ^ other))) == 0
    }
}

impl fmt::Debug for LastToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LastToken({} bytes)", self.token.len())
    }
}

impl<T, E> CachedVerification<T, E> {
    /// The result that is valid at this second (Unix time). Calls `verify` if there is none.
    ///
    /// # Errors
    ///
    /// Those of `verify`.
    pub fn get(
        &mut self,
        unix_seconds: i64,
        verify: impl FnOnce() -> Verification<T, E>,
    ) -> Result<&T, &E> {
        let is_valid =
            |entry: &CachedResult<T, E>| (entry.from..=entry.until).contains(&unix_seconds);
        if !self.0.as_ref().is_some_and(is_valid) {
            self.0 = None;
        }
        self.0
            .get_or_insert_with(|| match verify() {
                Ok((value, until)) => CachedResult {
                    // A clock that was set back since then makes the result invalid, too.
                    from: unix_seconds,
                    until,
                    result: Ok(value),
                },
                Err(error) => CachedResult {
                    from: unix_seconds,
                    until: unix_seconds.saturating_add(REJECTED_SECONDS),
                    result: Err(error),
                },
            })
            .result
            .as_ref()
    }
}

impl<T, E> Default for CachedVerification<T, E> {
    fn default() -> Self {
        Self(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_core::digest::User;

    #[test]
    fn a_result_is_valid_from_its_beginning_to_its_end() {
        let mut cached: CachedVerification<u32, ()> = CachedVerification::default();
        let mut made = 0;
        for (now, count) in [(100, 1), (105, 1), (110, 1), (111, 2), (120, 2), (90, 3)] {
            let got = cached.get(now, || {
                made += 1;
                Ok((made, now + 10))
            });
            assert_eq!(got, Ok(&count), "at {now}");
        }
    }

    #[test]
    fn a_rejected_certificate_is_soon_verified_again() {
        let mut cached: CachedVerification<(), u32> = CachedVerification::default();
        let mut made = 0;
        for (now, count) in [(100, 1), (110, 1), (111, 2)] {
            let got = cached.get(now, || {
                made += 1;
                Err(made)
            });
            assert_eq!(got, Err(&count), "at {now}");
        }
    }

    #[test]
    fn a_connection_copies_an_identity_that_comes_again() {
        let user = |name: &str| {
            let mut user = User::anonymous();
            user.name = name.to_owned();
            Arc::new(Identity::impersonated(user, Arc::new(User::anonymous())))
        };
        let (one, other) = (user("one"), user("other"));
        let mut last = OwnIdentity::default();
        let mut before = Arc::clone(&one);
        for (shared, is_copy, is_same) in [
            (&one, false, true),
            (&one, true, false),
            (&one, true, true),
            (&other, false, false),
            (&one, false, false),
            (&one, true, false),
        ] {
            let got = last.of(shared);
            assert_eq!(got.user(), shared.user());
            assert_eq!(got.impersonator(), shared.impersonator());
            assert_eq!(!Arc::ptr_eq(&got, shared), is_copy);
            assert_eq!(!Arc::ptr_eq(got.user(), shared.user()), is_copy);
            assert_eq!(Arc::ptr_eq(&got, &before), is_same);
            before = got;
        }
    }

    #[test]
    fn a_digest_is_computed_again_for_another_token_only() {
        let long = vec![b'l'; LONGEST_KEPT + 1];
        let tokens: [(&[u8], bool); 9] = [
            (b"one", true),
            (b"one", false),
            (b"onf", true),
            (b"one", true),
            (b"on", true),
            (b"", true),
            (b"", true),
            (&long, true),
            (&long, true), // it is too long to be kept
        ];
        let mut last = LastToken::default();
        for (token, computed) in tokens {
            let mut was_computed = false;
            let digest = last.digest(token, |token| {
                was_computed = true;
                let mut digest = [0; 32];
                let length = token.len().min(32);
                digest[..length].copy_from_slice(&token[..length]);
                digest
            });
            assert!(digest.starts_with(&token[..token.len().min(32)]));
            assert_eq!(was_computed, computed, "{}", token.len());
            assert!(last.token.len() <= LONGEST_KEPT);
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let mut cache = PeerIdentityCache::default();
        let _digest = cache.token.digest(b"hunter2", |_| [0; 32]);
        let printed = format!("{cache:?}");
        assert!(printed.contains("7 bytes"), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
