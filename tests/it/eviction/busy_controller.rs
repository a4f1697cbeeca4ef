//! A disruption controller that is busy without end: tokens and access are reviewed all the same, since reviews share no
//! thread with budgets.

use std::{
    fmt::Debug,
    sync::{Condvar, Mutex, MutexGuard},
};

use http::Method;
use serde_json::{Value, json};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{cluster::pod, control_plane::ControlPlane, gateway::Gateway};
use crate::{
    client::{self, TestClient},
    failures::until,
    upstream,
};

const PODS: (&str, &str) = ("/api/v1", "pods");
const BUDGETS: (&str, &str) = ("/apis/policy/v1", "poddisruptionbudgets");
/// The namespace of the budget over which the controller becomes busy. No other test has it.
const BUSY: &str = "busy-without-end";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const HOSTED: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt";
/// How many users with tokens of their own.
const USERS: usize = 20;
/// How many budgets the controller has still to compute.
const LEFT: usize = 50;

/// What the thread does that logs about the namespace [`BUSY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BusyThread {
    /// It has not logged anything yet.
    None,
    /// It is in the middle of logging, and does nothing else.
    Held,
    /// It is not held any longer.
    Released,
}

static THREAD: Mutex<BusyThread> = Mutex::new(BusyThread::None);
static CHANGED: Condvar = Condvar::new();

fn thread() -> MutexGuard<'static, BusyThread> {
    THREAD.lock().unwrap()
}

/// Ends the work at the end of the test, also of one that fails: or else the gateway could not stop.
struct WorkEnds;

impl Drop for WorkEnds {
    fn drop(&mut self) {
        *thread() = BusyThread::Released;
        CHANGED.notify_all();
    }
}

/// Keeps the thread that logs about the namespace [`BUSY`], as work that does not end would.
struct HoldingSubscriber;

impl Subscriber for HoldingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() == Level::WARN
            && metadata
                .target()
                .starts_with("fairgate_disruption_controller")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut found = IsAboutBusy(false);
        event.record(&mut found);
        let mut thread = thread();
        if !found.0 || *thread != BusyThread::None {
            return;
        }
        *thread = BusyThread::Held;
        let released = CHANGED.wait_while(thread, |thread| *thread == BusyThread::Held);
        drop(released.unwrap());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Whether an event has the namespace [`BUSY`].
struct IsAboutBusy(bool);

impl Visit for IsAboutBusy {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 |= field.name() == "namespace" && format!("{value:?}") == BUSY;
    }
}

fn budget(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"), "generation": 1},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}, "status": {},
    })
}

/// A gateway whose controller is held, while it has [`LEFT`] budgets to compute.
async fn busy_gateway(server: &ControlPlane) -> Gateway {
    server.review();
    server.put(PODS, pod("a", "Running", true));
    server.put(BUDGETS, budget(BUSY, "held"));
    server.fail(|method, target| {
        let is_status = *method == Method::PUT && target.contains(BUSY);
        is_status.then_some(500)
    });
    let sections = json!({
        "mode": "overlay",
        "store": {"type": "local", "local": {"path": "objects.redb"}},
        "eviction": {"controller": "on"},
        "authentication": {"tokenReview": {"enabled": true}},
        "drain": {"delay": "0s"},
    });
    let gateway = Gateway::before(server.upstream.address, sections);
    until(|| *thread() == BusyThread::Held).await;
    for number in 0..LEFT {
        server.put(BUDGETS, budget("ns", &format!("b{number}")));
    }
    gateway
}

/// How many budgets of the namespace `ns` have a status.
fn computed(server: &ControlPlane) -> usize {
    let budgets = server.all(BUDGETS).into_iter();
    let computed = |budget: &Value| {
        budget["metadata"]["namespace"] == "ns" && budget["status"]["observedGeneration"] == 1
    };
    budgets.filter(computed).count()
}

#[tokio::test]
async fn tokens_and_access_are_reviewed_while_the_disruption_controller_is_busy() {
    tracing::subscriber::set_global_default(HoldingSubscriber).expect("no other test logs");
    let server = ControlPlane::start();
    let gateway = busy_gateway(&server).await;
    let ends = WorkEnds;
    for number in 1..=USERS {
        // A new user each time, so that nothing is cached.
        let mut client = TestClient::http1(gateway.address()).await;
        for target in ["/api/v1/pods", HOSTED] {
            let request = client.request(Method::GET, target);
            let request = request.header("authorization", format!("Bearer user-{number}"));
            let request = request.body(upstream::full("")).unwrap();
            let got = client::soon(client.send(request)).await.unwrap();
            assert_eq!(got.status(), 200, "{target}");
            client::body(got).await;
        }
        let reviews = [TOKEN_REVIEWS, ACCESS_REVIEWS].map(|path| server.count(&Method::POST, path));
        assert_eq!(reviews, [number, number]);
    }
    // All the time, the controller did nothing else.
    assert_eq!((*thread(), computed(&server)), (BusyThread::Held, 0));
    drop(ends);
    until(|| computed(&server) == LEFT).await;
}
