//! What becomes of requests that may not wait.

mod unsent;

use std::{convert::Infallible, future::pending};

use bytes::Bytes;
use fairgate_base::account::ByteBudget;
use fairgate_call::{ClientBody, Inbound, Peer, RequestContext, StreamWindows};
use fairgate_core::{
    apf::{
        ObjectSet, Policy, PolicySettings,
        objects::Bootstrap,
        queueset::{QueueSet, QueueSetSummary},
    },
    digest::User,
    rejection::RejectReason,
};
use http::{Request, Response};
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::fairness::{
    FlowControlSettings, admission::AdmissionOutcome, flow_control, queued::QueuedRequest,
    seat::Seat,
};

const LEVEL: &str = "narrow";
const PODS: &str = "/api/v1/namespaces/a/pods";
const POD: &str = "/api/v1/namespaces/a/pods/b";

/// Everything is in one level of a seat and two queues with four places, which every user may use.
fn policy(semantics: Semantics) -> Arc<Policy> {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": LEVEL},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1000, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": 2, "handSize": 2, "queueLengthLimit": 2}},
        }},
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "all"},
        "spec": {
            "priorityLevelConfiguration": {"name": LEVEL}, "matchingPrecedence": 1000,
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
        total_seats: 1,
        semantics,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    Arc::new(Policy::compile(&objects, &settings).unwrap().policy)
}

/// Runs a test with a gate, in virtual time.
fn with_gate<T>(
    semantics: Semantics,
    queued_head_bytes: usize,
    test: impl AsyncFnOnce(Rc<Gate>) -> T,
) -> T {
    let settings = FlowControlSettings {
        queued_head_bytes,
        ..flow_control::tests::settings()
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap()
        .block_on(async {
            let clock = Clock::runtime();
            let flow_control = FlowControl::new(1, policy(semantics), settings, clock.now());
            test(Gate::new(flow_control, 0, clock, 1)).await
        })
}

/// A request of a user, with a line of so many bytes in its head.
fn call(
    gate: &Gate,
    user: &str,
    method: &str,
    target: &str,
    line: usize,
    body: ClientBody,
) -> Call {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("line", "x".repeat(line))
        .body(body)
        .unwrap();
    let inbound = Inbound {
        request: Box::new(request),
        peer: Rc::new(Peer::local()),
        received: gate.now(),
        context: Rc::<RequestContext>::default(),
    };
    let digest = RequestDigest {
        info: inbound.info().unwrap(),
        user: Arc::new(User::new(user, [User::AUTHENTICATED])),
    };
    Call::new(inbound, Arc::new(digest), Duration::from_secs(240)).unwrap()
}

fn get(gate: &Gate, user: &str) -> Call {
    call(gate, user, "GET", POD, 1, ClientBody::empty())
}

fn executes(gate: &Rc<Gate>, call: &Call) -> Seat {
    let AdmissionOutcome::Execute(seat) = gate.admit(call) else {
        panic!("the seat is free");
    };
    seat
}

fn waits(gate: &Rc<Gate>, call: &Call) -> Box<QueuedRequest> {
    let AdmissionOutcome::Queued(queued) = gate.admit(call) else {
        panic!("it may wait");
    };
    queued
}

fn is_pending(queued: &mut QueuedRequest) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    queued.poll(&mut cx).is_pending()
}

fn level(gate: &Gate) -> Level<Waiter> {
    let levels = gate.flow_control().dispatcher().levels();
    let mut level = levels.into_iter().filter(|(name, _)| **name == *LEVEL);
    level.next().expect("the policy has it").1
}

fn summary(gate: &Gate) -> QueueSetSummary {
    level(gate).inspect(QueueSet::summary)
}

/// A long body that its client has not sent, on a stream with a window, and its client.
async fn unsent_body(windows: &Rc<StreamWindows>) -> (ClientBody, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(1 << 10);
    let (bodies, mut found) = tokio::sync::mpsc::unbounded_channel();
    let windows = Rc::clone(windows);
    let service = service_fn(move |request: Request<Incoming>| {
        let body = ClientBody::incoming(request.into_body(), None);
        let _ = bodies.send(body.on_stream_of(&windows));
        pending::<Result<Response<Empty<Bytes>>, Infallible>>()
    });
    fairgate_base::turns::spawn_local(
        http1::Builder::new().serve_connection(TokioIo::new(server), service),
    );
    let head = "POST / HTTP/1.1\r\nHost: gate\r\nContent-Length: 1000000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    (found.recv().await.unwrap(), client)
}

#[test]
fn a_request_that_may_not_wait_takes_the_place_of_nobody() {
    with_gate(Semantics::Improved, 1000, async |gate| {
        let _executing = executes(&gate, &get(&gate, "victim"));
        let mut waiting: Vec<_> = (0..4)
            .map(|_| waits(&gate, &get(&gate, "victim")))
            .collect();
        // Nobody may have the rest of a head of 20 kB, nor a window of 256 KiB.
        let windows = StreamWindows::new(ByteBudget::new(1000), 256 << 10);
        let (body, _client) = unsent_body(&windows).await;
        let long_body = call(&gate, "greedy", "POST", PODS, 1, body);
        let long_head = call(&gate, "greedy", "GET", POD, 20_000, ClientBody::empty());
        for (name, call) in [("body", long_body), ("head", long_head)] {
            let AdmissionOutcome::Reject(rejection) = gate.admit(&call) else {
                panic!("there is no room for its {name}");
            };
            assert_eq!(rejection.reason, RejectReason::QueueFull, "{name}");
            let all_wait = waiting.iter_mut().all(|queued| is_pending(queued));
            assert!(all_wait, "{name}");
            assert_eq!(
                (summary(&gate).waiting, gate.flow_control().queued()),
                (4, 4)
            );
        }
        assert_eq!(gate.flow_control().queued_heads.held().now, 0);
        // One that may wait takes a place.
        let _polite = waits(&gate, &get(&gate, "polite"));
        let refused = waiting
            .iter_mut()
            .filter_map(|queued| (!is_pending(queued)).then_some(()));
        assert_eq!(refused.count(), 1);
        assert_eq!(
            (summary(&gate).waiting, gate.flow_control().queued()),
            (4, 4)
        );
    });
}

#[test]
fn who_takes_the_place_of_another_is_charged_for_its_head() {
    with_gate(Semantics::Improved, 100_000, async |gate| {
        let _executing = executes(&gate, &get(&gate, "victim"));
        let _waiting: Vec<_> = (0..4)
            .map(|_| waits(&gate, &get(&gate, "victim")))
            .collect();
        let long_head = call(&gate, "other", "GET", POD, 20_000, ClientBody::empty());
        let queued = waits(&gate, &long_head);
        let held = || gate.flow_control().queued_heads.held().now;
        assert!((10_000..20_000).contains(&held()), "{}", held());
        drop(queued);
        assert_eq!(held(), 0);
    });
}
