//! What flows weigh, and what they hold for their weight.
//!
//! Not here: where weights come from ([`super::super::tenants`]).

use super::{FlowTable, Weight};
use crate::apf::units::Seats;

impl FlowTable {
    /// `amount`, divided by what all active flows weigh together; by 1 if none is active.
    pub(in crate::apf::queueset) fn divide_by_weight(&self, amount: u64) -> u64 {
        self.tenants.divide_by_all(amount)
    }

    /// Whether a line of this length, its waiting requests for its weight, has its part of `all`.
    pub(in crate::apf::queueset) fn has_part(&self, length: u64, all: u64) -> bool {
        // Lengths are rounded down: with a fractional weight, the only flow would fall just short of its part.
        let rounded = u64::from(!self.tenants.are_weights_whole());
        self.tenants.times_all(length.saturating_add(rounded)) >= all
    }

    /// `amount` times what all active flows weigh together, rounded up.
    pub(in crate::apf::queueset) fn times_weight(&self, amount: u64) -> u64 {
        self.tenants.times_all(amount)
    }

    /// Changes what the flows of one tenant weigh together at most. The caller reorders the flows. O(tenants).
    pub(in crate::apf::queueset) fn set_tenant_weight(&mut self, tenant_weight: u32) {
        self.tenants.set_allowance(tenant_weight);
    }

    /// The tenants with these hashes have so many active flows at other gateways; all others have none. Whether a
    /// flow weighs something else for it. O(tenants).
    pub(in crate::apf::queueset) fn set_elsewhere(
        &mut self,
        flows: impl IntoIterator<Item = (u64, u32)>,
    ) -> bool {
        self.tenants.set_elsewhere(flows)
    }

    /// The weight of an active flow.
    pub(in crate::apf::queueset) fn weight_of(&self, number: u32) -> Weight {
        self.tenants.weight_of(self.all[number as usize].owner)
    }

    /// The seats that an active flow holds with `more`, in sixteenths, for its weight: its own, or if it weighs less than 1, those that
    /// all flows of its tenant hold.
    pub(in crate::apf::queueset) fn held_for_weight(&self, number: u32, more: Seats) -> u64 {
        let flow = &self.all[number as usize];
        if self.tenants.weight_of(flow.owner) == Weight::ONE {
            return 16 * (u64::from(flow.seats) + u64::from(more));
        }
        let seats = u64::from(self.tenants.seats(flow.owner)) + u64::from(more);
        self.tenants.divide_by_weight_of(flow.owner, 16 * seats)
    }

    /// The seats that all flows of the tenant of an active flow hold, in sixteenths, for what they weigh together.
    pub(in crate::apf::queueset) fn held_by_tenant(&self, number: u32) -> u64 {
        let owner = self.all[number as usize].owner;
        let seats = 16 * u64::from(self.tenants.seats(owner));
        self.tenants.divide_by_weight_of(owner, seats)
    }

    /// The seats of an active flow that linger, in sixteenths, for its weight; if it weighs less than 1, all that its tenant holds.
    pub(in crate::apf::queueset) fn lingering_for_weight(&self, number: u32) -> u64 {
        let flow = &self.all[number as usize];
        match self.tenants.weight_of(flow.owner) {
            Weight::ONE => 16 * u64::from(flow.seats - flow.executing),
            _ => self.held_for_weight(number, 0),
        }
    }

    /// The least that [`Self::held_for_weight`] can be, whatever the other flows of the tenant hold.
    pub(in crate::apf::queueset) fn least_held_for_weight(&self, number: u32, more: Seats) -> u64 {
        let flow = &self.all[number as usize];
        let seats = 16 * (u64::from(flow.seats) + u64::from(more));
        // All that a tenant can weigh, now or when more of its flows are active.
        seats / u64::from(self.tenants.allowance())
    }

    /// The weight of one more active flow of this tenant.
    pub(in crate::apf::queueset) fn weight_of_another(&self, tenant: u64) -> Weight {
        self.tenants.weight_of_another(tenant)
    }
}
