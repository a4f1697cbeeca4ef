//! Charges for what flows received at other gateways of a fleet, so that a flow which uses several gateways gets one share and not
//! one at each.
//!
//! Not here: what they received (the crate `fairgate-fleet`).

use std::time::Duration;

use super::QueueSet;
use crate::apf::{
    spec::Semantics,
    units::{SeatSeconds, Seats},
};

/// How far ahead of virtual time a flow can get by charges: by as much as it receives in this time. So a flow never waits for
/// longer because of what it has received elsewhere, however much that was.
const FARTHEST_AHEAD: Duration = Duration::from_secs(1);

/// What one flow uses and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowUse {
    /// The keyed hash of schema and flow distinguisher.
    pub flow: u64,
    /// The keyed hash of the tenant that owns it.
    pub tenant: u64,
    /// Seats in use.
    pub in_use: Seats,
    /// Seats in use, and those that waiting requests ask for.
    pub demand: Seats,
}

impl<W: Copy> QueueSet<W> {
    /// The flows that use or ask for seats, of the first `most` that are known; in arbitrary order. Only Improved knows flows.
    /// O(`most` + their waiting requests).
    pub fn flow_uses(&self, most: usize) -> impl Iterator<Item = FlowUse> {
        let active = self.flows.iter().take(most);
        let active = active.filter(|flow| flow.owner != super::NONE);
        let active = active.filter(|flow| flow.holding + flow.waiting > 0);
        active.map(|flow| FlowUse {
            flow: flow.hash,
            tenant: self.flows.tenants().hash(flow.owner),
            in_use: flow.seats,
            demand: flow.demand(&self.entries),
        })
    }

    /// The flow with this hash received so much at other gateways. It is charged only while requests wait: otherwise there are seats
    /// for all. O(log flows).
    pub(crate) fn charge_elsewhere(&mut self, hash: u64, seat_millis: u64) {
        let flow = self.flows.find(hash).filter(|_| self.sums.waiting > 0);
        let Some(flow) = flow.filter(|_| self.semantics == Semantics::Improved) else {
            return;
        };
        let millis = Duration::from_millis(seat_millis);
        let work = SeatSeconds::product(1, millis);
        let charged = self.flows.weight_of(flow).divide(work.units());
        let now = self.virtual_time.r().units();
        let farthest = now.saturating_add(self.received_in(FARTHEST_AHEAD.into()));
        let known = self.flows.at_mut(flow);
        let start = known.start.units();
        let charged = start.saturating_add(charged).min(farthest.max(start));
        known.start = SeatSeconds::from_units(charged);
        known.fresh &= charged <= now;
        self.settle_flow(flow);
    }
}
