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
    servers::{UpstreamServer, UpstreamServers, log_condition},
};
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::Seats,
    servers::{
        hanging::Hanging,
        health::{EjectionReason, Health, ServerProbe, ServerState},
        load::ServerLoad,
        outcomes::PeriodOutcomes,
        rebalance::{Held, leaving, surplus},
        slowness::ShortestTime,
    },
    sync::lock,
    time::Time,
};

/// How often servers are probed and compared.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after a resolution names are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// How many periods are looked at for servers that answer with errors only.
const ERROR_PERIODS: usize = 3;
/// How many errors without any other answer in these periods are too many; and how many answers make another server a good one.
const MANY: u64 = 10;
/// At most this part of all watches, and of all client connections, moves in a period: one in a hundred, and at least one.
const MOVED_PART: u32 = 100;
/// The longest answer to a probe that is read, in bytes.
const MAX_PROBE_BYTES: usize = 64 << 10;

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
    hanging: Hanging,
    /// How long the last probe took. Requests of one client may all be expensive; a server that answers probes fast is not slow.
    probe_took: Duration,
}

impl Watched {
    fn new(server: &Arc<UpstreamServer>, credentials: &HeaderSource) -> Self {
        let endpoint = server.endpoint().clone();
        let credentials = Arc::clone(credentials);
        Self {
            client: ApiClient::new(endpoint, credentials, ConnectionReuse::Pooled),
            server: Arc::clone(server),
            periods: Default::default(),
            hanging: Hanging::default(),
            probe_took: Duration::ZERO,
        }
    }

    /// Asks the server whether it is ready. Returns how long that took, too.
    async fn probe(&self, clock: &Clock) -> (ServerProbe, Duration) {
        let begun = clock.now();
        let result = self.ask().await;
        (result, clock.now().since(begun))
    }

    async fn ask(&self) -> ServerProbe {
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

    /// A probe ended, after so long.
    fn probed(&mut self, servers: &UpstreamServers, result: ServerProbe, took: Duration) {
        let now = servers.clock.now();
        let changed = lock(&self.server.health).probed(now, result);
        if changed {
            // What was sent before says nothing about how it is now.
            self.hanging = Hanging::default();
            self.periods = Default::default();
            self.server.load.take_outcomes();
        }
        servers.after(&self.server, changed);
        self.server.apply_health(now);
        self.probe_took = took;
    }

    /// Whether at least two users got errors in the last periods: one client's errors say nothing about the server.
    fn errors_hit_several(&self) -> bool {
        let users = self.periods.iter();
        let users = users.fold(0_u64, |users, period| users | period.users_with_errors);
        users.count_ones() > 1
    }

    /// Answers and errors of the last periods, with the requests that it ended alone.
    fn recent(&self) -> (u64, u64) {
        let sum = |of: fn(&PeriodOutcomes) -> u64| self.periods.iter().map(of).sum();
        let errors = sum(|period| period.errors + period.resets);
        (sum(|period| period.answers), errors)
    }

    /// Why it is to be ejected if another server is well: its probes succeed and its requests do not.
    fn failure(&self) -> Option<EjectionReason> {
        let (answers, errors) = self.recent();
        let is_on_trial = lock(&self.server.health).is_on_trial();
        if answers == 0 && errors >= MANY && self.errors_hit_several() {
            Some(EjectionReason::OnlyErrors)
        } else if self.hanging.is_hanging(is_on_trial) {
            Some(EjectionReason::Hanging)
        } else {
            None
        }
    }

    fn shortest(&self) -> Option<ShortestTime> {
        let last = self.periods.last()?;
        let probe = u64::try_from(self.probe_took.as_nanos()).unwrap_or(u64::MAX);
        Some(ShortestTime {
            answers: last.answers,
            nanos: last.shortest_nanos?.min(probe),
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

    /// Probes once a second, and resolves names again beside that: names that are resolved slowly delay no probe.
    pub async fn run(self) {
        let servers = Arc::clone(&self.servers);
        tokio::join!(resolve_again(&servers), self.watch());
    }

    async fn watch(mut self) {
        let mut period = tokio::time::interval(PERIOD);
        // Outcomes are compared by period: periods that were missed must not follow each other at once.
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            self.probe_all().await;
            self.compare();
            self.rebalance();
            self.servers.publish();
        }
    }

    /// Probes all servers side by side.
    async fn probe_all(&mut self) {
        self.follow_list();
        let clock = &self.servers.clock;
        let results = join_all(self.watched.iter().map(|watched| watched.probe(clock))).await;
        for (watched, (result, took)) in self.watched.iter_mut().zip(results) {
            watched.probed(&self.servers, result, took);
        }
    }

    /// Watches the servers that there are now, and no others.
    fn follow_list(&mut self) {
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
    }

    /// Compares how the requests of the servers ended in the last period.
    fn compare(&mut self) {
        for watched in &mut self.watched {
            watched.periods.rotate_left(1);
            let last = watched.server.load.take_outcomes();
            watched.periods[ERROR_PERIODS - 1] = last;
            watched.hanging.note(&last);
            if last.is_answering() {
                let changed = lock(&watched.server.health).answered(self.servers.clock.now());
                self.servers.after(&watched.server, changed);
            }
        }
        for (index, watched) in self.watched.iter().enumerate() {
            let others = || {
                let others = self.watched.iter().enumerate();
                others
                    .filter(|(other, _)| *other != index)
                    .map(|(_, other)| other)
            };
            let is_other_well = || {
                others().any(|other| {
                    let (answers, errors) = other.recent();
                    answers >= MANY && errors < answers
                })
            };
            let now = self.servers.clock.now();
            if let Some(reason) = watched.failure().filter(|_| is_other_well()) {
                let changed = lock(&watched.server.health).requests_fail(now, reason);
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

    /// Ends a few watches of servers that have too many, if another has too few, and those of servers that are lost; and has a few client
    /// connections prefer another.
    fn rebalance(&self) {
        let now = self.servers.clock.now();
        let is_any_open = self.servers.is_any_open();
        for (watched, number) in self.surplus(ServerLoad::long_running) {
            let is_lost = is_any_open && lock(&watched.server.health).is_lost(now);
            let number = if is_lost {
                leaving(watched.server.load.long_running())
            } else {
                number
            };
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
            capacity: part_to_hold(&watched.server),
        };
        let held: Vec<_> = self.watched.iter().map(held).collect();
        let all: u32 = held.iter().map(|held| held.number).sum();
        let moved = surplus(&held, (all / MOVED_PART).max(1));
        self.watched.iter().zip(moved)
    }
}

/// By how many seats the watches of a server are compared with those of others. A server that has just returned is to have its
/// part soon, and keeps what it has; one that is slow, or on trial, is to have less.
fn part_to_hold(server: &UpstreamServer) -> Seats {
    match server.load.capacity() {
        0 => 0,
        capacity if is_doubtful(server) => capacity,
        _ => server.load.seats(),
    }
}

fn is_doubtful(server: &UpstreamServer) -> bool {
    let condition = server.condition();
    condition.is_slow || condition.is_on_trial
}

async fn resolve_again(servers: &UpstreamServers) {
    if !servers.configured.iter().any(|server| server.is_resolved) {
        return;
    }
    loop {
        tokio::time::sleep(RESOLVE_EVERY).await;
        resolve(servers, Health::added).await;
    }
}

/// Resolves the names of which each address is a server, for the first time.
pub async fn resolve_first(servers: &UpstreamServers) {
    resolve(servers, Health::new).await;
}

/// Resolves the names of which each address is a server. Addresses that are new are added with this health, those that are gone take no
/// new requests, and are forgotten when nothing runs there. Where a name cannot be resolved, what was known stays.
async fn resolve(servers: &UpstreamServers, new_health: fn(Time) -> Health) {
    let names = servers.configured.iter().enumerate();
    let names = names.filter(|(_, server)| server.is_resolved);
    let found = join_all(names.map(|(group, server)| async move {
        let limit = server.endpoint.connect_timeout();
        let found = timeout(limit, dial::resolve(&server.endpoint)).await;
        let found = found.unwrap_or_else(|_elapsed| {
            let url = Arc::clone(server.endpoint.url());
            Err(DialError::TimedOut { url })
        });
        server.endpoint.note(found.as_ref().err());
        (group, found)
    }));
    for (group, found) in found.await {
        if let Ok(addresses) = found
            && !addresses.is_empty()
        {
            take(servers, group, &addresses, new_health);
        }
    }
    servers.set_parts();
    servers.publish();
}

/// Makes these the addresses of the name that is configured as the server `group`, as if they were found again: for tests of the whole
/// gateway, which cannot change what a name resolves to. O(servers).
pub fn set_addresses(servers: &UpstreamServers, group: usize, addresses: &[SocketAddr]) {
    take(servers, group, addresses, Health::added);
    servers.set_parts();
    servers.publish();
}

/// Takes the addresses that were found for a name.
fn take(
    servers: &UpstreamServers,
    group: usize,
    addresses: &[SocketAddr],
    new_health: fn(Time) -> Health,
) {
    let name = &servers.configured[group].endpoint;
    let list = servers.list.load_full();
    let mut next: Vec<Arc<UpstreamServer>> = Vec::with_capacity(list.len() + 1);
    let mut changed = Vec::new();
    let now = servers.clock.now();
    for server in &*list {
        if server.group != group {
            next.push(Arc::clone(server));
            continue;
        }
        let address = server.endpoint.fixed();
        let listed = address.is_some_and(|address| addresses.contains(&address));
        if listed != server.load.is_listed() {
            changed.push(Arc::clone(server));
        }
        let is_used = server.load.in_use() > 0 || server.load.long_running() > 0;
        if listed || is_used {
            next.push(Arc::clone(server));
        }
    }
    for address in addresses {
        let is_known = |server: &Arc<UpstreamServer>| {
            server.group == group && server.endpoint.fixed() == Some(*address)
        };
        if next.iter().any(is_known) {
            continue;
        }
        let endpoint = name.at_address(*address);
        tracing::info!(server = %endpoint.name(), name = %endpoint.authority(), "an address of an API server was found");
        let places = Arc::clone(&servers.places);
        let server = UpstreamServer::new(endpoint, 1, group, new_health(now), places);
        next.push(Arc::new(server));
    }
    servers.list.store(Arc::new(next));
    // Only now: requests that wait at an address that is gone look for another at once.
    for server in changed {
        server.load.set_listed(!server.load.is_listed());
        server.apply_health(now);
        log_condition(&server);
    }
    servers.places.wake();
}

#[cfg(test)]
mod tests {
    use fairgate_core::servers::load::HasLoad as _;

    use super::*;
    use crate::{
        endpoint::Endpoint,
        servers::{ConfiguredServer, Spread},
    };

    fn name(authority: &'static str) -> ConfiguredServer {
        ConfiguredServer {
            endpoint: Endpoint::new(http::uri::Authority::from_static(authority), None),
            seats: Some(10),
            is_resolved: true,
        }
    }

    fn found(servers: &UpstreamServers, group: usize, addresses: &[&str]) {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        take(servers, group, &addresses, Health::new);
        servers.set_parts();
    }

    /// The servers with their capacities.
    fn capacities(servers: &UpstreamServers) -> Vec<(String, Seats)> {
        let list = servers.list();
        let one =
            |server: &Arc<UpstreamServer>| (server.name().to_string(), server.load().capacity());
        list.iter().map(one).collect()
    }

    /// A monitor of so many servers of ten seats, with the clock that it looks at.
    fn monitor(servers: usize) -> (ServerMonitor, Clock) {
        let configured = ConfiguredServer {
            is_resolved: false,
            ..name("a:1")
        };
        let clock = Clock::manual(Time::ZERO);
        let configured = vec![configured; servers];
        let servers = UpstreamServers::new(configured, 10, Spread::Request, clock.clone());
        let mut monitor = ServerMonitor::new(servers, Arc::new(http::HeaderMap::new));
        monitor.follow_list();
        (monitor, clock)
    }

    fn probed(monitor: &mut ServerMonitor, server: usize, result: ServerProbe) {
        monitor.watched[server].probed(&monitor.servers, result, Duration::ZERO);
    }

    /// Ten answers of each of these statuses to two users, at the servers in this order.
    fn answer(monitor: &ServerMonitor, statuses: &[u16]) {
        for (watched, status) in monitor.watched.iter().zip(statuses) {
            for user in 0..10 {
                watched
                    .server
                    .answered(*status, Duration::from_millis(1), user % 2);
            }
        }
    }

    #[test]
    fn errors_from_before_a_server_was_away_do_not_eject_it_when_it_returns() {
        for while_away in [ServerProbe::Ready, ServerProbe::NotReady] {
            let (mut monitor, clock) = monitor(2);
            answer(&monitor, &[500, 200]);
            monitor.compare();
            let server = Arc::clone(&monitor.watched[0].server);
            assert_eq!(server.state(), ServerState::Ejected);
            clock.advance(PERIOD);
            probed(&mut monitor, 0, while_away);
            // Requests that were under way when it was ejected.
            answer(&monitor, &[500, 200]);
            monitor.compare();
            clock.advance(PERIOD);
            answer(&monitor, &[500, 200]);
            probed(&mut monitor, 0, ServerProbe::Ready);
            monitor.compare();
            let found = (server.state(), server.ejections());
            assert_eq!(found, (ServerState::Ready, 1), "{while_away:?}");
            // What comes afterwards counts.
            answer(&monitor, &[500, 200]);
            monitor.compare();
            assert_eq!(server.ejections(), 2, "{while_away:?}");
        }
    }

    /// The seats of all servers as they were last told.
    fn told(monitor: &ServerMonitor) -> Seats {
        *monitor.servers.total_seats().borrow()
    }

    #[test]
    fn a_server_that_has_just_returned_has_all_its_seats_once_no_other_takes_requests() {
        for reason in [EjectionReason::Failing, EjectionReason::Hanging] {
            let (mut monitor, clock) = monitor(2);
            let server = Arc::clone(&monitor.watched[0].server);
            let now = clock.now();
            let changed = lock(&server.health).requests_fail(now, reason);
            monitor.servers.after(&server, changed);
            clock.advance(3 * PERIOD);
            probed(&mut monitor, 0, ServerProbe::Ready);
            assert_eq!((server.load.capacity(), told(&monitor)), (1, 11));
            probed(&mut monitor, 1, ServerProbe::NotReady);
            assert_eq!((server.load.capacity(), told(&monitor)), (10, 10));
            assert!(server.condition().problem().is_none());
            // The other one returns while this one serves.
            probed(&mut monitor, 1, ServerProbe::Ready);
            assert_eq!(told(&monitor), 11);
            // A request finds that the first cannot be reached.
            monitor.servers.not_connected(&server);
            assert_eq!(told(&monitor), 10);
        }
    }

    #[test]
    fn an_address_that_is_gone_takes_nothing_new_whatever_another_name_resolves_to() {
        let names = vec![name("a:1"), name("b:1")];
        let servers = UpstreamServers::new(names, 20, Spread::Request, Clock::manual(Time::ZERO));
        found(&servers, 0, &["10.0.0.1:1", "10.0.0.2:1"]);
        found(&servers, 1, &["10.1.0.1:1"]);
        let all = [("10.0.0.1:1", 10), ("10.0.0.2:1", 10), ("10.1.0.1:1", 10)];
        assert_eq!(
            capacities(&servers),
            all.map(|(name, seats)| (name.to_owned(), seats))
        );
        // Something runs at the first.
        servers.list()[0].load().count_long_running(true);
        let first = Arc::clone(&servers.list()[0]);
        found(&servers, 0, &["10.0.0.2:1"]);
        found(&servers, 1, &["10.1.0.1:1"]);
        let gone = [("10.0.0.1:1", 0), ("10.0.0.2:1", 10), ("10.1.0.1:1", 10)];
        assert_eq!(
            capacities(&servers),
            gone.map(|(name, seats)| (name.to_owned(), seats))
        );
        first.load().count_long_running(false);
        found(&servers, 0, &["10.0.0.2:1"]);
        assert_eq!(capacities(&servers).len(), 2, "it is forgotten");
    }
}
