//! A stand-in for API servers that counts what executes, goes on with requests whose gateway is gone, and has the gateways' leases.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fairgate_testkit::{leases::LeaseTable, relay::TcpRelay};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{FLOOR, SERVICE};
use crate::upstream::{Speaks, TestReply, TestUpstream, full};

/// Counts what executes.
#[derive(Default)]
pub(super) struct Executing {
    pub(super) now: AtomicUsize,
    pub(super) most: AtomicUsize,
}

impl Executing {
    pub(super) fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    /// How much executed at a time at most.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// What all doors of the server have in common.
#[derive(Default)]
pub(super) struct Server {
    /// Its seats, if there are several servers.
    pub(super) seats: usize,
    /// The members of the etcd of the fleet; without, the fleet uses leases.
    pub(super) etcd: Vec<SocketAddr>,
    pub(super) objects: Arc<LeaseTable>,
    pub(super) executing: Executing,
    /// What executes at all servers of the fleet, if there are several.
    pub(super) together: Arc<Executing>,
    /// Requests that were served, by user.
    pub(super) served: Mutex<BTreeMap<String, usize>>,
    /// How often each request with a query was executed.
    pub(super) ran: Mutex<BTreeMap<String, usize>>,
}

/// One gateway's way to the server and to the records of the fleet, which can be closed for these.
pub(super) struct Door {
    pub(super) upstream: TestUpstream,
    pub(super) is_closed: Arc<AtomicBool>,
    /// Whether the server says to this gateway that it is not ready.
    pub(super) is_unready: Arc<AtomicBool>,
    /// Its ways to the members of the etcd.
    pub(super) etcd: Vec<TcpRelay>,
}

impl Door {
    /// From now on, no record of the fleet is read or written.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.etcd.iter().for_each(TcpRelay::cut);
    }

    pub(super) fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
        self.etcd.iter().for_each(TcpRelay::mend);
    }

    /// The engine of the gateway's fleet, and its settings.
    pub(super) fn fleet(&self, gateway: &str) -> Value {
        let mut fleet = json!({
            "engine": "kubernetes", "gateway": gateway, "isolatedSeats": FLOOR,
            // The servers end requests sooner than they have to.
            "reclaim": "prompt",
        });
        if !self.etcd.is_empty() {
            let endpoints = self
                .etcd
                .iter()
                .map(|way| format!("http://{}", way.address));
            fleet["engine"] = json!("etcd");
            fleet["etcd"] = json!({"endpoints": endpoints.collect::<Vec<_>>()});
        }
        fleet
    }
}

impl Server {
    pub(super) async fn door(self: &Arc<Self>) -> Door {
        let server = Arc::clone(self);
        let is_closed = Arc::<AtomicBool>::default();
        let closed = Arc::clone(&is_closed);
        let is_unready = Arc::<AtomicBool>::default();
        let unready = Arc::clone(&is_unready);
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            let (server, closed) = (Arc::clone(&server), Arc::clone(&closed));
            let unready = Arc::clone(&unready);
            async move {
                if request.uri().path() == "/readyz" && unready.load(Ordering::SeqCst) {
                    return status(503, &json!({"message": "not ready"}));
                }
                if request.uri().path().ends_with("/pods/work") {
                    return server.work(&request).await;
                }
                if closed.load(Ordering::SeqCst) {
                    return status(503, &json!({"message": "closed"}));
                }
                server.keep_object(request).await
            }
        });
        let mut etcd = Vec::new();
        for member in &self.etcd {
            etcd.push(TcpRelay::to(*member).await);
        }
        Door {
            upstream,
            is_closed,
            is_unready,
            etcd,
        }
    }

    /// Executes a request, for [`SERVICE`] or for as many milliseconds as its query says (`takes`). It goes on when the connection is closed.
    pub(super) async fn work(self: &Arc<Self>, request: &Request<Incoming>) -> TestReply {
        let user = request.headers().get("impersonate-user");
        let user = user.map_or("", |user| user.to_str().unwrap()).to_owned();
        let takes = request.uri().query().and_then(takes).unwrap_or(SERVICE);
        if let Some(query) = request.uri().query() {
            *self
                .ran
                .lock()
                .unwrap()
                .entry(query.to_owned())
                .or_default() += 1;
        }
        let server = Arc::clone(self);
        let executes = tokio::spawn(async move {
            server.executing.begin();
            server.together.begin();
            tokio::time::sleep(takes).await;
            server.executing.end();
            server.together.end();
            *server.served.lock().unwrap().entry(user).or_default() += 1;
        });
        executes.await.unwrap();
        status(200, &json!({"kind": "Pod"}))
    }

    pub(super) async fn keep_object(&self, request: Request<Incoming>) -> TestReply {
        let method = request.method().to_string();
        let target = request.uri().path_and_query().unwrap().to_string();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Option<Value> = serde_json::from_slice(&body).ok();
        let is_kept = target.contains("/leases") || target.contains("/secrets");
        if !is_kept {
            return status(404, &json!({"message": "nothing else is here"}));
        }
        let (code, object) = self.objects.call(&method, &target, body.as_ref());
        status(code, &object)
    }

    pub(super) fn served_by_user(&self) -> BTreeMap<String, usize> {
        self.served.lock().unwrap().clone()
    }
}

/// How long a request with this query takes, if it says so.
fn takes(query: &str) -> Option<Duration> {
    let millis = query.strip_prefix("takes=")?;
    Some(Duration::from_millis(millis.parse().unwrap()))
}

pub(super) fn status(code: u16, body: &Value) -> TestReply {
    let response = Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json");
    response.body(full(Bytes::from(body.to_string()))).unwrap()
}
