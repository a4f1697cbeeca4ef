//! The requests of one core that are waiting or executing.
//!
//! The dispatcher knows a request by a [`Waiter`], a small copy that names its core, a slot there,
//! and the slot's generation. When a request has gone its slot's generation changes, so a decision
//! that comes too late is recognised as such.

use std::{
    rc::{Rc, Weak},
    sync::Arc,
    task::Waker,
};

use fairgate_call::Pipe;
use fairgate_core::{
    apf::level::{Level, Ticket},
    digest::RequestDigest,
    time::Time,
};

/// Names a request to the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The core that serves it.
    pub core: u16,
    /// Its slot there.
    pub slot: u32,
    /// Which of the slot's requests.
    pub generation: u32,
}

/// All slots of a core.
#[derive(Debug)]
pub(super) struct Slots {
    core: u16,
    all: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    digest: Option<Arc<RequestDigest>>,
    /// When it asked to be admitted.
    since: Time,
    waker: Option<Waker>,
    granted: Option<Ticket<Waiter>>,
    /// The ticket it executes by, and until when it may keep it.
    held: Option<(Ticket<Waiter>, Time)>,
    /// Its answer, once that has begun.
    answer: Option<Weak<Pipe>>,
}

/// A request whose time is up.
pub(super) struct Overdue {
    pub(super) ticket: Ticket<Waiter>,
    pub(super) answer: Option<Rc<Pipe>>,
}

/// An answer on its way, and the level whose seats it holds.
pub(super) struct OnItsWay {
    pub(super) answer: Rc<Pipe>,
    pub(super) level: Level<Waiter>,
    pub(super) digest: Option<Arc<RequestDigest>>,
}

impl Slots {
    pub(super) fn new(core: u16) -> Self {
        Self {
            core,
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes a slot for a request that asks to be admitted now.
    pub(super) fn take(&mut self, digest: &Arc<RequestDigest>, now: Time) -> Waiter {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(Slot::default());
            u32::try_from(self.all.len() - 1).expect("a core has fewer than 2^32 requests")
        });
        let taken = &mut self.all[slot as usize];
        taken.digest = Some(Arc::clone(digest));
        taken.since = now;
        Waiter {
            core: self.core,
            slot,
            generation: taken.generation,
        }
    }

    /// Gives the slot up. Returns a ticket that was granted and not yet fetched.
    pub(super) fn give_back(&mut self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        let slot = self.get(waiter)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.digest = None;
        slot.waker = None;
        slot.answer = None;
        let unfetched = slot.granted.take();
        self.free.push(waiter.slot);
        unfetched
    }

    /// Grants a waiting request its ticket. The ticket comes back if the request has gone.
    pub(super) fn grant(
        &mut self,
        waiter: Waiter,
        ticket: Ticket<Waiter>,
    ) -> Result<Option<Waker>, Ticket<Waiter>> {
        let Some(slot) = self.get(waiter) else {
            return Err(ticket);
        };
        debug_assert!(slot.granted.is_none(), "a request is granted one ticket");
        slot.granted = Some(ticket);
        Ok(slot.waker.take())
    }

    /// The ticket granted to a waiting request; without one, `waker` is woken when it comes.
    pub(super) fn fetch(&mut self, waiter: Waiter, waker: &Waker) -> Option<Ticket<Waiter>> {
        let slot = self.get(waiter)?;
        if slot.granted.is_none() {
            slot.waker = Some(waker.clone());
        }
        slot.granted.take()
    }

    /// Wakes all who wait.
    pub(super) fn wake_all(&mut self) {
        let wakers: Vec<Waker> = self
            .all
            .iter_mut()
            .filter_map(|slot| slot.waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The ticket granted to a request, if it is there.
    pub(super) fn fetch_now(&mut self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        self.get(waiter)?.granted.take()
    }

    /// Keeps the ticket of a request that executes, at most until `until`. It comes back if the
    /// request has gone.
    pub(super) fn hold(
        &mut self,
        waiter: Waiter,
        ticket: Ticket<Waiter>,
        until: Time,
    ) -> Result<(), Ticket<Waiter>> {
        let Some(slot) = self.get(waiter) else {
            return Err(ticket);
        };
        debug_assert!(slot.held.is_none(), "a request executes by one ticket");
        slot.held = Some((ticket, until));
        Ok(())
    }

    /// The ticket a request executes by, unless it was taken from it.
    pub(super) fn take_held(&mut self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        Some(self.get(waiter)?.held.take()?.0)
    }

    /// A request may keep its ticket until `until`, and not as long as it was to.
    pub(super) fn hold_until(&mut self, waiter: Waiter, until: Time) {
        if let Some(held) = self.get(waiter).and_then(|slot| slot.held.as_mut()) {
            held.1 = until;
        }
    }

    /// The answer to a request has begun.
    pub(super) fn answered(&mut self, waiter: Waiter, answer: &Rc<Pipe>) {
        if let Some(slot) = self.get(waiter) {
            slot.answer = Some(Rc::downgrade(answer));
        }
    }

    /// Takes the tickets that were to be given back before `now`. O(slots).
    pub(super) fn take_overdue(&mut self, now: Time) -> Vec<Overdue> {
        let is_overdue = |held: &mut (Ticket<Waiter>, Time)| held.1 <= now;
        let overdue = |slot: &mut Slot| {
            let (ticket, _) = slot.held.take_if(is_overdue)?;
            let answer = slot.answer.as_ref().and_then(Weak::upgrade);
            Some(Overdue { ticket, answer })
        };
        self.all.iter_mut().filter_map(overdue).collect()
    }

    /// The answers on their way that hold seats. O(slots).
    pub(super) fn on_their_way(&self) -> Vec<OnItsWay> {
        let on_its_way = |slot: &Slot| {
            let answer = slot.answer.as_ref()?.upgrade()?;
            let level = slot.held.as_ref()?.0.level().clone();
            let digest = slot.digest.clone();
            Some(OnItsWay {
                answer,
                level,
                digest,
            })
        };
        self.all.iter().filter_map(on_its_way).collect()
    }

    /// What is known of a request, if it is still here.
    pub(super) fn digest(&self, waiter: Waiter) -> Option<Arc<RequestDigest>> {
        let slot = self.all.get(waiter.slot as usize)?;
        (slot.generation == waiter.generation)
            .then(|| slot.digest.clone())
            .flatten()
    }

    /// When a request asked to be admitted, if it is still here.
    pub(super) fn since(&self, waiter: Waiter) -> Option<Time> {
        let slot = self.all.get(waiter.slot as usize)?;
        (slot.generation == waiter.generation && slot.digest.is_some()).then_some(slot.since)
    }

    fn get(&mut self, waiter: Waiter) -> Option<&mut Slot> {
        let slot = self.all.get_mut(waiter.slot as usize)?;
        (slot.generation == waiter.generation && slot.digest.is_some()).then_some(slot)
    }
}
