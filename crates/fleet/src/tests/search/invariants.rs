//! What must hold after each step.

use super::{engine::Engine, world::World};
use crate::{
    book::Book,
    gateway::GatewayState,
    identity::{Epoch, Fence},
    settings::{Reclaim, Settings},
};

/// Which invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// More seats execute than the servers have (strict).
    Executing(u32, u32),
    /// More seats may be in use than the servers have.
    Granted(u32, u32),
    /// A ledger has an epoch that is not greater than the last.
    LedgerEpoch,
    /// A gateway went back to an older ledger.
    GatewayEpoch,
    /// A coordinator wrote after its successor.
    Fence,
    /// A gateway that is cut off has not exactly its floor.
    Floor(u32),
    /// The levels of a grant do not add up to it.
    Levels(u32, u32),
    /// Seats are not usable again in time.
    NotRecovered(u32, u32),
}

/// What was seen so far.
#[derive(Default)]
pub(super) struct Judge {
    /// A greater limit of the past that ledgers may still be made for.
    past_limit: u32,
    epoch: Epoch,
    fence: Fence,
    broken: Option<Violation>,
    /// By node: its run, and the epoch that it applied.
    epochs: Vec<(u64, Epoch)>,
}

impl Judge {
    pub(super) fn limit_changed(&mut self, before: u32) {
        self.past_limit = self.past_limit.max(before);
    }

    /// A ledger was stored by a coordinator that knew of `known_limit`.
    pub(super) fn ledger_written(
        &mut self,
        engine: &Engine,
        settings: &Settings,
        limit: u32,
        known_limit: u32,
    ) {
        let ledger = &engine.ledger.0;
        if ledger.epoch <= self.epoch {
            self.broken = Some(Violation::LedgerEpoch);
        }
        if ledger.fence < self.fence {
            self.broken = Some(Violation::Fence);
        }
        for entry in ledger
            .entries
            .iter()
            .filter(|entry| !entry.levels.is_empty())
        {
            let levels: u32 = entry.levels.iter().map(|level| level.seats).sum();
            if levels != entry.grant {
                self.broken = Some(Violation::Levels(levels, entry.grant));
            }
        }
        self.epoch = ledger.epoch;
        self.fence = ledger.fence;
        let mut honest = settings.clone();
        honest.rules = crate::rules::ProtocolRules::default();
        let reserved = Book::new(&honest, &ledger.entries).reserved();
        if known_limit > limit {
            self.past_limit = self.past_limit.max(known_limit);
        } else if reserved <= u64::from(limit) {
            self.past_limit = 0;
        }
    }

    pub(super) fn check(&mut self, world: &World) -> Result<(), Violation> {
        if let Some(violation) = self.broken.take() {
            return Err(violation);
        }
        let bound = world.limit.max(self.past_limit);
        let now = world.now;
        let (mut executing, mut granted) = (0, 0);
        let orphans = world.orphans.iter().filter(|(end, _)| *end > now);
        executing += orphans.map(|(_, seats)| *seats).sum::<u32>();
        self.epochs.resize(world.nodes.len(), (0, Epoch(0)));
        for (node, (life, epoch)) in world.nodes.iter().zip(&mut self.epochs) {
            executing += node.executing(now);
            let local = node.clock.read(now);
            if !node.is_up {
                continue;
            }
            granted += node.gateway.may_use(local);
            if *life == node.life && node.gateway.epoch() < *epoch {
                return Err(Violation::GatewayEpoch);
            }
            (*life, *epoch) = (node.life, node.gateway.epoch());
            check_floor(world, node)?;
        }
        if matches!(world.settings.reclaim, Reclaim::Strict { .. }) && executing > bound {
            return Err(Violation::Executing(executing, bound));
        }
        if granted > bound {
            return Err(Violation::Granted(granted, bound));
        }
        Ok(())
    }

    /// At least 95 % of the seats are usable, or were in use at the last report by requests that began under a greater grant.
    pub(super) fn check_recovered(world: &World) -> Result<(), Violation> {
        let now = world.now;
        let reports = world.engine.reports.iter();
        let held = reports.map(|report| report.as_ref().map_or(0, |(report, _)| report.held));
        let nodes = world.nodes.iter().zip(held);
        let usable = nodes.map(|(node, held)| node.gateway.may_use(node.clock.read(now)).max(held));
        let usable: u32 = usable.sum();
        if usable * 100 < world.limit * 95 {
            return Err(Violation::NotRecovered(usable, world.limit));
        }
        Ok(())
    }
}

/// T after the last report that it knows to be stored was sent, a gateway has exactly its floor.
fn check_floor(world: &World, node: &super::node::Node) -> Result<(), Violation> {
    let local = node.clock.read(world.now);
    let lease = u64::try_from(world.settings.lease.as_micros()).unwrap();
    let rate = 100 - u64::from(world.settings.clock_rate_percent);
    let is_cut_off = world.now - node.last_success > lease * 100 / rate + 1_000;
    let may = node.gateway.may_use(local);
    let is_starting = node.gateway.state(local) == GatewayState::Starting;
    let expected = if is_starting || node.is_leaving {
        0
    } else {
        world.settings.floor
    };
    if is_cut_off && may != expected {
        return Err(Violation::Floor(may));
    }
    Ok(())
}
