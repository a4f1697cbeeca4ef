//! Tokens that the upstream judges, by `TokenReview`.
//!
//! A gateway cannot judge most tokens itself: that a pod or an account is gone only the upstream
//! knows. So it asks, and remembers the answer for a few seconds. A data core looks a token up without
//! waiting; if nothing is known, one review per token runs on the control runtime, however many
//! requests ask, and it runs on if they leave.
//!
//! A flood of made-up tokens must not starve good ones. Refused tokens have a table of their own,
//! reviews that wait are bounded in number, and tokens that were accepted lately are reviewed in a
//! lane of their own.
//!
//! That a token could not be reviewed is neither acceptance nor refusal: it is never kept, and never
//! makes the client anonymous.
//!
//! Not here: how a token travels (`bearer`), reading clocks (one is given).

mod cache;
mod verdict;

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use dashmap::{DashMap, Entry};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use self::cache::ReviewCache;
use super::{Identity, Now, Token, TokenDigest, TokenKey};
use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit};
use fairgate_upstream::{client::RequestError, review::ReviewTransport};

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewEnd {
    /// The token is somebody's.
    Accepted,
    /// It is nobody's.
    Refused,
    /// There was no answer.
    Failed,
}

/// Whose token it is, or that it is nobody's.
pub type Reviewed = Result<Arc<Identity>, TokenRefused>;

/// How reviews are made and kept.
#[derive(Clone, Debug)]
pub struct ReviewSettings {
    /// The audiences a token must be for; empty: those of the upstream.
    pub audiences: Vec<String>,
    /// How long an accepted token is believed, at most 10 s and never past its own end.
    pub accepted_ttl: Duration,
    /// How long a refused token is refused without asking.
    pub refused_ttl: Duration,
    /// How many tokens are remembered, of each kind; at least 1.
    pub max_entries: usize,
    /// How many reviews run at once, of tokens not seen lately; as many again may renew others.
    pub max_running: usize,
    /// How many reviews of tokens not seen lately may run or wait. Further ones fail at once.
    pub max_pending: usize,
    /// The limit of one attempt.
    pub try_limit: Duration,
    /// The limit of a review with all its attempts, waiting included.
    pub review_limit: Duration,
    /// The pause after the first failed attempt; each later one is half as long again.
    pub first_pause: Duration,
    /// Hears how reviews end.
    pub events: EventSink<ReviewEnd>,
}

impl Default for ReviewSettings {
    fn default() -> Self {
        Self {
            audiences: Vec::new(),
            accepted_ttl: MAX_ACCEPTED_TTL,
            refused_ttl: Duration::from_secs(10),
            max_entries: 16_384,
            max_running: 32,
            max_pending: 1_024,
            try_limit: Duration::from_secs(10),
            review_limit: Duration::from_secs(30),
            first_pause: Duration::from_millis(500),
            events: EventSink::default(),
        }
    }
}

/// The upstream's own cache holds a token as long.
const MAX_ACCEPTED_TTL: Duration = Duration::from_secs(10);
/// How long a token counts as known after its acceptance: some of its owner's pauses.
const KNOWN_FOR: Duration = Duration::from_secs(300);
/// How often one review is attempted.
const TRIES: u32 = 5;

/// The token is nobody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRefused {
    /// Empty if none was given.
    reason: Arc<str>,
}

/// Why a review could not be made: answer 503 or 429 and let the client come again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ReviewError {
    /// Too many wait already.
    #[error("too many token reviews are pending")]
    Overloaded,
    /// Out of time.
    #[error("the token review took too long")]
    TimedOut,
    /// No answer.
    #[error("token review: {0}")]
    Transport(#[from] RequestError),
    /// An answer that is none.
    #[error("token review: {reason}")]
    Malformed { reason: Arc<str> },
    /// The runtime ended, or the transport panicked.
    #[error("the token review was abandoned")]
    Abandoned,
}

/// The handle to reviews and what is remembered of them. Cloning shares it.
#[derive(Clone)]
pub struct TokenReviews(Arc<Shared>);

struct Shared {
    key: TokenKey,
    settings: ReviewSettings,
    transport: Box<dyn ReviewTransport>,
    clock: Clock,
    runtime: Handle,
    cache: ReviewCache,
    /// Who waits for the review of each token that is under review.
    flights: DashMap<TokenDigest, Vec<oneshot::Sender<Landed>>>,
    /// Reviews of tokens not seen lately, running or waiting.
    pending: AtomicUsize,
    strangers: Semaphore,
    renewals: Semaphore,
    /// How many failures are logged: clients can cause any number.
    failures: LogLimit,
}

/// Failures that are logged in 10 s.
const LOGGED_FAILURES: u32 = 5;

type Landed = Result<Reviewed, ReviewError>;

/// The outcome of a review, when it is there. Dropping it leaves the review running.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Review(State);

#[derive(Debug)]
enum State {
    Landed(Option<Landed>),
    Waiting(oneshot::Receiver<Landed>),
}

impl TokenReviews {
    /// A handle whose reviews run on `runtime` and go through `transport`.
    pub fn new(
        settings: ReviewSettings,
        transport: impl ReviewTransport,
        key: TokenKey,
        clock: Clock,
        runtime: Handle,
    ) -> Self {
        let lane = || Semaphore::new(settings.max_running.clamp(1, Semaphore::MAX_PERMITS));
        Self(Arc::new(Shared {
            key,
            cache: ReviewCache::new(settings.max_entries),
            flights: DashMap::new(),
            pending: AtomicUsize::new(0),
            strangers: lane(),
            renewals: lane(),
            transport: Box::new(transport),
            clock,
            runtime,
            failures: LogLimit::new(LOGGED_FAILURES),
            settings,
        }))
    }

    /// A key under which tokens may be looked up.
    pub fn key(&self) -> &TokenKey {
        &self.0.key
    }

    /// What is known of the token with this digest; neither waits nor allocates.
    pub fn lookup_cached(&self, digest: &TokenDigest, now: Now) -> Option<Reviewed> {
        self.0.cache.get(digest, now.time)
    }

    /// The outcome of the review of `token`: of one that runs already, or else of a new one.
    pub fn review(&self, token: &Token, digest: TokenDigest) -> Review {
        let now = Now::of(&self.0.clock);
        let known = self.0.cache.was_accepted(&digest);
        let (sender, receiver) = oneshot::channel();
        match self.0.flights.entry(digest) {
            Entry::Occupied(mut flight) => {
                flight.get_mut().push(sender);
                return Review(State::Waiting(receiver));
            }
            Entry::Vacant(flight) => {
                // It may have landed between the caller's look-up and this one.
                if let Some(reviewed) = self.0.cache.get(&digest, now.time) {
                    return Review(State::Landed(Some(Ok(reviewed))));
                }
                if !known && !self.0.may_pend() {
                    return Review(State::Landed(Some(Err(ReviewError::Overloaded))));
                }
                flight.insert(vec![sender]);
            }
        }
        // Without the lock: on a runtime that has ended, spawning drops the task, which takes it.
        let flight = Flight {
            shared: Arc::clone(&self.0),
            digest,
            known,
            landed: None,
        };
        self.0.runtime.spawn(flight.fly(token.clone()));
        Review(State::Waiting(receiver))
    }

    /// The number of accepted and of refused tokens remembered.
    pub fn remembered(&self) -> (usize, usize) {
        self.0.cache.len()
    }
}

impl Shared {
    /// Counts one more pending review of a stranger, unless there are too many.
    fn may_pend(&self) -> bool {
        let max = self.settings.max_pending;
        self.pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pending| {
                (pending < max).then_some(pending + 1)
            })
            .is_ok()
    }

    async fn ask(&self, token: &Token, digest: &TokenDigest) -> Result<Reviewed, ReviewError> {
        let audiences = &self.settings.audiences;
        let Ok(text) = std::str::from_utf8(token.as_bytes()) else {
            return Ok(Err(TokenRefused::because("not UTF-8")));
        };
        let question = verdict::question(text, audiences)?;
        let mut pause = self.settings.first_pause;
        for attempt in 1.. {
            let post = self.transport.post(question.clone());
            let error = match timeout(self.settings.try_limit, post).await {
                Ok(Ok(body)) => return verdict::answer(&body, audiences),
                Ok(Err(error)) => error,
                Err(_elapsed) => return Err(ReviewError::TimedOut),
            };
            let Some(at_least) = error.retry_delay().filter(|_| attempt < TRIES) else {
                return Err(error.into());
            };
            // Up to a fifth more, so that equal troubles do not come again all at once.
            let spread = pause.mul_f64(0.2 * f64::from(digest.spread()) / f64::from(u16::MAX));
            sleep(at_least.max(pause + spread)).await;
            pause = pause.mul_f64(1.5);
        }
        Err(ReviewError::TimedOut)
    }

    fn remember(&self, digest: TokenDigest, token: &Token, reviewed: &Reviewed) {
        let now = Now::of(&self.clock);
        let (ttl, known_for) = match reviewed {
            Ok(_) => {
                let own = verdict::remaining(token.as_bytes(), now.wall);
                let granted = self.settings.accepted_ttl.min(MAX_ACCEPTED_TTL);
                let ttl = granted.min(own.unwrap_or(Duration::MAX));
                (ttl, ttl.max(KNOWN_FOR.min(own.unwrap_or(KNOWN_FOR))))
            }
            Err(_) => (self.settings.refused_ttl, self.settings.refused_ttl),
        };
        let (expires, leaves) = (now.time.plus(ttl), now.time.plus(known_for));
        self.cache
            .put(digest, reviewed.clone(), now.time, expires, leaves);
    }
}

/// One review under way. However it ends, those who wait are told.
struct Flight {
    shared: Arc<Shared>,
    digest: TokenDigest,
    /// Whether the token was accepted lately.
    known: bool,
    /// How it ended, once it has.
    landed: Option<Landed>,
}

impl Flight {
    async fn fly(mut self, token: Token) {
        let shared = Arc::clone(&self.shared);
        let lane = if self.known {
            &shared.renewals
        } else {
            &shared.strangers
        };
        let ask = async {
            let _turn = lane
                .acquire()
                .await
                .map_err(|_closed| ReviewError::Abandoned)?;
            shared.ask(&token, &self.digest).await
        };
        let landed = timeout(shared.settings.review_limit, ask)
            .await
            .unwrap_or(Err(ReviewError::TimedOut));
        match &landed {
            Ok(reviewed) => shared.remember(self.digest, &token, reviewed),
            Err(error) => {
                if let Some(left_out) = shared.failures.admit(shared.clock.now()) {
                    tracing::warn!(%error, left_out, "a bearer token could not be reviewed");
                }
            }
        }
        self.landed = Some(landed);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.known {
            self.shared.pending.fetch_sub(1, Ordering::Relaxed);
        }
        let landed = self.landed.take().unwrap_or(Err(ReviewError::Abandoned));
        self.shared.settings.events.send(match &landed {
            Ok(Ok(_)) => ReviewEnd::Accepted,
            Ok(Err(_)) => ReviewEnd::Refused,
            Err(_) => ReviewEnd::Failed,
        });
        if let Some((_, waiting)) = self.shared.flights.remove(&self.digest) {
            for sender in waiting {
                let _ = sender.send(landed.clone()); // fails for those who have left
            }
        }
    }
}

impl Future for Review {
    type Output = Result<Reviewed, ReviewError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Landed(landed) => {
                Poll::Ready(landed.take().unwrap_or(Err(ReviewError::Abandoned)))
            }
            State::Waiting(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|told| told.unwrap_or(Err(ReviewError::Abandoned))),
        }
    }
}

impl TokenRefused {
    /// A refusal with the reason somebody else gave, cut to a length fit for a log.
    pub(super) fn because(reason: &str) -> Self {
        Self {
            reason: reason.chars().take(200).collect::<String>().into(),
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
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
