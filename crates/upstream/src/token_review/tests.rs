//! What is sent to the upstream, how often, and how long its responses are cached.

use std::{sync::Mutex, thread};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::review::PostFuture;
use fairgate_core::{sync, time::Time};

/// A transport whose responses the test gives, one post at a time.
struct Upstream {
    posts: mpsc::UnboundedSender<Post>,
}

struct Post {
    body: Bytes,
    answer: oneshot::Sender<Result<Bytes, RequestError>>,
}

impl ReviewTransport for Upstream {
    fn post(&self, body: Bytes) -> PostFuture<'_> {
        let (answer, answered) = oneshot::channel();
        let _ = self.posts.send(Post { body, answer });
        Box::pin(async {
            answered.await.unwrap_or(Err(RequestError::Connect {
                reason: "the test has ended".into(),
            }))
        })
    }
}

impl Post {
    fn token(&self) -> String {
        let sent: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        sent["spec"]["token"].as_str().unwrap().to_owned()
    }

    fn accept(self, name: &str) {
        self.status(&json!({"authenticated": true, "user": {"username": name}}));
    }

    fn refuse(self) {
        self.status(&json!({"authenticated": false, "error": "no such token"}));
    }

    fn status(self, status: &serde_json::Value) {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {}, "spec": {}, "status": status,
        });
        let _ = self.answer.send(Ok(body.to_string().into()));
    }

    fn fail(self, error: RequestError) {
        let _ = self.answer.send(Err(error));
    }
}

/// Reviews whose upstream and clock the test controls.
struct Scene {
    reviews: TokenReviews,
    posts: mpsc::UnboundedReceiver<Post>,
    clock: Clock,
}

fn quick() -> TokenReviewSettings {
    TokenReviewSettings {
        first_pause: Duration::ZERO,
        ..TokenReviewSettings::default()
    }
}

impl Scene {
    fn new(settings: TokenReviewSettings) -> Self {
        let (sender, posts) = mpsc::unbounded_channel();
        Self::over(
            settings,
            Upstream { posts: sender },
            posts,
            Handle::current(),
        )
    }

    fn over(
        settings: TokenReviewSettings,
        transport: impl ReviewTransport,
        posts: mpsc::UnboundedReceiver<Post>,
        runtime: Handle,
    ) -> Self {
        let clock = Clock::manual(Time::ZERO);
        let key = TokenKey::random().unwrap();
        Self {
            reviews: TokenReviews::new(settings, transport, key, clock.clone(), runtime),
            posts,
            clock,
        }
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// A JWT that expires in `seconds`.
    fn expiring_in(&self, seconds: f64) -> String {
        let wall = self.clock.wall().duration_since(SystemTime::UNIX_EPOCH);
        let end = wall.unwrap().as_secs_f64() + seconds;
        let claims = URL_SAFE_NO_PAD.encode(json!({"exp": end}).to_string());
        format!("e30.{claims}.c2ln")
    }

    fn digest(&self, token: &str) -> TokenDigest {
        self.reviews.key().digest(token.as_bytes())
    }

    fn review(&self, token: &str) -> PendingTokenReview {
        let digest = self.digest(token);
        let client = ([127, 0, 0, 1], 1).into();
        self.reviews
            .review(&BearerToken::new(token.as_bytes()).unwrap(), digest, client)
    }

    /// What is known of a token, at the scene's time.
    fn known(&self, token: &str) -> Option<Result<String, ()>> {
        let now = self.clock.now();
        let reviewed = self.reviews.lookup_cached(&self.digest(token), now)?;
        Some(match reviewed {
            Ok(identity) => Ok(identity.user().name.clone()),
            Err(_) => Err(()),
        })
    }

    async fn post(&mut self) -> Post {
        self.posts.recv().await.unwrap()
    }

    /// Reviews a token that the upstream accepts.
    async fn accept(&mut self, token: &str) {
        let review = self.review(token);
        self.post().await.accept("alice");
        review.await.unwrap().unwrap();
    }

    /// Lets every other task run until it waits, and returns whether nothing was posted.
    async fn nothing_posted(&mut self) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.posts.try_recv().is_err()
    }
}

#[tokio::test]
async fn equal_look_ups_merge_into_one_review() {
    let mut scene = Scene::new(quick());
    let (one, two, other) = (scene.review("t"), scene.review("t"), scene.review("u"));
    let (first, second) = (scene.post().await, scene.post().await);
    assert_eq!((first.token(), second.token()), ("t".into(), "u".into()));
    first.accept("alice");
    second.refuse();
    assert_eq!(one.await.unwrap().unwrap().user().name, "alice");
    assert_eq!(two.await.unwrap().unwrap().user().name, "alice");
    assert!(other.await.unwrap().is_err());

    // The result is cached by now.
    assert!(scene.review("t").await.unwrap().is_ok());
    assert!(scene.nothing_posted().await);
}

#[tokio::test]
async fn an_accepted_token_is_cached_for_at_most_ten_seconds() {
    for (setting, holds) in [(3600, 10), (10, 10), (4, 4)] {
        let mut scene = Scene::new(TokenReviewSettings {
            accepted_ttl: Duration::from_secs(setting),
            ..quick()
        });
        scene.accept("t").await;
        scene.pass(holds - 1);
        assert_eq!(scene.known("t"), Some(Ok("alice".into())));
        scene.pass(1);
        assert_eq!(scene.known("t"), None);
    }
}

#[tokio::test]
async fn an_accepted_token_is_not_cached_past_its_expiry() {
    let mut scene = Scene::new(quick());
    for (claim, holds) in [(2.5, 2), (100.0, 9)] {
        let token = scene.expiring_in(claim);
        scene.accept(&token).await;
        scene.pass(holds);
        assert!(scene.known(&token).is_some());
        scene.pass(1);
        assert!(scene.known(&token).is_none());
    }
    let past = scene.expiring_in(-1.0);
    scene.accept(&past).await;
    assert_eq!(scene.known(&past), None);
}

#[tokio::test]
async fn a_refusal_is_cached_for_a_short_time() {
    let mut scene = Scene::new(quick());
    let review = scene.review("bad");
    scene.post().await.refuse();
    let refused = review.await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "invalid bearer token: no such token");
    scene.pass(9);
    assert_eq!(scene.known("bad"), Some(Err(())));
    scene.pass(1);
    assert_eq!(scene.known("bad"), None);
    drop(scene.review("bad"));
    assert_eq!(scene.post().await.token(), "bad");
}

#[tokio::test]
async fn an_error_is_never_cached() {
    let mut scene = Scene::new(quick());
    for error in [
        RequestError::Connect { reason: "r".into() },
        RequestError::TooLong { max_bytes: 1 },
        RequestError::Status {
            status: 403,
            retry_after: None,
            message: "no".into(),
        },
    ] {
        let review = scene.review("t");
        scene.post().await.fail(error.clone());
        assert_eq!(review.await.unwrap_err(), TokenReviewError::Request(error));
        assert_eq!(scene.known("t"), None);
    }
    let review = scene.review("t");
    let garbage = Ok(Bytes::from_static(b"<html>"));
    let _ = scene.post().await.answer.send(garbage);
    assert!(matches!(
        review.await.unwrap_err(),
        TokenReviewError::Malformed { .. }
    ));
    scene.accept("t").await;
    assert!(scene.known("t").is_some());
}

#[tokio::test]
async fn transient_failures_are_attempted_five_times_in_all() {
    let status = |status, retry_after| RequestError::Status {
        status,
        retry_after,
        message: "later".into(),
    };
    let mut scene = Scene::new(quick());
    for error in [
        RequestError::Lost { reason: "r".into() },
        status(429, None),
        status(500, None),
        status(504, None),
        status(503, Some(Duration::ZERO)),
    ] {
        let review = scene.review("t");
        for _ in 0..4 {
            scene.post().await.fail(error.clone());
        }
        scene.post().await.refuse();
        assert!(review.await.unwrap().is_err());
        scene.pass(100);

        let review = scene.review("t");
        for _ in 0..5 {
            scene.post().await.fail(error.clone());
        }
        assert_eq!(review.await.unwrap_err(), TokenReviewError::Request(error));
        assert!(scene.nothing_posted().await);
    }
}

#[tokio::test]
async fn a_review_continues_when_all_its_callers_have_left() {
    let mut scene = Scene::new(quick());
    drop((scene.review("t"), scene.review("t")));
    let post = scene.post().await;
    let later = scene.review("t");
    post.accept("alice");
    assert!(later.await.unwrap().is_ok());
    assert!(scene.known("t").is_some());
}

#[tokio::test]
async fn a_review_without_a_response_times_out() {
    for limits in [(1, 60_000), (60_000, 1)] {
        let mut scene = Scene::new(TokenReviewSettings {
            try_limit: Duration::from_millis(limits.0),
            lookups: LookupSettings {
                limit: Duration::from_millis(limits.1),
                max_running: 1,
                ..quick().lookups
            },
            ..quick()
        });
        for _ in 0..2 {
            // The second one is posted because the first has given back its turn.
            let review = scene.review("t");
            let unanswered = scene.post().await;
            assert_eq!(review.await.unwrap_err(), TokenReviewError::TimedOut);
            drop(unanswered);
        }
    }
}

#[tokio::test]
async fn reviews_that_run_at_once_are_bounded() {
    let mut scene = Scene::new(TokenReviewSettings {
        lookups: LookupSettings {
            max_running: 2,
            ..quick().lookups
        },
        ..quick()
    });
    let reviews = ["a", "b", "c"].map(|token| scene.review(token));
    let (first, second) = (scene.post().await, scene.post().await);
    assert!(scene.nothing_posted().await);
    second.refuse();
    let third = scene.post().await;
    assert_eq!(third.token(), "c");
    first.accept("alice");
    third.accept("carol");
    let [a, b, c] = reviews;
    assert!(a.await.unwrap().is_ok() && b.await.unwrap().is_err() && c.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_flood_of_unknown_tokens_is_bounded_and_delays_no_renewal() {
    let mut scene = Scene::new(TokenReviewSettings {
        lookups: LookupSettings {
            max_running: 1,
            // One address may have a third.
            max_pending: 9,
            ..quick().lookups
        },
        ..quick()
    });
    scene.accept("good").await;
    scene.pass(60);

    let flood = ["x", "y", "z"].map(|token| scene.review(token));
    assert_eq!(
        scene.review("w").await.unwrap_err(),
        TokenReviewError::Overloaded
    );
    let first = scene.post().await;
    assert_eq!(first.token(), "x");
    assert!(scene.nothing_posted().await);

    let renewal = scene.review("good");
    let post = scene.post().await;
    assert_eq!(post.token(), "good");
    post.accept("alice");
    assert!(renewal.await.unwrap().is_ok());

    first.refuse();
    for _ in ["y", "z"] {
        scene.post().await.refuse();
    }
    for review in flood {
        assert!(review.await.unwrap().is_err());
    }
    scene.accept("w").await; // there is room again
}

#[tokio::test]
async fn cached_results_are_bounded() {
    let mut scene = Scene::new(TokenReviewSettings {
        lookups: LookupSettings {
            max_entries: 3,
            ..quick().lookups
        },
        ..quick()
    });
    for i in 0..10 {
        scene.accept(&format!("good {i}")).await;
        let review = scene.review(&format!("bad {i}"));
        scene.post().await.refuse();
        assert!(review.await.unwrap().is_err());
    }
    assert_eq!(scene.reviews.lookups.len(), (3, 3));
    assert!(scene.known("good 9").is_some() && scene.known("good 6").is_none());
}

#[tokio::test]
async fn a_token_that_is_not_utf8_is_refused_without_asking() {
    let mut scene = Scene::new(quick());
    let digest = scene.reviews.key().digest(b"\xff");
    let review = scene.reviews.review(
        &BearerToken::new(*b"\xff").unwrap(),
        digest,
        ([127, 0, 0, 1], 1).into(),
    );
    assert!(review.await.unwrap().is_err());
    assert!(scene.nothing_posted().await);
}

#[tokio::test]
async fn a_panic_of_the_transport_ends_all_waits() {
    struct Panics(Mutex<u32>);
    impl ReviewTransport for Panics {
        fn post(&self, _: Bytes) -> PostFuture<'_> {
            *sync::lock(&self.0) += 1;
            panic!("the transport of the test panics");
        }
    }
    let (_sender, posts) = mpsc::unbounded_channel();
    let scene = Scene::over(quick(), Panics(Mutex::new(0)), posts, Handle::current());
    for _ in 0..3 {
        assert_eq!(
            scene.review("t").await.unwrap_err(),
            TokenReviewError::Abandoned
        );
    }
    assert!(scene.reviews.lookups.is_idle());
}

#[tokio::test]
async fn the_end_of_the_control_runtime_ends_all_waits() {
    let control = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (sender, posts) = mpsc::unbounded_channel();
    let upstream = Upstream { posts: sender };
    let scene = Scene::over(quick(), upstream, posts, control.handle().clone());
    let running = scene.review("t");
    control.shutdown_background();
    assert_eq!(running.await.unwrap_err(), TokenReviewError::Abandoned);
    assert_eq!(
        scene.review("u").await.unwrap_err(),
        TokenReviewError::Abandoned
    );
}

#[tokio::test]
async fn a_data_core_on_another_thread_gets_the_result() {
    let mut scene = Scene::new(quick());
    let (reviews, digest) = (scene.reviews.clone(), scene.digest("t"));
    let core = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(reviews.review(
            &BearerToken::new(*b"t").unwrap(),
            digest,
            ([127, 0, 0, 1], 1).into(),
        ))
    });
    scene.post().await.accept("alice");
    let reviewed = tokio::task::spawn_blocking(move || core.join().unwrap())
        .await
        .unwrap();
    assert_eq!(reviewed.unwrap().unwrap().user().name, "alice");
}

/// How long the upstream takes for a review in [`SlowUpstream`].
const REVIEW: Duration = Duration::from_millis(30);

/// An upstream that takes [`REVIEW`] for each review, and accepts tokens that begin with `good`.
struct SlowUpstream;

impl ReviewTransport for SlowUpstream {
    fn post(&self, body: Bytes) -> PostFuture<'_> {
        Box::pin(async move {
            tokio::time::sleep(REVIEW).await;
            let (answer, answered) = oneshot::channel();
            let post = Post { body, answer };
            if post.token().starts_with("good") {
                post.accept("alice");
            } else {
                post.refuse();
            }
            answered.await.unwrap()
        })
    }
}

/// How many of 20 good tokens that come one after another from `good` take longer than `most`, while each of these connections sends bogus
/// ones, `each` at a time. The time is virtual.
async fn late_beside(flood: Vec<SocketAddr>, each: usize, good: &str, most: Duration) -> usize {
    let (_, posts) = mpsc::unbounded_channel();
    let scene = Scene::over(quick(), SlowUpstream, posts, Handle::current());
    let reviews = scene.reviews.clone();
    let review = move |token: String, from: SocketAddr| {
        let digest = reviews.key().digest(token.as_bytes());
        reviews.review(&BearerToken::new(token.as_bytes()).unwrap(), digest, from)
    };
    let mut bogus = tokio::task::JoinSet::new();
    for from in flood {
        for number in 0..each {
            let review = review.clone();
            bogus.spawn(async move {
                for again in 0.. {
                    if review(format!("bogus {from} {number} {again}"), from)
                        .await
                        .is_err()
                    {
                        tokio::time::sleep(Duration::from_millis(20)).await; // 429
                    }
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut late = 0;
    for number in 0..20 {
        // At another moment of the reviews that run.
        tokio::time::sleep(Duration::from_millis(30 + 7 * number)).await;
        let port = 5000 + u16::try_from(number).unwrap();
        let from = SocketAddr::new(good.parse().unwrap(), port);
        let mut review = review(format!("good {number}"), from);
        let in_time = tokio::time::timeout(most, &mut review).await;
        let reviewed = if let Ok(reviewed) = in_time {
            reviewed
        } else {
            late += 1;
            review.await
        };
        assert!(reviewed.unwrap().is_ok());
    }
    late
}

#[tokio::test(start_paused = true)]
async fn a_new_good_token_takes_at_most_twice_its_idle_time_beside_a_flood_of_bogus_ones() {
    let connections = |addresses: u8| -> Vec<SocketAddr> {
        let ports = |last| (1..=6).map(move |port| SocketAddr::from(([10, 0, last, 1], port)));
        (0..addresses).flat_map(ports).collect()
    };
    // A timer of tokio is late by up to a millisecond.
    let most = |times: u32| times * (REVIEW + Duration::from_millis(1));
    let idle = late_beside(Vec::new(), 0, "192.0.2.1", most(1)).await;
    assert_eq!(idle, 0);
    for (addresses, each, good, times) in [
        (1, 100, "192.0.2.1", 2),
        (1, 100, "10.0.0.2", 2),
        (1, 100, "10.0.0.1", 2),
        (20, 5, "192.0.2.1", 2),
        // Of one of 20 networks that flood: before its first token at most 40 bogus ones (`turns`), 24 at a time.
        (20, 5, "10.0.7.2", 3),
    ] {
        let late = late_beside(connections(addresses), each, good, most(times)).await;
        assert_eq!(late, 0, "{good} beside {addresses}, {times} times");
    }
}
