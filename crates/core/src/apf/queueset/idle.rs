//! The flows without requests that are remembered, in the order in which they became idle.
//!
//! So many are remembered in all; what is beyond that is forgotten, the longest idle first. Flows of a tenant that has more idle
//! flows than it may weigh stand in a list of their own, and as long as that has more than half of the places, they are forgotten
//! before all others. So who has a new name for each request takes the place of his own names, not those of clients that only pause.
//!
//! Not here: what is remembered of a flow ([`super::flows`]).

use super::{NONE, flows::FlowState};

/// The maximum number of flows without requests that are remembered.
pub(super) const MAX_IDLE: usize = 1024;

/// The neighbours of an idle flow in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdlePlace {
    older: u32,
    newer: u32,
}

impl IdlePlace {
    pub(super) const NOWHERE: Self = Self {
        older: NONE,
        newer: NONE,
    };
}

/// All idle flows. The lists are threaded through them.
#[derive(Debug)]
pub(super) struct IdleFlows {
    /// Flows of tenants that have few of them.
    few: IdleList,
    /// Flows of tenants that have many.
    many: IdleList,
}

#[derive(Debug)]
struct IdleList {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl IdleFlows {
    pub(super) const EMPTY: Self = Self {
        few: IdleList::EMPTY,
        many: IdleList::EMPTY,
    };

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
    pub(super) fn append(&mut self, all: &mut [FlowState], number: u32, is_one_of_many: bool) {
        let list = self.list(is_one_of_many);
        let newest = std::mem::replace(&mut list.newest, number);
        list.len += 1;
        match newest {
            NONE => list.oldest = number,
            newest => all[newest as usize].idle.newer = number,
        }
        let flow = &mut all[number as usize];
        flow.is_one_of_many = is_one_of_many;
        flow.idle = IdlePlace {
            older: newest,
            newer: NONE,
        };
    }

    /// An idle flow is idle or known no longer.
    pub(super) fn remove(&mut self, all: &mut [FlowState], number: u32) {
        let flow = &all[number as usize];
        let place = flow.idle;
        let list = self.list(flow.is_one_of_many);
        list.len -= 1;
        match place.older {
            NONE => list.oldest = place.newer,
            older => all[older as usize].idle.newer = place.newer,
        }
        match place.newer {
            NONE => list.newest = place.older,
            newer => all[newer as usize].idle.older = place.older,
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
