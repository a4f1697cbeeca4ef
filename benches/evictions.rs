//! What do the layers of evictions cost a request that is not an eviction?
//!
//! One request through the layers on a data core, in front of a leaf that responds at once. The baseline is the leaf
//! alone; then the layers of a gateway that relays evictions, of one that decides about them, and of one where
//! evictions wait for their budgets.

#[path = "support/leaf.rs"]
mod leaf;
mod support;

use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use fairgate_base::{clock::Clock, events::EventSink};
use fairgate_call::{Call, ClientBody, Inbound, Peer, Refusal, Reply, RequestContext};
use fairgate_core::digest::RequestDigest;
use fairgate_disruption::waiting::WaitLimits;
use fairgate_eviction_layer::{
    EvictionLayer, EvictionMode, EvictionWaitLayer, EvictionWaitRules, Evictor, EvictorSettings,
};
use fairgate_upstream::{
    access_review::{AccessReviewSettings, AccessReviews},
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
    review::ReviewClient,
};
use leaf::Leaf;
use support::{Case, digests, measure};
use tower::{Layer, Service};

/// The layer of a gateway that decides about evictions by `mode`; they wait for at most `wait`.
fn layer(runtime: &tokio::runtime::Handle, mode: EvictionMode, wait: Duration) -> EvictionLayer {
    let authority = "127.0.0.1:1".parse().expect("it is an authority");
    let client = ApiClient::new(
        Endpoint::new(authority, None),
        Arc::new(http::HeaderMap::new),
        ConnectionReuse::Pooled,
    );
    let clock = Clock::system();
    let access = AccessReviews::new(
        AccessReviewSettings::default(),
        ReviewClient::access(client.clone()),
        clock.clone(),
        runtime.clone(),
    );
    let evictor = Evictor::new(EvictorSettings {
        mode,
        access,
        client,
        budgets: None,
        clock: clock.clone(),
        seed: 1,
        events: EventSink::default(),
        wait: EvictionWaitRules {
            limit: wait,
            users: ["alice".to_owned()].into(),
            groups: ["drainers".to_owned()].into(),
            exempt_users: std::collections::BTreeSet::new(),
            places: WaitLimits {
                per_budget: 10,
                total: 10,
            },
        },
        wait_events: EventSink::default(),
        announcements: EventSink::default(),
    });
    EvictionLayer::new(evictor, runtime.clone(), clock)
}

/// Requests to a service, one after the other.
struct Requests<S> {
    service: S,
    digests: Vec<Arc<RequestDigest>>,
    peer: Rc<Peer>,
    clock: Clock,
    next: usize,
}

impl<S: Service<Call, Response = Reply, Error = Refusal>> Requests<S> {
    fn to(service: S) -> Self {
        Self {
            service,
            digests: digests(500),
            peer: Rc::new(Peer::local()),
            clock: Clock::system(),
            next: 0,
        }
    }

    fn round(&mut self) {
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
        let call = Call::new(inbound, digest, Duration::from_secs(60));
        let answer = pin!(self.service.call(call.expect("it has no time limit")));
        let polled = answer.poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "the leaf answers at once");
    }
}

fn case<S>(name: &str, service: S) -> Case<'static>
where
    S: Service<Call, Response = Reply, Error = Refusal> + 'static,
{
    Case::new(name, move || {
        let mut requests = Requests::to(service);
        move || requests.round()
    })
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    let _inside = runtime.enter();
    let handle = runtime.handle();
    let relay = layer(handle, EvictionMode::Relay, Duration::ZERO);
    let decides = layer(handle, EvictionMode::Authoritative, Duration::ZERO);
    let holds = layer(handle, EvictionMode::Authoritative, Duration::from_secs(60));
    let stack = |layer: &EvictionLayer| EvictionWaitLayer::of(layer).layer(layer.layer(Leaf));
    measure(
        "One request that is not an eviction, with its context and response.",
        vec![
            case("no layers", Leaf),
            case("relay", stack(&relay)),
            case("authoritative", stack(&decides)),
            case("authoritative, evictions wait", stack(&holds)),
        ],
    );
}
