//! Watches over the servers: probes them, compares them, resolves their names again, and has watches move to a server that
//! has too few.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::uri::PathAndQuery;
use tokio::time::timeout;

use crate::{
    client::{ApiClient, ConnectionReuse, HeaderSource, RequestError},
    dial,
    dial_error::DialError,
    servers::{ConfiguredServer, UpstreamServer, UpstreamServers, log_condition},
};
use fairgate_core::{
    servers::{
        health::{EjectionReason, Health, ServerProbe, ServerState},
        load::{PeriodOutcomes, ServerLoad},
        rebalance::{Held, surplus},
        slowness::ShortestTime,
    },
    sync::lock,
};

/// How often servers are probed and compared.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How many periods pass between two resolutions of a name.
const RESOLVE_EVERY: u32 = 5;
/// How many periods are looked at for servers that answer with errors only.
const ERROR_PERIODS: usize = 3;
/// How many errors without any other answer in these periods are too many; and how many answers make another server a good one.
const MANY: u64 = 10;
/// At most this part of all watches, and of all client connections, moves in a period: one in a hundred, and at least one.
const MOVED_PART: u32 = 100;
/// The longest answer to a probe that is read, in bytes.
const MAX_PROBE_BYTES: usize = 64 << 10;

/// The addresses of a name, as they were found last.
type Found = Result<Vec<SocketAddr>, DialError>;

/// Watches over the servers until it is dropped.
pub struct ServerMonitor {
    servers: Arc<UpstreamServers>,
    credentials: HeaderSource,
    watched: Vec<Watched>,
}

/// A server, what is sent to it, and what was seen.
struct Watched {
    server: Arc<UpstreamServer>,
    client: ApiClient,
    periods: [PeriodOutcomes; ERROR_PERIODS],
}

impl Watched {
    fn new(server: &Arc<UpstreamServer>, credentials: &HeaderSource) -> Self {
        let endpoint = server.endpoint().clone();
        let credentials = Arc::clone(credentials);
        Self {
            client: ApiClient::new(endpoint, credentials, ConnectionReuse::Pooled),
            server: Arc::clone(server),
            periods: Default::default(),
        }
    }

    async fn probe(&self) -> ServerProbe {
        let readyz = PathAndQuery::from_static("/readyz");
        let answer = self.client.get(readyz, "*/*", MAX_PROBE_BYTES);
        match timeout(PROBE_TIMEOUT, answer).await {
            // It answers. That the gateway may not ask says nothing about its health.
            Ok(Ok((status, _))) if status.as_u16() < 500 => ServerProbe::Ready,
            Ok(Ok(_)) => ServerProbe::NotReady,
            Ok(Err(RequestError::Connect { .. })) => ServerProbe::NotConnected,
            Ok(Err(_)) | Err(_) => ServerProbe::NoAnswer,
        }
    }

    /// Answers and errors of the last periods.
    fn recent(&self) -> (u64, u64) {
        let sum = |of: fn(&PeriodOutcomes) -> u64| self.periods.iter().map(of).sum();
        (sum(|period| period.answers), sum(|period| period.errors))
    }

    fn shortest(&self) -> Option<ShortestTime> {
        let last = self.periods.last()?;
        let nanos = last.shortest_nanos?;
        Some(ShortestTime {
            answers: last.answers,
            nanos,
        })
    }
}

impl ServerMonitor {
    /// Watches over `servers`, with these credentials for its probes.
    pub fn new(servers: Arc<UpstreamServers>, credentials: HeaderSource) -> Self {
        Self {
            servers,
            credentials,
            watched: Vec::new(),
        }
    }

    /// Probes once a second, and at once when a request found that a server cannot be reached.
    pub async fn run(mut self) {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut periods = 0_u32;
        loop {
            tokio::select! {
                _ = period.tick() => {
                    if periods.is_multiple_of(RESOLVE_EVERY) {
                        resolve(&self.servers).await;
                    }
                    periods = periods.wrapping_add(1);
                    self.probe_all().await;
                    self.compare();
                    self.rebalance();
                }
                () = self.servers.changed.notified() => {}
            }
            self.servers.publish();
        }
    }

    /// Probes all servers side by side.
    async fn probe_all(&mut self) {
        let list = self.servers.list.load_full();
        self.watched.retain(|watched| {
            list.iter()
                .any(|server| Arc::ptr_eq(server, &watched.server))
        });
        for server in &*list {
            if !self.watched.iter().any(|w| Arc::ptr_eq(&w.server, server)) {
                self.watched.push(Watched::new(server, &self.credentials));
            }
        }
        let results = join_all(self.watched.iter().map(Watched::probe)).await;
        for (watched, result) in self.watched.iter().zip(results) {
            let now = self.servers.clock.now();
            let changed = lock(&watched.server.health).probed(now, result);
            self.servers.after(&watched.server, changed);
            watched.server.apply_health(now);
        }
    }

    /// Compares how the requests of the servers ended in the last period.
    fn compare(&mut self) {
        for watched in &mut self.watched {
            watched.periods.rotate_left(1);
            watched.periods[ERROR_PERIODS - 1] = watched.server.load.take_outcomes();
        }
        for (index, watched) in self.watched.iter().enumerate() {
            let others = || {
                let others = self.watched.iter().enumerate();
                others
                    .filter(|(other, _)| *other != index)
                    .map(|(_, other)| other)
            };
            let (answers, errors) = watched.recent();
            let is_other_well = || {
                others().any(|other| {
                    let (answers, errors) = other.recent();
                    answers >= MANY && errors < answers
                })
            };
            let now = self.servers.clock.now();
            if answers == 0 && errors >= MANY && is_other_well() {
                let mut health = lock(&watched.server.health);
                let changed = health.requests_fail(now, EjectionReason::OnlyErrors);
                drop(health);
                self.servers.after(&watched.server, changed);
                continue;
            }
            let times: Vec<_> = others().filter_map(Watched::shortest).collect();
            let mut health = lock(&watched.server.health);
            let was_slow = health.slowness().is_slow();
            health.slowness_mut().compare(watched.shortest(), &times);
            let is_slow = health.slowness().is_slow();
            let is_ready = health.state() == ServerState::Ready;
            drop(health);
            watched.server.apply_health(now);
            if is_ready && was_slow != is_slow {
                log_condition(&watched.server);
            }
        }
    }

    /// Ends a few watches of servers that have too many, if another has too few; and has a few client connections prefer another.
    fn rebalance(&self) {
        for (watched, number) in self.surplus(ServerLoad::long_running) {
            watched.server.moving.ask(number);
        }
        for (watched, number) in self.surplus(ServerLoad::connections) {
            watched.server.moving_connections.set(number);
        }
    }

    /// How many of what is counted each server gives away in this period.
    fn surplus(&self, count: fn(&ServerLoad) -> u32) -> impl Iterator<Item = (&Watched, u32)> {
        let held = |watched: &Watched| Held {
            number: count(&watched.server.load),
            capacity: watched.server.load.capacity(),
        };
        let held: Vec<_> = self.watched.iter().map(held).collect();
        let all: u32 = held.iter().map(|held| held.number).sum();
        let moved = surplus(&held, (all / MOVED_PART).max(1));
        self.watched.iter().zip(moved)
    }
}

/// Resolves the names of which each address is a server. Addresses that are new are added, those that are gone take no new requests, and
/// are forgotten when nothing runs there. Where a name cannot be resolved, what was known stays.
pub async fn resolve(servers: &UpstreamServers) {
    let resolved = |server: &ConfiguredServer| server.is_resolved;
    let names = servers.configured.iter().enumerate();
    for (group, configured) in names.filter(|(_, server)| resolved(server)) {
        let found = timeout(
            configured.endpoint.connect_timeout(),
            dial::resolve(&configured.endpoint),
        );
        let found = found.await.unwrap_or_else(|_elapsed| {
            let url = Arc::clone(configured.endpoint.url());
            Err(DialError::TimedOut { url })
        });
        configured.endpoint.note(found.as_ref().err());
        take(servers, group, &configured.endpoint, found);
    }
    servers.set_parts();
    servers.publish();
}

/// Takes the addresses that were found for a name.
fn take(
    servers: &UpstreamServers,
    group: usize,
    endpoint: &crate::endpoint::Endpoint,
    found: Found,
) {
    let addresses = match found {
        Ok(addresses) if !addresses.is_empty() => addresses,
        _ => return,
    };
    let list = servers.list.load_full();
    let mut next: Vec<Arc<UpstreamServer>> = Vec::with_capacity(list.len() + 1);
    let is_found = |server: &UpstreamServer| {
        let address = server.endpoint.fixed();
        server.group != group || address.is_some_and(|address| addresses.contains(&address))
    };
    for server in &*list {
        let listed = is_found(server);
        let was_listed = server
            .is_listed
            .swap(listed, std::sync::atomic::Ordering::Relaxed);
        if listed != was_listed {
            server.apply_health(servers.clock.now());
            log_condition(server);
        }
        let is_used = server.load.in_use() > 0 || server.load.long_running() > 0;
        if listed || is_used {
            next.push(Arc::clone(server));
        }
    }
    for address in addresses {
        let is_known = |server: &Arc<UpstreamServer>| {
            server.group == group && server.endpoint.fixed() == Some(address)
        };
        if next.iter().any(is_known) {
            continue;
        }
        let now = servers.clock.now();
        // The first addresses may have all their seats at once: there are no others that could serve meanwhile.
        let health = if list.is_empty() {
            Health::new(now)
        } else {
            Health::added(now)
        };
        let endpoint = endpoint.at_address(address);
        tracing::info!(server = %endpoint.name(), name = %endpoint.authority(), "an address of an API server was found");
        let places = Arc::clone(&servers.places);
        next.push(Arc::new(UpstreamServer::new(
            endpoint, 1, group, health, places,
        )));
    }
    servers.list.store(Arc::new(next));
    servers.places.wake();
}
