//! A bounded number of places for connections, in which new ones are preferred to old ones.
//!
//! Where anybody may connect and whoever asks has to be answered at once, the ones that wait must be
//! the idle. Nobody is ever refused a place: if all are taken, the oldest connection that no request
//! is being answered on has to go, or else the oldest of all.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use fairgate_core::sync::{Mutex, lock};

/// Places for connections. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by_age: BTreeMap<u64, Arc<State>>,
}

#[derive(Debug, Default)]
struct State {
    busy: AtomicBool,
    given_up: AtomicBool,
    notify: Notify,
}

/// A connection's place. Dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: Places,
    age: u64,
    state: Arc<State>,
}

impl Places {
    /// So many places; at least one.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            most: most.max(1),
            taken: Mutex::default(),
        }))
    }

    /// A place, and whether another connection had to go for it. Looks at all places at most.
    pub fn take(&self) -> (Place, bool) {
        let mut taken = lock(&self.0.taken);
        let full = taken.by_age.len() >= self.0.most;
        if full {
            let oldest = taken.idle().or_else(|| taken.by_age.keys().next().copied());
            taken.give_up(oldest);
        }
        let age = taken.next;
        taken.next += 1;
        let state = Arc::<State>::default();
        taken.by_age.insert(age, Arc::clone(&state));
        let place = Place {
            places: self.clone(),
            age,
            state,
        };
        (place, full)
    }

    /// Has the oldest connection go that no request is being answered on. False if there is none.
    pub fn give_up_an_idle_one(&self) -> bool {
        let mut taken = lock(&self.0.taken);
        let idle = taken.idle();
        taken.give_up(idle)
    }
}

impl Taken {
    fn idle(&self) -> Option<u64> {
        let mut idle = self.by_age.iter().filter(|(_, state)| !state.is_busy());
        idle.next().map(|(age, _)| *age)
    }

    fn give_up(&mut self, age: Option<u64>) -> bool {
        let Some(state) = age.and_then(|age| self.by_age.remove(&age)) else {
            return false;
        };
        state.given_up.store(true, Ordering::Release);
        state.notify.notify_one();
        true
    }
}

impl State {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

impl Place {
    /// Tells whether a request is being answered here.
    pub fn set_busy(&self, busy: bool) {
        self.state.busy.store(busy, Ordering::Release);
    }

    /// Completes when the connection has to go.
    pub async fn given_up(&self) {
        while !self.state.given_up.load(Ordering::Acquire) {
            self.state.notify.notified().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.0.taken).by_age.remove(&self.age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_given_up(place: &Place) -> bool {
        place.state.given_up.load(Ordering::Acquire)
    }

    #[test]
    fn a_new_one_takes_the_place_of_the_oldest_idle_one() {
        let places = Places::new(3);
        let all: Vec<_> = (0..3).map(|_| places.take()).collect();
        assert!(!all.iter().any(|(_, crowded)| *crowded));
        all[0].0.set_busy(true);
        let (fourth, crowded) = places.take();
        assert!(crowded);
        let gone: Vec<_> = all.iter().map(|(place, _)| is_given_up(place)).collect();
        assert_eq!(gone, [false, true, false]);
        all[2].0.set_busy(true);
        fourth.set_busy(true);
        assert!(!places.give_up_an_idle_one(), "all are busy");
        let (_fifth, crowded) = places.take();
        assert!(crowded && is_given_up(&all[0].0), "then the oldest of all");
    }

    #[test]
    fn a_place_that_was_given_back_is_free() {
        let places = Places::new(1);
        drop(places.take());
        assert!(!places.take().1);
    }
}
