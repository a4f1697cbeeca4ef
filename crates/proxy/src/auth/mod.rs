//! Who asks: authentication, and identity towards the upstream.
//!
//! [`Authentication`] tries the methods in the order of a Kubernetes API server: front proxy, client
//! certificate, bearer token, WebSocket token. The first that succeeds wins, even if earlier ones
//! failed; anonymous is only who showed no credential at all, so a bad one never passes for none. A
//! request whose connection or token is known costs no allocation and no waiting; an unknown token
//! waits for one [`PendingReview`].
//!
//! On the way to the upstream [`strip_identity_headers`] takes out what the client says about itself,
//! and [`UpstreamIdentity`] adds what was found.
//!
//! One file a method: `front_proxy`, `mtls`, `token_file`, `token_review`; `bearer` is how tokens
//! travel, `peer` what a connection keeps. Not here: RequestInfo, and the tower layer.

pub(crate) mod bearer;
mod bundle;
pub(crate) mod extra_key;
mod failure;
mod front_proxy;
pub(crate) mod impersonation;
pub mod layer;
mod mtls;
mod peer;
#[cfg(test)]
pub(crate) mod pki;
mod settings;
pub(crate) mod spoof;
mod token_file;
mod token_key;
pub mod token_review;
pub mod upstream;
pub(crate) mod x509;

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use http::HeaderMap;
use rustls::{DistinguishedName, pki_types::CertificateDer};

use self::token_review::Review;
pub use self::{
    bundle::{BundleError, CaBundle, ChainError},
    failure::{Failure, Failures},
    front_proxy::FrontProxyError,
    mtls::CertificateError,
    peer::PeerIdentityCache,
    settings::{Anonymous, AuthSettings, FrontProxySettings},
    spoof::{ConfiguredNames, HeaderRefusal, refuse_identity_headers, strip_identity_headers},
    token_file::{TokenFile, TokenFileError, TokenFileWarning},
    token_key::{NoRandomness, Token, TokenDigest, TokenKey},
    token_review::{ReviewError, TokenRefused, TokenReviews},
};
use fairgate_base::clock::Clock;
pub use fairgate_call::identity::{
    HeaderNameError, Identity, IdentityError, IdentityHeaders, RequestHeaderNames, UpstreamIdentity,
};
use fairgate_core::{digest::User, time::Time};

/// A moment by both clocks: the monotonic one for how long something is kept, that of the wall for
/// certificates and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic.
    pub time: Time,
    /// Since 1970.
    pub wall: Duration,
}

impl Now {
    /// What the clock shows.
    pub fn of(clock: &Clock) -> Self {
        let wall = clock.wall().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            time: clock.now(),
            wall: wall.unwrap_or_default(), // a clock before 1970 makes every certificate invalid
        }
    }

    /// Whole seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        i64::try_from(self.wall.as_secs()).unwrap_or(i64::MAX)
    }
}

/// All methods of authentication, as settings made them. Replaced whole when settings change.
#[derive(Debug)]
pub struct Authentication {
    /// Different for each set of settings in this process.
    version: u64,
    settings: AuthSettings,
}

/// What a request shows of its client.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// As received, before anything is stripped.
    pub headers: &'a HeaderMap,
    /// From the TLS handshake, the client's own first; empty without TLS or certificate.
    pub peer_certificates: &'a [CertificateDer<'static>],
    /// Percent-decoded once, else as received.
    pub decoded_path: &'a [u8],
}

/// What authentication came to at once.
#[derive(Debug)]
pub enum Outcome {
    /// It is settled.
    Decided(Decision),
    /// A token must be reviewed first.
    Review(Box<PendingReview>),
}

/// Who the client is, or why nobody.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Served under this identity.
    Known(Arc<Identity>),
    /// Answered 401. The reasons are for the log.
    Unauthorized(Failures),
    /// Answered 503 or 429 with `Retry-After`: its token could not be reviewed.
    Unavailable(ReviewError),
}

/// Authentication that waits for the review of a token.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct PendingReview {
    reviews: TokenReviews,
    review: Review,
    /// The token that came by the other way, to be tried if this one is refused.
    next: Option<NextToken>,
    failures: Failures,
    /// Why an earlier token could not be reviewed.
    unavailable: Option<ReviewError>,
}

#[derive(Debug)]
enum NextToken {
    Known(Arc<Identity>),
    Ask(Token, TokenDigest),
}

/// What is known of a token without waiting.
enum Glance {
    Known(Arc<Identity>),
    Refused(TokenRefused),
    Ask(TokenDigest),
}

impl Authentication {
    /// Finds out who makes a request. `peer` is what the request's connection keeps.
    ///
    /// Without a token the only cost is that of the first request of a connection, to verify its
    /// certificate. An identity told by a front proxy is read anew each time.
    pub fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        peer: &mut PeerIdentityCache,
        now: Now,
    ) -> Outcome {
        let mut failures = Failures::default();
        if let Some(identity) = self.by_certificate(credentials, peer, now, &mut failures) {
            return Outcome::known(identity);
        }
        self.by_token(credentials.headers, now, failures)
            .unwrap_or_else(|failures| self.without_user(credentials.decoded_path, failures))
    }

    /// The authorities to announce in a TLS handshake, by which clients choose their certificate.
    ///
    /// They are no condition: the handshake must let every certificate in, and none.
    pub fn authorities(&self) -> Vec<DistinguishedName> {
        let front_proxy = self.settings.front_proxy.as_ref();
        let front_proxy = front_proxy.map(|proxy| &proxy.authorities);
        let bundles = self.settings.client_ca.iter().chain(front_proxy);
        bundles
            .flat_map(|bundle| bundle.subjects())
            .cloned()
            .collect()
    }

    /// The front-proxy names accepted from proxies, never to be passed on; the conventional ones apart.
    pub fn front_proxy_headers(&self) -> Option<&RequestHeaderNames> {
        self.settings
            .front_proxy
            .as_ref()
            .map(|proxy| &proxy.headers)
    }

    fn by_certificate(
        &self,
        credentials: &Credentials<'_>,
        peer: &mut PeerIdentityCache,
        now: Now,
        failures: &mut Failures,
    ) -> Option<Arc<Identity>> {
        let chain = credentials.peer_certificates;
        if chain.is_empty() {
            return None;
        }
        let peer = peer.at(self.version);
        let at = now.unix_seconds();
        if let Some(proxy) = &self.settings.front_proxy {
            match proxy.authenticate(credentials.headers, chain, &mut peer.front_proxy, at) {
                Ok(Some(identity)) => return Some(identity),
                Ok(None) => {}
                Err(error) => failures.push(error),
            }
        }
        let authorities = self.settings.client_ca.as_ref()?;
        match peer.user.get(at, || mtls::judge(authorities, chain, at)) {
            Ok(user) => user.clone(),
            Err(error) => {
                failures.push(error.clone());
                None
            }
        }
    }

    /// What the tokens come to; the failures so far if none of them helps.
    fn by_token(
        &self,
        headers: &HeaderMap,
        now: Now,
        mut failures: Failures,
    ) -> Result<Outcome, Failures> {
        if let Some(token) = bearer::from_authorization(headers) {
            match self.glance(token, now) {
                Glance::Known(identity) => return Ok(Outcome::known(identity)),
                Glance::Refused(refused) => failures.push(refused),
                Glance::Ask(digest) => {
                    let next = self.websocket_token(headers, now, &mut failures);
                    return self.review(Token::new(token), digest, next, failures);
                }
            }
        }
        match self.websocket_token(headers, now, &mut failures) {
            None => Err(failures),
            Some(NextToken::Known(identity)) => Ok(Outcome::known(identity)),
            Some(NextToken::Ask(token, digest)) => self.review(Some(token), digest, None, failures),
        }
    }

    fn websocket_token(
        &self,
        headers: &HeaderMap,
        now: Now,
        failures: &mut Failures,
    ) -> Option<NextToken> {
        let token = bearer::from_websocket(headers)
            .map_err(|error| failures.push(error))
            .ok()??;
        match self.glance(token.as_bytes(), now) {
            Glance::Known(identity) => Some(NextToken::Known(identity)),
            Glance::Ask(digest) => Some(NextToken::Ask(token, digest)),
            Glance::Refused(refused) => {
                failures.push(refused);
                None
            }
        }
    }

    /// Looks a token up in the file and among reviewed ones, both under one digest.
    fn glance(&self, token: &[u8], now: Now) -> Glance {
        let mut digest = None;
        if let Some(file) = &self.settings.token_file {
            let digest = digest.insert(file.key().digest(token));
            if let Some(identity) = file.lookup(digest) {
                return Glance::Known(Arc::clone(identity));
            }
        }
        let Some(reviews) = &self.settings.token_reviews else {
            return Glance::Refused(TokenRefused::default());
        };
        let digest = digest.unwrap_or_else(|| reviews.key().digest(token));
        match reviews.lookup_cached(&digest, now) {
            Some(Ok(identity)) => Glance::Known(identity),
            Some(Err(refused)) => Glance::Refused(refused),
            None => Glance::Ask(digest),
        }
    }

    fn review(
        &self,
        token: Option<Token>,
        digest: TokenDigest,
        next: Option<NextToken>,
        failures: Failures,
    ) -> Result<Outcome, Failures> {
        let (Some(token), Some(reviews)) = (token, &self.settings.token_reviews) else {
            return Err(failures); // `glance` asks only for a token, and only with reviews
        };
        Ok(Outcome::Review(Box::new(PendingReview {
            review: reviews.review(&token, digest),
            reviews: reviews.clone(),
            next,
            failures,
            unavailable: None,
        })))
    }

    fn without_user(&self, decoded_path: &[u8], failures: Failures) -> Outcome {
        static ANONYMOUS: LazyLock<Arc<Identity>> =
            LazyLock::new(|| Arc::new(Identity::new(User::anonymous())));
        if failures.is_empty() && self.settings.anonymous.allows(decoded_path) {
            return Outcome::known(Arc::clone(&ANONYMOUS));
        }
        Outcome::Decided(Decision::Unauthorized(failures))
    }
}

impl Outcome {
    fn known(identity: Arc<Identity>) -> Self {
        Self::Decided(Decision::Known(identity))
    }
}

impl Future for PendingReview {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        loop {
            match ready!(Pin::new(&mut self.review).poll(cx)) {
                Ok(Ok(identity)) => return Poll::Ready(Decision::Known(identity)),
                Ok(Err(refused)) => self.failures.push(refused),
                Err(error) => self.unavailable = Some(error),
            }
            match self.next.take() {
                Some(NextToken::Known(identity)) => {
                    return Poll::Ready(Decision::Known(identity));
                }
                Some(NextToken::Ask(token, digest)) => {
                    self.review = self.reviews.review(&token, digest);
                }
                None => {
                    return Poll::Ready(match self.unavailable.take() {
                        Some(error) => Decision::Unavailable(error),
                        None => Decision::Unauthorized(std::mem::take(&mut self.failures)),
                    });
                }
            }
        }
    }
}

/// The identity of a user whom some method recognized: a member of `system:authenticated` by that.
fn authenticated(mut user: User) -> Arc<Identity> {
    let settled = user.name == User::ANONYMOUS
        || user.in_group(User::AUTHENTICATED)
        || user.in_group(User::UNAUTHENTICATED);
    if !settled {
        user.groups.push(User::AUTHENTICATED.to_owned());
    }
    Arc::new(Identity::new(user))
}

#[cfg(test)]
mod tests;
