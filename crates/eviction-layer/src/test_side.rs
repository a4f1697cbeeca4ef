//! The side of a data core in tests, without an upstream.

use std::{rc::Rc, sync::Arc, time::Duration};

use fairgate_base::{clock::Clock, events::EventSink};
use fairgate_call::{Call, ClientBody, Inbound, Peer, RequestContext};
use fairgate_core::digest::{RequestDigest, RequestInfo, User};
use fairgate_disruption::EvictionMode;
use fairgate_upstream::{
    access_review::{AccessReviewSettings, AccessReviews},
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
    review::ReviewClient,
};
use http::{HeaderMap, Method, Request, Uri};
use tokio::runtime::Handle;

use crate::{
    data_side::DataSide,
    events::EvictionEvent,
    evictor::{Evictor, EvictorSettings},
    wait_rules::EvictionWaitRules,
};

/// The side of a gateway that decides, and whose upstream cannot be reached.
pub(crate) fn without_upstream(
    wait: EvictionWaitRules,
    events: EventSink<EvictionEvent>,
) -> Rc<DataSide> {
    let client = ApiClient::new(
        Endpoint::new("127.0.0.1:1".parse().unwrap(), None),
        Arc::new(HeaderMap::new),
        ConnectionReuse::Pooled,
    );
    let (clock, control) = (Clock::system(), Handle::current());
    let access = AccessReviews::new(
        AccessReviewSettings::default(),
        ReviewClient::access(client.clone()),
        clock.clone(),
        control.clone(),
    );
    let evictor = Evictor::new(EvictorSettings {
        mode: EvictionMode::Authoritative,
        access,
        client,
        budgets: None,
        clock: clock.clone(),
        seed: 1,
        events,
        wait,
        wait_events: EventSink::default(),
        announcements: EventSink::default(),
    });
    Rc::new(DataSide {
        evictor,
        control,
        clock,
    })
}

/// The call of a user without a name for the eviction of the pod `p` in the namespace `ns`.
pub(crate) fn eviction(side: &DataSide) -> Call {
    let target = "/api/v1/namespaces/ns/pods/p/eviction";
    let mut request = Request::new(ClientBody::empty());
    *request.uri_mut() = Uri::from_static(target);
    *request.method_mut() = Method::POST;
    let inbound = Inbound {
        request: Box::new(request),
        peer: Rc::new(Peer::local()),
        received: side.clock.now(),
        context: Rc::new(RequestContext::default()),
    };
    let info = RequestInfo::from_target("POST", target).unwrap();
    let digest = Arc::new(RequestDigest {
        user: Arc::new(User::default()),
        info,
    });
    Call::new(inbound, digest, Duration::from_secs(34)).unwrap()
}
