//! Fairness in the request path: seats, queues and refusals over real sockets.

mod answers;
mod bodies;
mod full_queues;
mod giving_up;
mod isolation;
mod live;
mod overload;
mod queues;
mod seats;
mod slow_readers;
mod spreading;
mod watches;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    client::{HANG, TestClient, body_text, soon},
    gate::Gate,
    upstream::{Speaks, TestBody, TestReply, TestUpstream, full, text},
};

const PODS: &str = "/api/v1/namespaces/a/pods";

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn now() -> Time {
    Clock::system().now()
}

/// Waits until `holds` returns true, which it must in the end.
async fn until(holds: impl Fn() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(ms(1)).await;
        }
    })
    .await;
}

/// A request of `user`.
fn of(client: &TestClient, user: &str, method: Method, target: &str) -> Request<TestBody> {
    let request = client.request(method, target).header("x-user", user);
    request.body(full("")).unwrap()
}

/// The response that a client received.
#[derive(Debug)]
struct TestResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl TestResponse {
    /// The UIDs of the FlowSchema and the priority level, from headers that must occur once.
    fn uids(&self) -> (&str, &str) {
        (
            self.header("x-kubernetes-pf-flowschema-uid"),
            self.header("x-kubernetes-pf-prioritylevel-uid"),
        )
    }

    /// The value of a header that must occur once.
    fn header(&self, name: &str) -> &str {
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        let [value] = values[..] else {
            panic!("{name} does not occur exactly once: {self:?}");
        };
        value.to_str().unwrap()
    }
}

/// Sends a request on a connection of its own. A task waits for the response.
async fn start_request(
    gate: &Gate,
    http2: bool,
    user: &str,
    method: Method,
    target: &str,
) -> PendingRequest {
    let mut client = connect(gate, http2).await;
    let request = of(&client, user, method, target);
    PendingRequest(tokio::spawn(async move {
        let response = client.send(request).await.unwrap();
        TestResponse {
            status: response.status(),
            headers: response.headers().clone(),
            body: body_text(response).await,
        }
    }))
}

async fn connect(gate: &Gate, http2: bool) -> TestClient {
    if http2 {
        TestClient::http2(gate.address()).await
    } else {
        TestClient::http1(gate.address()).await
    }
}

/// A request whose response a task waits for.
struct PendingRequest(JoinHandle<TestResponse>);

impl PendingRequest {
    async fn response(self) -> TestResponse {
        soon(self.0).await.unwrap()
    }

    /// Waits for the response, which must be 200.
    async fn served(self) {
        let response = self.response().await;
        assert_eq!(response.status, StatusCode::OK, "{response:?}");
    }
}

/// Sends a GET of alice over HTTP/1.
async fn get(gate: &Gate, target: &str) -> PendingRequest {
    start_request(gate, false, "alice", Method::GET, target).await
}

/// How many requests execute and how many wait in the level `small`, and how many seats are in use.
fn small(gate: &Gate) -> (u32, u32, u32) {
    let level = gate.level("small");
    (level.executing, level.waiting, level.seats_in_use)
}

/// A request that has reached the upstream, which responds when the test says so.
struct HeldRequest {
    user: String,
    target: String,
    answer: oneshot::Sender<TestReply>,
}

impl HeldRequest {
    fn respond(self, body: &'static str) {
        // The client may have disconnected.
        let _ = self.answer.send(text(body));
    }
}

/// An upstream that holds every request until the test responds to it.
fn manual_upstream(speaks: Speaks) -> (TestUpstream, mpsc::UnboundedReceiver<HeldRequest>) {
    let (arrive, held) = mpsc::unbounded_channel();
    let upstream = TestUpstream::start(speaks, move |request| {
        let (answer, given) = oneshot::channel();
        let user = request.headers()["x-remote-user"].to_str().unwrap();
        let _ = arrive.send(HeldRequest {
            user: user.to_owned(),
            target: request.uri().path().to_owned(),
            answer,
        });
        async move {
            let Ok(answer) = given.await else {
                return std::future::pending().await;
            };
            // A server that responds to a body it has not read resets the connection, and the response may be lost.
            let _ = http_body_util::BodyExt::collect(request.into_body()).await;
            answer
        }
    });
    (upstream, held)
}

/// An upstream that completes every request, also when the client has disconnected.
struct Stubborn {
    upstream: TestUpstream,
    work: Arc<Work>,
}

/// The requests that a stubborn upstream executes.
#[derive(Default)]
struct Work {
    /// The number of each request, and until when the gateway has to count it.
    executing: Mutex<Vec<(usize, Time)>>,
    begun: AtomicUsize,
    done: AtomicUsize,
    most: AtomicUsize,
}

impl Work {
    /// Returns the request's number. After `counts_until` the gateway may have given its seat to another request.
    fn begin(&self, counts_until: Time) -> usize {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let mut executing = self.executing.lock().unwrap();
        executing.push((number, counts_until));
        let now = now();
        let counted = executing.iter().filter(|(_, until)| *until > now);
        self.most.fetch_max(counted.count(), Ordering::SeqCst);
        number
    }

    fn end(&self, number: usize) {
        let mut executing = self.executing.lock().unwrap();
        executing.retain(|(executing, _)| *executing != number);
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// How many requests it has completed.
    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// Whether a request executes now.
    fn is_executing(&self) -> bool {
        !self.executing.lock().unwrap().is_empty()
    }

    /// The most requests that ever executed at once.
    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Stubborn {
    /// `takes` says how long each request takes, by its number.
    fn start(speaks: Speaks, takes: impl Fn(usize) -> Duration + Send + Sync + 'static) -> Self {
        let work = Arc::<Work>::default();
        let done = Arc::clone(&work);
        let upstream = TestUpstream::start(speaks, move |_| {
            // No time limit ends before `HANG`, so every request counts.
            let number = done.begin(now().plus(HANG));
            let time = takes(number);
            let (finish, finished) = oneshot::channel();
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                done.end(number);
                let _ = finish.send(());
            });
            async move {
                let _ = finished.await;
                text("done")
            }
        });
        Self { upstream, work }
    }
}
