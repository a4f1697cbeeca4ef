//! Bearer tokens, validated by the upstream with `TokenReview`.
//!
//! The gateway cannot validate most tokens itself: only the upstream knows whether a pod or an account still exists. So it
//! sends a review, and caches the result for a few seconds. A data core looks a token up without waiting; if nothing is
//! known, one review per token runs on the control runtime, however many requests wait for it.
//!
//! A flood of made-up tokens must not starve valid ones: unknown tokens are cached and reviewed separately (see `lookup`), the
//! addresses of clients take turns, and addresses without a valid token get only a part of the reviews (`lookup`).
//!
//! A failed review neither accepts nor refuses the token. It is never cached, and never makes the client anonymous.
//!
//! Not here: how a client presents its token, and what it may do.

mod key;
mod protocol;

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::runtime::Handle;

pub use self::key::{BearerToken, NoRandomness, TokenDigest, TokenKey};
use crate::{
    cache::EntryLife,
    client::RequestError,
    lookup::{
        Lookup, LookupCache, LookupFailure, LookupPayer, LookupSettings, PendingLookup, Retention,
        network_and_address,
    },
    review::{RetryPolicy, ReviewTransport, post},
};
use fairgate_base::clock::Clock;
use fairgate_call::Identity;
use fairgate_core::{digest::User, time::Time};

/// The identity of the token's user, or that the token is not valid.
pub type ReviewedToken = Result<Arc<Identity>, TokenRefused>;

/// The outcome of a review, when it is there. Dropping it leaves the review running.
pub type PendingTokenReview = PendingLookup<ReviewedToken, TokenReviewError>;

/// How tokens are reviewed and results cached.
#[derive(Clone, Debug)]
pub struct TokenReviewSettings {
    /// The audiences a token must be for; empty: those of the upstream.
    pub audiences: Vec<String>,
    /// How long an accepted token is valid without asking again; at most 10 s, and never past its own expiry.
    pub accepted_ttl: Duration,
    /// How long a refused token is refused without asking again.
    pub refused_ttl: Duration,
    /// The limit of one attempt.
    pub try_limit: Duration,
    /// The pause after the first failed attempt; each later one is half as long again.
    pub first_pause: Duration,
    /// The bounds of reviews and of the cache of their results. Tokens that were accepted recently have bounds of their
    /// own.
    pub lookups: LookupSettings,
}

impl Default for TokenReviewSettings {
    fn default() -> Self {
        Self {
            audiences: Vec::new(),
            accepted_ttl: MAX_ACCEPTED_TTL,
            refused_ttl: Duration::from_secs(10),
            try_limit: Duration::from_secs(10),
            first_pause: Duration::from_millis(500),
            lookups: LookupSettings::new(16_384, 64 << 20, Duration::from_secs(30)),
        }
    }
}

/// The upstream's own cache holds a token as long.
const MAX_ACCEPTED_TTL: Duration = Duration::from_secs(10);
/// How long a token counts as known after its acceptance: longer than most clients pause between requests.
const KNOWN_FOR: Duration = Duration::from_secs(300);
/// The maximum number of attempts of one review.
const TRIES: u32 = 5;
/// The most characters that are kept of the upstream's reason for a refusal.
const MAX_REASON_CHARS: usize = 200;
/// The approximate memory of a cached result without its strings, in bytes.
const ENTRY_BYTES: usize = 400;

/// The token is not valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRefused {
    /// Empty if none was given.
    reason: Arc<str>,
}

/// Why a token could not be reviewed. The client gets 503 or 429 and may try again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TokenReviewError {
    /// Too many wait already.
    #[error("too many token reviews are pending")]
    Overloaded,
    /// Out of time.
    #[error("the TokenReview took too long; check that the upstream answers")]
    TimedOut,
    /// No usable response.
    #[error("TokenReview: {0}")]
    Request(#[from] RequestError),
    /// A response that is not a `TokenReview` with a status.
    #[error("TokenReview: {reason}")]
    Malformed { reason: Arc<str> },
    /// The runtime ended, or the transport panicked.
    #[error("the token review was abandoned")]
    Abandoned,
}

impl From<LookupFailure> for TokenReviewError {
    fn from(failure: LookupFailure) -> Self {
        match failure {
            LookupFailure::Overloaded => Self::Overloaded,
            LookupFailure::TimedOut => Self::TimedOut,
            LookupFailure::Abandoned => Self::Abandoned,
        }
    }
}

/// Reviews tokens and caches results. Cloning shares both.
#[derive(Clone)]
pub struct TokenReviews {
    key: TokenKey,
    lookups: LookupCache<TokenLookup>,
}

struct TokenLookup {
    settings: TokenReviewSettings,
    transport: Box<dyn ReviewTransport>,
    clock: Clock,
}

impl TokenReviews {
    /// Reviews run on `runtime` and go through `transport`.
    pub fn new(
        settings: TokenReviewSettings,
        transport: impl ReviewTransport,
        key: TokenKey,
        clock: Clock,
        runtime: Handle,
    ) -> Self {
        let bounds = settings.lookups.clone();
        let lookup = TokenLookup {
            settings,
            transport: Box::new(transport),
            clock: clock.clone(),
        };
        Self {
            key,
            lookups: LookupCache::new(lookup, bounds, clock, runtime),
        }
    }

    /// The key under which tokens are looked up.
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// What is known at `now` of the token with this digest; neither waits nor allocates.
    pub fn lookup_cached(&self, digest: &TokenDigest, now: Time) -> Option<ReviewedToken> {
        self.lookups.cached(digest, now)
    }

    /// How many reviews run or wait, and the most that ever did; without those that renew a result.
    pub fn pending(&self) -> [usize; 2] {
        self.lookups.pending()
    }

    /// Who holds what a request takes while the token with this digest is reviewed: the token if it was accepted recently, otherwise the
    /// client's address (IPv6: its /64). So unknown tokens cannot take the room of known ones that come from the same address.
    pub fn waiting_payer(&self, digest: &TokenDigest, client: SocketAddr) -> Arc<str> {
        if self.lookups.was_positive(digest) {
            return format!("{:02x?}", digest.to_bytes()).into();
        }
        network_and_address(client).1.to_string().into()
    }

    /// The outcome of the review of `token`: of one that runs already, or else of a new one, on the account of the client's address.
    pub fn review(
        &self,
        token: &BearerToken,
        digest: TokenDigest,
        client: SocketAddr,
    ) -> PendingTokenReview {
        let payer = || LookupPayer::peer(client);
        self.lookups.get(digest, payer, || token.clone())
    }
}

impl Lookup for TokenLookup {
    const HAS_RENEWAL_LANE: bool = true;
    const HAS_STRANGERS: bool = true;

    type Key = TokenDigest;
    type Request = BearerToken;
    type Value = ReviewedToken;
    type Error = TokenReviewError;

    async fn fetch(
        &self,
        digest: &TokenDigest,
        token: &BearerToken,
    ) -> Result<ReviewedToken, TokenReviewError> {
        let audiences = &self.settings.audiences;
        let Ok(text) = std::str::from_utf8(token.as_bytes()) else {
            return Ok(Err(TokenRefused::because("not UTF-8")));
        };
        let review = protocol::request(text, audiences)?;
        let retry = RetryPolicy {
            tries: TRIES,
            try_limit: self.settings.try_limit,
            first_pause: self.settings.first_pause,
            factor: 1.5,
            jitter: 0.2 * f64::from(digest.spread()) / f64::from(u16::MAX),
        };
        let body: Bytes = post::<TokenReviewError>(&*self.transport, &review, retry).await?;
        protocol::result(&body, audiences)
    }

    fn retention(&self, token: &BearerToken, reviewed: &ReviewedToken) -> Retention {
        let settings = &self.settings;
        let life = match reviewed {
            Ok(identity) => {
                let wall = self.clock.wall().duration_since(SystemTime::UNIX_EPOCH);
                let own = protocol::remaining(token.as_bytes(), wall.unwrap_or_default());
                let granted = settings.accepted_ttl.min(MAX_ACCEPTED_TTL);
                EntryLife {
                    ttl: granted.min(own.unwrap_or(Duration::MAX)),
                    remembered: KNOWN_FOR.min(own.unwrap_or(KNOWN_FOR)),
                    bytes: ENTRY_BYTES + text_bytes(identity.user()),
                }
            }
            Err(refused) => EntryLife {
                ttl: settings.refused_ttl,
                remembered: settings.refused_ttl,
                bytes: ENTRY_BYTES + refused.reason.len(),
            },
        };
        Retention {
            is_positive: reviewed.is_ok(),
            life,
        }
    }

    fn log_failure(&self, error: &TokenReviewError, left_out: u64) {
        // Each request that is refused for that is told so, and logged, where it is refused.
        if *error != TokenReviewError::Overloaded {
            tracing::warn!(%error, left_out, "requests get 503 because a bearer token could not be reviewed");
        }
    }
}

/// The memory of the strings of a user and their pointers, in bytes: twice, since the identity's prepared headers
/// repeat them.
fn text_bytes(user: &User) -> usize {
    let lists = user.extra.iter().map(|(key, values)| {
        let values: usize = values.iter().map(|value| value.len() + 24).sum();
        key.len() + values + 48
    });
    let groups = user.groups.iter().map(|group| group.len() + 24);
    2 * (user.name.len() + user.uid.len() + groups.sum::<usize>() + lists.sum::<usize>())
}

impl TokenRefused {
    /// A refusal with the upstream's reason, truncated for the log.
    fn because(reason: &str) -> Self {
        Self {
            reason: reason
                .chars()
                .take(MAX_REASON_CHARS)
                .collect::<String>()
                .into(),
        }
    }
}

impl fmt::Display for TokenRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid bearer token")?;
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for TokenRefused {}

impl fmt::Debug for TokenReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews")
            .field("settings", &self.lookups.lookup().settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
