//! What does fairness cost a request in the gateway?
//!
//! One request through the layer of a data core: classify, estimate, admit, hold the seat with the
//! response's body, give it back, every metric cell updated; with seats free, and with 1 000 requests
//! waiting, half of them on another core, so that half the decisions go by mailbox. The baseline is the
//! same stack with enforcement off.

#[path = "support/leaf.rs"]
mod leaf;
mod support;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use fairgate_base::clock::Clock;
use fairgate_call::{Call, ClientBody, Inbound, Peer, Refusal, Reply, RequestContext, SpoolLimits};
use fairgate_core::{apf::work::EstimatorSettings, digest::RequestDigest, time::Time};
use fairgate_proxy::fairness::{
    BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
    layer::Fairness,
};
use http_body::Body as _;
use leaf::Leaf;
use support::{Case, digests, measure, policy};
use tower::{Layer, Service};

const SEATS: u32 = 600;
const WAITING: usize = 1_000;

type Waiting = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

/// Two cores on one thread, so that the cost of both is counted.
struct Cores {
    services: [Fairness<Leaf>; 2],
    readers: [Pin<Box<dyn Future<Output = ()>>>; 2],
    digests: Vec<Arc<RequestDigest>>,
    peer: Rc<Peer>,
    waiting: Vec<Waiting>,
    held: Vec<Reply>,
    clock: Clock,
    next: usize,
}

impl Cores {
    fn new(schemas: usize, waiting: usize, enforcement: Enforcement) -> Self {
        let settings = FlowControlSettings {
            enforcement,
            request_timeout: std::time::Duration::from_secs(3600),
            max_queued: 1_000_000,
            estimator: EstimatorSettings::default(),
            borrowing_period: std::time::Duration::from_secs(1),
            long_running: Caps {
                per_user: 100,
                total: 1000,
            },
            watches: Caps::NONE,
            resets: fairgate_call::ResetLimits::PER_USER,
            spool: SpoolLimits::NONE,
            bodies: BodyLimits::NONE,
            long_head_bytes: usize::MAX,
        };
        let flow_control = FlowControl::new(2, policy(schemas, SEATS), settings, Time::ZERO);
        let clock = Clock::system();
        let gates = [0, 1].map(|core| Gate::new(Arc::clone(&flow_control), core, clock.clone(), 1));
        let mut cores = Self {
            services: gates
                .each_ref()
                .map(|gate| FairnessLayer::new(Rc::clone(gate)).layer(Leaf)),
            readers: gates.map(|gate| Box::pin(gate.run()) as Pin<Box<dyn Future<Output = ()>>>),
            digests: digests(500),
            peer: Rc::new(Peer::local()),
            waiting: Vec::new(),
            held: Vec::new(),
            clock,
            next: 0,
        };
        while cores.waiting.len() < waiting {
            let answer = cores.request();
            cores.take(answer);
        }
        cores
    }

    /// Sends a request to one of the cores.
    fn request(&mut self) -> Waiting {
        self.next += 1;
        let digest = Arc::clone(&self.digests[self.next % self.digests.len()]);
        let mut request = http::Request::new(ClientBody::empty());
        *request.uri_mut() = http::Uri::from_static("/api/v1/namespaces/a/pods/p");
        let inbound = Inbound {
            request: Box::new(request),
            peer: Rc::clone(&self.peer),
            received: self.clock.now(),
            context: Rc::new(RequestContext::default()),
        };
        let call = Call::new(inbound, digest, std::time::Duration::from_secs(3600));
        let call = call.expect("its time limit is well-formed");
        let core = self.next % 2;
        Box::pin(self.services[core].call(call))
    }

    /// Polls a response once: it is held if it is ready, otherwise it waits.
    fn take(&mut self, mut answer: Waiting) {
        match answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(reply) => self.held.push(reply.expect("nothing is refused")),
            Poll::Pending => self.waiting.push(answer),
        }
    }

    /// One request arrives, one response is read to its end, and the request that gets its seat is answered.
    fn round(&mut self) {
        let answer = self.request();
        self.take(answer);
        if let Some(mut reply) = (!self.held.is_empty()).then(|| self.held.swap_remove(0)) {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = Pin::new(reply.body_mut()).poll_frame(&mut cx);
        }
        for reader in &mut self.readers {
            let _ = reader
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Collects the responses to requests that were dispatched meanwhile; not part of a round, because
    /// it polls all of them.
    fn collect(&mut self) {
        for answer in std::mem::take(&mut self.waiting) {
            self.take(answer);
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(poll_fn(|_| {
        let mut cases = vec![case("enforcement off", 0, 0, Enforcement::Off)];
        for schemas in [0, 1_000, 10_000] {
            cases.push(case(
                &format!("+{schemas} schemas, seats free"),
                schemas,
                0,
                Enforcement::Enforce,
            ));
        }
        cases.push(case("observe, seats free", 0, 0, Enforcement::Observe));
        measure(
            "One request through the fairness layer, with its context and response.",
            cases,
        );
        Poll::Ready(())
    })));
    runtime.block_on(local.run_until(poll_fn(|_| {
        waiting_case();
        Poll::Ready(())
    })));
}

fn case(name: &str, schemas: usize, waiting: usize, enforcement: Enforcement) -> Case<'static> {
    Case::new(name, move || {
        let mut cores = Cores::new(schemas, waiting, enforcement);
        move || cores.round()
    })
}

/// With requests waiting on both cores: one arrives and waits, one ends and lets another run.
fn waiting_case() {
    if std::env::args().any(|argument| argument == "--rounds") {
        return;
    }
    let mut cores = Cores::new(0, WAITING, Enforcement::Enforce);
    let rounds = if support::is_quick() { 5 } else { 200 };
    let mut times = Vec::new();
    for _ in 0..25 {
        let took = support::time(|| {
            (0..rounds).for_each(|_| cores.round());
        });
        times.push(took.as_secs_f64() * 1e9 / f64::from(rounds));
        cores.collect();
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{:<44} {:>9.0}",
        "1000 waiting on two cores (arrive, finish)",
        times[times.len() / 2]
    );
}
