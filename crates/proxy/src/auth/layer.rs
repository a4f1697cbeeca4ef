//! The layer that makes calls: it parses a request, authenticates its user, and removes the headers that only the
//! gateway may set.
//!
//! A [`Call`] always has a user and a parsed request: no later layer has to check that.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use arc_swap::ArcSwap;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::{
    authenticator::{AuthDecision, AuthOutcome, Authenticator, Credentials, PendingReview},
    impersonation::{self, ImpersonationError},
    now::Now,
    spoof::{ConfiguredNames, HeaderRefusal, strip_identity_headers},
};
use fairgate_base::{
    account::{ByteBudget, ByteShare},
    clock::Clock,
    log_limit::LogLimit,
};
use fairgate_call::{Call, Identity, Inbound, Refusal, Reply, RequestKind};
use fairgate_core::{
    digest::{RequestDigest, RequestInfo},
    time::Time,
};
use fairgate_upstream::token_review::TokenReviewError;

/// The settings of the layer; replaced as a whole when settings change.
#[derive(Debug)]
pub struct AuthRules {
    /// The methods of authentication.
    pub authentication: Authenticator,
    /// Configured front-proxy header names, which are never forwarded; the usual names are known.
    pub names: ConfiguredNames,
    /// Whether `system:masters` may impersonate; otherwise every request that tries is refused. fairgate sets it in
    /// the mode `standalone` only, there also with an upstream.
    pub impersonation: bool,
    /// The time limit of a request that does not set a shorter one with `timeout=`.
    pub request_timeout: Duration,
}

/// Puts authentication in front of a service of calls.
#[derive(Clone, Debug)]
pub struct AuthLayer {
    rules: Arc<ArcSwap<AuthRules>>,
    waiting: Arc<ByteBudget>,
    clock: Clock,
}

impl AuthLayer {
    /// A layer that uses the rules that are current when a request arrives. What requests take whose tokens are being reviewed is
    /// charged to `waiting`.
    pub fn new(rules: Arc<ArcSwap<AuthRules>>, waiting: Arc<ByteBudget>, clock: Clock) -> Self {
        Self {
            rules,
            waiting,
            clock,
        }
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = Auth<S>;

    fn layer(&self, inner: S) -> Auth<S> {
        Auth {
            rules: Arc::clone(&self.rules),
            waiting: Arc::clone(&self.waiting),
            clock: self.clock.clone(),
            inner,
        }
    }
}

/// See [`AuthLayer`].
#[derive(Clone, Debug)]
pub struct Auth<S> {
    rules: Arc<ArcSwap<AuthRules>>,
    waiting: Arc<ByteBudget>,
    clock: Clock,
    inner: S,
}

impl<S> Service<Inbound> for Auth<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = Authenticated<S>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, inbound: Inbound) -> Authenticated<S> {
        let rules = self.rules.load();
        match self.begin(&rules, inbound) {
            Err(refusal) => Authenticated {
                state: State::Refused {
                    refusal: Some(refusal),
                },
            },
            Ok((parsed, AuthOutcome::Decided(decision))) => match parsed.decide(decision, &rules) {
                Ok(call) => Authenticated {
                    state: State::Serving {
                        future: self.inner.call(call),
                    },
                },
                Err(refusal) => Authenticated {
                    state: State::Refused {
                        refusal: Some(refusal),
                    },
                },
            },
            Ok((parsed, AuthOutcome::Review(review))) => Authenticated {
                state: match self.wait(parsed, review, &rules) {
                    Ok(waiting) => State::Reviewing { waiting },
                    Err(refusal) => State::Refused {
                        refusal: Some(refusal),
                    },
                },
            },
        }
    }
}

impl<S> Auth<S> {
    /// Parses the request, and authenticates its user.
    fn begin(&self, rules: &AuthRules, inbound: Inbound) -> Result<(Parsed, AuthOutcome), Refusal> {
        let uri = inbound.request.uri();
        let info = RequestInfo::parse(inbound.request.method().as_str(), uri.path(), uri.query())?;
        let kind = RequestKind::of(&info);
        inbound.context.kind.set(kind);
        if let (false, Some(Err(error))) = (kind.is_long_running(), &info.timeout) {
            return Err(Refusal::BadTimeout(error.clone()));
        }
        let credentials = Credentials {
            headers: inbound.request.headers(),
            peer_certificates: inbound.peer.certificates(),
            decoded_path: info.path(),
            client: inbound.peer.remote,
        };
        let now = Now::of(&self.clock);
        let outcome = rules.authentication.authenticate(
            &credentials,
            &mut inbound.peer.identity.borrow_mut(),
            now,
        );
        Ok((Parsed { inbound, info }, outcome))
    }
}

impl<S> Auth<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
{
    /// Waits for a review, if there is room for what the request takes meanwhile. Otherwise the review goes on all the same: the client
    /// may send the request again. Few requests come here, so it is kept out of the path of all others: inlined, it costs each of them a
    /// copy.
    #[inline(never)]
    fn wait(
        &self,
        parsed: Parsed,
        review: Box<PendingReview>,
        rules: &Arc<AuthRules>,
    ) -> Result<Box<AwaitingReview<S>>, Refusal> {
        let mut held = self.waiting.share(review.payer().clone());
        if !held.take(held_bytes(&parsed.inbound)) {
            return Err(too_many_reviews(&NO_ROOM, parsed.inbound.received));
        }
        Ok(Box::new(AwaitingReview {
            review,
            parsed: Some(parsed),
            rules: Arc::clone(rules),
            inner: self.inner.clone(),
            _held: held,
        }))
    }
}

/// What a waiting request takes in memory besides its head and its body: its task, and its place among those that wait.
const REQUEST_BYTES: usize = 2 << 10;

/// What a request takes in memory while it waits for a review, and what its client may send that is kept as well.
fn held_bytes(inbound: &Inbound) -> usize {
    REQUEST_BYTES + inbound.context.head_bytes + inbound.request.body().sendable_bytes()
}

const NO_ROOM: &str = "requests whose tokens are reviewed take too much memory";

/// Logs that a request is refused for its token, at a limited rate.
fn too_many_reviews(error: &dyn std::fmt::Display, received: Time) -> Refusal {
    if let Some(left_out) = OVERLOADED.next_line(received) {
        tracing::warn!(%error, left_out, "requests get 429 because of their bearer tokens");
    }
    Refusal::TooManyTokenReviews
}

/// Limits how often it is logged that too many tokens wait for reviews, since clients can send any number.
static OVERLOADED: LogLimit = LogLimit::new(5);

/// A request that was parsed.
#[derive(Debug)]
struct Parsed {
    inbound: Inbound,
    info: RequestInfo,
}

impl Parsed {
    fn decide(self, decision: AuthDecision, rules: &AuthRules) -> Result<Call, Refusal> {
        match decision {
            AuthDecision::Known(identity) => self.into_call(identity, rules),
            AuthDecision::Unauthorized(failures) => {
                tracing::debug!(%failures, "unauthorized");
                Err(Refusal::Unauthorized)
            }
            AuthDecision::Unavailable(error) => {
                // A review that failed has been logged, once for all requests that waited for it.
                if error != TokenReviewError::Overloaded {
                    return Err(Refusal::CredentialCheckUnavailable);
                }
                Err(too_many_reviews(&error, self.inbound.received))
            }
        }
    }

    fn into_call(mut self, identity: Arc<Identity>, rules: &AuthRules) -> Result<Call, Refusal> {
        let headers = self.inbound.request.headers_mut();
        let impersonated = if rules.impersonation {
            impersonation::take(headers, identity.user())?
        } else {
            None
        };
        let identity = match impersonated {
            Some(user) => {
                let by = Arc::clone(identity.user());
                Arc::new(Identity::impersonated(user, by))
            }
            None => identity,
        };
        // After impersonation has read its headers: nothing of what the client says about identities is left for
        // the upstream.
        strip_identity_headers(headers, &rules.names)?;
        let digest = Arc::new(RequestDigest {
            info: self.info,
            user: Arc::clone(identity.user()),
        });
        let mut call = Call::new(self.inbound, digest, rules.request_timeout)?;
        call.identity = Some(identity);
        Ok(call)
    }
}

impl From<ImpersonationError> for Refusal {
    fn from(error: ImpersonationError) -> Self {
        match error {
            ImpersonationError::Forbidden { .. } => Self::Forbidden(error.to_string().into()),
            ImpersonationError::NoUser => {
                Self::Malformed("impersonation headers without Impersonate-User")
            }
            ImpersonationError::NotText => Self::Malformed("an Impersonate header is not UTF-8"),
        }
    }
}

impl From<HeaderRefusal> for Refusal {
    fn from(refusal: HeaderRefusal) -> Self {
        match refusal {
            HeaderRefusal::Impersonation { .. } => Self::Forbidden(refusal.to_string().into()),
            HeaderRefusal::SeveralAuthorizations => {
                Self::Malformed("several Authorization headers")
            }
            HeaderRefusal::ConnectionNames { .. } => {
                Self::Malformed("Connection names a header that is not hop-by-hop")
            }
        }
    }
}

pin_project! {
    /// The reply to a request whose token may have to be reviewed first.
    pub struct Authenticated<S>
    where
        S: Service<Call>,
    {
        #[pin]
        state: State<S>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S>
    where
        S: Service<Call>,
    {
        Refused { refusal: Option<Refusal> },
        Reviewing { waiting: Box<AwaitingReview<S>> },
        Serving { #[pin] future: S::Future },
    }
}

/// A request whose token is being reviewed.
struct AwaitingReview<S> {
    review: Box<PendingReview>,
    parsed: Option<Parsed>,
    rules: Arc<AuthRules>,
    inner: S,
    /// What the request takes, until the review is complete.
    _held: ByteShare,
}

impl<S> Future for Authenticated<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Serving { future } => return future.poll(cx),
                StateProjection::Refused { refusal } => {
                    let refusal = refusal.take();
                    return Poll::Ready(Err(refusal.unwrap_or_else(polled_again)));
                }
                StateProjection::Reviewing { waiting } => {
                    let decision = ready!(Pin::new(&mut *waiting.review).poll(cx));
                    waiting.resume(decision)
                }
            };
            state.set(next);
        }
    }
}

impl<S> AwaitingReview<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    fn resume(&mut self, decision: AuthDecision) -> State<S> {
        let parsed = self.parsed.take().ok_or_else(polled_again);
        match parsed.and_then(|parsed| parsed.decide(decision, &self.rules)) {
            Ok(call) => State::Serving {
                future: self.inner.call(call),
            },
            Err(refusal) => State::Refused {
                refusal: Some(refusal),
            },
        }
    }
}

fn polled_again() -> Refusal {
    Refusal::Internal("a finished request was polled again".into())
}
