//! Seats and caps against an upstream that ignores cancellation: it completes each request, also when the client has
//! disconnected, and counts how many requests it executes at once.
//!
//! Clients play random schedules: they choose how long their requests take, request watches on paths that have none,
//! send half a body, disconnect at any moment, and set short timeouts. The upstream may never execute more requests
//! than the level has seats (ordinary requests, and watches without a response yet) or than the caps allow
//! (long-running requests). The tests count requests, and not those whose time limit has passed, so a busy machine
//! cannot make them fail.
//!
//! A schedule follows from its seed, which a failure names; `FAIRGATE_SEED` replays one.

use bytes::Bytes;
use fairgate_proxy::fairness::Caps;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::*;
use crate::{
    random::{self, Below as _, Random},
    rules::{Full, Rules},
    upstream::streamed,
};

const SEATS: u32 = 4;
/// After this time the gateway cancels a request. Only then may its seat become free before it has ended upstream.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// Clients continue until this many ordinary requests are done, so that no kind of request starves the others.
const LEAST_DONE: usize = 4 * SEATS as usize;
const CAPS: Caps = Caps {
    per_user: 3,
    total: 5,
};
/// The requests that an upstream executes.
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
/// with a body that ends after that (`early`). `sent` says when the client sent it, in milliseconds.
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
        let value = |name| query.split('&').find_map(|part| part.strip_prefix(name));
        let takes = ms(value("ms=").unwrap().parse().unwrap());
        let sent = ms(value("sent=").unwrap().parse().unwrap());
        let numbers: Vec<_> = works
            .iter()
            .map(|work| work.begin(Time::ZERO.plus(sent + TIME_LIMIT)))
            .collect();
        let (pieces, body) = streamed();
        if query.contains("early") {
            let _ = pieces.send(Ok(Bytes::from_static(b"half")));
        }
        let (finish, finished) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            for (work, number) in works.iter().zip(numbers) {
                work.end(number);
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
    fn draw(random: &mut Random, tricks: Tricks, is_early: bool) -> Self {
        let slow = !is_early && random.below(4) > 0;
        let takes = if slow {
            40 + random.below(160)
        } else {
            random.below(4)
        };
        let patience = match random.below(4) {
            0 => 3,
            1 => random.below(60),
            2 => random.below(250),
            _ => 20_000,
        };
        let long = tricks.long_running && random.below(4) == 0;
        let path = if long { "pods/p/log" } else { "pods" };
        let mut target = format!("/api/v1/namespaces/a/{path}?ms={takes}");
        if tricks.watches && !long && random.below(4) == 0 {
            target.push_str("&watch=true");
            if random.below(2) == 0 {
                target.push_str("&resourceVersion=7");
            }
        } else if tricks.halves && random.below(3) == 0 {
            target.push_str("&early");
        }
        if tricks.timeouts && random.below(5) == 0 {
            target.push_str("&timeout=30ms");
        }
        let breaks_off = tricks.bodies && random.below(24) == 0;
        let writes = breaks_off || (!target.contains("watch") && random.below(3) == 0);
        Self {
            method: if writes { Method::POST } else { Method::GET },
            user: if random.below(3) == 0 { "bob" } else { "alice" },
            target,
            patience: ms(u64::from(patience)),
            breaks_off,
            hangs_up: random.below(3) == 0,
        }
    }

    /// Takes the step. Returns the connection to use next, which may be a new one.
    async fn take(&self, gate: &Gate, http2: bool, mut client: TestClient) -> TestClient {
        let sent = now().since(Time::ZERO).as_millis();
        let target = format!("{}&sent={sent}", self.target);
        let request = client.request(self.method.clone(), &target);
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
            // On HTTP/2 the stream is reset and the connection stays open.
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
            let mut random = Random::seeded(seed * 100 + number);
            let http2 = number % 3 != 0;
            let mut client = connect(&gate, http2).await;
            while now() < end || counts.ordinary.done() < LEAST_DONE {
                let is_early = now().since(begin) < ms(500);
                let step = Step::draw(&mut random, tricks, is_early);
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
    let seeds = match random::given_seed() {
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
