//! Gateways that reach fewer seats than they should have: the others get the rest, because it would be idle.

use fairgate_core::apf::Seats;

use crate::book::{SeatTarget, in_proportion};

/// A gateway, as far as it matters for what it can use.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// The seats of the servers that it reaches.
    pub(super) seats: Seats,
    /// Its demand by level, in the order of the targets' levels.
    pub(super) demand: Vec<Seats>,
}

/// Takes from each gateway what it does not reach, and gives it to those that reach more: in each level to whoever lacks most there,
/// and what nobody lacks to whoever has least. What nobody reaches is left out. `O(seats taken · gateways)`.
pub(super) fn keep_within_reach(targets: &mut [SeatTarget], gateways: &[Reach]) {
    for (level, over) in taken(targets, gateways).into_iter().enumerate() {
        for _ in 0..over {
            let Some(next) = next(level, targets, gateways) else {
                break;
            };
            targets[next].seats += 1;
            targets[next].levels[level].seats += 1;
        }
    }
}

/// Takes what gateways do not reach, from their levels in proportion. Returns it by level.
fn taken(targets: &mut [SeatTarget], gateways: &[Reach]) -> Vec<Seats> {
    let mut taken = Vec::new();
    for (target, gateway) in targets.iter_mut().zip(gateways) {
        taken.resize(target.levels.len(), 0);
        if target.seats <= gateway.seats {
            continue;
        }
        let wants: Vec<u64> = target
            .levels
            .iter()
            .map(|level| level.seats.into())
            .collect();
        let kept = in_proportion(&wants, gateway.seats.into());
        for ((level, kept), taken) in target.levels.iter_mut().zip(kept).zip(&mut taken) {
            let kept = Seats::try_from(kept).unwrap_or(Seats::MAX);
            *taken += level.seats.saturating_sub(kept);
            level.seats = kept.min(level.seats);
        }
        target.seats = target.levels.iter().map(|level| level.seats).sum();
    }
    taken
}

/// The gateway that gets the next seat of a level: one that reaches it.
fn next(level: usize, targets: &[SeatTarget], gateways: &[Reach]) -> Option<usize> {
    let lacks = |index: usize| {
        let has = targets[index].levels[level].seats;
        gateways[index].demand[level].saturating_sub(has)
    };
    let with_room =
        (0..targets.len()).filter(|index| targets[*index].seats < gateways[*index].seats);
    with_room.max_by_key(|index| (lacks(*index), Seats::MAX - targets[*index].seats))
}
