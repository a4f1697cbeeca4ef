//! Authorization by the upstream, with `SubjectAccessReview`.
//!
//! In front of an API server its rules hold for what the gateway answers in its place, too. A decision is cached
//! for as long as API servers cache that of an authorization webhook, so a permission that is revoked there ends
//! here some minutes later, as with any delegated authorizer. One review is sent per question, however many calls
//! wait for the decision.
//!
//! `system:masters` may do everything, as on the server itself, without a review: the administrator gets in even
//! when the server does not answer.
//!
//! That nothing could be decided is neither allow nor deny, and is not cached.
//!
//! Not here: selectors of lists (they could only narrow the question), lists of rules.

mod attributes;
mod protocol;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

pub use self::attributes::Attributes;
use crate::{
    cache::{CacheBounds, EntryLife},
    client::RequestError,
    lookup::{Lookup, LookupCache, LookupFailure, LookupOutcome, LookupSettings, Retention},
    review::{PostError, RetryPolicy, ReviewTransport, post},
};
use fairgate_base::{clock::Clock, events::EventSink};
use fairgate_core::digest::User;

/// How often one review is attempted.
const TRIES: u32 = 3;
/// What a cached decision takes beside its reason, about.
const ENTRY_BYTES: usize = 200;

/// How access is reviewed and decisions cached.
#[derive(Clone, Debug)]
pub struct AccessReviewSettings {
    /// How long an allow decision holds.
    pub allowed_ttl: Duration,
    /// How long a deny decision holds.
    pub denied_ttl: Duration,
    /// How many decisions of each kind are cached; at least 1.
    pub max_entries: usize,
    /// How much memory decisions of each kind may take, in bytes.
    pub max_bytes: usize,
    /// How many reviews run at once; at least 1.
    pub max_running: usize,
    /// How many reviews may run or wait. Further ones fail immediately.
    pub max_pending: usize,
    /// The limit of one review with all its attempts, waiting included.
    pub limit: Duration,
    /// The pause after the first failed attempt; the next is twice as long.
    pub first_pause: Duration,
    /// Receives the outcome of each review.
    pub events: EventSink<LookupOutcome>,
}

impl Default for AccessReviewSettings {
    fn default() -> Self {
        Self {
            allowed_ttl: Duration::from_secs(300),
            denied_ttl: Duration::from_secs(30),
            max_entries: 8_192,
            max_bytes: 16 << 20,
            max_running: 32,
            max_pending: 1_024,
            limit: Duration::from_secs(10),
            first_pause: Duration::from_millis(200),
            events: EventSink::default(),
        }
    }
}

/// Whether access is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether it is.
    pub allowed: bool,
    /// Why; empty if no reason was given.
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
    #[error("SubjectAccessReview: it took too long")]
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

impl From<PostError> for AccessReviewError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::TimedOut => Self::TimedOut,
            PostError::Request(error) => Self::Request(error),
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
        let bounds = LookupSettings {
            bounds: CacheBounds {
                entries: settings.max_entries,
                bytes: settings.max_bytes,
            },
            max_running: settings.max_running,
            max_pending: settings.max_pending,
            has_renewal_lane: false,
            limit: settings.limit,
            events: settings.events.clone(),
        };
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
        if user.in_group(User::MASTERS) {
            return Ok(AccessDecision::plain(true));
        }
        let review = Bytes::from(protocol::request(user, attributes).to_string());
        // A request can be long, and collisions of its hash are infeasible.
        let key: [u8; 32] = Sha256::digest(&review).into();
        self.0.get(key, || review).await
    }
}

impl Lookup for AccessLookup {
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
            try_limit: self.settings.limit,
            first_pause: self.settings.first_pause,
            factor: 2.0,
            jitter: 0.0,
        };
        let answer = post(&*self.transport, review, retry).await?;
        protocol::decision(&answer)
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
