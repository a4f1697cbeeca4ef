//! Tries the configured methods of authentication in order.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use http::HeaderMap;
use rustls::{DistinguishedName, pki_types::CertificateDer};

use super::{bearer, failure::AuthFailures, mtls, now::Now, settings::AuthSettings};
use fairgate_base::account::BytePayer;
use fairgate_call::{Identity, OwnIdentity, PeerIdentityCache};
use fairgate_core::digest::User;
use fairgate_upstream::token_review::{
    BearerToken, PendingTokenReview, TokenDigest, TokenKey, TokenRefused, TokenReviewError,
    TokenReviews,
};

/// All configured methods of authentication. Replaced as a whole when settings change.
#[derive(Debug)]
pub struct Authenticator {
    /// Different for each set of settings in this process.
    version: u64,
    settings: AuthSettings,
}

/// The credentials of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials<'a> {
    /// The headers as received, before anything is stripped.
    pub(super) headers: &'a HeaderMap,
    /// The certificate chain of the TLS handshake, the client's own first; empty without one.
    pub(super) peer_certificates: &'a [CertificateDer<'static>],
    /// The path, percent-decoded once and not cleaned.
    pub(super) decoded_path: &'a [u8],
    /// Where the client is.
    pub(super) client: SocketAddr,
}

/// The result of authentication without waiting.
#[derive(Debug)]
pub(super) enum AuthOutcome {
    /// Authentication is complete.
    Decided(AuthDecision),
    /// A token must be reviewed first.
    Review(Box<PendingReview>),
}

/// The user of a request, or why there is none.
#[derive(Clone, Debug)]
pub(super) enum AuthDecision {
    /// The request is served under this identity.
    Known(Arc<Identity>),
    /// The response is a 401. The reasons are for the log.
    Unauthorized(AuthFailures),
    /// The response is a 503 or 429 with `Retry-After`: the token could not be reviewed.
    Unavailable(TokenReviewError),
}

/// An authentication that waits for the review of a token.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(super) struct PendingReview {
    reviews: TokenReviews,
    review: PendingTokenReview,
    payer: BytePayer,
    client: SocketAddr,
    /// The WebSocket token, to be tried if the one in `Authorization` is refused.
    next: Option<NextToken>,
    failures: AuthFailures,
    /// Why an earlier token could not be reviewed.
    unavailable: Option<TokenReviewError>,
}

#[derive(Debug)]
enum NextToken {
    Known(Arc<Identity>),
    Unreviewed(BearerToken, TokenDigest),
}

/// The result of looking up a token in the token file and the cache of reviews.
enum TokenLookup {
    Known(Arc<Identity>),
    Refused(TokenRefused),
    Unknown(TokenDigest),
}

impl Authenticator {
    /// An authenticator with these settings. Connections verify their clients' certificates again under it.
    pub fn new(settings: AuthSettings) -> Self {
        static VERSIONS: AtomicU64 = AtomicU64::new(1); // a fresh connection is at 0
        Self {
            version: VERSIONS.fetch_add(1, Ordering::Relaxed),
            settings,
        }
    }

    /// Authenticates a request. `peer` is the cache of the request's connection.
    ///
    /// Without a token the only cost is that of the first request of a connection, to verify its
    /// certificate. An identity in front-proxy headers is read for each request.
    pub(super) fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        peer: &mut PeerIdentityCache,
        now: Now,
    ) -> AuthOutcome {
        let mut failures = AuthFailures::default();
        let peer = peer.for_version(self.version);
        if let Some(identity) = self.authenticate_certificate(credentials, peer, now, &mut failures)
        {
            return AuthOutcome::known(identity);
        }
        self.authenticate_token(credentials, peer, now, failures)
            .unwrap_or_else(|failures| {
                self.anonymous_or_refused(credentials.decoded_path, &mut peer.last, failures)
            })
    }

    /// The authorities to announce in the TLS handshake, by which clients choose their certificate.
    ///
    /// They are only a hint: the handshake must accept any certificate, and clients without one.
    pub fn authorities(&self) -> Vec<DistinguishedName> {
        let front_proxy = self.settings.front_proxy.as_ref();
        let front_proxy = front_proxy.map(|proxy| &proxy.authorities);
        let bundles = self.settings.client_ca.iter().chain(front_proxy);
        bundles
            .flat_map(|bundle| bundle.subjects())
            .cloned()
            .collect()
    }

    fn authenticate_certificate(
        &self,
        credentials: &Credentials<'_>,
        peer: &mut PeerIdentityCache,
        now: Now,
        failures: &mut AuthFailures,
    ) -> Option<Arc<Identity>> {
        let chain = credentials.peer_certificates;
        if chain.is_empty() {
            return None;
        }
        let at = now.unix_seconds();
        if let Some(proxy) = &self.settings.front_proxy {
            // Before the certificate is taken for that of a user: a front proxy speaks for the user in its headers.
            match proxy.authenticate(credentials.headers, chain, &mut peer.front_proxy, at) {
                Ok(Some(identity)) => return Some(identity),
                Ok(None) => {}
                Err(error) => failures.push(error),
            }
        }
        let authorities = self.settings.client_ca.as_ref()?;
        match peer
            .user
            .get(at, || mtls::authenticate(authorities, chain, at))
        {
            Ok(user) => user.clone(),
            Err(error) => {
                failures.push(error.clone());
                None
            }
        }
    }

    /// Authenticates by token; the failures so far if no token identifies a user.
    fn authenticate_token(
        &self,
        credentials: &Credentials<'_>,
        peer: &mut PeerIdentityCache,
        now: Now,
        mut failures: AuthFailures,
    ) -> Result<AuthOutcome, AuthFailures> {
        let (headers, client) = (credentials.headers, credentials.client);
        if let Some(token) = bearer::from_authorization(headers) {
            match self.look_up(token, peer, now) {
                TokenLookup::Known(identity) => return Ok(AuthOutcome::known(identity)),
                TokenLookup::Refused(refused) => failures.push(refused),
                TokenLookup::Unknown(digest) => {
                    let next = self.websocket_token(headers, peer, now, &mut failures);
                    let token = BearerToken::new(token);
                    return self.review(token, digest, client, next, failures);
                }
            }
        }
        match self.websocket_token(headers, peer, now, &mut failures) {
            None => Err(failures),
            Some(NextToken::Known(identity)) => Ok(AuthOutcome::known(identity)),
            Some(NextToken::Unreviewed(token, digest)) => {
                self.review(Some(token), digest, client, None, failures)
            }
        }
    }

    fn websocket_token(
        &self,
        headers: &HeaderMap,
        peer: &mut PeerIdentityCache,
        now: Now,
        failures: &mut AuthFailures,
    ) -> Option<NextToken> {
        let token = bearer::from_websocket(headers)
            .map_err(|error| failures.push(error))
            .ok()??;
        match self.look_up(token.as_bytes(), peer, now) {
            TokenLookup::Known(identity) => Some(NextToken::Known(identity)),
            TokenLookup::Unknown(digest) => Some(NextToken::Unreviewed(token, digest)),
            TokenLookup::Refused(refused) => {
                failures.push(refused);
                None
            }
        }
    }

    /// Looks a token up in the token file and among reviewed tokens; one digest serves both.
    fn look_up(&self, token: &[u8], peer: &mut PeerIdentityCache, now: Now) -> TokenLookup {
        // Tokens of one set of settings have one key.
        let mut digest_by = |key: &TokenKey| {
            let digest = peer
                .token
                .digest(token, |token| key.digest(token).to_bytes());
            TokenDigest::from_bytes(digest)
        };
        let mut digest = None;
        if let Some(file) = &self.settings.token_file {
            let digest = digest.insert(digest_by(file.key()));
            if let Some(identity) = file.lookup(digest) {
                return TokenLookup::Known(peer.last.of(identity));
            }
        }
        let Some(reviews) = &self.settings.token_reviews else {
            return TokenLookup::Refused(TokenRefused::default());
        };
        let digest = digest.unwrap_or_else(|| digest_by(reviews.key()));
        match reviews.lookup_cached(&digest, now.time) {
            Some(Ok(identity)) => TokenLookup::Known(peer.last.of(&identity)),
            Some(Err(refused)) => TokenLookup::Refused(refused),
            None => TokenLookup::Unknown(digest),
        }
    }

    fn review(
        &self,
        token: Option<BearerToken>,
        digest: TokenDigest,
        client: SocketAddr,
        next: Option<NextToken>,
        failures: AuthFailures,
    ) -> Result<AuthOutcome, AuthFailures> {
        let (Some(token), Some(reviews)) = (token, &self.settings.token_reviews) else {
            return Err(failures); // a token is unknown only where there are reviews
        };
        let payer = BytePayer::Text(reviews.waiting_payer(&digest, client));
        Ok(AuthOutcome::Review(Box::new(PendingReview {
            payer,
            review: reviews.review(&token, digest, client),
            client,
            reviews: reviews.clone(),
            next,
            failures,
            unavailable: None,
        })))
    }

    fn anonymous_or_refused(
        &self,
        decoded_path: &[u8],
        last: &mut OwnIdentity,
        failures: AuthFailures,
    ) -> AuthOutcome {
        static ANONYMOUS: LazyLock<Arc<Identity>> =
            LazyLock::new(|| Arc::new(Identity::new(User::anonymous())));
        // As in Kubernetes, wrong credentials are refused and not taken for none.
        if failures.is_empty() && self.settings.anonymous.allows(decoded_path) {
            return AuthOutcome::known(last.of(&ANONYMOUS));
        }
        AuthOutcome::Decided(AuthDecision::Unauthorized(failures))
    }
}

impl AuthOutcome {
    fn known(identity: Arc<Identity>) -> Self {
        Self::Decided(AuthDecision::Known(identity))
    }
}

impl PendingReview {
    /// Who holds what the request takes meanwhile.
    pub(super) fn payer(&self) -> &BytePayer {
        &self.payer
    }
}

impl Future for PendingReview {
    type Output = AuthDecision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AuthDecision> {
        loop {
            match ready!(Pin::new(&mut self.review).poll(cx)) {
                Ok(Ok(identity)) => return Poll::Ready(AuthDecision::Known(identity)),
                Ok(Err(refused)) => self.failures.push(refused),
                Err(error) => self.unavailable = Some(error),
            }
            match self.next.take() {
                Some(NextToken::Known(identity)) => {
                    return Poll::Ready(AuthDecision::Known(identity));
                }
                Some(NextToken::Unreviewed(token, digest)) => {
                    self.review = self.reviews.review(&token, digest, self.client);
                }
                None => {
                    return Poll::Ready(match self.unavailable.take() {
                        Some(error) => AuthDecision::Unavailable(error),
                        None => AuthDecision::Unauthorized(std::mem::take(&mut self.failures)),
                    });
                }
            }
        }
    }
}
