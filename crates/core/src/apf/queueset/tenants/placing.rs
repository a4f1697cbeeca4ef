//! Which tenants have so many flows, or so few, that these are to be placed anew.
//!
//! Not here: how that is done ([`super::super::fair`]).

use super::{KnownTenant, TenantTable};

/// How many flows are looked at for one event, to find those that are to be placed anew. Bounds what that costs a request.
const LOOKED_AT: usize = 8;

impl TenantTable {
    /// The flows of a tenant are to be placed anew, since it has twice as many as when they were, or half.
    pub(super) fn misplace(&mut self, number: u32) {
        let tenant = &mut self.all[number as usize];
        tenant.note_placed();
        if !tenant.is_misplaced {
            tenant.is_misplaced = true;
            self.misplaced.push(number);
        }
    }

    /// There is an event: whether the flows of some tenants are to be placed anew now. That is so once there were so many events
    /// that it is [worth](LOOKED_AT) to look at all `flows`.
    pub(in crate::apf::queueset) fn is_time_to_place(&mut self, flows: usize) -> bool {
        if self.misplaced.is_empty() {
            return false;
        }
        self.events += 1;
        self.events as usize > flows / LOOKED_AT
    }

    /// Whether the flows of a tenant are to be placed anew.
    pub(in crate::apf::queueset) fn is_misplaced(&self, number: u32) -> bool {
        self.all[number as usize].is_misplaced
    }

    /// All flows are in their places.
    pub(in crate::apf::queueset) fn are_placed(&mut self) {
        for number in self.misplaced.drain(..) {
            self.all[number as usize].is_misplaced = false;
        }
        self.events = 0;
    }
}

impl KnownTenant {
    /// Its flows are placed, or will be before anything is dispatched.
    pub(super) fn note_placed(&mut self) {
        self.placed = u16::try_from(self.in_fleet).unwrap_or(u16::MAX);
    }
}
