//! Clients that stay within their share.

use crate::world::{Arrivals, Bursts, FlowSpec, Service};
use fairgate_core::apf::units::Seats;

const MILLI: f64 = 0.001;

/// The part of the level that most victims ask for: three attackers that weigh four each, an elephant and the victim leave it more.
const PART: f64 = 1.0 / 18.0;

/// The kind of client that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// One thread with requests of one seat.
    Thread,
    /// One thread with requests of two to six seats.
    Wide,
    /// Four threads.
    Threads,
    /// An open loop.
    Open,
    /// One thread with two service times.
    TwoServiceTimes,
    /// Four threads that send bursts.
    Bursts,
}

impl Victim {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Thread,
        Self::Wide,
        Self::Threads,
        Self::Open,
        Self::TwoServiceTimes,
        Self::Bursts,
    ];

    /// The name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Thread => "one thread",
            Self::Wide => "one thread with wide requests",
            Self::Threads => "four threads",
            Self::Open => "an open loop",
            Self::TwoServiceTimes => "one thread with two service times",
            Self::Bursts => "four threads with bursts",
        }
    }

    /// The client in a level of so many seats, in which requests have at most `widest`; its name is [`VICTIM`].
    pub fn client(self, seats: Seats, widest: Seats) -> FlowSpec {
        let service = Service::constant(10.0 * MILLI);
        let part = f64::from(seats) * PART;
        let loops = |threads: u32, width: Seats, service: Service| {
            let busy = f64::from(threads * width) * service.mean_seconds;
            let think = (busy / part - service.mean_seconds).max(service.mean_seconds);
            FlowSpec {
                width: (width, width),
                ..FlowSpec::closed(VICTIM, threads, service, think)
            }
        };
        match self {
            Self::Thread => loops(1, 1, service),
            Self::Wide => loops(1, (seats / 5).clamp(2, 6).min(widest), service),
            Self::Threads => loops(4, 1, service),
            Self::Open => {
                let arrivals = Arrivals::Poisson {
                    rate: part / service.mean_seconds,
                    deadline_seconds: 15.0,
                };
                FlowSpec::new(VICTIM, arrivals, service)
            }
            Self::TwoServiceTimes => loops(1, 1, Service::two_mode(5.0 * MILLI, 0.1, 55.0 * MILLI)),
            Self::Bursts => FlowSpec {
                bursts: Some(Bursts {
                    on_seconds: 100.0 * MILLI,
                    off_seconds: 100.0 * MILLI,
                    phase_seconds: 0.0,
                }),
                ..loops(4, 1, service)
            },
        }
    }
}

/// The name of the client that is watched.
pub const VICTIM: &str = "victim";
