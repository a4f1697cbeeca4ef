//! The times and seats that all gateways of a fleet agree on, and how long a silent gateway keeps its seats.
//!
//! All processes of a fleet must have the same settings. Not here: reading them from a configuration.

use std::time::Duration;

use fairgate_core::apf::Seats;

use crate::rules::{Mutant, ProtocolRules};

/// What happens with the seats of a gateway that no longer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Its seats are given to others only when its requests have ended at the servers too: what *executes* never exceeds
    /// the limit.
    Strict {
        /// D: the longest time, in real time, from the dispatch of a request until no server works on it any more.
        drain: Duration,
    },
    /// Its seats are given to others as soon as it has stopped dispatching: what is *granted* never exceeds the limit.
    Prompt,
}

/// What all members of a fleet agree on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// T: how long a gateway may use its grant after it sent its last successful report, by its own clock.
    pub lease: Duration,
    /// ρ in percent, 0 to 50: every clock runs at a rate within 1 ± ρ.
    pub clock_rate_percent: u32,
    /// When seats of a silent gateway are given to others.
    pub reclaim: Reclaim,
    /// f: the seats that a gateway keeps when it is cut off; at least 1.
    pub floor: Seats,
    /// N: the most gateways of the fleet, by name. Each has its floor reserved, whether it runs or not.
    pub max_gateways: u32,
    /// The least time between two reports of a gateway.
    pub report_interval: Duration,
    /// The least time between two ledgers.
    pub ledger_interval: Duration,
    /// What tests break.
    pub(crate) rules: ProtocolRules,
}

impl Settings {
    /// The settings of a fleet of up to 30 gateways, with a lease of 10 s and clock rates within 5 %.
    pub fn new(max_gateways: u32, floor: Seats, reclaim: Reclaim) -> Self {
        Self {
            lease: Duration::from_secs(10),
            clock_rate_percent: 5,
            reclaim,
            floor,
            max_gateways,
            report_interval: Duration::from_millis(100),
            ledger_interval: Duration::from_millis(100),
            rules: ProtocolRules::default(),
        }
    }

    /// What the bound depends on and all members must have in common, for people to compare.
    pub fn terms(&self) -> String {
        let drain = match self.reclaim {
            Reclaim::Strict { drain } => format!("{drain:?}"),
            Reclaim::Prompt => "prompt".to_owned(),
        };
        format!(
            "lease={:?} clockRate={}% drain={drain} floor={} gateways={}",
            self.lease, self.clock_rate_percent, self.floor, self.max_gateways
        )
    }

    /// D; zero with [`Reclaim::Prompt`].
    pub fn drain(&self) -> Duration {
        match self.reclaim {
            Reclaim::Strict { drain } => drain,
            Reclaim::Prompt => Duration::ZERO,
        }
    }

    /// How long, by its own clock, the coordinator must have seen no newer report before it gives the seats of a gateway
    /// to others: T·(1+ρ)/(1−ρ) + D·(1+ρ), rounded up to a millisecond.
    ///
    /// The gateway stops when its clock, which may be as slow as 1−ρ, has counted T. Then its last requests take D of real
    /// time. The coordinator's clock may be as fast as 1+ρ throughout.
    pub fn silence(&self) -> Duration {
        let rules = self.rules;
        if rules.has(Mutant::ReclaimAtLease) {
            return self.lease + self.drain();
        }
        if rules.has(Mutant::ReclaimWithoutDrain) {
            return self.lease_as_seen();
        }
        if rules.has(Mutant::ReclaimByFirstOrder) {
            let part = self.lease * 2 * self.clock_rate_percent / 100;
            return self.lease + part + self.drain();
        }
        self.lease_as_seen() + self.drain_as_counted()
    }

    /// The longest that a fast clock counts while a slow one counts T.
    fn lease_as_seen(&self) -> Duration {
        let rate = self.clock_rate_percent;
        rounded_up(self.lease * (100 + rate) / (100 - rate))
    }

    /// What a clock must count until D of real time has passed for certain.
    pub(crate) fn drain_as_counted(&self) -> Duration {
        rounded_up(self.drain() * (100 + self.clock_rate_percent) / 100)
    }
}

/// To the next millisecond.
fn rounded_up(time: Duration) -> Duration {
    Duration::from_millis(1 + u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_gateway_has_stopped_and_drained_before_a_fast_coordinator_reclaims() {
        for rate in 0..50 {
            let drain = Duration::from_secs(60);
            let mut settings = Settings::new(3, 1, Reclaim::Strict { drain });
            settings.clock_rate_percent = rate;
            let rate = f64::from(rate) / 100.0;
            let stopped = settings.lease.as_secs_f64() / (1.0 - rate) + drain.as_secs_f64();
            let reclaimed = settings.silence().as_secs_f64() / (1.0 + rate);
            assert!(reclaimed > stopped, "{rate}: {reclaimed} > {stopped}");
            assert!(reclaimed < stopped + 0.003, "{rate}: no longer than needed");
        }
    }
}
