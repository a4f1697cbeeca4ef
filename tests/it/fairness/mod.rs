//! Fairness in the path: seats, queues and refusals over real sockets.

mod answers;
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
        Arc,
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
    client::{TestClient, body_text, soon},
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

/// Waits until `holds`, which must come true.
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

/// What a client was told.
#[derive(Debug)]
struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Told {
    /// The UIDs of schema and level, each of which must be there once.
    fn uids(&self) -> (&str, &str) {
        (
            self.only("x-kubernetes-pf-flowschema-uid"),
            self.only("x-kubernetes-pf-prioritylevel-uid"),
        )
    }

    fn only(&self, name: &str) -> &str {
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        let [value] = values[..] else {
            panic!("{name} is not there once: {self:?}");
        };
        value.to_str().unwrap()
    }
}

/// Asks on a connection of its own, and waits for the answer elsewhere.
async fn ask(gate: &Gate, http2: bool, user: &str, method: Method, target: &str) -> Asking {
    let mut client = connect(gate, http2).await;
    let request = of(&client, user, method, target);
    Asking(tokio::spawn(async move {
        let response = client.send(request).await.unwrap();
        Told {
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

/// A request on its way.
struct Asking(JoinHandle<Told>);

impl Asking {
    async fn told(self) -> Told {
        soon(self.0).await.unwrap()
    }

    /// Asserts that it is served.
    async fn served(self) {
        let told = self.told().await;
        assert_eq!(told.status, StatusCode::OK, "{told:?}");
    }
}

/// Alice reads, over HTTP/1.
async fn get(gate: &Gate, target: &str) -> Asking {
    ask(gate, false, "alice", Method::GET, target).await
}

/// How many execute and how many wait in the level `small`, and how many seats are taken.
fn small(gate: &Gate) -> (u32, u32, u32) {
    let level = gate.level("small");
    (level.executing, level.waiting, level.seats_in_use)
}

/// A request that has reached the upstream and waits for the test to answer it.
struct Asked {
    target: String,
    answer: oneshot::Sender<TestReply>,
}

impl Asked {
    fn say(self, body: &'static str) {
        // Whoever asked may have left.
        let _ = self.answer.send(text(body));
    }
}

/// An upstream whose every answer the test gives.
fn by_hand(speaks: Speaks) -> (TestUpstream, mpsc::UnboundedReceiver<Asked>) {
    let (ask, asked) = mpsc::unbounded_channel();
    let upstream = TestUpstream::start(speaks, move |request| {
        let (answer, given) = oneshot::channel();
        let target = request.uri().path().to_owned();
        let _ = ask.send(Asked { target, answer });
        async move {
            match given.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        }
    });
    (upstream, asked)
}

/// An upstream that carries every request through, whatever becomes of whoever asked.
struct Stubborn {
    upstream: TestUpstream,
    work: Arc<Work>,
}

/// What a stubborn upstream does.
#[derive(Default)]
struct Work {
    begun: AtomicUsize,
    done: AtomicUsize,
    most: AtomicUsize,
}

impl Work {
    fn begin(&self) -> usize {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let executing = number + 1 - self.done.load(Ordering::SeqCst);
        self.most.fetch_max(executing, Ordering::SeqCst);
        number
    }

    fn end(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Requests carried through.
    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// The most requests that ever executed at a time.
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
            let time = takes(done.begin());
            let (finish, finished) = oneshot::channel();
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                done.end();
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
