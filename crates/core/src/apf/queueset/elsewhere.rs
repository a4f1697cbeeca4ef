//! What happens at other gateways of a fleet: flows are charged for what they received there, so that a flow which uses several gateways
//! gets one share and not one at each, and tenants weigh the less the more flows they have there.
//!
//! Not here: what that is (the crate `fairgate-fleet`).

use std::time::Duration;

use super::{QueueSet, QueueSetEvents};
use crate::{
    apf::{
        spec::Semantics,
        units::{SeatSeconds, Seats},
    },
    time::Time,
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

/// What happens in one level at the other gateways of a fleet. Flows and tenants are named by their hashes.
#[derive(Clone, Debug, Default)]
pub struct LevelElsewhere {
    /// Flows, and the seat-milliseconds that they received there since the last time.
    pub received: Vec<(u64, u64)>,
    /// Tenants, and the active flows that they have there. All others have none.
    pub tenants: Vec<(u64, u32)>,
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

    /// What happens at the other gateways of the fleet, from `now` on. Then dispatches what fits now, since tenants may weigh more or
    /// less. O(charges · log flows), and O(flows + tenants) if tenants differ from the last time. Only Improved knows flows and tenants.
    pub(crate) fn note_elsewhere(
        &mut self,
        now: Time,
        elsewhere: &LevelElsewhere,
        events: &mut QueueSetEvents<W>,
    ) {
        let tenants = elsewhere.tenants.iter().copied();
        if self.semantics == Semantics::Compatible {
            // For the time when it knows tenants.
            self.flows.set_elsewhere(tenants);
            return;
        }
        for (flow, seat_millis) in &elsewhere.received {
            self.charge_elsewhere(*flow, *seat_millis);
        }
        if self.flows.tenants().are_elsewhere(&elsewhere.tenants) {
            return;
        }
        // Virtual time up to now passed under the weights before.
        self.advance(now, events);
        if self.flows.set_elsewhere(tenants) {
            self.reweighed(events);
        }
    }

    /// The flow with this hash received so much at other gateways. It is charged only while requests wait: otherwise there are seats
    /// for all. O(log flows).
    fn charge_elsewhere(&mut self, hash: u64, seat_millis: u64) {
        let flow = self.flows.find(hash).filter(|_| self.sums.waiting > 0);
        let Some(flow) = flow else {
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
