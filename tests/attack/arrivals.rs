//! Requests that come under ever new names, under many names, or in two sizes, beside a victim in the same level.
//!
//! Each attack is played with flow control off, with the algorithm of kube-apiserver and with that of fairgate; the notes
//! say how the victim was served. Only the last is evaluated, by what the upstream counts: how much work of attackers
//! began between a request of the victim and its execution. That is the sum of the times that requests ask for, so a slow
//! machine does not change it.
//!
//! The bound is that of "Nobody is starved by arrivals" in docs/fair-shares.md; [`Contest::most_passing`] derives it.
//!
//! Not here: how exactly shares are met, which the simulation measures.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use fairgate_testkit::random::Random;

use crate::{
    Attack,
    gateway::{ATTACKER, Setup, VICTIM, attacker},
    others::{Client, Mix, ServiceStats},
    report::{Outcome, millis},
    scene::{Played, Scene},
    time::{LIVENESS, ms, now, until},
    upstream::{ATTACK_WORK, FakeUpstream},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "arrivals-new-namespaces",
        point: "shares",
        about: "48 threads of one user, each request in another new namespace, where flows are namespaces",
        play: || NEW_NAMESPACES.play(),
    },
    Attack {
        name: "arrivals-new-users",
        point: "shares",
        about: "48 threads, each request of another new user, where flows are users",
        play: || NEW_USERS.play(),
    },
    Attack {
        name: "arrivals-two-sizes",
        point: "shares",
        about: "60 threads of one user, four requests of 1 ms for each of 200 ms",
        play: || TWO_SIZES.play(),
    },
    Attack {
        name: "arrivals-64-names",
        point: "shares",
        about: "48 threads of one user in 64 namespaces, where flows are namespaces",
        play: || NAMES_64.play(),
    },
    Attack {
        name: "arrivals-1000-names",
        point: "shares",
        about: "48 threads of one user in 1 000 namespaces, where flows are namespaces",
        play: || NAMES_1000.play(),
    },
];

/// Seats of the level. The upstream has as many, so that requests wait there, in the order of their arrival, when flow control is off.
const SEATS: u32 = 9;
/// The total of seats with which every share is one seat: the built-in `catch-all` has 5.
const TOTAL: u32 = SEATS + 5;
/// Clients of the victim, what each of them sends, and how long it waits between two requests.
const CLIENTS: usize = 2;
const REQUESTS: usize = 16;
const PAUSE: Duration = ms(100);
/// How long the victim may take where it is not evaluated.
const UNEVALUATED: Duration = ms(2000);
/// What the flows of one tenant weigh together at most, by default (`flowControl.tenantWeight`).
const TENANT_WEIGHT: u32 = 4;
/// The lag of virtual time, in requests of the usual size.
const LAG: u32 = 9;
/// Users that have tokens, more than send requests while the victim is served.
const USERS: usize = 20_000;

const NEW_NAMESPACES: Contest = Contest {
    flows_by: "ByNamespace",
    threads: 48,
    request: |number, _| (format!("x{number}"), 40, None),
    service_time: ms(40),
    usual: ms(40),
    flows: 44,
    weight: TENANT_WEIGHT,
    there: 48,
};
const NEW_USERS: Contest = Contest {
    flows_by: "ByUser",
    request: |number, _| ("a".to_owned(), 40, Some(number % USERS)),
    flows: 48,
    weight: 48,
    ..NEW_NAMESPACES
};
const TWO_SIZES: Contest = Contest {
    flows_by: "ByUser",
    threads: 60,
    request: |_, random| {
        let is_long = random.within(0..5) == 0;
        ("a".to_owned(), if is_long { 200 } else { 1 }, None)
    },
    service_time: ms(10),
    usual: ms(200),
    flows: 1,
    weight: 1,
    there: SEATS,
};
const NAMES_64: Contest = Contest {
    flows: 28,
    request: |_, random| (format!("x{}", random.within(0..64)), 40, None),
    ..NEW_NAMESPACES
};
const NAMES_1000: Contest = Contest {
    request: |_, random| (format!("x{}", random.within(0..1000)), 40, None),
    ..NEW_NAMESPACES
};

/// How flow control is configured, and whether the victim's service is evaluated.
const MODES: [(&str, bool); 3] = [("off", false), ("Compatible", false), ("Improved", true)];

/// Attackers and a victim in one level.
#[derive(Clone, Copy)]
struct Contest {
    /// The method by which the FlowSchema tells flows apart.
    flows_by: &'static str,
    /// Threads of the attackers, each with one request at a time.
    threads: usize,
    /// The request of this number: its namespace, how many milliseconds it takes, and the number of its user if that is not
    /// [`ATTACKER`].
    request: fn(usize, &mut Random) -> (String, u64, Option<usize>),
    /// How long a request of the victim takes.
    service_time: Duration,
    /// How long the request of the attackers takes in which the mean seat-second is used, at most.
    usual: Duration,
    /// The attackers' flows that have requests at a time, at least, and what these weigh together.
    flows: u32,
    weight: u32,
    /// Requests of the attackers that may go before one of the victim because they are there already.
    there: u32,
}

/// What one mode gave.
#[derive(Default)]
struct ContestFound {
    stats: ServiceStats,
    /// The attackers' work that began between requests of the victim and their execution, of all requests.
    passing: Duration,
    /// Requests of attackers that were served while the victim was, and those that failed.
    attackers: usize,
    attackers_failed: usize,
}

impl Contest {
    /// Plays the attack in each mode. What is evaluated is played last, and the row is about that.
    fn play(&self) -> Outcome {
        let mut notes = Vec::new();
        let mut evaluated = None;
        for (mode, is_evaluated) in MODES {
            let played = self.play_in(mode, is_evaluated);
            notes.push(played.found.note(mode));
            if is_evaluated {
                evaluated = Some(played);
            }
        }
        let mut outcome = self.evaluate(evaluated.expect("one of the modes is evaluated"));
        for note in notes {
            outcome.note(note);
        }
        outcome
    }

    fn play_in(&self, mode: &str, is_evaluated: bool) -> Played<ContestFound> {
        let limit = if is_evaluated { LIVENESS } else { UNEVALUATED };
        let upstream = FakeUpstream::start_with_seats(SEATS as usize);
        let scene = Scene::with_upstream(upstream, &self.setup(mode), Mix::NOBODY);
        scene.play(async |scene| self.compete(scene, limit).await)
    }

    fn setup(&self, mode: &str) -> Setup {
        let mut flow_control = json!({
            "totalSeats": TOTAL,
            "bootstrap": "mandatory",
            "policies": {"directory": "shared"},
        });
        let (key, value) = match mode {
            "off" => ("enforcement", mode),
            semantics => ("semantics", semantics),
        };
        flow_control[key] = value.into();
        Setup {
            config: json!({"flowControl": flow_control}),
            more_attackers: USERS,
            files: vec![("shared/policy.json".to_owned(), self.policy().to_string())],
            ..Setup::default()
        }
    }

    /// One level for all users, which neither lends nor borrows.
    fn policy(&self) -> Value {
        let api_version = "flowcontrol.apiserver.k8s.io/v1";
        let queuing = json!({"queues": 64, "handSize": 4, "queueLengthLimit": 50});
        let subject = |group| json!({"kind": "Group", "group": {"name": group}});
        json!({"apiVersion": "v1", "kind": "List", "items": [{
            "apiVersion": api_version, "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "shared"},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": SEATS, "lendablePercent": 0, "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Queue", "queuing": queuing},
            }},
        }, {
            "apiVersion": api_version, "kind": "FlowSchema",
            "metadata": {"name": "shared"},
            "spec": {
                "matchingPrecedence": 1000,
                "priorityLevelConfiguration": {"name": "shared"},
                "distinguisherMethod": {"type": self.flows_by},
                "rules": [{
                    "subjects": [subject("attackers"), subject("others")],
                    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
                }],
            },
        }]})
    }

    /// Has the victim send its requests while attackers fill the level.
    async fn compete(&self, scene: &Scene, limit: Duration) -> ContestFound {
        let counts = Arc::<AttackCounts>::default();
        let mut attackers = JoinSet::new();
        for thread in 0..self.threads {
            attackers.spawn(attack(
                scene.gateway.address,
                self.request,
                Random::seeded(thread as u64),
                Arc::clone(&counts),
            ));
        }
        // Every thread had its turn, and the gateway has learnt how long requests take.
        let warm = || counts.served.load(Ordering::Relaxed) >= 3 * self.threads;
        until(LIVENESS, warm).await;
        let load = || [&counts.served, &counts.failed].map(|count| count.load(Ordering::Relaxed));
        let before = load();
        let seen = Mutex::new(VictimRequests::default());
        let clients = (0..CLIENTS).map(|_| self.request_in_turn(scene, &seen));
        let all = futures_util::future::join_all(clients);
        let _ = tokio::time::timeout(limit, all).await;
        let after = load();
        let seen = seen.into_inner().unwrap();
        ContestFound {
            stats: ServiceStats::of(seen.times, seen.failures),
            passing: seen.passing,
            attackers: after[0] - before[0],
            attackers_failed: after[1] - before[1],
        }
    }

    /// Sends the requests of one client of the victim.
    async fn request_in_turn(&self, scene: &Scene, seen: &Mutex<VictimRequests>) {
        let path = format!(
            "/api/v1/namespaces/v/pods/t{}",
            self.service_time.as_millis()
        );
        let mut client = None;
        for _ in 0..REQUESTS {
            tokio::time::sleep(PAUSE).await;
            if client.is_none() {
                client = Client::connect(scene.gateway.address, false).await.ok();
            }
            let Some(connected) = &mut client else {
                seen.lock().unwrap().failures.push("cannot connect".into());
                continue;
            };
            let (begun, work) = (now(), scene.upstream.attackers().work);
            let answered = request(connected, &path, VICTIM).await;
            let mut seen = seen.lock().unwrap();
            match answered {
                Ok(at_execution) => {
                    seen.times.push(begun.elapsed());
                    seen.passing += at_execution.saturating_sub(work);
                }
                Err(error) => {
                    seen.failures.push(error);
                    client = None;
                }
            }
        }
    }

    /// How much work of the attackers may begin between a request of the victim and its execution, at most.
    ///
    /// In the words of docs/fair-shares.md: f is the victim's flow, v the work of its request, u that of the attackers'
    /// usual request, Λ the lag, at most 9 u, and W the weight of all flows.
    ///
    /// - When the request arrives, `S_f` − R is at most Λ, and v more if the other client has a request.
    /// - A flow that becomes active later starts at R or later, and its first request waits for its weight w, too: it goes
    ///   first only if R + (1/w − 1) u is less than `S_f`, so only until R has advanced by Λ + v − (1/w − 1) u. Where a tenant has
    ///   44 flows, w is 1/11, and none goes first.
    /// - While f waits all seats are in use, so P advances by the work done divided by W, and R is at least P − Λ. So R has
    ///   advanced by x after the work (Λ + x) · W at the latest.
    /// - Besides, there may go first what waits already. The upstream counts from when the client sends the request
    ///   until it begins there, so what is on its way to the upstream counts, too. Together that is one request of each thread;
    ///   but where the attackers are one flow, that has had all seats meanwhile, and is not before f any longer.
    ///
    /// The way of a request from the client to the gateway is left out: it is far shorter than what is allowed.
    fn most_passing(&self) -> Duration {
        let lag = LAG * self.usual;
        let waits_for_its_weight = (self.flows / self.weight - 1) * self.usual;
        let ahead = (lag + self.service_time).saturating_sub(waits_for_its_weight);
        let later = if ahead.is_zero() {
            Duration::ZERO
        } else {
            (lag + ahead) * (self.weight + 1)
        };
        later + self.there * self.usual
    }

    fn evaluate(&self, mut played: Played<ContestFound>) -> Outcome {
        played.runtimes_are_free();
        let ContestFound { stats, passing, .. } = played.found;
        let outcome = &mut played.outcome;
        outcome.check(
            format!(
                "all {} requests of the victim are served",
                CLIENTS * REQUESTS
            ),
            stats.served() == CLIENTS * REQUESTS,
            format!(
                "{} are, {} fail ({})",
                stats.served(),
                stats.failures,
                stats.first.as_deref().unwrap_or("none")
            ),
        );
        let requests = u32::try_from(stats.served().max(1)).unwrap_or(u32::MAX);
        let most = self.most_passing();
        outcome.check(
            format!(
                "at most {} ms of the attackers' work begin before each, on average",
                most.as_millis()
            ),
            passing <= most * requests,
            format!("{} ms do", (passing / requests).as_millis()),
        );
        outcome.during = stats;
        played.outcome
    }
}

/// What became of the victim's requests.
#[derive(Default)]
struct VictimRequests {
    times: Vec<Duration>,
    failures: Vec<String>,
    passing: Duration,
}

/// What became of the attackers' requests.
#[derive(Default)]
struct AttackCounts {
    sent: AtomicUsize,
    served: AtomicUsize,
    failed: AtomicUsize,
}

impl ContestFound {
    fn note(&self, mode: &str) -> String {
        let stats = &self.stats;
        let requests = u32::try_from(stats.served().max(1)).unwrap_or(u32::MAX);
        format!(
            "{mode}: victim {} of {} served, {} failed, p50 {} ms, p99 {} ms, {} ms of the attackers' work before each; attackers {} served, {} failed",
            stats.served(),
            CLIENTS * REQUESTS,
            stats.failures,
            millis(stats.percentile(50)),
            millis(stats.percentile(99)),
            (self.passing / requests).as_millis(),
            self.attackers,
            self.attackers_failed,
        )
    }
}

/// One thread of the attackers: sends requests until it is aborted.
async fn attack(
    address: SocketAddr,
    next: fn(usize, &mut Random) -> (String, u64, Option<usize>),
    mut random: Random,
    counts: Arc<AttackCounts>,
) {
    let mut client = None;
    loop {
        if client.is_none() {
            client = Client::connect(address, false).await.ok();
        }
        let Some(connected) = &mut client else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        let number = counts.sent.fetch_add(1, Ordering::Relaxed);
        let (namespace, time, user) = next(number, &mut random);
        let user = user.map_or_else(|| ATTACKER.to_owned(), attacker);
        let path = format!("/api/v1/namespaces/{namespace}/pods/t{time}");
        if request(connected, &path, &user).await.is_ok() {
            counts.served.fetch_add(1, Ordering::Relaxed);
        } else {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            client = None;
            tokio::time::sleep(ms(20)).await;
        }
    }
}

/// Sends a request. Returns how much work of attackers had begun when it began to execute.
async fn request(client: &mut Client, path: &str, user: &str) -> Result<Duration, String> {
    let answer = client.send(Method::GET, path, Some(user)).await?;
    let status = answer.status();
    let work = answer.headers().get(ATTACK_WORK);
    let work = work.and_then(|work| work.to_str().ok()?.parse().ok());
    let whole = answer.into_body().collect().await;
    whole.map_err(|error| format!("{path}: the response broke off: {error}"))?;
    match work {
        Some(work) if status.is_success() => Ok(ms(work)),
        _ => Err(format!("GET {path}: {status}")),
    }
}
