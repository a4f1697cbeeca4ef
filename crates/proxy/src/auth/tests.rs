//! Tests of the user of a request with each pair of credentials, and of the headers that are forwarded.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{
    authenticator::{AuthDecision, AuthOutcome, Credentials},
    *,
};
use fairgate_base::clock::Clock;
use fairgate_call::PeerIdentityCache;
use fairgate_core::{digest::User, time::Time};
use fairgate_testkit::pki::{Authority, Leaf, NOW};
use fairgate_upstream::{
    client::RequestError,
    review::{PostFuture, ReviewTransport},
    token_review::TokenReviewSettings,
};

/// An upstream that knows the token `good`, and cannot be reached to review the token `down`.
struct Upstream;

impl ReviewTransport for Upstream {
    fn post(&self, body: Bytes) -> PostFuture<'_> {
        let sent: Value = serde_json::from_slice(&body).unwrap();
        let status = match sent["spec"]["token"].as_str().unwrap() {
            "good" => json!({"authenticated": true, "user": {"username": "token-user"}}),
            "down" => {
                return Box::pin(async {
                    Err(RequestError::Connect {
                        reason: "down".into(),
                    })
                });
            }
            _ => json!({"authenticated": false, "error": "unknown"}),
        };
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {}, "spec": {}, "status": status,
        });
        Box::pin(async move { Ok(review.to_string().into()) })
    }
}

struct Scene {
    runtime: Runtime,
    clients: Authority,
    proxies: Authority,
    foreign: Authority,
    settings: AuthSettings,
}

fn moment(seconds: i64) -> Now {
    Now {
        time: Time::from_nanos(u64::try_from(seconds).unwrap() * 1_000_000_000),
        wall: Duration::from_secs(u64::try_from(seconds).unwrap()),
    }
}

impl Scene {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let clients = Authority::new("clients");
        let proxies = Authority::new("proxies");
        let reviews = TokenReviews::new(
            TokenReviewSettings {
                first_pause: Duration::ZERO,
                ..TokenReviewSettings::default()
            },
            Upstream,
            TokenKey::random().unwrap(),
            Clock::manual(moment(NOW).time),
            runtime.handle().clone(),
        );
        let key = reviews.key().clone();
        let settings = AuthSettings {
            client_ca: Some(bundle(&clients)),
            front_proxy: Some(FrontProxySettings {
                authorities: bundle(&proxies),
                allowed_names: vec!["front-proxy-client".into()],
                headers: RequestHeaderNames::default(),
            }),
            token_file: Some(
                TokenTable::parse(b"file-token,file-user,1,\"dev\"\n", &key)
                    .unwrap()
                    .0,
            ),
            token_reviews: Some(reviews),
            anonymous: AnonymousAccess::Off,
        };
        Self {
            foreign: Authority::new("foreign"),
            runtime,
            clients,
            proxies,
            settings,
        }
    }

    fn build(&self) -> Authenticator {
        Authenticator::new(self.settings.clone())
    }

    /// The outcome in a word: the user's name, or `401` or `503`.
    fn authenticate(
        &self,
        authentication: &Authenticator,
        lines: &[(&str, &str)],
        chain: &[CertificateDer<'static>],
    ) -> String {
        let headers = headers(lines);
        let credentials = Credentials {
            headers: &headers,
            peer_certificates: chain,
            client: ([127, 0, 0, 1], 1).into(),
            decoded_path: b"/api",
        };
        let mut peer = PeerIdentityCache::default();
        let outcome = authentication.authenticate(&credentials, &mut peer, moment(NOW));
        match self.decide(outcome) {
            AuthDecision::Known(identity) => identity.user().name.clone(),
            AuthDecision::Unauthorized(_) => "401".into(),
            AuthDecision::Unavailable(_) => "503".into(),
        }
    }

    fn decide(&self, outcome: AuthOutcome) -> AuthDecision {
        match outcome {
            AuthOutcome::Decided(decision) => decision,
            AuthOutcome::Review(pending) => self.runtime.block_on(pending),
        }
    }

    fn failures(&self, lines: &[(&str, &str)], chain: &[CertificateDer<'static>]) -> String {
        let headers = headers(lines);
        let credentials = Credentials {
            headers: &headers,
            peer_certificates: chain,
            client: ([127, 0, 0, 1], 1).into(),
            decoded_path: b"/",
        };
        let authentication = self.build();
        let mut peer = PeerIdentityCache::default();
        match self.decide(authentication.authenticate(&credentials, &mut peer, moment(NOW))) {
            AuthDecision::Unauthorized(failures) => failures.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

fn bundle(authority: &Authority) -> Arc<CaBundle> {
    Arc::new(CaBundle::from_pem(authority.pem().as_bytes()).unwrap())
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| {
            let name = HeaderName::from_str(name).unwrap();
            (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
        })
        .collect()
}

#[test]
fn every_pair_of_certificate_and_token_authenticates_as_in_kube_apiserver() {
    let mut scene = Scene::new();
    let certificates = [
        ("no", vec![]),
        ("good", scene.clients.issue(&Leaf::new("alice"))),
        (
            "expired",
            scene
                .clients
                .issue(&Leaf::new("alice").valid(NOW - 20, NOW - 10)),
        ),
        (
            "for servers",
            scene
                .clients
                .issue(&Leaf::new("alice").usages(&[rcgen::ExtendedKeyUsagePurpose::ServerAuth])),
        ),
        ("foreign", scene.foreign.issue(&Leaf::new("alice"))),
        ("nameless", scene.clients.issue(&Leaf::new(""))),
    ];
    let tokens = [
        ("no", None),
        ("good", Some("Bearer good")),
        ("file", Some("bearer file-token x")),
        ("bad", Some("Bearer bad")),
        ("down", Some("Bearer down")),
        ("malformed", Some("Bearer")),
        ("basic", Some("Basic YTpi")),
        ("double space", Some("Bearer  good")),
    ];
    for front_proxy in [None, scene.settings.front_proxy.clone()] {
        for anonymous in [AnonymousAccess::Off, AnonymousAccess::Everywhere] {
            // With front proxies every certificate of a client fails there first, also a nameless one.
            let proxied = front_proxy.is_some();
            scene.settings.front_proxy.clone_from(&front_proxy);
            scene.settings.anonymous = anonymous.clone();
            let authentication = scene.build();
            for (certificate, chain) in &certificates {
                for (token, authorization) in &tokens {
                    let lines: Vec<_> = authorization
                        .iter()
                        .map(|value| ("authorization", *value))
                        .collect();
                    let nothing_wrong = matches!(*certificate, "no" | "nameless")
                        && !(proxied && *certificate == "nameless");
                    let expected = match (*certificate, *token) {
                        ("good", _) => "alice",
                        (_, "good") => "token-user",
                        (_, "file") => "file-user",
                        (_, "bad") => "401",
                        (_, "down") => "503",
                        _ if nothing_wrong && anonymous == AnonymousAccess::Everywhere => {
                            "system:anonymous"
                        }
                        _ => "401",
                    };
                    assert_eq!(
                        scene.authenticate(&authentication, &lines, chain),
                        expected,
                        "certificate {certificate}, token {token}, anonymous {anonymous:?}, \
                         front proxy {proxied}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_front_proxy_comes_before_its_own_certificate_and_any_token() {
    let scene = Scene::new();
    let authentication = scene.build();
    let proxy = scene.proxies.issue(&Leaf::new("front-proxy-client"));
    let other = scene.proxies.issue(&Leaf::new("other"));
    let client = scene.clients.issue(&Leaf::new("alice"));
    let remote = ("x-remote-user", "carol");
    let token = ("authorization", "Bearer good");
    for (lines, chain, expected) in [
        (&[remote, token][..], &proxy, "carol"),
        (&[remote], &client, "alice"),
        (&[remote], &other, "401"),
        (&[remote, token], &other, "token-user"),
        (&[remote], &vec![], "401"),
        (&[token], &proxy, "token-user"),
        (&[], &proxy, "401"),
    ] {
        assert_eq!(
            scene.authenticate(&authentication, lines, chain),
            expected,
            "{lines:?}"
        );
    }
}

#[test]
fn authorization_comes_before_a_websocket_token() {
    let mut scene = Scene::new();
    scene.settings.anonymous = AnonymousAccess::Everywhere;
    let authentication = scene.build();
    let file = "v4,base64url.bearer.authorization.k8s.io.ZmlsZS10b2tlbg";
    let good = "v4,base64url.bearer.authorization.k8s.io.Z29vZA";
    let alone = "base64url.bearer.authorization.k8s.io.Z29vZA";
    let down = "v4,base64url.bearer.authorization.k8s.io.ZG93bg";
    for (authorization, protocol, expected) in [
        ("Basic x", good, "token-user"),
        ("Basic x", file, "file-user"),
        ("Basic x", alone, "401"),
        ("Basic x", "v4", "system:anonymous"),
        ("Bearer good", file, "token-user"),
        ("Bearer file-token", down, "file-user"),
        ("Bearer bad", file, "file-user"),
        ("Bearer bad", good, "token-user"),
        ("Bearer bad", alone, "401"),
        ("Bearer down", good, "token-user"),
        ("Bearer down", file, "file-user"),
        ("Bearer down", alone, "503"),
        ("Bearer bad", down, "503"),
        ("Bearer bad", "v4", "401"),
    ] {
        let lines = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("authorization", authorization),
            ("sec-websocket-protocol", protocol),
        ];
        // Once while the tokens are unknown, once from the cache.
        for _ in 0..2 {
            assert_eq!(
                scene.authenticate(&authentication, &lines, &[]),
                expected,
                "{lines:?}"
            );
        }
    }
}

#[test]
fn without_reviews_an_unknown_token_is_refused() {
    let mut scene = Scene::new();
    scene.settings.token_reviews = None;
    scene.settings.anonymous = AnonymousAccess::Everywhere;
    let authentication = scene.build();
    for (token, expected) in [
        ("Bearer file-token", "file-user"),
        ("Bearer good", "401"),
        ("Bearer FILE-TOKEN", "401"),
    ] {
        let lines = [("authorization", token)];
        assert_eq!(scene.authenticate(&authentication, &lines, &[]), expected);
    }
}

#[test]
fn a_known_token_needs_no_review() {
    let scene = Scene::new();
    let authentication = scene.build();
    let headers = headers(&[("authorization", "Bearer good")]);
    let credentials = Credentials {
        headers: &headers,
        peer_certificates: &[],
        client: ([127, 0, 0, 1], 1).into(),
        decoded_path: b"/",
    };
    let mut peer = PeerIdentityCache::default();
    let first = authentication.authenticate(&credentials, &mut peer, moment(NOW));
    assert!(matches!(first, AuthOutcome::Review(_)));
    let AuthDecision::Known(reviewed) = scene.decide(first) else {
        panic!("not known");
    };
    let second = authentication.authenticate(&credentials, &mut peer, moment(NOW + 9));
    assert!(matches!(
        second,
        AuthOutcome::Decided(AuthDecision::Known(ref known)) if Arc::ptr_eq(known, &reviewed)
    ));
    let third = authentication.authenticate(&credentials, &mut peer, moment(NOW + 10));
    assert!(matches!(third, AuthOutcome::Review(_)));
}

#[test]
fn a_connection_keeps_its_identity_until_the_certificate_expires_or_the_settings_change() {
    let mut scene = Scene::new();
    let chain = scene
        .clients
        .issue(&Leaf::new("alice").valid(NOW - 10, NOW + 60));
    let headers = HeaderMap::new();
    let credentials = Credentials {
        headers: &headers,
        peer_certificates: &chain,
        client: ([127, 0, 0, 1], 1).into(),
        decoded_path: b"/",
    };
    let mut peer = PeerIdentityCache::default();
    let mut at = |authentication: &Authenticator, seconds| match authentication.authenticate(
        &credentials,
        &mut peer,
        moment(seconds),
    ) {
        AuthOutcome::Decided(AuthDecision::Known(identity)) => Some(identity),
        _ => None,
    };
    let authentication = scene.build();
    let first = at(&authentication, NOW).unwrap();
    let last = at(&authentication, NOW + 60).unwrap();
    assert!(Arc::ptr_eq(&first, &last));
    assert!(at(&authentication, NOW + 61).is_none());

    let same = scene.build();
    assert!(!Arc::ptr_eq(&first, &at(&same, NOW + 1).unwrap()));

    scene.settings.client_ca = Some(bundle(&scene.foreign));
    assert!(at(&scene.build(), NOW + 2).is_none());
}

/// A connection keeps the digest of its last token, and looks up each time what the token is worth.
#[test]
fn each_request_of_a_connection_is_that_of_its_own_token_under_the_settings_of_now() {
    let mut scene = Scene::new();
    let mut peer = PeerIdentityCache::default();
    let mut at = |scene: &Scene, authentication: &Authenticator, lines: &[(&str, &str)]| {
        let headers = headers(lines);
        let credentials = Credentials {
            headers: &headers,
            peer_certificates: &[],
            client: ([127, 0, 0, 1], 1).into(),
            decoded_path: b"/",
        };
        let outcome = authentication.authenticate(&credentials, &mut peer, moment(NOW));
        match scene.decide(outcome) {
            AuthDecision::Known(identity) => identity.user().name.clone(),
            _ => "401".to_owned(),
        }
    };
    let authorization = |token| [("authorization", token)];
    let authentication = scene.build();
    for (line, user) in [
        ("Bearer file-token", "file-user"),
        ("Bearer file-token", "file-user"),
        ("Bearer file-tokem", "401"),
        ("Bearer file-tokem", "401"),
        ("Bearer good", "token-user"),
        ("Bearer file-token", "file-user"),
        ("Basic file-token", "401"),
        ("Bearer good", "token-user"),
    ] {
        let found = at(&scene, &authentication, &authorization(line));
        assert_eq!(found, user, "{line}");
    }
    // Another table has another key, so the digest of the same token is another one.
    scene.settings.token_reviews = None;
    for (file, user) in [
        ("good,other-user,1\n", "other-user"),
        ("good,third-user,1\n", "third-user"),
        ("bad,other-user,1\n", "401"),
    ] {
        let table = TokenTable::parse(file.as_bytes(), &TokenKey::random().unwrap());
        scene.settings.token_file = Some(table.unwrap().0);
        let authentication = scene.build();
        let found = at(&scene, &authentication, &authorization("Bearer good"));
        assert_eq!(found, user, "{file}");
    }
}

#[test]
fn anonymous_access_can_be_limited_to_exact_paths() {
    let paths = AnonymousAccess::Paths(vec!["/healthz".into(), "/livez".into()]);
    for (path, allowed) in [
        ("/healthz", true),
        ("/livez", true),
        ("/healthz/", false),
        ("/healthz/ping", false),
        ("//healthz", false),
        ("/HEALTHZ", false),
        ("", false),
    ] {
        assert_eq!(paths.allows(path.as_bytes()), allowed, "{path}");
    }
    assert!(!AnonymousAccess::Off.allows(b"/healthz"));
    assert!(AnonymousAccess::Everywhere.allows(b"/x"));
}

#[test]
fn an_authenticated_user_is_in_the_group_system_authenticated_once_and_last() {
    let (all, none) = (User::AUTHENTICATED, User::UNAUTHENTICATED);
    for (name, groups, expected) in [
        ("alice", &["dev"][..], &["dev", all][..]),
        ("alice", &[], &[all]),
        ("alice", &[all, "dev"], &[all, "dev"]),
        ("alice", &[none, "dev"], &[none, "dev"]),
        (User::ANONYMOUS, &["dev"], &["dev"]),
    ] {
        let identity = Identity::authenticated(User::new(name, groups.iter().copied()));
        assert_eq!(identity.user().groups, expected);
    }
}

#[test]
fn the_failures_of_every_method_are_logged() {
    let scene = Scene::new();
    let foreign = scene.foreign.issue(&Leaf::new("alice"));
    let log = scene.failures(&[("authorization", "Bearer bad")], &foreign);
    assert!(log.starts_with("front proxy: "), "{log}");
    assert!(log.contains("; client certificate: "), "{log}");
    assert!(log.ends_with("; invalid bearer token: unknown"), "{log}");
    assert_eq!(scene.failures(&[], &[]), "no credential");
}

#[test]
fn both_kinds_of_authorities_are_announced() {
    assert_eq!(Scene::new().build().authorities().len(), 2);
}
