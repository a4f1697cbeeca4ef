//! How many requests wait for the resources of the upstream: a bounded number, of which a user may have at most as many as are still free.

use std::{collections::HashMap, sync::Arc};

use fairgate_core::sync::{Mutex, MutexGuard, lock};

/// How many requests may wait in all.
const PLACES: usize = 1024;

/// The places of all data cores.
#[derive(Debug, Default)]
pub(crate) struct WaitingPlaces(Mutex<TakenPlaces>);

#[derive(Debug, Default)]
struct TakenPlaces {
    all: usize,
    by_user: HashMap<String, usize>,
}

/// A place of a user, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    places: Arc<WaitingPlaces>,
    user: String,
}

impl WaitingPlaces {
    /// A place for a request of `user`; `None` if there is none left.
    pub(crate) fn take(self: &Arc<Self>, user: &str) -> Option<WaitingPlace> {
        let mut taken = self.taken();
        let own = taken.by_user.get(user).copied().unwrap_or_default();
        if own >= PLACES - taken.all {
            return None;
        }
        taken.all += 1;
        *taken.by_user.entry(user.to_owned()).or_default() += 1;
        Some(WaitingPlace {
            places: Arc::clone(self),
            user: user.to_owned(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, TakenPlaces> {
        lock(&self.0)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        let own = taken.by_user.get_mut(&self.user);
        let is_last = own.is_none_or(|own| {
            *own -= 1;
            *own == 0
        });
        if is_last {
            taken.by_user.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_as_many_places_as_are_left_for_all() {
        let places = Arc::<WaitingPlaces>::default();
        let of =
            |user: &str| std::iter::from_fn(|| places.take(user)).collect::<Vec<WaitingPlace>>();
        let alice = of("alice");
        assert_eq!(alice.len(), PLACES / 2);
        let bob = of("bob");
        assert_eq!(bob.len(), PLACES / 4);
        drop(alice);
        assert_eq!(of("carol").len(), (PLACES - bob.len()) / 2);
        drop(bob);
        assert_eq!(places.taken().all, 0);
        assert!(places.taken().by_user.is_empty());
    }
}
