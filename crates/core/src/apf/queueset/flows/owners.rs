//! Which of the tenants with requests in a flow owns it.
//!
//! Not here: what it weighs for that ([`super::super::tenants`]).

use super::{FlowTable, NONE};
use crate::apf::units::SeatSeconds;

impl FlowTable {
    /// A request of `tenant` comes to a flow. The request is then to be pushed or to hold seats. A new tenant has received as much as
    /// others have at virtual time `now`.
    pub(in crate::apf::queueset) fn join(&mut self, number: u32, tenant: u64, now: SeatSeconds) {
        let flow = &self.all[number as usize];
        let owner = flow.owner;
        let is_owners = owner != NONE && self.tenants.hash(owner) == tenant;
        if flow.is_idle() {
            if !is_owners {
                self.own(number, tenant, now);
                let flow = &mut self.all[number as usize];
                let received = self.tenants.received(flow.owner);
                flow.start = flow.start.max(received.min(now));
            }
            let flow = &mut self.all[number as usize];
            flow.owners_requests = 1;
            return;
        }
        if !is_owners {
            // A tenant with many flows does not become the owner: a request of it in the namespace of another
            // tenant would take that one's weight away.
            if !self.owns_fewer(tenant, owner) {
                self.guests.add(number, tenant, 1);
                return;
            }
            self.hand_over(number, tenant, now);
        }
        let flow = &mut self.all[number as usize];
        flow.owners_requests += 1;
    }

    /// A request of `tenant` that joined has left. If it was the last of the owner's, the tenant of another one becomes the owner.
    pub(in crate::apf::queueset) fn part(&mut self, number: u32, tenant: u64, now: SeatSeconds) {
        let flow = &mut self.all[number as usize];
        if self.tenants.hash(flow.owner) != tenant {
            self.guests.leave(number, tenant);
            return;
        }
        flow.owners_requests -= 1;
        if flow.owners_requests > 0 || flow.is_idle() {
            return;
        }
        if let Some(tenant) = self.lightest_guest(number) {
            self.hand_over(number, tenant, now);
        }
    }

    /// Whether `tenant` would own fewer flows with one more than `owner` does, so that the flow weighs more if it is the owner.
    fn owns_fewer(&self, tenant: u64, owner: u32) -> bool {
        self.tenants.flows_of(tenant) + 1 < self.tenants.flows(owner)
    }

    /// The tenant that owns the fewest flows, of those with requests in a flow of another one.
    fn lightest_guest(&self, number: u32) -> Option<u64> {
        let guests = self.guests.some_of(number);
        guests.min_by_key(|tenant| self.tenants.flows_of(*tenant))
    }

    /// An active flow has another owner from now on.
    fn hand_over(&mut self, number: u32, tenant: u64, now: SeatSeconds) {
        let flow = &self.all[number as usize];
        let (owner, requests) = (flow.owner, flow.owners_requests);
        self.guests.add(number, self.tenants.hash(owner), requests);
        self.tenants.deactivate(owner);
        self.own(number, tenant, now);
        let flow = &mut self.all[number as usize];
        flow.owners_requests = self.guests.take(number, tenant);
        self.tenants.activate(flow.owner);
    }

    /// There is an event: whether flows that wait in places which are not by the weight of their tenants any more are to be looked
    /// for now.
    pub(in crate::apf::queueset) fn is_time_to_place(&mut self) -> bool {
        self.tenants.is_time_to_place(self.all.len())
    }

    /// Whether a flow waits in such a place.
    pub(in crate::apf::queueset) fn is_misplaced(&self, number: u32) -> bool {
        let flow = &self.all[number as usize];
        flow.waiting > 0 && self.tenants.is_misplaced(flow.owner)
    }

    /// If another tenant with requests in a flow owns fewer than the owner, who may have had few when they came, it becomes the
    /// owner.
    pub(in crate::apf::queueset) fn reconsider_owner(&mut self, number: u32, now: SeatSeconds) {
        let flow = &self.all[number as usize];
        if flow.owners_requests == flow.waiting + flow.holding {
            return;
        }
        let guest = self.lightest_guest(number);
        if let Some(tenant) = guest.filter(|tenant| self.owns_fewer(*tenant, flow.owner)) {
            self.hand_over(number, tenant, now);
        }
    }

    /// All flows are in their places.
    pub(in crate::apf::queueset) fn are_placed(&mut self) {
        self.tenants.are_placed();
    }

    /// The flow, which is not counted as active, has another owner from now on.
    fn own(&mut self, number: u32, tenant: u64, now: SeatSeconds) {
        let owner = self.tenants.acquire(tenant, now);
        let flow = &mut self.all[number as usize];
        // What earlier owners' requests hold is the new owner's from now on: the weight that they are compared with
        // is, too.
        self.tenants.hold(owner, 0, flow.seats);
        if flow.owner != NONE {
            self.tenants.hold(flow.owner, flow.seats, 0);
            self.tenants.release(flow.owner);
        }
        flow.owner = owner;
        flow.owners_requests = 0;
        // 0 says of a request that it has not started.
        flow.ownership = flow.ownership.wrapping_add(1).max(1);
        let own = self.drained.get(&number).copied();
        let drained = self.tenants.drained(owner);
        let drained = own.map_or(drained, |own| own.max(drained));
        if drained > now {
            self.drained.insert(number, drained);
        } else {
            self.drained.remove(&number);
        }
    }
}
