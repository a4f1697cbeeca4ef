//! What the demonstration knows of its gateways.

use std::{error::Error, fmt, net::SocketAddr};

use fairgate_core::apf::Seats;

/// Why a gateway cannot start.
pub type StartFailure = Box<dyn Error + Send + Sync>;

/// What a gateway of the demonstration is to be.
#[derive(Clone, Debug)]
pub struct GatewayPlan {
    /// Its flow control policy, in YAML.
    pub policy: &'static str,
    /// Who may use it.
    pub users: Vec<DemoUser>,
    /// The server behind it, which speaks plain HTTP and believes the headers of impersonation.
    pub upstream: SocketAddr,
    /// Its seats.
    pub seats: SeatSource,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoUser {
    /// Its name.
    pub name: String,
    /// Its bearer token. It is valid in this demonstration only, so it may be guessable.
    pub token: String,
}

/// Where the seats of a gateway come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeatSource {
    /// It has so many of its own.
    Own(Seats),
    /// It shares all seats with the other gateways of a fleet.
    Fleet(FleetPlace),
}

/// The place of a gateway in the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPlace {
    /// Which gateway it is.
    pub number: u32,
    /// How many there are.
    pub gateways: u32,
    /// The seats of all together.
    pub seats: Seats,
}

impl SeatSource {
    /// The seats that the policy divides.
    pub fn total(&self) -> Seats {
        match self {
            Self::Own(seats) => *seats,
            Self::Fleet(place) => place.seats,
        }
    }
}

/// A running gateway. Dropping it stops it immediately.
pub trait DemoGateway: fmt::Debug {
    /// The address that serves clients, over plain HTTP.
    fn address(&self) -> SocketAddr;

    /// Seats and queues of [`super::LEVEL`] now.
    fn load(&self) -> GatewayLoad;
}

/// Seats and queues at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayLoad {
    /// All seats.
    pub seats: u32,
    /// Seats in use.
    pub in_use: u32,
    /// Waiting requests of each queue that is not empty.
    pub queues: Vec<u32>,
}

impl GatewayLoad {
    /// Adds what another gateway has.
    pub(crate) fn add(&mut self, other: Self) {
        self.seats += other.seats;
        self.in_use += other.in_use;
        self.queues.extend(other.queues);
    }
}
