//! Clients that give up, and an upstream that ignores cancellation: it never executes more requests than the limit.
//! Random schedules of such clients are in `overload`.

use std::sync::atomic::AtomicBool;

use fairgate_proxy::fairness::Enforcement;
use tokio::task::JoinSet;

use super::*;
use crate::rules::{Full, Rules};

const SEATS: u32 = 3;

/// A client that sends one request after the other until `stop` is set, and gives up each time as `how` says: after its
/// patience, but not while the upstream is idle. So the upstream gets requests however slow the machine is.
async fn impatient(gate: Arc<Gate>, http2: bool, how: How, work: Arc<Work>, stop: Arc<AtomicBool>) {
    let mut client = connect(&gate, http2).await;
    while !stop.load(Ordering::Relaxed) {
        let request = of(&client, "alice", how.method.clone(), how.target);
        let gives_up = async {
            tokio::time::sleep(how.patience).await;
            while !work.is_executing() && !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(ms(1)).await;
            }
        };
        let outcome = tokio::select! {
            outcome = client.send(request) => Some(outcome),
            () = gives_up => None,
        };
        match outcome {
            // Some are quick enough, and refused ones try again.
            Some(Ok(response)) => drop(crate::client::body(response).await),
            Some(Err(_)) => client = connect(&gate, http2).await,
            // On HTTP/2 the stream is reset and the connection continues.
            None if http2 => {}
            None => {
                client.abandon().await;
                client = connect(&gate, http2).await;
            }
        }
    }
}

/// What clients request, and how long they wait.
#[derive(Clone, Debug)]
struct How {
    method: Method,
    target: &'static str,
    patience: Duration,
}

/// A scenario.
#[derive(Clone)]
struct Trial {
    /// Whether requests got a response before clients began to give up.
    learnt: bool,
    /// How long each request takes upstream.
    takes: fn(usize) -> Duration,
    /// How many requests the upstream has to complete.
    requests: usize,
    target: &'static str,
    patience: Duration,
}

impl Trial {
    /// Clients that give up after 50 ms.
    fn leaving(takes: fn(usize) -> Duration) -> Self {
        Self {
            learnt: true,
            takes,
            requests: 18,
            target: PODS,
            patience: ms(50),
        }
    }

    /// Checks the limit with twelve clients over both protocols, upstreams of both protocols, GET and POST.
    async fn never_exceeds_the_limit(self) {
        let mut cases = JoinSet::new();
        for speaks in [Speaks::Http1, Speaks::Http2] {
            for method in [Method::GET, Method::POST] {
                cases.spawn(self.clone().one_case(speaks.clone(), method));
            }
        }
        for case in cases.join_all().await {
            assert!(case.most <= SEATS as usize, "{case:?}");
        }
    }

    async fn one_case(self, speaks: Speaks, method: Method) -> Case {
        let Stubborn { upstream, work } = Stubborn::start(speaks, self.takes);
        let rules = Rules::small(SEATS, Full::queue(100));
        let gate = Gate::governed_with(&upstream, &rules, |_, to| {
            to.deadline_grace = Duration::ZERO;
        });
        let gate = Arc::new(gate);
        if self.learnt {
            for mut client in TestClient::both(gate.address()).await {
                let request = of(&client, "alice", method.clone(), PODS);
                let response = soon(client.send(request)).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
            }
        }
        let how = How {
            method,
            target: self.target,
            patience: self.patience,
        };
        let stop = Arc::<AtomicBool>::default();
        let mut clients = JoinSet::new();
        for number in 0..12 {
            let (gate, work, stop) = (Arc::clone(&gate), Arc::clone(&work), Arc::clone(&stop));
            clients.spawn(impatient(gate, number % 2 == 0, how.clone(), work, stop));
        }
        until(|| work.done() >= self.requests).await;
        stop.store(true, Ordering::Relaxed);
        clients.join_all().await;
        until(|| small(&gate) == (0, 0, 0)).await;
        Case {
            http2: upstream.http2,
            how,
            most: work.most(),
            done: work.done(),
        }
    }
}

#[derive(Debug)]
#[expect(dead_code, reason = "shown when a test fails")]
struct Case {
    http2: bool,
    how: How,
    most: usize,
    done: usize,
}

#[tokio::test]
async fn after_50_ms_without_an_earlier_response() {
    let trial = Trial::leaving(|_| ms(200));
    let trial = Trial {
        learnt: false,
        ..trial
    };
    trial.never_exceeds_the_limit().await;
}

#[tokio::test]
async fn after_50_ms_with_earlier_responses() {
    let trial = Trial::leaving(|_| ms(200));
    trial.never_exceeds_the_limit().await;
}

#[tokio::test]
async fn after_50_ms_when_requests_take_varying_times() {
    let trial = Trial::leaving(|number| ms([100, 230, 400, 150, 310][number % 5]));
    trial.never_exceeds_the_limit().await;
}

#[tokio::test]
async fn after_50_ms_when_the_upstream_is_suddenly_five_times_slower() {
    let trial = Trial::leaving(|number| ms(if number < 12 { 100 } else { 500 }));
    trial.never_exceeds_the_limit().await;
}

#[tokio::test]
async fn after_3_ms_when_the_first_160_were_quick() {
    let trial = Trial::leaving(|number| ms(if number < 160 { 0 } else { 300 }));
    let trial = Trial {
        requests: 180,
        patience: ms(3),
        ..trial
    };
    trial.never_exceeds_the_limit().await;
}

#[tokio::test]
async fn before_a_watch_is_accepted() {
    let trial = Trial {
        learnt: false,
        target: "/api/v1/namespaces/a/pods?watch=1&resourceVersion=7",
        ..Trial::leaving(|_| ms(200))
    };
    trial.never_exceeds_the_limit().await;
}

#[tokio::test]
async fn when_their_deadline_has_passed() {
    for learnt in [false, true] {
        let trial = Trial {
            learnt,
            takes: |number| ms([100, 230, 400][number % 3]),
            requests: 15,
            // A quarter of it may be spent in the queue.
            target: "/api/v1/namespaces/a/pods?timeout=100ms",
            patience: Duration::from_secs(10),
        };
        trial.never_exceeds_the_limit().await;
    }
}

#[tokio::test]
async fn an_abandoned_response_keeps_its_seat_until_the_upstream_has_ended_it() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (hand, mut hands) = mpsc::unbounded_channel();
        let upstream = TestUpstream::start(speaks, move |_| {
            let (send, answer) = crate::upstream::streamed();
            hand.send(send).unwrap();
            async move { http::Response::new(answer) }
        });
        let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
        for (number, mut client) in (1..).zip(TestClient::both(gate.address()).await) {
            let mut body = client.get(PODS).await.into_body();
            let answer = soon(hands.recv()).await.unwrap();
            answer.send(Ok("half".into())).unwrap();
            assert!(crate::client::piece(&mut body).await.is_some());
            drop(body);
            client.abandon().await;
            until(|| gate.flow_control().abandoned.running() == 1).await;
            // The gateway reads the rest of the response and discards it.
            let next = get(&gate, PODS).await;
            until(|| small(&gate) == (1, 1, 1)).await;
            answer.send(Ok(vec![b'x'; 4 << 20].into())).unwrap();
            assert!(!answer.is_closed());
            assert_eq!(small(&gate), (1, 1, 1));
            drop(answer);
            drop(soon(hands.recv()).await.unwrap());
            next.served().await;
            until(|| small(&gate) == (0, 0, 0)).await;
            assert_eq!(gate.flow_control().abandoned.ended(), number);
        }
        assert_eq!(gate.flow_control().abandoned.cancelled(), 0);
        assert_eq!(gate.flow_control().abandoned.running(), 0);
    }
}

#[tokio::test]
async fn a_log_that_is_cancelled_does_not_count_any_longer_in_observe_mode() {
    let (hand, mut hands) = mpsc::unbounded_channel();
    let upstream = TestUpstream::start(Speaks::Http1, move |_| {
        let (send, answer) = crate::upstream::streamed();
        hand.send(send).unwrap();
        async move { http::Response::new(answer) }
    });
    let rules = Rules::small(1, Full::queue(10)).set(|set| {
        set.enforcement = Enforcement::Observe;
    });
    let gate = Gate::governed(&upstream, &rules);
    for mut client in TestClient::both(gate.address()).await {
        let log = "/api/v1/namespaces/a/pods/p/log?follow=true";
        let mut body = client.get(log).await.into_body();
        let answer = soon(hands.recv()).await.unwrap();
        answer.send(Ok("half".into())).unwrap();
        assert!(crate::client::piece(&mut body).await.is_some());
        drop(body);
        client.abandon().await;
        until(|| gate.flow_control().abandoned.running() == 1).await;
        assert_eq!(gate.flow_control().long_running.running(), 1);
        // More than the gateway discards of a response that may never end.
        answer.send(Ok(vec![b'x'; 2 << 20].into())).unwrap();
        until(|| gate.flow_control().long_running.running() == 0).await;
    }
    assert_eq!(gate.flow_control().abandoned.cancelled(), 2);
}

/// A time limit that requests reach in these tests, though not before even a loaded machine has sent them upstream.
const LIMIT: Duration = Duration::from_secs(4);

#[tokio::test]
async fn an_abandoned_response_that_never_ends_is_cancelled_at_the_time_limit() {
    let cancelled = async |speaks| {
        let (hand, mut hands) = mpsc::unbounded_channel();
        let upstream = TestUpstream::start(speaks, move |_| {
            let (send, answer) = crate::upstream::streamed();
            hand.send(send).unwrap();
            async move { http::Response::new(answer) }
        });
        let rules = Rules::small(1, Full::queue(10)).set(|set| {
            set.request_timeout = LIMIT;
        });
        let gate = Gate::governed(&upstream, &rules);
        for mut client in TestClient::both(gate.address()).await {
            let since = now();
            let mut body = client.get(PODS).await.into_body();
            let answer = soon(hands.recv()).await.unwrap();
            answer.send(Ok("half".into())).unwrap();
            assert!(crate::client::piece(&mut body).await.is_some());
            drop(body);
            client.abandon().await;
            soon(answer.closed()).await;
            assert!(now().since(since) >= LIMIT);
            until(|| small(&gate) == (0, 0, 0)).await;
        }
        assert_eq!(gate.flow_control().abandoned.cancelled(), 2);
    };
    tokio::join!(cancelled(Speaks::Http1), cancelled(Speaks::Http2));
}

#[tokio::test]
async fn a_seat_is_kept_until_the_time_limit_for_a_request_whose_body_broke_off_after_its_response_had_begun()
 {
    let kept = async |speaks| {
        let upstream = TestUpstream::start(speaks, |_| async {
            let (send, answer) = crate::upstream::streamed();
            send.send(Ok("begun".into())).unwrap();
            // The response never ends.
            std::mem::forget(send);
            http::Response::new(answer)
        });
        let rules = Rules::small(1, Full::queue(10)).set(|set| {
            set.request_timeout = LIMIT;
        });
        let gate = Gate::governed(&upstream, &rules);
        for mut client in TestClient::both(gate.address()).await {
            let (before, since) = (upstream.seen().len(), now());
            let (pieces, half) = crate::upstream::streamed();
            pieces.send(Ok(vec![b'x'; 20 << 10].into())).unwrap();
            let request = client.request(Method::POST, PODS).body(half).unwrap();
            let mut answer = soon(client.send(request)).await.unwrap().into_body();
            assert!(crate::client::piece(&mut answer).await.is_some());
            assert!(upstream.seen().len() > before);
            pieces.send(Err(std::io::Error::other("broken"))).unwrap();
            drop(answer);
            drop(client);
            until(|| small(&gate) == (0, 0, 0)).await;
            let kept = now().since(since);
            assert!(kept >= LIMIT, "{kept:?}");
        }
    };
    tokio::join!(kept(Speaks::Http1), kept(Speaks::Http2));
}
