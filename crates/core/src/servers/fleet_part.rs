//! Which part of each server's seats a gateway may use whose fleet shares the servers.
//!
//! A gateway that was granted g of the L seats of all servers may use g · c / L seats, rounded up, of a server with c seats. So N gateways
//! together put at most c + N − 1 on it, as long as all see the same servers, no request is wider than its gateway's part, and nothing runs that was started with
//! another grant. A gateway never lacks room for its grant: the parts sum to g at least.

use crate::{
    apf::Seats,
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// No fleet.
const ALL: Seats = Seats::MAX;

/// The part of one gateway. Reading it takes no lock.
#[derive(Debug)]
pub struct FleetPart {
    /// The seats that the gateway may use at all servers together.
    granted: AtomicU32,
    /// The capacities of all servers of the group together.
    capacity: AtomicU64,
}

impl Default for FleetPart {
    fn default() -> Self {
        Self {
            granted: AtomicU32::new(ALL),
            capacity: AtomicU64::new(0),
        }
    }
}

impl FleetPart {
    /// The seats of all servers together that the gateway may use from now on; `None`: all of them, because there is no fleet.
    pub fn set_granted(&self, granted: Option<Seats>) {
        let granted = granted.map_or(ALL, |seats| seats.min(ALL - 1));
        self.granted.store(granted, Ordering::Release);
    }

    /// The capacity of a server of the group has changed.
    pub(super) fn change_capacity(&self, before: Seats, after: Seats) {
        let (before, after) = (u64::from(before), u64::from(after));
        self.capacity.fetch_add(after, Ordering::AcqRel);
        self.capacity.fetch_sub(before, Ordering::AcqRel);
    }

    /// The seats that the gateway may use of a server with so many: at least 1 if there are any, at most all.
    pub fn of(&self, capacity: Seats) -> Seats {
        let granted = self.granted.load(Ordering::Acquire);
        if granted == ALL {
            return capacity;
        }
        // While a capacity changes the sum may be that before, after, or greater, never 0 beside a server with seats for long.
        let all = self.capacity.load(Ordering::Acquire).max(1);
        let part = (u64::from(granted) * u64::from(capacity)).div_ceil(all);
        Seats::try_from(part)
            .unwrap_or(Seats::MAX)
            .clamp(capacity.min(1), capacity)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(granted: Seats, capacities: &[Seats]) -> Vec<Seats> {
        let part = FleetPart::default();
        for capacity in capacities {
            part.change_capacity(0, *capacity);
        }
        part.set_granted(Some(granted));
        capacities.iter().map(|seats| part.of(*seats)).collect()
    }

    #[test]
    fn without_a_fleet_a_gateway_has_all() {
        let part = FleetPart::default();
        part.change_capacity(0, 7);
        assert_eq!(part.of(7), 7);
        part.set_granted(Some(3));
        assert_eq!(part.of(7), 3);
        part.set_granted(None);
        assert_eq!((part.of(7), part.of(0)), (7, 0));
    }

    proptest! {
        /// Whatever is granted: each gateway finds room for its grant, and a server gets at most a seat more for each other gateway.
        #[test]
        fn parts_cover_the_grant_and_hardly_exceed_a_server(
            capacities in proptest::collection::vec(1_u32..500, 1..8),
            weights in proptest::collection::vec(0_u32..100, 1..10),
        ) {
            let total: Seats = capacities.iter().sum();
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum::<u64>().max(1);
            let mut of_server = vec![0; capacities.len()];
            for weight in &weights {
                let granted = Seats::try_from(u64::from(total) * u64::from(*weight) / sum).unwrap();
                let parts = part(granted, &capacities);
                prop_assert!(parts.iter().sum::<Seats>() >= granted);
                if granted > 0 {
                    parts.iter().zip(&mut of_server).for_each(|(part, all)| *all += part);
                }
            }
            let others = Seats::try_from(weights.len()).unwrap() - 1;
            for (all, capacity) in of_server.iter().zip(&capacities) {
                prop_assert!(*all <= capacity + others, "{all} of {capacity}, beside {others}");
            }
        }
    }
}
