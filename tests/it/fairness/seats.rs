//! How long a seat is held, and when none is.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use fairgate_base::clock::Clock;
use fairgate_call::{Call, Refusal, Reply, ReplyBody};
use fairgate_core::{
    apf::{Semantics, scope::StatsScope},
    cells::{FlowCells, Histogram, HistogramTotal},
    rejection::RejectReason,
};
use fairgate_proxy::fairness::Enforcement;
use http_body_util::BodyExt as _;
use tower::Service;

use super::*;
use crate::{
    client::piece,
    panics::PanickyGuard,
    rules::{Full, Rules},
    upstream::streamed,
};

#[tokio::test]
async fn a_seat_is_held_until_the_end_of_the_response_body() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (hand, mut hands) = mpsc::unbounded_channel();
        let upstream = TestUpstream::start(speaks, move |_| {
            let (send, answer) = streamed();
            hand.send(send).unwrap();
            async move { http::Response::new(answer) }
        });
        let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
        for mut client in TestClient::both(gate.address()).await {
            let mut list = client.get(PODS).await.into_body();
            let send = soon(hands.recv()).await.unwrap();
            let next = get(&gate, PODS).await;
            send.send(Ok("half".into())).unwrap();
            assert_eq!(piece(&mut list).await.unwrap().unwrap(), "half");
            until(|| small(&gate) == (1, 1, 1)).await;
            assert!(hands.try_recv().is_err());
            drop(send);
            assert!(piece(&mut list).await.is_none());
            drop(soon(hands.recv()).await.unwrap());
            next.served().await;

            // A body that breaks off is an end as well.
            let mut list = client.get(PODS).await.into_body();
            let send = soon(hands.recv()).await.unwrap();
            send.send(Ok("half".into())).unwrap();
            assert_eq!(piece(&mut list).await.unwrap().unwrap(), "half");
            assert_eq!(small(&gate), (1, 0, 1));
            send.send(Err(io::Error::other("broken"))).unwrap();
            assert!(piece(&mut list).await.unwrap().is_err());
            until(|| small(&gate) == (0, 0, 0)).await;
        }
    }
}

/// Panics at the point that the path names; pauses first, so that others can queue behind it.
#[derive(Clone)]
struct Panicky {
    go: Arc<tokio::sync::Semaphore>,
}

impl Service<Call> for Panicky {
    type Response = Reply;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let path = call.request.uri().path().to_owned();
        assert_ne!(path, "/panic/call", "on purpose");
        let go = Arc::clone(&self.go);
        Box::pin(async move {
            let sent = fairgate_call::RequestProgress::Sent;
            call.context.reached(sent);
            go.acquire().await.unwrap().forget();
            assert_ne!(path, "/panic/future", "on purpose");
            let mut reply = http::Response::new(ReplyBody::full("fine"));
            if path == "/panic/body" {
                reply.body_mut().hold(Box::new(PanickyGuard));
            }
            Ok(reply)
        })
    }
}

/// Answers with the seats that a request takes, as servers are charged for it.
#[derive(Clone)]
struct TellsSeats;

impl Service<Call> for TellsSeats {
    type Response = Reply;
    type Error = Refusal;
    type Future = std::future::Ready<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let seats = call.context.seats.get().width.to_string();
        std::future::ready(Ok(http::Response::new(ReplyBody::full(seats))))
    }
}

#[tokio::test]
async fn servers_are_charged_the_seats_that_the_level_counts() {
    // A request wider than its level counts as wide as the level, or with its full width: see docs/semantics.md.
    for (semantics, charged) in [(Semantics::Improved, "2"), (Semantics::Compatible, "10")] {
        let mut rules = Rules::small(2, Full::Reject);
        rules.semantics = semantics;
        let gate = Gate::around_under(|cores| rules.flow_control(cores), || TellsSeats, |_| {});
        let pods = StatsScope {
            group: b"",
            resource: b"pods",
            namespace: None,
        };
        gate.flow_control()
            .with_counts(|counts| counts.seed(Clock::system().now(), &pods, 100_000, None));
        let mut client = TestClient::http2(gate.address()).await;
        let list = client.get("/api/v1/pods").await;
        assert_eq!(body_text(list).await, charged);
    }
}

#[tokio::test]
async fn a_panic_gives_the_seat_back_and_ends_only_its_stream() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let leaf = Panicky {
        go: Arc::clone(&go),
    };
    let rules = Rules::small(1, Full::queue(10));
    let gate = Gate::around_under(
        |cores| rules.flow_control(cores),
        move || leaf.clone(),
        |_| {},
    );
    let mut client = TestClient::http2(gate.address()).await;
    for target in ["/panic/call", "/panic/future", "/panic/body"] {
        let panics = of(&client, "alice", Method::GET, target);
        let panics = client.start(panics);
        if target != "/panic/call" {
            until(|| small(&gate) == (1, 0, 1)).await;
        }
        let next = of(&client, "alice", Method::GET, "/fine");
        let next = client.start(next);
        if target != "/panic/call" {
            until(|| small(&gate) == (1, 1, 1)).await;
            go.add_permits(1);
        }
        let answer = soon(panics).await.unwrap();
        if target == "/panic/body" {
            assert!(soon(answer.into_body().collect()).await.is_err());
        } else {
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert!(
                answer
                    .headers()
                    .contains_key("x-kubernetes-pf-flowschema-uid")
            );
        }
        until(|| small(&gate) == (1, 0, 1)).await;
        go.add_permits(1);
        assert_eq!(body_text(soon(next).await.unwrap()).await, "fine");
        until(|| small(&gate) == (0, 0, 0)).await;
    }
}

#[tokio::test]
async fn a_panic_after_the_client_has_left_gives_the_seat_back_too() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let leaf = Panicky {
        go: Arc::clone(&go),
    };
    let rules = Rules::small(1, Full::queue(10));
    let gate = Gate::around_under(
        |cores| rules.flow_control(cores),
        move || leaf.clone(),
        |_| {},
    );
    let mut leaves = connect(&gate, true).await;
    let panics = of(&leaves, "alice", Method::GET, "/panic/future");
    let panics = leaves.start(panics);
    until(|| small(&gate) == (1, 0, 1)).await;
    drop(panics);
    leaves.abandon().await;
    let mut stays = connect(&gate, true).await;
    let next = of(&stays, "alice", Method::GET, "/fine");
    let next = stays.start(next);
    // The abandoned request runs on, and keeps its seat until it panics.
    until(|| small(&gate) == (1, 1, 1)).await;
    go.add_permits(1);
    until(|| small(&gate) == (1, 0, 1)).await;
    go.add_permits(1);
    assert_eq!(body_text(soon(next).await.unwrap()).await, "fine");
    until(|| small(&gate) == (0, 0, 0)).await;
}

/// A counter of a FlowSchema, summed over all cores.
pub(super) fn counted(gate: &Gate, schema: &str, count: impl Fn(&FlowCells) -> u64) -> u64 {
    let mut total = 0;
    gate.flow_control().visit_cells(|_, name, cells| {
        if name == schema {
            total += cells.map(&count).sum::<u64>();
        }
    });
    total
}

/// The number of values in a histogram.
pub(super) fn values<const N: usize>(histogram: &Histogram<N>) -> u64 {
    let mut total = HistogramTotal::default();
    histogram.add_to(&mut total);
    total.counts.iter().sum()
}

#[tokio::test]
async fn a_time_out_in_the_queue_counts_as_executed_only_with_compatible_semantics() {
    let cases = [
        (Semantics::Compatible, (2, 0)),
        (Semantics::Improved, (1, 1)),
    ];
    for (semantics, expected) in cases {
        let (upstream, mut held) = manual_upstream(Speaks::Http1);
        let rules = Rules::small(1, Full::queue(10)).semantics(semantics);
        let gate = Gate::governed(&upstream, &rules);
        let first = get(&gate, PODS).await;
        let executing = soon(held.recv()).await.unwrap();
        let target = "/api/v1/namespaces/a/pods?timeout=200ms";
        let response = get(&gate, target).await.response().await;
        assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
        let executed = counted(&gate, "small", |cells| values(&cells.wait_executed));
        let refused = counted(&gate, "small", |cells| values(&cells.wait_refused));
        assert_eq!((executed, refused), expected, "{semantics:?}");
        executing.respond("");
        first.served().await;
    }
}

#[tokio::test]
async fn observe_mode_holds_no_request_back_and_counts_all() {
    for full in [Full::queue(3), Full::Reject] {
        let (upstream, mut held) = manual_upstream(Speaks::Http1);
        let rules = Rules::small(1, full).set(|set| {
            set.enforcement = Enforcement::Observe;
            set.long_running.per_user = 0;
        });
        let gate = Gate::governed(&upstream, &rules);
        let mut running = Vec::new();
        for number in 0..6 {
            let pending = start_request(&gate, number % 2 == 0, "alice", Method::GET, PODS).await;
            running.push((pending, soon(held.recv()).await.unwrap()));
        }
        // By the counters, one request executes, and the others wait or were refused.
        let refused = |cells: &FlowCells| {
            RejectReason::ALL
                .map(|reason| cells.rejected(reason).get())
                .iter()
                .sum::<u64>()
        };
        let waiting = if matches!(full, Full::Reject) { 0 } else { 3 };
        assert_eq!(small(&gate), (1, waiting, 1));
        assert_eq!(counted(&gate, "small", refused), 5 - u64::from(waiting));
        let dispatched = |cells: &FlowCells| cells.dispatched.get();
        assert_eq!(counted(&gate, "small", dispatched), 1);
        // Long-running requests are not held back either.
        let log = get(&gate, "/api/v1/namespaces/a/pods/p/log").await;
        soon(held.recv()).await.unwrap().respond("");
        log.served().await;
        for (pending, upstream) in running {
            upstream.respond("");
            let response = pending.response().await;
            assert_eq!(response.status, StatusCode::OK);
            assert_eq!(
                response.uids(),
                ("uid-of-schema-small", "uid-of-level-small")
            );
        }
        // Those that waited have got their seats one after the other, although all had ended before.
        until(|| small(&gate) == (0, 0, 0)).await;
        assert_eq!(counted(&gate, "small", dispatched), 1 + u64::from(waiting));
        let executed = |cells: &FlowCells| values(&cells.execution);
        until(|| counted(&gate, "small", executed) == 1 + u64::from(waiting)).await;
        let waits = counted(&gate, "small", |cells| values(&cells.wait_executed));
        assert_eq!(waits, 1 + u64::from(waiting));
    }
}

#[tokio::test]
async fn in_observe_mode_no_more_requests_wait_than_may() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let rules = Rules::small(1, Full::queue(10)).set(|set| {
        set.enforcement = Enforcement::Observe;
        set.max_queued = 2;
    });
    let gate = Gate::governed(&upstream, &rules);
    let mut running = Vec::new();
    for _ in 0..5 {
        let pending = get(&gate, PODS).await;
        running.push((pending, soon(held.recv()).await.unwrap()));
    }
    assert_eq!(small(&gate), (1, 2, 1));
    assert_eq!(full_queues::queue_full(&gate, "small"), 2);
    for (pending, upstream) in running {
        upstream.respond("");
        pending.served().await;
    }
    until(|| small(&gate) == (0, 0, 0)).await;
}

#[tokio::test]
async fn in_observe_mode_a_client_that_disconnects_leaves_the_queue() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let rules = Rules::small(1, Full::queue(10));
    let rules = rules.set(|set| set.enforcement = Enforcement::Observe);
    let gate = Gate::governed(&upstream, &rules);
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();
    let second = get(&gate, PODS).await;
    let unread = soon(held.recv()).await.unwrap();
    until(|| small(&gate) == (1, 1, 1)).await;
    drop(second);
    until(|| small(&gate) == (1, 0, 1)).await;
    drop(unread);
    executing.respond("");
    first.served().await;
    until(|| small(&gate) == (0, 0, 0)).await;
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_loses_its_seat_at_the_time_limit() {
    let loses_its_seat = async |speaks| {
        // Far more than any buffer on the way holds.
        let upstream = TestUpstream::start(speaks, |_| async {
            http::Response::new(full(vec![b'x'; 64 << 20]))
        });
        // Enough for the head of the response to arrive, unless the machine is very loaded.
        let limit = ms(4000);
        let rules = Rules::small(1, Full::queue(10)).set(|set| {
            set.request_timeout = limit;
        });
        let gate = Gate::governed(&upstream, &rules);
        for http2 in [false, true] {
            let mut client = connect(&gate, http2).await;
            let request = of(&client, "alice", Method::GET, PODS);
            let sent = now();
            let unread = soon(client.send(request)).await.unwrap();
            assert_eq!(unread.status(), StatusCode::OK);
            let executing = small(&gate).0;
            assert!(executing == 1 || now().since(sent) >= limit);
            until(|| small(&gate) == (0, 0, 0)).await;
            drop(unread);
        }
    };
    tokio::join!(loses_its_seat(Speaks::Http1), loses_its_seat(Speaks::Http2));
}

/// Waits until responses have the UIDs of flow control, or none: the core applies a change of enforcement a moment
/// later. Requests of `system:masters` are never held back.
async fn responses_have_uids(
    gate: &Gate,
    held: &mut mpsc::UnboundedReceiver<HeldRequest>,
    have: bool,
) {
    loop {
        let master = start_request(gate, false, "root", Method::GET, PODS).await;
        soon(held.recv()).await.unwrap().respond("");
        let headers = master.response().await.headers;
        let schema = headers.contains_key("x-kubernetes-pf-flowschema-uid");
        let level = headers.contains_key("x-kubernetes-pf-prioritylevel-uid");
        assert_eq!(schema, level);
        if schema == have {
            return;
        }
    }
}

#[tokio::test]
async fn enforcement_is_switched_while_requests_run_and_wait() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let rules = Rules::small(1, Full::queue(10));
    let gate = Gate::governed_with(&upstream, &rules, |settings, _| {
        settings.cores = std::num::NonZero::<usize>::MIN;
    });
    let switch = |enforcement| {
        let rules = rules.clone().set(|set| set.enforcement = enforcement);
        gate.flow_control().configure(rules.settings);
    };
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();
    let second = get(&gate, PODS).await;
    until(|| small(&gate) == (1, 1, 1)).await;

    // The waiting request is sent, and is still counted as waiting.
    switch(Enforcement::Off);
    let going_ahead = soon(held.recv()).await.unwrap();
    responses_have_uids(&gate, &mut held, false).await;
    let passes = get(&gate, "/api/v1/passes").await;
    let held_off = soon(held.recv()).await.unwrap();
    assert_eq!(held_off.target, "/api/v1/passes");
    assert_eq!(small(&gate), (1, 1, 1), "it is not counted");

    switch(Enforcement::Enforce);
    responses_have_uids(&gate, &mut held, true).await;
    let third = get(&gate, PODS).await;
    until(|| small(&gate) == (1, 2, 1)).await;

    // The waiting request is sent, and so is a new one, which is counted.
    switch(Enforcement::Observe);
    let ahead_too = soon(held.recv()).await.unwrap();
    let fourth = get(&gate, "/api/v1/observed").await;
    let observed = soon(held.recv()).await.unwrap();
    assert_eq!(observed.target, "/api/v1/observed");
    assert_eq!(small(&gate), (1, 3, 1));
    observed.respond("");
    fourth.served().await;
    until(|| small(&gate) == (1, 2, 1)).await;

    held_off.respond("");
    passes.served().await;
    executing.respond("");
    first.served().await;
    for (held, waiting) in [(going_ahead, second), (ahead_too, third)] {
        held.respond("");
        waiting.served().await;
    }
    until(|| small(&gate) == (0, 0, 0)).await;
    assert_eq!(gate.flow_control().queued(), 0);
}
