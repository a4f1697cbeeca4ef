//! Seats and caps against an upstream that ignores cancellation: it completes each request, also when the client has
//! disconnected, and counts how many requests it executes at once.
//!
//! Clients play random schedules: they choose how long their requests take, request watches on paths that have none,
//! send half a body, disconnect at any moment, and set short timeouts. The upstream may never execute more requests than
//! the level has seats (ordinary requests, and watches without a response yet) or than the caps allow (long-running
//! requests). The tests count requests, so a busy machine cannot make them fail.
//!
//! A schedule follows from its seed, which a failure names; `FAIRGATE_SEED` replays one.

use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use fairgate_proxy::fairness::Caps;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::*;
use crate::{
    rules::{Full, Rules},
    upstream::streamed,
};

const SEATS: u32 = 4;
/// Clients play on until so many requests were served, so no trick starves the others.
const LEAST_DONE: usize = 4 * SEATS as usize;
const CAPS: Caps = Caps {
    per_user: 3,
    total: 5,
};
/// Longer than any request takes upstream, however busy the machine is.
const TIME_LIMIT: Duration = Duration::from_secs(6);

/// What an upstream executes.
#[derive(Debug, Default)]
struct Executing {
    /// Requests that take seats.
    ordinary: Arc<Work>,
    /// Long-running requests of each of two users.
    long: [Arc<Work>; 2],
    /// Long-running requests of both.
    all_long: Arc<Work>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} done, {} at most", self.done(), self.most())
    }
}

/// An upstream that executes each request for as long as its query says (`ms`). It responds after that, or at once
/// with a body that ends after that (`early`).
fn stubborn(speaks: Speaks) -> (TestUpstream, Arc<Executing>) {
    let executing = Arc::<Executing>::default();
    let counts = Arc::clone(&executing);
    let upstream = TestUpstream::start(speaks, move |request| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let user = request.headers().get("x-remote-user");
        let works = if request.uri().path().ends_with("/log") {
            let mine = usize::from(user.is_some_and(|user| user == "bob"));
            vec![Arc::clone(&counts.long[mine]), Arc::clone(&counts.all_long)]
        } else {
            vec![Arc::clone(&counts.ordinary)]
        };
        for work in &works {
            work.begin();
        }
        let takes = query.split('&').find_map(|part| part.strip_prefix("ms="));
        let takes = ms(takes.map_or(0, |takes| takes.parse().unwrap()));
        let (pieces, body) = streamed();
        if query.contains("early") {
            let _ = pieces.send(Ok(Bytes::from_static(b"half")));
        }
        let (finish, finished) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            for work in &works {
                work.end();
            }
            let _ = pieces.send(Ok(Bytes::from(vec![b'x'; 1000])));
            let _ = finish.send(());
        });
        async move {
            // Reads whatever the client sends of the body.
            tokio::spawn(request.into_body().collect());
            if !query.contains("early") {
                let _ = finished.await;
            }
            http::Response::new(body)
        }
    });
    (upstream, executing)
}

/// Random numbers that follow from a seed.
struct Dice(AtomicU64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        (x >> 11) % bound
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Which kinds of requests a schedule may contain, besides those with a response in time.
#[derive(Clone, Copy, Debug, Default)]
struct Tricks {
    /// Watches on slow paths that do not support watches.
    watches: bool,
    /// Long-running requests.
    long_running: bool,
    /// Responses that begin early, and whose client disconnects half-way.
    halves: bool,
    /// Bodies that break off.
    bodies: bool,
    /// Timeouts set by the client.
    timeouts: bool,
}

const ALL: Tricks = Tricks {
    watches: true,
    long_running: true,
    halves: true,
    bodies: true,
    timeouts: true,
};

/// One step of a client.
#[derive(Debug)]
struct Step {
    method: Method,
    user: &'static str,
    target: String,
    /// After how long the client disconnects.
    patience: Duration,
    /// Whether its body breaks off.
    breaks_off: bool,
    /// Whether it closes its connection then, instead of resetting the stream.
    hangs_up: bool,
}

impl Step {
    /// Mostly quick requests for a while, then mostly slow ones that are abandoned soon. What the gateway learns from
    /// the quick ones must not be applied to the slow ones.
    fn draw(dice: &Dice, tricks: Tricks, is_early: bool) -> Self {
        let slow = !is_early && !dice.one_in(4);
        let takes = if slow {
            40 + dice.below(160)
        } else {
            dice.below(4)
        };
        let patience = match dice.below(4) {
            0 => 3,
            1 => dice.below(60),
            2 => dice.below(250),
            _ => 20_000,
        };
        let long = tricks.long_running && dice.one_in(4);
        let path = if long { "pods/p/log" } else { "pods" };
        let mut target = format!("/api/v1/namespaces/a/{path}?ms={takes}");
        if tricks.watches && !long && dice.one_in(4) {
            target.push_str("&watch=true");
            if dice.one_in(2) {
                target.push_str("&resourceVersion=7");
            }
        } else if tricks.halves && dice.one_in(3) {
            target.push_str("&early");
        }
        if tricks.timeouts && dice.one_in(5) {
            target.push_str("&timeout=30ms");
        }
        let breaks_off = tricks.bodies && dice.one_in(24);
        let writes = breaks_off || (!target.contains("watch") && dice.one_in(3));
        Self {
            method: if writes { Method::POST } else { Method::GET },
            user: if dice.one_in(3) { "bob" } else { "alice" },
            target,
            patience: ms(patience),
            breaks_off,
            hangs_up: dice.one_in(3),
        }
    }

    /// Takes the step. Returns the connection to use next, which may be a new one.
    async fn take(&self, gate: &Gate, http2: bool, mut client: TestClient) -> TestClient {
        let request = client.request(self.method.clone(), &self.target);
        let request = request.header("x-user", self.user);
        let (pieces, half) = streamed();
        let body = if self.breaks_off { half } else { full("") };
        if self.breaks_off {
            pieces.send(Ok(Bytes::from_static(b"half"))).unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(ms(5)).await;
                let _ = pieces.send(Err(std::io::Error::other("broken")));
            });
        }
        let pending = async {
            let response = client.send(request.body(body).unwrap()).await?;
            response.into_body().collect().await
        };
        let outcome = tokio::time::timeout(self.patience, pending).await;
        let reusable = match outcome {
            Ok(Ok(_)) => true,
            // On HTTP/2 the stream is reset and the connection lives on.
            Err(_) => http2 && !self.hangs_up,
            Ok(Err(_)) => false,
        };
        if reusable {
            return client;
        }
        client.abandon().await;
        connect(gate, http2).await
    }
}

/// Ten clients play a schedule, while the upstream counts.
async fn play(speaks: Speaks, tricks: Tricks, seed: u64) {
    let (upstream, executing) = stubborn(speaks);
    let rules = Rules::small(SEATS, Full::queue(100)).set(|set| {
        set.request_timeout = TIME_LIMIT;
        set.long_running = CAPS;
    });
    let gate = Gate::governed_with(&upstream, &rules, |_, to| {
        to.deadline_grace = Duration::ZERO;
    });
    let gate = Arc::new(gate);
    let begin = now();
    let end = begin.plus(ms(2500));
    let mut clients = JoinSet::new();
    for number in 0..10 {
        let (gate, counts) = (Arc::clone(&gate), Arc::clone(&executing));
        clients.spawn(async move {
            let dice = Dice::new(seed * 100 + number);
            let http2 = number % 3 != 0;
            let mut client = connect(&gate, http2).await;
            while now() < end || counts.ordinary.done() < LEAST_DONE {
                let is_early = now().since(begin) < ms(500);
                let step = Step::draw(&dice, tricks, is_early);
                client = step.take(&gate, http2, client).await;
            }
            client.abandon().await;
        });
    }
    clients.join_all().await;
    until(|| small(&gate) == (0, 0, 0) && gate.flow_control().long_running.running() == 0).await;
    let context = format!("FAIRGATE_SEED={seed}: {executing:?}");
    assert!(executing.ordinary.most() <= SEATS as usize, "{context}");
    assert!(
        executing.all_long.most() <= CAPS.total as usize,
        "{context}"
    );
    for long in &executing.long {
        assert!(long.most() <= CAPS.per_user as usize, "{context}");
    }
}

async fn execution_stays_within_the_limits(tricks: Tricks) {
    let replayed = std::env::var("FAIRGATE_SEED").ok();
    let seeds = match replayed.map(|seed| seed.parse().unwrap()) {
        Some(seed) => seed..seed + 1,
        None => 1..3,
    };
    for seed in seeds {
        let mut both = JoinSet::new();
        for speaks in [Speaks::Http1, Speaks::Http2] {
            both.spawn(play(speaks, tricks, seed));
        }
        both.join_all().await;
    }
}

#[tokio::test]
async fn abandoned_requests_execute_within_the_seats() {
    execution_stays_within_the_limits(Tricks::default()).await;
}

#[tokio::test]
async fn requests_that_time_out_execute_within_the_seats() {
    let tricks = Tricks {
        timeouts: true,
        ..Tricks::default()
    };
    execution_stays_within_the_limits(tricks).await;
}

#[tokio::test]
async fn responses_abandoned_half_way_execute_within_the_seats() {
    let tricks = Tricks {
        halves: true,
        ..Tricks::default()
    };
    execution_stays_within_the_limits(tricks).await;
}

#[tokio::test]
async fn requests_that_only_look_like_watches_execute_within_the_seats() {
    let tricks = Tricks {
        watches: true,
        ..Tricks::default()
    };
    execution_stays_within_the_limits(tricks).await;
}

#[tokio::test]
async fn requests_whose_bodies_end_early_execute_within_the_seats() {
    let tricks = Tricks {
        bodies: true,
        ..Tricks::default()
    };
    execution_stays_within_the_limits(tricks).await;
}

#[tokio::test]
async fn long_running_requests_execute_within_the_caps() {
    let tricks = Tricks {
        long_running: true,
        halves: true,
        ..Tricks::default()
    };
    execution_stays_within_the_limits(tricks).await;
}

#[tokio::test]
async fn all_tricks_together_execute_within_the_seats_and_caps() {
    execution_stays_within_the_limits(ALL).await;
}
