//! How many audited requests of a core are evaluated at a time, or read what is stored for that.
//!
//! Who waits for the upstream's answer has no place: a slow upstream does not keep the requests of others from being evaluated. Nobody has all
//! places, so what one user's requests read does not either.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{Arc, Weak},
};

use fairgate_core::digest::User;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many there are.
const PLACES: usize = 256;
/// How many of them a user may have.
const OF_USER: usize = PLACES / 4;

/// The places of a core.
#[derive(Debug)]
pub(crate) struct AuditPlaces {
    all: Arc<Semaphore>,
    by_user: RefCell<HashMap<String, Weak<Semaphore>>>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct AuditPlace {
    _one: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _user: PlacesOfUser,
}

/// The places of a user, who has some or waits for one.
#[derive(Debug)]
struct PlacesOfUser {
    places: Rc<AuditPlaces>,
    user: Arc<User>,
    own: Option<Arc<Semaphore>>,
}

impl AuditPlaces {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            all: Arc::new(Semaphore::new(PLACES)),
            by_user: RefCell::default(),
        })
    }

    /// How many are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        PLACES - self.all.available_permits()
    }

    /// A place for a request of `user`; `None` if none is free.
    pub(crate) fn try_take(self: &Rc<Self>, user: &Arc<User>) -> Option<AuditPlace> {
        let (of_user, semaphore) = self.of(user);
        let own = semaphore.try_acquire_owned().ok()?;
        let one = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(AuditPlace {
            _one: one,
            _own: own,
            _user: of_user,
        })
    }

    /// A place for a request of `user`, as soon as one is free; `None` never, as long as this exists.
    pub(crate) async fn take(self: Rc<Self>, user: Arc<User>) -> Option<AuditPlace> {
        let (of_user, semaphore) = self.of(&user);
        let own = semaphore.acquire_owned().await.ok()?;
        let one = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(AuditPlace {
            _one: one,
            _own: own,
            _user: of_user,
        })
    }

    fn of(self: &Rc<Self>, user: &Arc<User>) -> (PlacesOfUser, Arc<Semaphore>) {
        let mut by_user = self.by_user.borrow_mut();
        let known = by_user.get(&*user.name).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            let own = Arc::new(Semaphore::new(OF_USER));
            by_user.insert(user.name.clone(), Arc::downgrade(&own));
            own
        });
        let of_user = PlacesOfUser {
            places: Rc::clone(self),
            user: Arc::clone(user),
            own: Some(Arc::clone(&own)),
        };
        (of_user, own)
    }
}

impl Drop for PlacesOfUser {
    fn drop(&mut self) {
        self.own = None;
        let mut by_user = self.places.by_user.borrow_mut();
        let own = by_user.get(&*self.user.name);
        if own.is_some_and(|own| own.strong_count() == 0) {
            by_user.remove(&*self.user.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_user_has_a_part_of_the_places_and_waits_for_more() {
        let places = AuditPlaces::new();
        let user = |name: &str| Arc::new(User::new(name, [User::AUTHENTICATED]));
        let all_of = |name: &str| {
            let user = user(name);
            std::iter::from_fn(|| places.try_take(&user)).collect::<Vec<AuditPlace>>()
        };
        let mut alice = all_of("alice");
        assert_eq!(alice.len(), OF_USER);
        let waiting = Rc::clone(&places).take(user("alice"));
        let freeing = async {
            tokio::task::yield_now().await;
            assert_eq!(places.taken(), OF_USER);
            alice.pop()
        };
        let (taken, freed) = tokio::join!(
            async {
                let place = waiting.await;
                (places.taken(), place)
            },
            async { drop(freeing.await) }
        );
        assert_eq!((taken.0, freed), (OF_USER, ()));
        let others = ["bob", "carol", "dave"].map(all_of);
        assert_eq!(others.iter().map(Vec::len).sum::<usize>(), 3 * OF_USER);
        assert!(places.try_take(&user("eve")).is_none(), "all are taken");
        drop((taken, alice, others));
        assert_eq!(places.taken(), 0);
        assert!(places.by_user.borrow().is_empty());
    }
}
