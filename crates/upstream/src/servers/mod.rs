//! Several API servers behind the gateway, one of which each request goes to.
//!
//! [`UpstreamServers`] is what all cores and the control side share: the list, what each server has to do, and which part of its seats
//! it may use. [`server_monitor`](crate::server_monitor) probes the servers, compares them, resolves names again, and moves watches to a server that has too
//! few. The request path reports what it finds: a server that cannot be reached gets no further request at once, not only
//! after the next probe.
//!
//! The decisions are pure ([`fairgate_core::servers`]). Not here: connections of clients' requests, which `fairgate-proxy` has.

pub mod affinity;
mod moving;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use self::moving::{MovingWatches, Wanted};
use crate::endpoint::Endpoint;
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::Seats,
    servers::{
        equal_parts,
        health::{EjectionReason, Health, ServerState},
        load::{HasLoad, ServerLoad, total_seats},
        places::Places,
    },
    sync::{Mutex, lock},
    time::Time,
};

/// One API server.
#[derive(Debug)]
pub struct UpstreamServer {
    pub(crate) endpoint: Endpoint,
    pub(crate) load: ServerLoad,
    pub(crate) health: Mutex<Health>,
    /// Which configured server it is, or belongs to.
    pub(crate) group: usize,
    /// Ends connections of the gateway's own requests when the server does not answer.
    unresponsive: watch::Sender<bool>,
    pub(crate) moving: MovingWatches,
    /// Client connections that are to prefer another server.
    pub(crate) moving_connections: Wanted,
    counts: ServerCounts,
}

/// What is counted of a server since the start.
#[derive(Debug, Default)]
pub struct ServerCounts {
    answers: AtomicU64,
    errors: AtomicU64,
    ejections: AtomicU64,
    /// Nanoseconds from sending requests to the heads of their responses.
    answer_nanos: AtomicU64,
    moved_watches: AtomicU64,
}

impl HasLoad for UpstreamServer {
    fn load(&self) -> &ServerLoad {
        &self.load
    }
}

impl UpstreamServer {
    pub(crate) fn new(
        endpoint: Endpoint,
        seats: Seats,
        group: usize,
        health: Health,
        places: Arc<Places>,
    ) -> Self {
        Self {
            endpoint,
            load: ServerLoad::new(seats, places),
            health: Mutex::new(health),
            group,
            unresponsive: watch::Sender::new(false),
            moving: MovingWatches::default(),
            moving_connections: Wanted::default(),
            counts: ServerCounts::default(),
        }
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its name in logs, metrics and dumps.
    pub fn name(&self) -> &Arc<str> {
        self.endpoint.name()
    }

    /// How it is.
    pub fn state(&self) -> ServerState {
        lock(&self.health).state()
    }

    /// How it is in one word or a few, and since when.
    pub fn condition(&self) -> ServerCondition {
        let health = lock(&self.health);
        ServerCondition {
            state: health.state(),
            since: health.since(),
            reason: health.reason(),
            is_slow: health.slowness().is_slow(),
            is_on_trial: health.is_on_trial(),
            is_listed: self.load.is_listed(),
        }
    }

    /// Tells when it does not answer and its connections are to be given up.
    pub(crate) fn unresponsive(&self) -> watch::Receiver<bool> {
        self.unresponsive.subscribe()
    }

    /// Watches that were ended so that another server gets them.
    pub fn moved_watches(&self) -> u64 {
        self.counts.moved_watches.load(Ordering::Relaxed)
    }

    /// Responses with a status below 500, and those with others.
    pub fn answers(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.counts.answers), count(&self.counts.errors))
    }

    /// How long the responses took from sending the request to their heads, together, in seconds.
    pub fn answer_seconds(&self) -> f64 {
        let nanos = self.counts.answer_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos).as_secs_f64()
    }

    /// How often it was ejected.
    pub fn ejections(&self) -> u64 {
        self.counts.ejections.load(Ordering::Relaxed)
    }

    /// A response with this status arrived so long after its request had been sent, to a user whose name has this hash.
    pub fn answered(&self, status: u16, took: Duration, user: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let is_error = status >= 500;
        let outcomes = self.load.outcomes();
        match status {
            // A client's own time limit causes it, too.
            504 => outcomes.answered_otherwise(),
            500.. => outcomes.answered_with_error(user),
            _ => outcomes.answered(nanos),
        }
        let counter = if is_error {
            &self.counts.errors
        } else {
            &self.counts.answers
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.counts.answer_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// It ended a request alone, of a user whose name has this hash.
    pub fn reset(&self, user: u64) {
        self.load.outcomes().reset(user);
        self.counts.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Applies its health to what it may be charged.
    pub(crate) fn apply_health(&self, now: Time) {
        let health = lock(&self.health);
        self.load.set_capacity(if self.load.is_listed() {
            health.capacity(now, self.load.seats())
        } else {
            0
        });
        let is_unresponsive = health.state() == ServerState::Ejected;
        drop(health);
        self.unresponsive.send_if_modified(|was| {
            let changed = *was != is_unresponsive;
            *was = is_unresponsive;
            changed
        });
    }
}

/// How a server is, for people.
#[derive(Clone, Copy, Debug)]
pub struct ServerCondition {
    /// Its state.
    pub state: ServerState,
    /// Since when it has it.
    pub since: Time,
    /// Why it is ejected.
    pub reason: Option<EjectionReason>,
    /// Whether it is given less to do, because it is slower than the others.
    pub is_slow: bool,
    /// Whether it gets one request at a time, because it let requests hang before.
    pub is_on_trial: bool,
    /// Whether its address is still one of its name.
    pub is_listed: bool,
}

impl ServerCondition {
    /// Why it is not used as it could be; `None` if it is.
    pub fn problem(&self) -> Option<ServerProblem> {
        match (self.state, self.reason) {
            _ if !self.is_listed => Some(ServerProblem::Unlisted),
            (ServerState::Ejected, Some(EjectionReason::NotConnected)) => {
                Some(ServerProblem::NotConnected)
            }
            (ServerState::Ejected, Some(EjectionReason::OnlyErrors)) => {
                Some(ServerProblem::OnlyErrors)
            }
            (ServerState::Ejected, Some(EjectionReason::Hanging)) => Some(ServerProblem::Hanging),
            (ServerState::Ejected, _) => Some(ServerProblem::NoAnswer),
            (ServerState::NotReady, _) => Some(ServerProblem::NotReady),
            (ServerState::Ready, _) if self.is_on_trial => Some(ServerProblem::OnTrial),
            (ServerState::Ready, _) if self.is_slow => Some(ServerProblem::Slow),
            (ServerState::Ready, _) => None,
        }
    }
}

/// Why a server is not used as it could be. `Display` writes what follows "the server".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProblem {
    /// Its address is no longer one of its name.
    Unlisted,
    /// No connection can be opened.
    NotConnected,
    /// It answers every request with an error, and other servers do not.
    OnlyErrors,
    /// It answers probes and no request, and other servers do.
    Hanging,
    /// It let requests hang, and is tried with one at a time.
    OnTrial,
    /// It does not answer.
    NoAnswer,
    /// It says that it is not ready.
    NotReady,
    /// It is much slower than the others.
    Slow,
}

impl ServerProblem {
    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unlisted => "unlisted",
            Self::NotConnected => "not-connected",
            Self::OnlyErrors => "only-errors",
            Self::Hanging | Self::OnTrial => "hanging",
            Self::NoAnswer => "no-answer",
            Self::NotReady => "not-ready",
            Self::Slow => "slow",
        }
    }
}

impl fmt::Display for ServerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlisted => "is no longer an address of its name",
            Self::NotConnected => "cannot be reached",
            Self::OnlyErrors => "answers every request with an error, which the others do not",
            Self::Hanging => "answers /readyz and no request, while the others answer",
            Self::OnTrial => {
                "answered /readyz and no request; it gets one at a time until it answers one"
            }
            Self::NoAnswer => "does not answer",
            Self::NotReady => "says that it is not ready (/readyz)",
            Self::Slow => "answers much more slowly than the others; it gets few requests",
        })
    }
}

/// A server as it was configured.
#[derive(Clone, Debug)]
pub struct ConfiguredServer {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Its seats; `None` for an equal part of all. Of a name that is resolved, the seats of each address.
    pub seats: Option<Seats>,
    /// Whether each address of its name is a server.
    pub is_resolved: bool,
}

/// How requests are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All requests of a client's connection go to one server, as long as that has room.
    #[default]
    Connection,
    /// Each request goes to the least loaded server.
    Request,
}

/// How often a read that waits at an ejected server looks for another, while there is none.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// All servers behind the gateway. Shared by all cores and the control side.
#[derive(Debug)]
pub struct UpstreamServers {
    pub(crate) configured: Vec<ConfiguredServer>,
    pub(crate) list: ArcSwap<Vec<Arc<UpstreamServer>>>,
    pub(crate) places: Arc<Places>,
    spread: Spread,
    /// The seats that servers without their own share.
    shared_seats: Mutex<Seats>,
    total: watch::Sender<Seats>,
    pub(crate) clock: Clock,
}

impl UpstreamServers {
    /// These servers, which share `shared_seats` if they have no seats of their own. The addresses of names that are resolved are
    /// added by the monitor, or by [`resolve_first`](crate::server_monitor::resolve_first).
    pub fn new(
        configured: Vec<ConfiguredServer>,
        shared_seats: Seats,
        spread: Spread,
        clock: Clock,
    ) -> Arc<Self> {
        let places = Arc::<Places>::default();
        let now = clock.now();
        let parts = equal_parts(shared_seats, configured.len());
        let fixed = configured.iter().zip(parts).enumerate();
        let fixed = fixed.filter(|(_, (server, _))| !server.is_resolved);
        let list: Vec<_> = fixed
            .map(|(group, (server, part))| {
                let seats = server.seats.unwrap_or(part);
                let (endpoint, places) = (server.endpoint.clone(), Arc::clone(&places));
                Arc::new(UpstreamServer::new(
                    endpoint,
                    seats,
                    group,
                    Health::new(now),
                    places,
                ))
            })
            .collect();
        let total = total_seats(&list).max(1);
        Arc::new(Self {
            configured,
            list: ArcSwap::from_pointee(list),
            places,
            spread,
            shared_seats: Mutex::new(shared_seats),
            total: watch::Sender::new(total),
            clock,
        })
    }

    /// The servers at this moment.
    pub fn list(&self) -> Guard<Arc<Vec<Arc<UpstreamServer>>>> {
        self.list.load()
    }

    /// The seats of all servers, whether or not they can be reached now.
    pub fn all_seats(&self) -> Seats {
        let list = self.list.load();
        let listed = list.iter().filter(|server| server.load.is_listed());
        let seats = listed.map(|server| server.load.seats());
        seats.fold(0, Seats::saturating_add)
    }

    /// Where requests wait for room at any server.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// How requests are spread.
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// The seats of all servers together, as they change.
    pub fn total_seats(&self) -> watch::Receiver<Seats> {
        self.total.subscribe()
    }

    /// The configured servers.
    pub fn configured(&self) -> &[ConfiguredServer] {
        &self.configured
    }

    /// Whether any server takes requests.
    pub fn is_any_open(&self) -> bool {
        let list = self.list.load();
        list.iter().any(|server| server.load.capacity() > 0)
    }

    /// Completes when `server` is ejected and another one takes requests, so that what waits there may be asked again.
    pub async fn until_ejected(&self, server: &UpstreamServer) {
        let mut unresponsive = server.unresponsive();
        loop {
            let is_ejected = *unresponsive.borrow_and_update();
            if is_ejected && self.is_any_open() {
                return;
            }
            let changed = unresponsive.changed();
            if is_ejected {
                // Nothing tells when another one opens. None waits like this but while there is no other.
                let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
            } else if changed.await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Gives servers without seats of their own their parts of so many seats.
    pub fn share_seats(&self, seats: Seats) {
        *lock(&self.shared_seats) = seats;
        self.set_parts();
        self.publish();
    }

    /// No connection to `server` can be opened: it gets no request until a probe succeeds.
    pub fn not_connected(&self, server: &Arc<UpstreamServer>) {
        let now = self.clock.now();
        let changed = lock(&server.health).not_connected(now);
        self.after(server, changed);
    }

    /// `server` took a request and did not answer it, of a user whose name has this hash. After the third in a row, of several users, it
    /// gets none for some time.
    pub fn failed(&self, server: &Arc<UpstreamServer>, user: u64) {
        if server.load.outcomes().failed(user) {
            let now = self.clock.now();
            let changed = lock(&server.health).requests_fail(now, EjectionReason::Failing);
            self.after(server, changed);
        }
    }

    /// Publishes what a change of one server's health means.
    pub(crate) fn after(&self, server: &Arc<UpstreamServer>, changed: bool) {
        if changed {
            if server.state() == ServerState::Ejected {
                server.counts.ejections.fetch_add(1, Ordering::Relaxed);
            }
            server.load.outcomes().forget_failures();
            server.apply_health(self.clock.now());
            self.publish();
            log_condition(server);
        }
    }

    /// Tells the seats of all servers, after the health of any was applied.
    pub(crate) fn publish(&self) {
        let list = self.list.load();
        self.open_wholly_if_alone(&list);
        let total = total_seats(&list).max(1);
        self.total.send_if_modified(|now| {
            let changed = *now != total;
            *now = total;
            changed
        });
    }

    /// Gives the server that takes requests all its seats if it is the only one: nobody else could serve what a slow start or a trial holds
    /// back.
    fn open_wholly_if_alone(&self, list: &[Arc<UpstreamServer>]) {
        let mut open = list.iter().filter(|server| server.load.capacity() > 0);
        let (Some(only), None) = (open.next(), open.next()) else {
            return;
        };
        let now = self.clock.now();
        let mut health = lock(&only.health);
        let was_on_trial = health.is_on_trial();
        let is_more = health.skip_slow_start(now);
        drop(health);
        if is_more {
            only.apply_health(now);
        }
        if was_on_trial {
            log_condition(only);
        }
    }

    /// Gives each server its seats: its own, or its part of what those share that have none.
    pub(crate) fn set_parts(&self) {
        let shared = *lock(&self.shared_seats);
        let list = self.list.load();
        let parts = equal_parts(shared, self.configured.len());
        for (group, (configured, part)) in self.configured.iter().zip(parts).enumerate() {
            let of_group = list
                .iter()
                .filter(|server| server.group == group && server.load.is_listed());
            let of_group: Vec<_> = of_group.collect();
            let parts = equal_parts(part, of_group.len());
            for (server, part) in of_group.into_iter().zip(parts) {
                server.load.set_seats(configured.seats.unwrap_or(part));
                server.apply_health(self.clock.now());
            }
        }
    }
}

/// Logs how a server is, after that changed.
pub(crate) fn log_condition(server: &UpstreamServer) {
    let name = server.name();
    if let Some(problem) = server.condition().problem() {
        let why = server.endpoint.problem().map(|error| error.to_string());
        tracing::warn!(server = %name, why, "an API server gets no new requests, or few: it {problem}");
    } else {
        tracing::info!(server = %name, "an API server takes requests again");
    }
}
