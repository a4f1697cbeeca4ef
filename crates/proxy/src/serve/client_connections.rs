//! How many client connections are open: in the process, on each core, and of each address.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use super::{
    core_load::CoreLoad,
    limited_address::limited_address,
    opening::{OpeningConnection, OpeningConnections},
};
use fairgate_core::sync::{Mutex, lock};

/// The client connections of the process.
#[derive(Debug)]
pub struct ClientConnections {
    open: AtomicUsize,
    /// How many of them are parked.
    parked: AtomicUsize,
    /// How many accept connections, of which some may be in the kernel's queue.
    accepting: AtomicUsize,
    most_open: AtomicUsize,
    rejected: AtomicU64,
    pub(super) limit: usize,
    addresses: Option<AddressLimit>,
    opening: OpeningConnections,
    ended: Notify,
}

/// A limit of the connections of each client address.
#[derive(Debug)]
struct AddressLimit {
    limit: usize,
    /// Addresses without connections are not in it.
    open: Mutex<BTreeMap<IpAddr, usize>>,
}

impl ClientConnections {
    /// At most `limit` connections are open at a time, and `per_address` from one address.
    pub fn new(limit: usize, per_address: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            accepting: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            rejected: AtomicU64::new(0),
            limit: limit.max(1),
            addresses: per_address.map(|limit| AddressLimit {
                limit: limit.max(1),
                open: Mutex::default(),
            }),
            opening: OpeningConnections::default(),
            ended: Notify::new(),
        })
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Idle connections that keep their socket, and no buffers.
    pub fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// The most connections that were ever open at a time.
    pub fn most_open(&self) -> usize {
        self.most_open.load(Ordering::Relaxed)
    }

    /// Connections closed because the process was short of descriptors.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Counts a connection that was closed because the process was short of descriptors.
    pub(super) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections are accepted until the value is dropped.
    pub(super) fn accepting(self: &Arc<Self>) -> Accepting {
        self.accepting.fetch_add(1, Ordering::Relaxed);
        Accepting(Arc::clone(self))
    }

    /// Completes when no connection is open, and none is accepted any more.
    pub async fn all_ended(&self) {
        self.until(|| self.open() == 0 && self.accepting.load(Ordering::Relaxed) == 0)
            .await;
    }

    /// One that is being opened is closed for another, if there is one.
    pub(super) fn make_room(&self) {
        self.opening.give_up_one();
    }

    /// Completes when fewer than `limit` connections are open.
    pub(super) async fn below(&self, limit: usize) {
        self.until(|| self.open() < limit).await;
    }

    /// Completes when `holds`, which may begin when something has ended.
    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before it looks: a connection that ends in between would be missed.
            ended.as_mut().enable();
            if holds() {
                return;
            }
            ended.await;
        }
    }
}

/// Says, until it is dropped, that more connections may be accepted.
#[derive(Debug)]
pub(super) struct Accepting(Arc<ClientConnections>);

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

impl AddressLimit {
    /// Counts a connection from `address`; `false` if it has too many already.
    fn add(&self, address: IpAddr) -> bool {
        let mut open = lock(&self.open);
        let connections = open.entry(address).or_default();
        let fits = *connections < self.limit;
        *connections += usize::from(fits);
        fits
    }

    /// Counts a connection for which another one is about to end.
    fn add_instead(&self, address: IpAddr) {
        *lock(&self.open).entry(address).or_default() += 1;
    }

    fn remove(&self, address: IpAddr) {
        let mut open = lock(&self.open);
        if let Some(connections) = open.get_mut(&address) {
            *connections -= 1;
            if *connections == 0 {
                open.remove(&address);
            }
        }
    }
}

/// Counts a connection as open, in the process, on its core and of its address, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    connections: Arc<ClientConnections>,
    load: Arc<CoreLoad>,
    address: IpAddr,
    /// Until it is open.
    opening: Option<OpeningConnection>,
}

impl CountedConnection {
    /// `None` if there are too many connections from this address, and all of them are open. If one of them is still being
    /// opened, that is given up for this one.
    pub(super) fn new(
        connections: Arc<ClientConnections>,
        load: Arc<CoreLoad>,
        from: IpAddr,
    ) -> Option<Self> {
        let address = limited_address(from);
        if let Some(addresses) = &connections.addresses
            && !addresses.add(address)
        {
            if !connections.opening.give_up_of(address) {
                return None;
            }
            addresses.add_instead(address);
        }
        let open = connections.open.fetch_add(1, Ordering::Relaxed) + 1;
        connections.most_open.fetch_max(open, Ordering::Relaxed);
        load.add_connection();
        let opening = connections.opening.add(address);
        Some(Self {
            connections,
            load,
            address,
            opening: Some(opening),
        })
    }

    /// Completes when the connection is to be closed for another one, which does not happen once it is open.
    pub(super) async fn given_up(&self) {
        match &self.opening {
            Some(opening) => opening.given_up().await,
            None => std::future::pending().await,
        }
    }

    /// Counts the connection as parked until the value is dropped.
    pub(super) fn park(&self) -> ParkedConnection<'_> {
        self.connections.parked.fetch_add(1, Ordering::Relaxed);
        ParkedConnection(&self.connections)
    }

    /// The connection is open.
    pub(super) fn opened(&mut self) {
        self.opening = None;
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.load.remove_connection();
        if let Some(addresses) = &self.connections.addresses {
            addresses.remove(self.address);
        }
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
        self.connections.ended.notify_waiters();
    }
}

/// Counts a connection as parked.
pub(super) struct ParkedConnection<'a>(&'a ClientConnections);

impl Drop for ParkedConnection<'_> {
    fn drop(&mut self) {
        self.0.parked.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn not_all_have_ended_while_some_may_be_in_the_queue_of_the_kernel() {
        let connections = ClientConnections::new(10, None);
        let accepting = connections.accepting();
        let mut ended = is_complete(connections.all_ended());
        assert!(!ended());
        let load = Arc::new(CoreLoad::default());
        let address = "10.0.0.1".parse().unwrap();
        let last = CountedConnection::new(connections.clone(), load, address);
        drop(accepting);
        assert!(!ended());
        drop(last);
        assert!(ended());
    }

    /// Polls a future, and says whether it is complete.
    fn is_complete(future: impl Future<Output = ()>) -> impl FnMut() -> bool {
        let mut future = Box::pin(future);
        move || {
            let mut cx = Context::from_waker(Waker::noop());
            future.as_mut().poll(&mut cx).is_ready()
        }
    }

    #[test]
    fn each_address_has_a_share_and_an_ipv6_network_counts_as_one() {
        let connections = ClientConnections::new(10, Some(2));
        let load = Arc::new(CoreLoad::default());
        let connect = |address: &str| {
            let address = address.parse().unwrap();
            let mut counted = CountedConnection::new(connections.clone(), load.clone(), address)?;
            counted.opened();
            Some(counted)
        };
        let first = connect("10.0.0.1");
        let mapped = connect("::ffff:10.0.0.1");
        assert!(first.is_some() && mapped.is_some() && connect("10.0.0.1").is_none());
        let network = [connect("2001:db8::1"), connect("2001:db8::2:3:4:5")];
        assert!(network.iter().all(Option::is_some) && connect("2001:db8::6").is_none());
        let other = connect("2001:db8:0:1::1");
        assert!(other.is_some());
        assert_eq!(connections.open(), 5);
        drop(first);
        assert!(connect("10.0.0.1").is_some());
        drop((mapped, network, other));
        assert_eq!(connections.open(), 0);
        assert!(lock(&connections.addresses.as_ref().unwrap().open).is_empty());
    }
}
