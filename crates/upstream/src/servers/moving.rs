//! Watches of one server that are to move to others: each asks when it has something to do, and ends if it is one of them.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU32, Ordering},
    task::{Context, Waker},
};

use fairgate_core::sync::{Mutex, lock};

/// How many are still to move.
#[derive(Debug, Default)]
pub(crate) struct Wanted(AtomicU32);

impl Wanted {
    /// So many are to move from now on, instead of those asked for earlier.
    pub(crate) fn set(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }

    /// Whether the one that asks is to move.
    pub(crate) fn take_one(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
            && self
                .0
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |wanted| {
                    wanted.checked_sub(1)
                })
                .is_ok()
    }
}

/// How many watches of a server are still to end.
#[derive(Debug, Default)]
pub(crate) struct MovingWatches {
    wanted: Wanted,
    /// How often some were asked to end: places from before that may be gone.
    rounds: AtomicU32,
    /// The watches that can be woken, the one that has waited longest first.
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    wakers: VecDeque<(u64, Waker)>,
    next: u64,
}

/// The place of a watch among those that can be woken.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    round: u32,
    waker: Waker,
}

impl MovingWatches {
    /// So many of the server's watches are to end from now on, instead of those asked for earlier.
    pub(crate) fn ask(&self, number: u32) {
        self.wanted.set(number);
        if number == 0 {
            return;
        }
        self.rounds.fetch_add(1, Ordering::AcqRel);
        let mut idle = lock(&self.idle);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let number = number.min(idle.wakers.len());
        let woken: Vec<_> = idle.wakers.drain(..number).collect();
        drop(idle);
        for (_, waker) in woken {
            waker.wake();
        }
    }

    /// Whether the watch that asks is to end now. If not, the task of `cx` is woken when one is to end. Takes a lock only if
    /// the watch has no place yet, or its task is another, or some were asked to end meanwhile.
    pub(crate) fn takes(&self, place: &mut Option<Place>, cx: &Context<'_>) -> bool {
        if self.wanted.take_one() {
            return true;
        }
        let round = self.rounds.load(Ordering::Acquire);
        let keeps = |place: &Place| place.round == round && place.waker.will_wake(cx.waker());
        if place.as_ref().is_some_and(keeps) {
            return false;
        }
        self.leave(place);
        let mut idle = lock(&self.idle);
        let id = idle.next;
        idle.next += 1;
        let waker = cx.waker().clone();
        idle.wakers.push_back((id, waker.clone()));
        drop(idle);
        *place = Some(Place { id, round, waker });
        // One may have been asked for in between.
        self.wanted.take_one()
    }

    /// A watch has ended, or takes another place.
    pub(crate) fn leave(&self, place: &mut Option<Place>) {
        let Some(Place { id, .. }) = place.take() else {
            return;
        };
        let mut idle = lock(&self.idle);
        if let Ok(index) = idle.wakers.binary_search_by_key(&id, |(id, _)| *id) {
            idle.wakers.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicUsize},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn as_many_watches_end_as_are_asked_for_and_only_those_are_woken() {
        let moving = MovingWatches::default();
        let woken: Vec<_> = (0..5).map(|_| Arc::<Count>::default()).collect();
        let wakers: Vec<_> = woken
            .iter()
            .map(|count| Waker::from(Arc::clone(count)))
            .collect();
        let mut places: Vec<Option<Place>> = (0..5).map(|_| None).collect();
        let ended = |places: &mut Vec<Option<Place>>| -> usize {
            let polled = places.iter_mut().zip(&wakers);
            polled
                .map(|(place, waker)| moving.takes(place, &Context::from_waker(waker)))
                .filter(|ends| *ends)
                .count()
        };
        let times = || -> usize {
            woken
                .iter()
                .map(|count| count.0.load(Ordering::Relaxed))
                .sum()
        };
        assert_eq!(ended(&mut places), 0);
        moving.leave(&mut places[0]);
        moving.ask(2);
        assert_eq!((times(), woken[0].0.load(Ordering::Relaxed)), (2, 0));
        assert_eq!(ended(&mut places), 2);
        // What is no longer wanted does not end the next.
        moving.ask(9);
        moving.ask(0);
        assert_eq!(ended(&mut places), 0);
        for place in &mut places {
            moving.leave(place);
        }
        assert!(lock(&moving.idle).wakers.is_empty());
    }
}
