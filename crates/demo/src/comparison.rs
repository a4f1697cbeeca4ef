//! What the demonstration compares, and what the two sides are called.
//!
//! Not here: the load (`load`), and the words of the verdict (`report`).

use std::time::Duration;

use fairgate_core::apf::Seats;
use serde::Serialize;

use super::{
    load::{ELEPHANT_CONNECTIONS, MICE},
    upstream::ServerModel,
};

/// The seats of each gateway that has some of its own.
pub const SEATS_OF_GATEWAY: Seats = 10;
/// The elephant and the mice.
const USERS: u32 = 1 + MICE;

/// What the demonstration compares. Both sides have as many seats and the same load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum DemoComparison {
    /// One gateway with fair queuing beside one with a single queue.
    Fairness,
    /// Several gateways that share all seats as a fleet beside as many that have equal parts of them. The clients of the elephant are at
    /// all gateways, the mice at the first.
    Fleet {
        /// How many gateways; 2 to [`Self::MOST_GATEWAYS`].
        gateways: u32,
    },
}

impl DemoComparison {
    /// The most gateways: all of them, the server and the clients are in one process.
    pub const MOST_GATEWAYS: u32 = 5;

    /// The comparison for so many gateways.
    pub fn of_gateways(gateways: u32) -> Self {
        if gateways < 2 {
            return Self::Fairness;
        }
        let gateways = gateways.min(Self::MOST_GATEWAYS);
        Self::Fleet { gateways }
    }

    /// Whether one gateway with fairness is compared with one without.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(super) fn is_of_fairness(&self) -> bool {
        *self == Self::Fairness
    }

    /// The sides, as messages name them.
    pub(super) fn sides(self) -> [&'static str; 2] {
        match self {
            Self::Fairness => ["with fairness", "without fairness"],
            Self::Fleet { .. } => ["with the fleet", "without the fleet"],
        }
    }

    /// The headings of the columns of both sides.
    pub(super) fn headings(self) -> [&'static str; 2] {
        match self {
            Self::Fairness => ["WITH FAIRNESS", "WITHOUT: ONE FIFO QUEUE"],
            Self::Fleet { .. } => [
                "WITH A FLEET: SEATS ARE SHARED",
                "WITHOUT: EQUAL PARTS OF THEM",
            ],
        }
    }

    /// What both sides have, in a few words.
    pub(super) fn title(self) -> String {
        let seats = self.server().workers;
        match self {
            Self::Fairness => {
                format!(
                    "An elephant of {ELEPHANT_CONNECTIONS} connections, four mice, {seats} seats"
                )
            }
            Self::Fleet { gateways } => {
                format!("{gateways} gateways: an elephant on all, mice on one, {seats} seats")
            }
        }
    }

    /// The server behind the gateways of each side. It has ten workers for each gateway, and one seat for each worker.
    pub(super) fn server(self) -> ServerModel {
        let service_time = match self {
            Self::Fairness => Duration::from_millis(50),
            // There are more workers, and as many requests as one process can serve and send.
            Self::Fleet { .. } => Duration::from_millis(100),
        };
        ServerModel {
            workers: SEATS_OF_GATEWAY * self.gateways(),
            service_time,
        }
    }

    /// How many gateways each side has.
    pub(super) fn gateways(self) -> u32 {
        match self {
            Self::Fairness => 1,
            Self::Fleet { gateways } => gateways,
        }
    }

    /// The connections of a mouse, each with one request after the other: twice as many as its share of the seats among five users.
    /// `None`: it sends a few requests at fixed times.
    pub(super) fn mouse_connections(self) -> Option<u32> {
        match self {
            Self::Fairness => None,
            Self::Fleet { .. } => Some(2 * self.server().workers / USERS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_ten_seats_for_each_gateway_and_mice_ask_for_twice_their_share() {
        let one = DemoComparison::of_gateways(1);
        assert_eq!((one, one.gateways()), (DemoComparison::Fairness, 1));
        assert_eq!((one.server().workers, one.mouse_connections()), (10, None));
        let three = DemoComparison::of_gateways(3);
        assert_eq!(three, DemoComparison::Fleet { gateways: 3 });
        assert_eq!(
            (three.server().workers, three.mouse_connections()),
            (30, Some(12))
        );
        let many = DemoComparison::of_gateways(9);
        assert_eq!(many.gateways(), DemoComparison::MOST_GATEWAYS);
    }
}
