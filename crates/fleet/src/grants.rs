//! The grants that a gateway may be using: those not older than the epoch that it reported.
//!
//! They are part of the ledger, because a successor of the coordinator must know them too.

use fairgate_core::apf::Seats;
use serde::{Deserialize, Serialize};

use crate::identity::Epoch;

/// The most grants that are kept apart. Of more, the oldest are joined, which reserves more, never less.
const MOST_KEPT: usize = 8;

/// Grants by epoch: rising epochs, falling seats. A grant that a later and greater one covers is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(Vec<(Epoch, Seats)>);

impl Grants {
    /// One grant.
    pub(crate) fn only(epoch: Epoch, seats: Seats) -> Self {
        Self(vec![(epoch, seats)])
    }

    /// Adds the grant of a new ledger, whose epoch is the greatest.
    pub(crate) fn add(&mut self, epoch: Epoch, seats: Seats) {
        while self.0.last().is_some_and(|(_, last)| *last <= seats) {
            self.0.pop();
        }
        self.0.push((epoch, seats));
        if self.0.len() > MOST_KEPT {
            let (_, greatest) = self.0.remove(0);
            self.0[0].1 = greatest;
        }
    }

    /// Forgets the grants that are older than `epoch`, which the gateway has applied.
    pub(crate) fn acknowledge(&mut self, epoch: Epoch) {
        self.0.retain(|(granted, _)| *granted >= epoch);
    }

    /// The greatest; 0 if there is none.
    pub(crate) fn greatest(&self) -> Seats {
        self.0.first().map_or(0, |(_, seats)| *seats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_reserved_until_a_later_epoch_is_acknowledged() {
        let mut grants = Grants::default();
        grants.add(Epoch(1), 10);
        grants.add(Epoch(2), 50);
        grants.add(Epoch(3), 20);
        assert_eq!(grants.greatest(), 50);
        grants.acknowledge(Epoch(2));
        assert_eq!(grants.greatest(), 50);
        grants.acknowledge(Epoch(3));
        assert_eq!(grants.greatest(), 20);
    }

    #[test]
    fn a_grant_that_stays_is_reserved_at_every_later_epoch() {
        let mut grants = Grants::only(Epoch(1), 10);
        grants.add(Epoch(2), 10);
        grants.acknowledge(Epoch(2));
        assert_eq!(grants.greatest(), 10);
    }

    #[test]
    fn joining_old_grants_reserves_no_less() {
        let mut grants = Grants::default();
        for epoch in 1..30 {
            grants.add(Epoch(epoch), 100 - u32::try_from(epoch).unwrap());
        }
        assert_eq!((grants.0.len(), grants.greatest()), (MOST_KEPT, 99));
        grants.acknowledge(Epoch(28));
        assert_eq!(grants.greatest(), 72);
    }
}
