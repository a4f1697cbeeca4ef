//! The requests of one core that wait or execute.
//!
//! The dispatcher knows a request by a [`Waiter`], a small value that names its core, its entry in the table
//! of that core, and the entry's generation. When a request is gone, the generation of its entry changes, so
//! that a decision which comes too late is recognised as such.

use std::{
    rc::{Rc, Weak},
    sync::Arc,
    task::Waker,
};

use fairgate_call::{BodyProgress, ReplyPipe};
use fairgate_core::{
    apf::level::{Level, Ticket},
    digest::RequestDigest,
    time::Time,
};

/// Identifies a request to the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The number of the core that serves the request.
    pub core: u16,
    /// The request's entry in that core's table.
    pub slot: u32,
    /// Distinguishes requests that use the same entry one after the other.
    pub generation: u32,
}

/// The waiting and executing requests of one core.
#[derive(Debug)]
pub(super) struct WaiterTable {
    core: u16,
    all: Vec<WaiterEntry>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct WaiterEntry {
    generation: u32,
    digest: Option<Arc<RequestDigest>>,
    /// When it arrived at the gate.
    since: Time,
    waker: Option<Waker>,
    granted: Option<Ticket<Waiter>>,
    /// Whether another request has taken its place in the queue.
    replaced: bool,
    /// The ticket of an executing request, and until when it may keep it.
    held: Option<(Ticket<Waiter>, Time)>,
    /// The reply, once it has begun.
    reply: Option<Weak<ReplyPipe>>,
    /// The body of an executing request, if it was not complete when the request got its seat.
    body: Option<Weak<BodyProgress>>,
}

/// What the dispatcher has decided about a waiting request.
#[derive(Debug)]
pub(super) enum WaitDecision {
    /// It may execute.
    Granted(Ticket<Waiter>),
    /// It is refused, because another one has taken its place.
    Replaced,
}

/// A request that has held its seat for too long.
pub(super) struct Overdue {
    pub(super) ticket: Ticket<Waiter>,
    pub(super) reply: Option<Rc<ReplyPipe>>,
}

/// A reply in progress, and the level whose seats it holds.
pub(super) struct ReplyInProgress {
    pub(super) reply: Rc<ReplyPipe>,
    pub(super) level: Level<Waiter>,
    pub(super) digest: Option<Arc<RequestDigest>>,
    /// The request's entry in the table of its core.
    pub(super) index: usize,
}

impl ReplyInProgress {
    /// The name of the user who gets it.
    pub(super) fn user(&self) -> &str {
        let user = self.digest.as_ref().map(|digest| &*digest.user.name);
        user.unwrap_or_default()
    }
}

/// A body whose client still sends it while its request holds seats of a level.
pub(super) struct BodyInProgress {
    pub(super) body: Rc<BodyProgress>,
    pub(super) level: Level<Waiter>,
    pub(super) digest: Option<Arc<RequestDigest>>,
}

impl WaiterTable {
    pub(super) fn new(core: u16) -> Self {
        Self {
            core,
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds a request that arrives now.
    pub(super) fn insert(&mut self, digest: &Arc<RequestDigest>, now: Time) -> Waiter {
        // Entries are used again, so the table is as long as the core ever had requests at a time.
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(WaiterEntry::default());
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

    /// Removes a request. Returns a ticket that it was granted and has not taken.
    pub(super) fn remove(&mut self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        let slot = self.get(waiter)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.digest = None;
        slot.waker = None;
        slot.reply = None;
        slot.body = None;
        slot.replaced = false;
        let untaken = slot.granted.take();
        self.free.push(waiter.slot);
        untaken
    }

    /// Grants a waiting request its ticket, and returns its waker. The ticket is returned if the request no longer
    /// exists.
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

    /// A waiting request is refused, because another one has taken its place. Returns its waker; nothing happens if it no
    /// longer exists.
    pub(super) fn replace(&mut self, waiter: Waiter) -> Option<Waker> {
        let slot = self.get(waiter)?;
        debug_assert!(slot.granted.is_none(), "what is granted does not wait");
        slot.replaced = true;
        slot.waker.take()
    }

    /// Whether another request has taken the place of this one.
    pub(super) fn is_replaced(&mut self, waiter: Waiter) -> bool {
        self.get(waiter).is_some_and(|slot| slot.replaced)
    }

    /// The decision about a waiting request; without one, `waker` is woken when there is one.
    pub(super) fn take_decision_or_register(
        &mut self,
        waiter: Waiter,
        waker: &Waker,
    ) -> Option<WaitDecision> {
        let slot = self.get(waiter)?;
        if slot.replaced {
            return Some(WaitDecision::Replaced);
        }
        if slot.granted.is_none() {
            slot.waker = Some(waker.clone());
        }
        slot.granted.take().map(WaitDecision::Granted)
    }

    /// Wakes all waiting requests.
    pub(super) fn wake_all(&mut self) {
        let wakers: Vec<Waker> = self
            .all
            .iter_mut()
            .filter_map(|slot| slot.waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The ticket granted to a request, if there is one.
    pub(super) fn take_granted(&mut self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        self.get(waiter)?.granted.take()
    }

    /// Keeps the ticket of an executing request, at most until `until`. The ticket comes back if the
    /// request is gone.
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

    /// The ticket of an executing request, unless it was taken away as overdue.
    pub(super) fn take_held(&mut self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        Some(self.get(waiter)?.held.take()?.0)
    }

    /// Replaces the time until which a request may keep its ticket.
    pub(super) fn set_deadline(&mut self, waiter: Waiter, until: Time) {
        if let Some(held) = self.get(waiter).and_then(|slot| slot.held.as_mut()) {
            held.1 = until;
        }
    }

    /// The reply to a request has begun.
    pub(super) fn set_reply(&mut self, waiter: Waiter, reply: &Rc<ReplyPipe>) {
        if let Some(slot) = self.get(waiter) {
            slot.reply = Some(Rc::downgrade(reply));
        }
    }

    /// The client of an executing request still sends its body.
    pub(super) fn set_body(&mut self, waiter: Waiter, body: &Rc<BodyProgress>) {
        if let Some(slot) = self.get(waiter) {
            slot.body = Some(Rc::downgrade(body));
        }
    }

    /// The bodies in progress of requests that hold seats. O(entries).
    pub(super) fn bodies_in_progress(&self) -> Vec<BodyInProgress> {
        let in_progress = |slot: &WaiterEntry| {
            Some(BodyInProgress {
                body: slot.body.as_ref()?.upgrade()?,
                level: slot.held.as_ref()?.0.level().clone(),
                digest: slot.digest.clone(),
            })
        };
        self.all.iter().filter_map(in_progress).collect()
    }

    /// Takes the tickets that should have been returned by `now`. O(entries).
    pub(super) fn take_overdue(&mut self, now: Time) -> Vec<Overdue> {
        let is_overdue = |held: &mut (Ticket<Waiter>, Time)| held.1 <= now;
        let overdue = |slot: &mut WaiterEntry| {
            let (ticket, _) = slot.held.take_if(is_overdue)?;
            let reply = slot.reply.as_ref().and_then(Weak::upgrade);
            Some(Overdue { ticket, reply })
        };
        self.all.iter_mut().filter_map(overdue).collect()
    }

    /// The replies in progress that hold seats. O(entries).
    pub(super) fn replies_in_progress(&self) -> Vec<ReplyInProgress> {
        let in_progress = |(index, slot): (usize, &WaiterEntry)| {
            let reply = slot.reply.as_ref()?.upgrade()?;
            let level = slot.held.as_ref()?.0.level().clone();
            let digest = slot.digest.clone();
            Some(ReplyInProgress {
                reply,
                level,
                digest,
                index,
            })
        };
        self.all
            .iter()
            .enumerate()
            .filter_map(in_progress)
            .collect()
    }

    /// The seats that a request holds, by its place among those of the core; 0 if it is gone.
    pub(super) fn seats_at(&self, index: usize) -> u32 {
        let held = self.all.get(index).and_then(|slot| slot.held.as_ref());
        held.map_or(0, |(ticket, _)| ticket.seats())
    }

    /// The digest of a request, if it is still here.
    pub(super) fn digest(&self, waiter: Waiter) -> Option<Arc<RequestDigest>> {
        let slot = self.all.get(waiter.slot as usize)?;
        (slot.generation == waiter.generation)
            .then(|| slot.digest.clone())
            .flatten()
    }

    /// When a request arrived at the gate, if it still exists.
    pub(super) fn since(&self, waiter: Waiter) -> Option<Time> {
        let slot = self.all.get(waiter.slot as usize)?;
        (slot.generation == waiter.generation && slot.digest.is_some()).then_some(slot.since)
    }

    fn get(&mut self, waiter: Waiter) -> Option<&mut WaiterEntry> {
        let slot = self.all.get_mut(waiter.slot as usize)?;
        (slot.generation == waiter.generation && slot.digest.is_some()).then_some(slot)
    }
}
