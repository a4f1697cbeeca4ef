//! The flows without requests that are remembered, in the order in which they became idle.
//!
//! So many are remembered in all; what is beyond that is forgotten, the longest idle first. Flows of a tenant that has more idle
//! flows than it may weigh stand in a list of their own, and as long as that has more than half of the places, they are forgotten
//! before all others. So who has a new name for each request takes the place of his own names, not those of clients that only pause.
//!
//! Not here: what is remembered of a flow ([`super::flows`]).

use super::NONE;

/// The maximum number of flows without requests that are remembered.
pub(super) const MAX_IDLE: usize = 1024;

/// All idle flows, by their numbers.
#[derive(Debug)]
pub(super) struct IdleFlows {
    /// Flows of tenants that have few of them.
    few: IdleList,
    /// Flows of tenants that have many.
    many: IdleList,
    /// Where each flow stands, by its number. What is said of a flow that is not idle has no meaning.
    places: Vec<IdlePlace>,
}

#[derive(Clone, Copy, Debug)]
struct IdleList {
    oldest: u32,
    newest: u32,
    len: usize,
}

/// The neighbours of an idle flow in its list, and which that is.
#[derive(Clone, Copy, Debug)]
struct IdlePlace {
    older: u32,
    newer: u32,
    is_one_of_many: bool,
}

impl IdleFlows {
    pub(super) const fn new() -> Self {
        Self {
            few: IdleList::EMPTY,
            many: IdleList::EMPTY,
            places: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.few.len + self.many.len
    }

    /// The flow that is to be forgotten next, if too many are idle.
    pub(super) fn superfluous(&self) -> Option<u32> {
        if self.len() <= MAX_IDLE {
            return None;
        }
        Some(if self.many.len > MAX_IDLE / 2 {
            self.many.oldest
        } else {
            self.few.oldest
        })
    }

    /// A flow is idle from now on; `is_one_of_many` says whether its tenant has many that are.
    pub(super) fn append(&mut self, number: u32, is_one_of_many: bool) {
        let list = self.list(is_one_of_many);
        let newest = std::mem::replace(&mut list.newest, number);
        list.len += 1;
        match newest {
            NONE => list.oldest = number,
            newest => self.places[newest as usize].newer = number,
        }
        let place = IdlePlace {
            older: newest,
            newer: NONE,
            is_one_of_many,
        };
        // Numbers are given in their order, and given again.
        match self.places.get_mut(number as usize) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
    }

    /// An idle flow is idle or known no longer.
    pub(super) fn remove(&mut self, number: u32) {
        let place = self.places[number as usize];
        let list = self.list(place.is_one_of_many);
        list.len -= 1;
        match place.older {
            NONE => list.oldest = place.newer,
            older => self.places[older as usize].newer = place.newer,
        }
        let list = self.list(place.is_one_of_many);
        match place.newer {
            NONE => list.newest = place.older,
            newer => self.places[newer as usize].older = place.older,
        }
    }

    fn list(&mut self, is_one_of_many: bool) -> &mut IdleList {
        if is_one_of_many {
            &mut self.many
        } else {
            &mut self.few
        }
    }
}

impl IdleList {
    const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
        len: 0,
    };
}
