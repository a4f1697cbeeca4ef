//! Fairness in the path: seats, queues and refusals over real sockets.

mod giving_up;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate::{apf::Time, clock::Clock};
use http::{Method, Request};
use tokio::sync::{mpsc, oneshot};

use crate::{
    client::{Client, soon},
    upstream::{Answer, Body, Speaks, Upstream, full, text},
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
fn of(client: &Client, user: &str, method: Method, target: &str) -> Request<Body> {
    let request = client.request(method, target).header("x-user", user);
    request.body(full("")).unwrap()
}

/// A request that has reached the upstream and waits for the test to answer it.
struct Asked {
    target: String,
    answer: oneshot::Sender<Answer>,
}

impl Asked {
    fn say(self, body: &'static str) {
        // Whoever asked may have left.
        let _ = self.answer.send(text(body));
    }
}

/// An upstream whose every answer the test gives.
fn by_hand(speaks: Speaks) -> (Upstream, mpsc::UnboundedReceiver<Asked>) {
    let (ask, asked) = mpsc::unbounded_channel();
    let upstream = Upstream::start(speaks, move |request| {
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
    upstream: Upstream,
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
        let upstream = Upstream::start(speaks, move |_| {
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
