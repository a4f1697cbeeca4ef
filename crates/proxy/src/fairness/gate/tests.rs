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
    admission::AdmissionOutcome, flow_control, queued::QueuedRequest, seat::Seat,
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
fn with_gate<T>(semantics: Semantics, test: impl AsyncFnOnce(Rc<Gate>) -> T) -> T {
    let settings = flow_control::tests::settings();
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

fn call(gate: &Gate, user: &str, method: &str, target: &str, body: ClientBody) -> Call {
    let request = Request::builder().method(method).uri(target);
    let request = request.body(body).unwrap();
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
    call(gate, user, "GET", POD, ClientBody::empty())
}

fn executes(gate: &Rc<Gate>, call: &Call) -> Seat {
    let AdmissionOutcome::Execute(seat) = gate.admit(call) else {
        panic!("the seat is free");
    };
    seat
}

fn waits(gate: &Rc<Gate>, call: &Call) -> QueuedRequest {
    let AdmissionOutcome::Queued(queued) = gate.admit(call) else {
        panic!("it may wait");
    };
    *queued
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
    with_gate(Semantics::Improved, async |gate| {
        let _executing = executes(&gate, &get(&gate, "victim"));
        let mut waiting: Vec<_> = (0..4)
            .map(|_| waits(&gate, &get(&gate, "victim")))
            .collect();
        // Nobody may have a window of 256 KiB.
        let windows = StreamWindows::new(ByteBudget::new(1000), 256 << 10);
        let (body, _client) = unsent_body(&windows).await;
        let long_body = call(&gate, "greedy", "POST", PODS, body);
        let AdmissionOutcome::Reject(rejection) = gate.admit(&long_body) else {
            panic!("there is no room for its body");
        };
        assert_eq!(rejection.reason, RejectReason::QueueFull);
        assert!(waiting.iter_mut().all(is_pending));
        assert_eq!(
            (summary(&gate).waiting, gate.flow_control().queued()),
            (4, 4)
        );
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
