//! Waits and refusals that are only observed, compared with those that are enforced, in virtual time.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fairgate_base::clock::Clock;
use fairgate_call::{
    BodyEnd, BodyError, Call, ClientBody, Inbound, Peer, Refusal, Reply, ReplyBody, RequestContext,
    RequestKind, RequestObserver, ResetLimits, UnenforcedDecision,
};
use fairgate_core::{
    apf::{ObjectSet, Policy, PolicySettings, Semantics, objects::Bootstrap},
    cells::{FlowCells, HistogramTotal},
    digest::{RequestDigest, User},
    rejection::RejectReason,
};
use fairgate_testkit::random::Random;
use futures_util::future::LocalBoxFuture;
use http_body::Body;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tower::{Layer as _, Service};

use crate::fairness::{
    Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate, flow_control,
    layer::Fairness,
};

const SEATS: u32 = 4;
/// A quarter of it may be spent in a queue.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(240);
/// Times are so long because timers have whole milliseconds: which of two is served first that are due in the same one depends
/// on who set its timer first.
const MEAN_SERVICE: f64 = 5_000.0;

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Read,
    /// Its events take [`EVENTS`] after it is initialized.
    Watch,
    /// It wakes those who watch.
    Write,
}

/// How long the events of a watch come.
const EVENTS: Duration = Duration::from_secs(40);

/// A request of an open loop: clients send it however long earlier ones take.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Milliseconds since the start.
    at: u64,
    user: u64,
    takes: Duration,
    kind: Sent,
    /// Whether its client resets it a millisecond later.
    is_reset: bool,
}

/// Exponential times between arrivals and of service: a mouse, and three elephants that together ask for more than there is.
fn arrivals(seed: u64) -> Vec<Arrival> {
    let mut random = Random::seeded(seed);
    let mut exponential = |mean: f64| -> f64 {
        let uniform = f64::from(u32::try_from(random.within(1..1 << 30)).unwrap()) / 2_f64.powi(30);
        -mean * uniform.ln()
    };
    let mut all = Vec::new();
    // Parts of what there is.
    for (user, load) in [(0, 0.06), (1, 0.37), (2, 0.37), (3, 0.5)] {
        let mut at = 0.0;
        while at < 200.0 * MEAN_SERVICE {
            at += exponential(MEAN_SERVICE / (load * f64::from(SEATS)));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            all.push(Arrival {
                at: at as u64,
                user,
                takes: Duration::from_millis(exponential(MEAN_SERVICE) as u64 + 1),
                kind: Sent::Read,
                is_reset: false,
            });
        }
    }
    all.sort_by_key(|arrival| arrival.at);
    all
}

/// An upstream that takes as long as the header of a request says.
#[derive(Clone, Debug)]
struct TimedUpstream;

impl Service<Call> for TimedUpstream {
    type Response = Reply;
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let takes = call.request.headers()["takes"].to_str().unwrap();
        let takes = Duration::from_millis(takes.parse().unwrap());
        let is_watch = call.kind == RequestKind::Watch;
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Ok(http::Response::new(if is_watch {
                ReplyBody::boxed(events())
            } else {
                ReplyBody::full("done")
            }))
        })
    }
}

/// A body of unknown length that ends after a while.
fn events() -> impl Body<Data = Bytes, Error = BodyError> {
    let mut end = Box::pin(tokio::time::sleep(EVENTS));
    let frames = futures_util::stream::poll_fn(move |cx| end.as_mut().poll(cx).map(|()| None));
    StreamBody::new(frames)
}

/// What became of requests, with enforcement or without.
#[derive(Debug, Default)]
struct Outcome {
    waits: RefCell<Vec<Duration>>,
    refusals: RefCell<BTreeMap<&'static str, u64>>,
}

impl Outcome {
    fn note(&self, decision: &UnenforcedDecision) {
        match decision.refused {
            None => self.waits.borrow_mut().push(decision.wait),
            Some(reason) => *self.refusals.borrow_mut().entry(reason).or_default() += 1,
        }
    }

    /// Of all waits that are longer than zero, the value below which so many percent are.
    fn percentile(&self, percent: usize) -> Duration {
        let mut waits = self.waits.borrow().clone();
        waits.retain(|wait| !wait.is_zero());
        waits.sort_unstable();
        waits[waits.len() * percent / 100]
    }
}

impl RequestObserver for Outcome {
    fn not_enforced(&self, _: &RequestContext, decision: &UnenforcedDecision) {
        self.note(decision);
    }

    fn ended(&self, _: &RequestContext, _: BodyEnd) {}
}

/// What the metrics say.
#[derive(Debug, PartialEq)]
struct Counts {
    dispatched: u64,
    rejected: Vec<u64>,
    waited: u64,
    refused: u64,
    executed: u64,
    /// Watches that were initialized.
    initialized: u64,
    /// Writes, and how many watchers they concern.
    woken: (u64, f64),
    /// All that arrived, and how wide they are.
    widths: (u64, f64),
    /// Premature resets, and requests refused because of them.
    resets: (u64, u64),
}

struct World {
    clock: Clock,
    flow_control: Arc<FlowControl>,
    layer: Fairness<TimedUpstream>,
    observer: Rc<Outcome>,
    enforcement: Enforcement,
}

fn policy(limit_response: &Value, semantics: Semantics) -> Arc<Policy> {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "narrow"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1000, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": limit_response,
        }},
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "all"},
        "spec": {
            "priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 1000,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                }],
            }],
        },
    });
    let objects = ObjectSet::read([("level", level), ("schema", schema)]);
    let objects = objects.with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: SEATS,
        semantics,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    Arc::new(Policy::compile(&objects, &settings).unwrap().policy)
}

impl World {
    fn new(policy: Arc<Policy>, settings: FlowControlSettings) -> Self {
        let clock = Clock::runtime();
        let enforcement = settings.enforcement;
        let flow_control = FlowControl::new(1, policy, settings, clock.now());
        let gate = Gate::new(Arc::clone(&flow_control), 0, clock.clone(), 1);
        fairgate_base::turns::spawn_local(Rc::clone(&gate).run());
        Self {
            layer: FairnessLayer::new(gate).layer(TimedUpstream),
            observer: Rc::default(),
            clock,
            flow_control,
            enforcement,
        }
    }

    fn send(&mut self, arrival: Arrival) {
        let (method, target) = match arrival.kind {
            Sent::Read => ("GET", "/api/v1/namespaces/a/pods/b"),
            Sent::Watch => (
                "GET",
                "/api/v1/namespaces/a/pods?watch=true&resourceVersion=1",
            ),
            Sent::Write => ("DELETE", "/api/v1/namespaces/a/pods/b"),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(target)
            .header("takes", arrival.takes.as_millis().to_string())
            .body(ClientBody::empty())
            .unwrap();
        let context = Rc::<RequestContext>::default();
        context.notify(Rc::clone(&self.observer) as Rc<dyn RequestObserver>);
        let inbound = Inbound {
            request: Box::new(request),
            peer: Rc::new(Peer::local()),
            received: self.clock.now(),
            context: Rc::clone(&context),
        };
        let user = User::new(format!("user-{}", arrival.user), [User::AUTHENTICATED]);
        let digest = RequestDigest {
            info: inbound.info().unwrap(),
            user: Arc::new(user),
        };
        let call = Call::new(inbound, Arc::new(digest), REQUEST_TIMEOUT).unwrap();
        let answer = self.layer.call(call);
        let patience = if arrival.is_reset {
            Duration::from_millis(1)
        } else {
            2 * REQUEST_TIMEOUT
        };
        let enforced = self.enforcement == Enforcement::Enforce;
        let observer = Rc::clone(&self.observer);
        fairgate_base::turns::spawn_local(async move {
            let Ok(reply) = tokio::time::timeout(patience, answer).await else {
                return;
            };
            if enforced {
                let wait = context.trace.wait.get();
                let refused = reply.as_ref().err().map(Refusal::reason);
                if wait.is_some() || refused.is_some() {
                    let wait = wait.unwrap_or_default();
                    observer.note(&UnenforcedDecision { wait, refused });
                }
            }
            if let Ok(reply) = reply {
                reply.into_body().collect().await.unwrap();
            }
        });
    }

    fn is_idle(&self) -> bool {
        let levels = self.flow_control.dispatcher().report(self.clock.now());
        let is_free = levels.iter().all(|level| level.summary.seats_in_use == 0);
        is_free && self.flow_control.queued() == 0
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            dispatched: 0,
            rejected: vec![0; RejectReason::ALL.len()],
            waited: 0,
            refused: 0,
            executed: 0,
            initialized: 0,
            woken: (0, 0.0),
            widths: (0, 0.0),
            resets: (
                self.flow_control.premature.total(),
                self.flow_control.premature.refused(),
            ),
        };
        self.flow_control.visit_cells(|level, _, cells| {
            for cells in cells.filter(|_| level == "narrow") {
                counts.dispatched += cells.dispatched.get();
                for (reason, count) in RejectReason::ALL.iter().zip(&mut counts.rejected) {
                    *count += cells.rejected(*reason).get();
                }
                counts.waited += values(cells, |cells, total| cells.wait_executed.add_to(total));
                counts.refused += values(cells, |cells, total| cells.wait_refused.add_to(total));
                counts.executed += values(cells, |cells, total| cells.execution.add_to(total));
                counts.initialized += values(cells, |cells, total| cells.watch_init.add_to(total));
                let both = [
                    (
                        &mut counts.woken,
                        total(cells, |cells, total| cells.watch_count.add_to(total)),
                    ),
                    (
                        &mut counts.widths,
                        total(cells, |cells, total| cells.seats.add_to(total)),
                    ),
                ];
                for (sum, of) in both {
                    sum.0 += of.count();
                    sum.1 += of.sum;
                }
            }
        });
        counts
    }
}

fn values(cells: &FlowCells, add: fn(&FlowCells, &mut HistogramTotal)) -> u64 {
    total(cells, add).count()
}

fn total(cells: &FlowCells, add: fn(&FlowCells, &mut HistogramTotal)) -> HistogramTotal {
    let mut total = HistogramTotal::default();
    add(cells, &mut total);
    total
}

/// Sends `arrivals`, and waits until nothing executes or waits.
fn play(
    policy: Arc<Policy>,
    settings: FlowControlSettings,
    arrivals: &[Arrival],
) -> (Counts, Rc<Outcome>) {
    // When all tasks wait, its time jumps to when the next one continues.
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap()
        .block_on(async {
            let mut world = World::new(policy, settings);
            let start = world.clock.now();
            for arrival in arrivals {
                let at = start.plus(Duration::from_millis(arrival.at));
                tokio::time::sleep_until(world.clock.instant(at)).await;
                world.send(*arrival);
            }
            while !world.is_idle() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            (world.counts(), world.observer)
        })
}

/// Settings under which nothing is limited but the requests that wait.
fn settings(enforcement: Enforcement, max_queued: u32) -> FlowControlSettings {
    FlowControlSettings {
        enforcement,
        request_timeout: REQUEST_TIMEOUT,
        max_queued,
        ..flow_control::tests::settings()
    }
}

fn assert_near(observed: Duration, enforced: Duration, what: &str) {
    let (observed, enforced) = (observed.as_secs_f64(), enforced.as_secs_f64());
    assert!(
        (observed / enforced - 1.0).abs() <= 0.1,
        "{what}: {observed} observed, {enforced} enforced"
    );
}

#[test]
fn what_is_observed_is_what_enforcement_does() {
    let queue = |length: u32| {
        let queuing = json!({"queues": 8, "handSize": 2, "queueLengthLimit": length});
        json!({"type": "Queue", "queuing": queuing})
    };
    for semantics in [Semantics::Improved, Semantics::Compatible] {
        for (name, response, max_queued) in [
            ("short queues", queue(6), 1000),
            ("long queues", queue(50), 1000),
            ("few places in all", queue(50), 20),
            ("no queues", json!({"type": "Reject"}), 1000),
        ] {
            for seed in 0..2 {
                let arrivals = arrivals(seed);
                let what = format!("{semantics:?}, {name}, seed {seed}");
                let play = |enforcement| {
                    let policy = policy(&response, semantics);
                    play(policy, settings(enforcement, max_queued), &arrivals)
                };
                let (enforced, waits) = play(Enforcement::Enforce);
                let (observed, shadows) = play(Enforcement::Observe);
                assert!(enforced.rejected.iter().sum::<u64>() > 20, "{enforced:?}");
                assert_eq!(observed, enforced, "{what}");
                assert_eq!(shadows.refusals, waits.refusals, "{what}");
                if name != "no queues" {
                    assert!(waits.waits.borrow().len() > 400, "{what}");
                    for percent in [50, 99] {
                        let what = format!("{what}, p{percent}");
                        let enforced = waits.percentile(percent);
                        assert_near(shadows.percentile(percent), enforced, &what);
                    }
                }
            }
        }
    }
}

/// Requests of user 1 at these milliseconds, so many at a time, which take 100 s.
fn of_first_user(at: u64, number: usize, kind: Sent, is_reset: bool) -> Vec<Arrival> {
    let one = Arrival {
        at,
        user: 1,
        takes: Duration::from_secs(100),
        kind,
        is_reset,
    };
    vec![one; number]
}

/// A watch that would have waited begins and ends later with enforcement, and so do its places: among the watchers that a write wakes, which
/// makes the write wider, and among the watches of its user. One that would have been refused has neither.
#[test]
fn watches_that_are_observed_count_from_when_they_would_begin() {
    let queuing = |length: u32| {
        let queuing = json!({"queues": 8, "handSize": 2, "queueLengthLimit": length});
        json!({"type": "Queue", "queuing": queuing})
    };
    for (name, response) in [
        ("long queues", queuing(50)),
        ("short queues", queuing(4)),
        ("no queues", json!({"type": "Reject"})),
    ] {
        for (seed, per_user) in [(0, 1000), (1, 1000), (2, 12)] {
            let mut all = arrivals(seed);
            for (number, arrival) in all.iter_mut().enumerate() {
                arrival.kind = match number % 4 {
                    0 | 1 => Sent::Watch,
                    2 => Sent::Write,
                    _ => Sent::Read,
                };
            }
            let what = format!("{name}, seed {seed}, {per_user} watches of a user");
            let play = |enforcement| {
                let mut settings = settings(enforcement, 1000);
                let total = u32::MAX;
                settings.watches = Caps { per_user, total };
                play(policy(&response, Semantics::Improved), settings, &all)
            };
            let (enforced, waits) = play(Enforcement::Enforce);
            let (observed, shadows) = play(Enforcement::Observe);
            assert!(
                enforced.initialized > 100 && enforced.woken.1 > 100.0,
                "{enforced:?}"
            );
            assert_eq!(observed, enforced, "{what}");
            assert_eq!(shadows.refusals, waits.refusals, "{what}");
            // Otherwise nothing would be compared.
            let is_limited = shadows.refusals.borrow().contains_key("too-many-watches");
            assert!(
                is_limited || per_user > 12 || name != "long queues",
                "{what}"
            );
        }
    }
}

/// Plays what one user sends beyond a limit, and what another sends beside it that waits for nobody with enforcement.
fn compare_beyond_limits(
    mut arrivals: Vec<Arrival>,
    limit: impl Fn(&mut FlowControlSettings),
    refusals: &[(&'static str, u64)],
) {
    arrivals.extend((0..40).map(|number| Arrival {
        at: 2_500 + 4_000 * number,
        user: 2,
        takes: Duration::from_secs(3),
        kind: Sent::Read,
        is_reset: false,
    }));
    arrivals.sort_by_key(|arrival| arrival.at);
    let queuing = json!({"queues": 8, "handSize": 2, "queueLengthLimit": 50});
    let response = json!({"type": "Queue", "queuing": queuing});
    for semantics in [Semantics::Improved, Semantics::Compatible] {
        let play = |enforcement| {
            let mut settings = settings(enforcement, 1000);
            limit(&mut settings);
            play(policy(&response, semantics), settings, &arrivals)
        };
        let (enforced, outcome) = play(Enforcement::Enforce);
        let (observed, shadows) = play(Enforcement::Observe);
        assert_eq!(observed, enforced, "{semantics:?}");
        assert_eq!(
            *outcome.refusals.borrow(),
            refusals.iter().copied().collect()
        );
        assert_eq!(shadows.refusals, outcome.refusals, "{semantics:?}");
        for outcome in [outcome, shadows] {
            assert!(outcome.waits.borrow().iter().all(Duration::is_zero));
        }
    }
}

#[test]
fn watches_beyond_their_limit_take_no_seat_when_they_are_observed() {
    let arrivals = [
        of_first_user(0, 2, Sent::Watch, false),
        of_first_user(1_000, 9, Sent::Watch, false),
        // Those of the beginning have ended.
        of_first_user(145_000, 2, Sent::Watch, false),
        of_first_user(146_000, 3, Sent::Watch, false),
    ];
    let limit = |settings: &mut FlowControlSettings| {
        settings.watches = Caps {
            per_user: 2,
            total: 100,
        };
    };
    compare_beyond_limits(arrivals.concat(), limit, &[("too-many-watches", 12)]);
}

#[test]
fn requests_after_too_many_resets_take_no_seat_when_they_are_observed() {
    // One more than are allowed.
    let resets = (0..5).flat_map(|number| of_first_user(10 * number, 1, Sent::Read, true));
    let arrivals = [
        resets.collect(),
        of_first_user(1_000, 6, Sent::Read, false),
        // They do not count as resets again.
        of_first_user(2_000, 6, Sent::Read, true),
        of_first_user(2_000, 1, Sent::Watch, false),
        // By then half of the resets are forgotten.
        of_first_user(21_000, 1, Sent::Read, false),
    ];
    let limit = |settings: &mut FlowControlSettings| {
        settings.resets = ResetLimits {
            premature_within: Duration::from_secs(1),
            burst: 4,
            interval: Duration::from_secs(10),
        };
    };
    compare_beyond_limits(arrivals.concat(), limit, &[("too-many-resets", 13)]);
}
