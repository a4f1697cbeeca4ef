//! Authorization by the upstream, with `SubjectAccessReview`.
//!
//! The rules of the API server also apply to requests that the gateway answers itself. A decision is cached
//! for as long as API servers cache that of an authorization webhook, so a permission that is revoked there ends
//! here some minutes later, as with any delegated authorizer. One review is sent per question, however many calls
//! wait for the decision.
//!
//! `system:masters` may do everything, as on the server itself, without a review: the administrator gets in even
//! when the server does not answer.
//!
//! A failed review is neither allow nor deny, and is not cached.
//!
//! Not here: lists of rules.

mod attributes;
mod protocol;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

pub use self::attributes::Attributes;
use crate::{
    cache::EntryLife,
    client::RequestError,
    lookup::{Lookup, LookupCache, LookupFailure, LookupPayer, LookupSettings, Retention},
    review::{RetryPolicy, ReviewTransport, post},
};
use fairgate_base::clock::Clock;
use fairgate_core::digest::User;

/// The maximum number of attempts of one review.
const TRIES: u32 = 3;
/// The approximate size of a cached decision without its reason, in bytes.
const ENTRY_BYTES: usize = 200;

/// How access is reviewed and decisions cached.
#[derive(Clone, Debug)]
pub struct AccessReviewSettings {
    /// How long an allow decision holds.
    pub allowed_ttl: Duration,
    /// How long a deny decision holds.
    pub denied_ttl: Duration,
    /// The pause after the first failed attempt; the next is twice as long.
    pub first_pause: Duration,
    /// The bounds of reviews and of the cache of decisions.
    pub lookups: LookupSettings,
}

impl Default for AccessReviewSettings {
    fn default() -> Self {
        Self {
            allowed_ttl: Duration::from_secs(300),
            denied_ttl: Duration::from_secs(30),
            first_pause: Duration::from_millis(200),
            lookups: LookupSettings::new(8_192, 16 << 20, Duration::from_secs(10)),
        }
    }
}

/// Whether access is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDecision {
    /// `true` for allow, `false` for deny.
    pub allowed: bool,
    /// The reason; empty if none was given.
    pub reason: Arc<str>,
}

impl AccessDecision {
    /// A decision without a reason.
    pub fn plain(allowed: bool) -> Self {
        Self {
            allowed,
            reason: Arc::default(),
        }
    }
}

/// Why nothing was decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessReviewError {
    /// No usable response.
    #[error("SubjectAccessReview: {0}")]
    Request(#[from] RequestError),
    /// A response that is not a `SubjectAccessReview` with a status.
    #[error("SubjectAccessReview: the response has no valid status")]
    Malformed,
    /// Out of time.
    #[error("SubjectAccessReview: timed out")]
    TimedOut,
    /// Too many wait already.
    #[error("too many SubjectAccessReviews are pending")]
    Overloaded,
    /// The runtime ended, or the transport panicked.
    #[error("the SubjectAccessReview was abandoned")]
    Abandoned,
}

impl From<LookupFailure> for AccessReviewError {
    fn from(failure: LookupFailure) -> Self {
        match failure {
            LookupFailure::Overloaded => Self::Overloaded,
            LookupFailure::TimedOut => Self::TimedOut,
            LookupFailure::Abandoned => Self::Abandoned,
        }
    }
}

/// Reviews access and caches decisions. Cloning shares both.
#[derive(Clone)]
pub struct AccessReviews(LookupCache<AccessLookup>);

struct AccessLookup {
    settings: AccessReviewSettings,
    transport: Box<dyn ReviewTransport>,
}

impl AccessReviews {
    /// Reviews run on `runtime` and go through `transport`.
    pub fn new(
        settings: AccessReviewSettings,
        transport: impl ReviewTransport,
        clock: Clock,
        runtime: Handle,
    ) -> Self {
        let bounds = settings.lookups.clone();
        let lookup = AccessLookup {
            settings,
            transport: Box::new(transport),
        };
        Self(LookupCache::new(lookup, bounds, clock, runtime))
    }

    /// Whether `user` may do what `attributes` say.
    ///
    /// # Errors
    ///
    /// [`AccessReviewError`], when nothing could be decided.
    pub async fn decide(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<AccessDecision, AccessReviewError> {
        // Before the cache, so that administrators depend neither on the server nor on room in the queue.
        if user.in_group(User::MASTERS) {
            return Ok(AccessDecision::plain(true));
        }
        let review = Bytes::from(protocol::request(user, attributes).to_string());
        // A request can be long, and collisions of its hash are infeasible.
        let key: [u8; 32] = Sha256::digest(&review).into();
        let payer = || LookupPayer::of(&user.name);
        self.0.get(key, payer, || review).await
    }
}

impl Lookup for AccessLookup {
    const HAS_RENEWAL_LANE: bool = false;
    const HAS_STRANGERS: bool = false;

    type Key = [u8; 32];
    type Request = Bytes;
    type Value = AccessDecision;
    type Error = AccessReviewError;

    async fn fetch(
        &self,
        _: &[u8; 32],
        review: &Bytes,
    ) -> Result<AccessDecision, AccessReviewError> {
        let retry = RetryPolicy {
            tries: TRIES,
            try_limit: self.settings.lookups.limit,
            first_pause: self.settings.first_pause,
            factor: 2.0,
            jitter: 0.0,
        };
        let body: Bytes = post::<AccessReviewError>(&*self.transport, review, retry).await?;
        protocol::decision(&body)
    }

    fn retention(&self, _: &Bytes, decision: &AccessDecision) -> Retention {
        let ttl = if decision.allowed {
            self.settings.allowed_ttl
        } else {
            self.settings.denied_ttl
        };
        Retention {
            is_positive: decision.allowed,
            life: EntryLife {
                ttl,
                // Without a lane for renewals nobody asks whether a decision was known before it expired.
                remembered: ttl,
                bytes: ENTRY_BYTES + decision.reason.len(),
            },
        }
    }

    fn log_failure(&self, error: &AccessReviewError, left_out: u64) {
        tracing::warn!(%error, left_out, "cannot check a user's authorization");
    }
}

impl fmt::Debug for AccessReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessReviews")
            .field("settings", &self.0.lookup().settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
