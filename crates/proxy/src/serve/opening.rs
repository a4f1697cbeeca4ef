//! Connections that are being opened: nothing has come yet, or their TLS handshake is not complete.
//!
//! Such a connection costs a client nothing, so it gives way: where connections are short, the oldest of the address that has most of
//! them is closed for a new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fairgate_core::sync::{Mutex, lock};
use tokio::sync::Notify;

/// The connections that are being opened. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpeningConnections(Arc<Mutex<Opening>>);

#[derive(Debug, Default)]
struct Opening {
    next: u64,
    by_address: BTreeMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
    /// How many an address has, the most last.
    by_number: BTreeSet<(usize, IpAddr)>,
}

/// One that is being opened, until this is dropped.
#[derive(Debug)]
pub(super) struct OpeningConnection {
    all: OpeningConnections,
    address: IpAddr,
    number: u64,
    given_up: Arc<Notify>,
}

impl OpeningConnections {
    pub(super) fn add(&self, address: IpAddr) -> OpeningConnection {
        let given_up = Arc::<Notify>::default();
        let mut opening = lock(&self.0);
        let number = opening.next;
        opening.next += 1;
        opening.change(address, |of_address| {
            of_address.insert(number, Arc::clone(&given_up));
        });
        OpeningConnection {
            all: self.clone(),
            address,
            number,
            given_up,
        }
    }

    /// Gives up the oldest one of an address. Returns `false` if it has none.
    pub(super) fn give_up_of(&self, address: IpAddr) -> bool {
        let mut given_up = None;
        lock(&self.0).change(address, |of_address| {
            given_up = of_address.pop_first();
        });
        if let Some((_, oldest)) = &given_up {
            oldest.notify_one();
        }
        given_up.is_some()
    }

    /// Gives up the oldest one of the address that has most. Returns `false` if there is none.
    pub(super) fn give_up_one(&self) -> bool {
        let most = lock(&self.0).by_number.last().copied();
        most.is_some_and(|(_, address)| self.give_up_of(address))
    }
}

impl Opening {
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeMap<u64, Arc<Notify>>)) {
        let of_address = self.by_address.entry(address).or_default();
        let before = of_address.len();
        change(of_address);
        let now = of_address.len();
        if now == 0 {
            self.by_address.remove(&address);
        }
        if now != before {
            self.by_number.remove(&(before, address));
            if now > 0 {
                self.by_number.insert((now, address));
            }
        }
    }
}

impl OpeningConnection {
    /// Completes when the connection is to be closed for another one.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for OpeningConnection {
    fn drop(&mut self) {
        let number = self.number;
        lock(&self.all.0).change(self.address, |of_address| {
            of_address.remove(&number);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn is_given_up(one: &OpeningConnection) -> bool {
        let given_up = pin!(one.given_up());
        given_up
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn the_oldest_of_the_address_with_most_is_given_up() {
        let all = OpeningConnections::default();
        let [few, many] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let first = all.add(few);
        let mut flood: Vec<_> = (0..10).map(|_| all.add(many)).collect();
        for _ in 0..9 {
            assert!(all.give_up_one());
        }
        let given_up: Vec<_> = flood.iter().map(is_given_up).collect();
        let expected: Vec<_> = (0..10).map(|number| number < 9).collect();
        assert_eq!(given_up, expected);
        assert!(!is_given_up(&first));
        // One that is open is not given up any more.
        drop(flood.pop());
        assert!(!all.give_up_of(many));
        assert!(all.give_up_one() && is_given_up(&first) && !all.give_up_one());
        drop((first, flood));
        let opening = lock(&all.0);
        assert!(opening.by_address.is_empty() && opening.by_number.is_empty());
    }
}
