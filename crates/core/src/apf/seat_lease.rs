//! Until when seats that several gateways share may be used, for each dispatch to look at.
//!
//! A gateway that cannot report any more must stop using what it was granted by itself, at that time and not when some timer
//! fires. So each level looks at the lease with each event, under its lock, and falls back to what is left to it.
//! A level without a lease pays nothing for that: the look is part of what happens before an event of a level at rest.
//!
//! Not here: what is granted, and by whom (the crate `fairgate-fleet`).

use crate::{
    apf::{
        changes::{ChangeList, ChangeNotice},
        units::Seats,
    },
    sync::{Arc, AtomicU64, Ordering},
    time::Time,
};

/// Until when the seats that a gateway was granted may be used. All levels look at the same one.
#[derive(Debug)]
pub struct SeatLease {
    /// Nanoseconds.
    until: AtomicU64,
}

impl SeatLease {
    /// A lease until `until`.
    pub fn new(until: Time) -> Self {
        Self {
            until: AtomicU64::new(until.as_nanos()),
        }
    }

    /// Until when it holds.
    pub fn until(&self) -> Time {
        Time::from_nanos(self.until.load(Ordering::Relaxed))
    }

    /// It holds until `until` from now on.
    pub fn set_until(&self, until: Time) {
        self.until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Whether it holds at `now`.
    pub fn holds(&self, now: Time) -> bool {
        now < self.until()
    }
}

/// The lease as one level looks at it.
#[derive(Clone, Debug)]
pub(crate) struct LevelLease {
    pub(crate) lease: Arc<SeatLease>,
    /// What a notice needs that is none of a level at rest.
    pub(crate) list: Arc<ChangeList>,
    /// The limit of the level once the lease has ended.
    pub(crate) after: Seats,
}

impl LevelLease {
    /// What has the level look at the lease before its next event.
    pub(crate) fn notice(&self) -> ChangeNotice {
        ChangeNotice::of_lease(&self.list)
    }
}
