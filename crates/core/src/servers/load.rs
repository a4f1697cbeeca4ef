//! What a server has to do, and the choice of the least loaded one.

use std::sync::Arc as StdArc;

use super::{
    outcomes::{Outcomes, PeriodOutcomes},
    places::Places,
};
use crate::{
    apf::Seats,
    sync::{AtomicBool, AtomicU32, Ordering},
};

/// Set in [`ServerLoad::charged`] while requests wait for room at any server.
const WAITING: u32 = 1 << 31;
/// A server has at most so many seats.
const MOST_SEATS: Seats = WAITING - 1;

/// What one server has to do, shared by all cores. Reading and charging take no lock.
#[derive(Debug)]
pub struct ServerLoad {
    /// The seats that it was configured with.
    seats: AtomicU32,
    /// The seats that it may be charged now; 0 if it takes no requests.
    capacity: AtomicU32,
    /// Seats charged by requests that flow control limits, and [`WAITING`].
    charged: AtomicU32,
    /// Seats charged by other requests.
    unlimited: AtomicU32,
    /// Watches and other requests that run for long.
    long_running: AtomicU32,
    /// Client connections that prefer it.
    connections: AtomicU32,
    /// Whether its address is still one of its name.
    is_listed: AtomicBool,
    /// Whether a request that waits has claimed the next room here, so that others do not take it piece by piece.
    claimed: AtomicU32,
    outcomes: Outcomes,
    places: StdArc<Places>,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerDemand {
    /// The seats of the request.
    pub width: Seats,
    /// Whether the server's capacity limits it. It does not limit requests of exempt levels, nor any without enforcement.
    pub is_limited: bool,
    /// Whether it is a watch, or another request that runs for long: those are spread by their number.
    pub is_long_running: bool,
}

impl ServerLoad {
    /// A server of so many seats, all of which it may use. `places` is where requests wait for room at it or its fellows.
    pub fn new(seats: Seats, places: StdArc<Places>) -> Self {
        let seats = seats.clamp(1, MOST_SEATS);
        places.part.change_capacity(0, seats);
        Self {
            seats: AtomicU32::new(seats),
            capacity: AtomicU32::new(seats),
            charged: AtomicU32::new(0),
            unlimited: AtomicU32::new(0),
            long_running: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            is_listed: AtomicBool::new(true),
            claimed: AtomicU32::new(0),
            outcomes: Outcomes::default(),
            places,
        }
    }

    /// The seats that it was configured with.
    pub fn seats(&self) -> Seats {
        self.seats.load(Ordering::Relaxed)
    }

    /// Sets the seats that it is configured with. Its capacity stays as it is.
    pub fn set_seats(&self, seats: Seats) {
        self.seats
            .store(seats.clamp(1, MOST_SEATS), Ordering::Relaxed);
    }

    /// The seats that it may be charged now; 0 if it takes no requests.
    pub fn capacity(&self) -> Seats {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Lets it be charged so many seats from now on. What runs is not affected.
    pub fn set_capacity(&self, capacity: Seats) {
        let capacity = capacity.min(MOST_SEATS);
        // Less is news, too: who waits for this server has to wait for another, and where none is left all are tried.
        let before = self.capacity.swap(capacity, Ordering::AcqRel);
        if before != capacity {
            self.places.part.change_capacity(before, capacity);
            self.places.wake();
        }
    }

    /// Whether its address is still one of its name.
    pub fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Relaxed)
    }

    /// Says whether its address is one of its name from now on. If not, it is not tried where no server takes requests either, but that it takes
    /// none is up to [`set_capacity`](Self::set_capacity). Whether that changed.
    pub fn set_listed(&self, is_listed: bool) -> bool {
        self.is_listed.swap(is_listed, Ordering::Relaxed) != is_listed
    }

    /// It takes no new requests from now on.
    pub fn close(&self) {
        self.set_capacity(0);
    }

    /// Seats that requests under flow control have here.
    pub fn charged(&self) -> Seats {
        self.charged.load(Ordering::Relaxed) & !WAITING
    }

    /// Seats that all requests have here.
    pub fn in_use(&self) -> Seats {
        let unlimited = self.unlimited.load(Ordering::Relaxed);
        self.charged().saturating_add(unlimited)
    }

    /// Watches and other requests that run for long.
    pub fn long_running(&self) -> u32 {
        self.long_running.load(Ordering::Relaxed)
    }

    /// Client connections that prefer it.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts one more client connection that prefers it, or one less.
    pub fn count_connection(&self, is_begin: bool) {
        count(&self.connections, is_begin);
    }

    /// Counts one more request that runs for long, or one less.
    pub fn count_long_running(&self, is_begin: bool) {
        count(&self.long_running, is_begin);
    }

    /// The seats that it adds to those of all servers: its capacity, or what still runs if that is more.
    pub fn contribution(&self) -> Seats {
        self.capacity().max(self.charged().min(self.seats()))
    }

    /// The seats to go by: the part of its capacity that is this gateway's, or, where no server takes requests and all are tried that are
    /// listed, what it was configured with.
    fn room(&self, is_last_resort: bool) -> Seats {
        if is_last_resort && self.is_listed() {
            self.seats()
        } else {
            self.places.part.of(self.capacity())
        }
    }

    /// Charges it, if it has room. A request wider than the server has room where nothing is charged.
    fn try_charge(&self, demand: ServerDemand, is_last_resort: bool, has_claim: bool) -> bool {
        if !demand.is_limited {
            self.unlimited.fetch_add(demand.width, Ordering::AcqRel);
            return true;
        }
        if !has_claim && self.claimed.load(Ordering::Acquire) != 0 {
            return false;
        }
        let room = self.room(is_last_resort);
        let charged = self
            .charged
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                let charged = word & !WAITING;
                let after = charged.saturating_add(demand.width);
                let fits = after <= room || (charged == 0 && room > 0 && after <= MOST_SEATS);
                fits.then_some((word & WAITING) | after)
            });
        charged.is_ok()
    }

    /// Takes back a charge.
    fn release(&self, demand: ServerDemand) {
        if !demand.is_limited {
            self.unlimited.fetch_sub(demand.width, Ordering::AcqRel);
            return;
        }
        if self.charged.fetch_sub(demand.width, Ordering::AcqRel) & WAITING != 0 {
            self.places.wake();
        }
    }

    /// Makes the end of each request wake those that wait, or no longer.
    pub(super) fn set_waiting(&self, is_waiting: bool) {
        if is_waiting {
            self.charged.fetch_or(WAITING, Ordering::AcqRel);
        } else {
            self.charged.fetch_and(!WAITING, Ordering::AcqRel);
        }
    }

    /// Reserves the next room for one request that waits. False if another has it.
    pub(super) fn claim(&self) -> bool {
        self.claimed
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub(super) fn give_up_claim(&self) {
        self.claimed.swap(0, Ordering::AcqRel);
        self.places.wake();
    }

    /// How its requests end.
    pub fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// How requests ended since the last call, and which wait.
    pub fn take_outcomes(&self) -> PeriodOutcomes {
        let room = self.room(false);
        self.outcomes.take(room > 0 && self.charged() >= room)
    }

    /// How loaded it is for such a request: a fraction, as numerator and denominator.
    fn load_for(&self, demand: ServerDemand, room: Seats) -> (u64, u64) {
        let busy = if demand.is_long_running {
            self.long_running()
        } else {
            self.in_use()
        };
        (u64::from(busy), u64::from(room.max(1)))
    }
}

fn count(counter: &AtomicU32, is_begin: bool) {
    if is_begin {
        counter.fetch_add(1, Ordering::Relaxed);
    } else {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Something that has a [`ServerLoad`].
pub trait HasLoad {
    /// What the server has to do.
    fn load(&self) -> &ServerLoad;
}

/// A charge on a server, taken back when it is dropped.
#[derive(Debug)]
pub struct ServerCharge<S: HasLoad> {
    server: StdArc<S>,
    demand: ServerDemand,
}

impl<S: HasLoad> ServerCharge<S> {
    /// The server.
    pub fn server(&self) -> &StdArc<S> {
        &self.server
    }
}

impl<S: HasLoad> Drop for ServerCharge<S> {
    fn drop(&mut self) {
        self.server.load().release(self.demand);
    }
}

/// The result of a choice.
#[derive(Debug)]
pub enum Choice<S: HasLoad> {
    /// This server is charged.
    Charged(ServerCharge<S>),
    /// No server has room at the moment.
    Full,
    /// There is no server, or all were excluded.
    None,
}

/// How to choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preference<'a> {
    /// The index of the server to take if it takes requests and has room.
    pub first: Option<usize>,
    /// Indices of servers not to take.
    pub excluded: &'a [usize],
    /// Where to begin among equals.
    pub offset: usize,
}

/// Chooses the least loaded of `servers` that has room, and charges it. O(servers), no lock.
pub fn choose<S: HasLoad>(
    servers: &[StdArc<S>],
    demand: ServerDemand,
    preference: Preference<'_>,
) -> Choice<S> {
    choose_with_claim(servers, demand, preference, None)
}

/// As [`choose`], by a request that may have claimed the server at this index.
pub(super) fn choose_with_claim<S: HasLoad>(
    servers: &[StdArc<S>],
    demand: ServerDemand,
    preference: Preference<'_>,
    claim: Option<usize>,
) -> Choice<S> {
    let is_last_resort = takes_none(servers, preference.excluded);
    let usable = |index: &usize| {
        !preference.excluded.contains(index) && servers[*index].load().room(is_last_resort) > 0
    };
    let charge = |index: usize| {
        let server = &servers[index];
        let charged = server
            .load()
            .try_charge(demand, is_last_resort, claim == Some(index));
        charged.then(|| ServerCharge {
            server: StdArc::clone(server),
            demand,
        })
    };
    let first = preference.first.filter(|first| *first < servers.len());
    if let Some(charge) = first.filter(usable).and_then(charge) {
        return Choice::Charged(charge);
    }
    // A server that turns out to be full is not tried again.
    let mut full = smallvec::SmallVec::<[usize; 8]>::new();
    loop {
        let candidates = (0..servers.len())
            .map(|n| (n + preference.offset) % servers.len())
            .filter(|index| usable(index) && !full.contains(index));
        let least = candidates.min_by(|a, b| {
            let load = |index: usize| {
                let load = servers[index].load();
                load.load_for(demand, load.room(is_last_resort))
            };
            let ((busy_a, room_a), (busy_b, room_b)) = (load(*a), load(*b));
            (busy_a * room_b).cmp(&(busy_b * room_a))
        });
        match least {
            Some(index) => match charge(index) {
                Some(charge) => return Choice::Charged(charge),
                None => full.push(index),
            },
            None if full.is_empty() => return Choice::None,
            None => return Choice::Full,
        }
    }
}

/// Whether none of the servers that are not excluded takes requests, so that all are tried.
fn takes_none<S: HasLoad>(servers: &[StdArc<S>], excluded: &[usize]) -> bool {
    servers
        .iter()
        .enumerate()
        .all(|(index, server)| excluded.contains(&index) || server.load().capacity() == 0)
}

/// The seats of all servers together: what may execute. Where no server takes requests all are tried that are listed, with all their seats.
pub fn total_seats<S: HasLoad>(servers: &[StdArc<S>]) -> Seats {
    let takes_none = takes_none(servers, &[]);
    let seats = servers.iter().map(|server| {
        let load = server.load();
        if takes_none && load.is_listed() {
            load.seats()
        } else {
            load.contribution()
        }
    });
    seats.fold(0, Seats::saturating_add)
}
