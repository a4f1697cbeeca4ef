//! Whether anybody is worse off than with the original (`Compatible`), although he stays within his share.
//!
//! Judged are the clients that demand no more than their ideal share while everybody else demands most: their waits may be at
//! most [`LONGER`] times those of the original and the level's mean service time, their seats at least [`LEAST_SHARE`] of those of
//! the original, and the part of their requests that is refused at most [`MORE_REFUSED`] greater. Of clients that demand more, those that have at most one request of one seat at a time are judged, too, but
//! only by the 99th percentile of their waits and by refusals. Nothing here knows how either semantics work.

use super::{
    Arrivals, FlowNames, FlowSpec, FluidFlow, World, WorldReport, ideal::ideal_by_tenant, real, run,
};
use fairgate_core::apf::policy::Semantics;

/// The greatest wait, in waits of the original: the 99th percentile and the mean.
pub const LONGER: f64 = 1.2;

/// The least seats, in seats of the original.
pub const LEAST_SHARE: f64 = 0.95;

/// The greatest part of its requests that may be refused beyond the part that the original refuses.
pub const MORE_REFUSED: f64 = 0.01;

/// Clients with fewer requests with the original are not judged in tables of many worlds: the 99th percentile of few
/// requests is one of them.
pub const FEWEST_REQUESTS: u32 = 1_000;

/// What one client got under Compatible and under Improved, in this order.
#[derive(Clone, Debug)]
pub struct ClientComparison {
    /// The place of the client in the world.
    pub flow: usize,
    /// Its name.
    pub name: String,
    /// Whether bounds hold for it: it is within its share, or has one request of one seat at a time; and it sent enough requests.
    pub judged: bool,
    /// Whether it demands no more than its ideal share while everybody else demands most. Otherwise only the 99th percentile of its
    /// waits and the part of refused requests are bounded.
    pub within_share: bool,
    /// The seats that it ideally uses, on average.
    pub ideal_seats: f64,
    /// Whether it demands more than it ideally gets.
    pub saturated: bool,
    /// The seats that it used, on average.
    pub seats: [f64; 2],
    /// The 99th percentile of the waits of its requests in seconds, with those that still wait at the end.
    pub p99: [f64; 2],
    /// The mean of the same waits, in seconds.
    pub mean: [f64; 2],
    /// Requests that executed.
    pub executed: [u32; 2],
    /// Requests that were refused when they arrived.
    pub refused: [u32; 2],
    /// Requests that timed out or were cancelled.
    pub cancelled: [u32; 2],
    /// The mean service time of the requests that executed with the original, in seconds.
    pub mean_service: f64,
}

/// The part of a harm that must remain with a client before everybody else, for the harm to count as unavoidable.
const REMAINS: f64 = 0.8;

/// How much of a harm to a client remains if it goes before everybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnavoidablePart {
    /// It is then no worse off than it may be.
    None,
    /// It is then worse off than it may be, too, but much less, or not in each way.
    Part,
    /// Nearly all of it.
    Whole,
}

impl UnavoidablePart {
    /// The part of the harm that was `found` which `remains`, each kind of harm in its bounds. Each counts for itself: missing
    /// seats do not excuse long waits.
    pub(super) fn of<const KINDS: usize>(found: [f64; KINDS], remains: [f64; KINDS]) -> Self {
        let kinds = found.into_iter().zip(remains);
        let mut part = None;
        for (found, remains) in kinds.filter(|(found, _)| *found > 1.0) {
            let this = match remains {
                _ if remains <= 1.0 => Self::None,
                _ if remains < REMAINS * found => Self::Part,
                _ => Self::Whole,
            };
            part = match part {
                None => Some(this),
                Some(before) if before == this => Some(this),
                Some(_) => Some(Self::Part),
            };
        }
        part.unwrap_or(Self::None)
    }
}

impl ClientComparison {
    /// The wait that is longest for its bound, divided by that bound: above 1 it is beyond it. The mean has no bound if the client is
    /// not within its share.
    pub fn wait_excess(&self) -> f64 {
        let excess = |[original, ours]: [f64; 2]| ours / (LONGER * original + self.mean_service);
        let p99 = excess(self.p99);
        if self.within_share {
            p99.max(excess(self.mean))
        } else {
            p99
        }
    }

    /// Its seats, divided by those of the original.
    pub fn share_ratio(&self) -> f64 {
        if self.seats[0] > 0.0 {
            self.seats[1] / self.seats[0]
        } else {
            1.0
        }
    }

    /// The 99th percentile of its waits, divided by that of the original; both at least a microsecond.
    pub fn p99_ratio(&self) -> f64 {
        self.p99[1].max(1e-6) / self.p99[0].max(1e-6)
    }

    /// Its requests with the original.
    pub fn requests(&self) -> u32 {
        self.executed[0] + self.refused[0] + self.cancelled[0]
    }

    /// The part of its requests that is refused beyond the part that the original refuses, divided by [`MORE_REFUSED`]: above 1
    /// it is beyond what it may be. Those who are refused do not wait, so waits say nothing about them.
    pub fn refusal_excess(&self) -> f64 {
        let [original, ours] = [0, 1].map(|which| {
            let all = self.executed[which] + self.refused[which] + self.cancelled[which];
            f64::from(self.refused[which]) / f64::from(all.max(1))
        });
        (ours - original).max(0.0) / MORE_REFUSED
    }

    /// Whether more of its requests are refused than may be.
    pub fn is_refused_too_often(&self) -> bool {
        // Not for one request in a hundred because of how it is computed.
        self.judged && self.refusal_excess() > 1.0 + 1e-9
    }

    /// Whether it waits longer than it may.
    pub fn waits_too_long(&self) -> bool {
        self.judged && self.wait_excess() > 1.0
    }

    /// Whether it gets less than it may.
    pub fn gets_too_little(&self) -> bool {
        self.judged && self.within_share && self.share_ratio() < LEAST_SHARE
    }

    /// Whether it is worse off than it may be, in one way or the other.
    pub fn is_worse_off(&self) -> bool {
        self.waits_too_long() || self.gets_too_little() || self.is_refused_too_often()
    }

    /// In which ways it is worse off than it may be, in bounds: a way is one if it is above 1.
    fn excesses(&self) -> [f64; 3] {
        if !self.judged {
            return [0.0; 3];
        }
        let missing = if self.within_share {
            (1.0 - self.share_ratio()) / (1.0 - LEAST_SHARE)
        } else {
            0.0
        };
        [self.wait_excess(), missing, self.refusal_excess()]
    }

    /// How much of the harm to it remains with `preferred`: what it gets if it goes before everybody else.
    pub fn unavoidable_part(&self, preferred: &Self) -> UnavoidablePart {
        UnavoidablePart::of(self.excesses(), preferred.excesses())
    }

    /// What it got under Compatible and, instead of what it got under Improved, from a server that divides seats at each moment.
    #[must_use]
    pub fn with_fluid(&self, fluid: &FluidFlow) -> Self {
        let [seats, p99, mean] = [self.seats[0], self.p99[0], self.mean[0]];
        Self {
            name: self.name.clone(),
            seats: [seats, fluid.seats],
            p99: [p99, fluid.p99_wait],
            mean: [mean, fluid.mean_wait],
            executed: [self.executed[0], fluid.executed],
            refused: [self.refused[0], 0],
            cancelled: [self.cancelled[0], fluid.lost],
            ..*self
        }
    }

    /// Whether it is worse off than it may be in no way in which `other` is not, too.
    pub fn is_worse_off_only_as(&self, other: &Self) -> bool {
        (!self.waits_too_long() || other.waits_too_long())
            && (!self.gets_too_little() || other.gets_too_little())
            && (!self.is_refused_too_often() || other.is_refused_too_often())
    }
}

/// Plays `world` under both semantics.
///
/// # Panics
///
/// If the world is invalid, as in [`run()`].
pub fn run_both(world: &World) -> [WorldReport; 2] {
    [Semantics::Compatible, Semantics::Improved].map(|semantics| run(world, semantics))
}

/// Plays `world` under Compatible twice, with other random numbers the second time: what differs is chance, as which
/// flows share queues. For a comparison with [`run_both`].
///
/// # Panics
///
/// If the world is invalid, as in [`run()`].
pub fn run_original_twice(world: &World) -> [WorldReport; 2] {
    let other = World {
        seed: world.seed.wrapping_add(1),
        ..world.clone()
    };
    [world, &other].map(|world| run(world, Semantics::Compatible))
}

/// Compares what each client of `world` got under Compatible and under Improved. The ideal gives the flows of one tenant
/// together at most `tenant_weight` times the weight of a flow. Only clients with at least `fewest` requests with the
/// original are judged.
pub fn compare(
    world: &World,
    [original, ours]: &[WorldReport; 2],
    tenant_weight: f64,
    fewest: u32,
) -> Vec<ClientComparison> {
    let mean_service = mean_service(world, original);
    let ideal = ideal_by_tenant(world, tenant_weight);
    let clients = world.flows.iter().zip(ideal);
    let results = original.flows.iter().zip(&ours.flows);
    clients
        .zip(results)
        .enumerate()
        .map(|(flow, ((spec, ideal), (a, b)))| ClientComparison {
            flow,
            name: spec.name.clone(),
            judged: (ideal.within_share || has_one_at_a_time(spec))
                && a.executed + a.lost >= fewest,
            within_share: ideal.within_share,
            ideal_seats: ideal.seats,
            saturated: ideal.saturated,
            seats: [a.seats, b.seats],
            p99: [a.tail_wait, b.tail_wait],
            mean: [a.mean_wait, b.mean_wait],
            executed: [a.executed, b.executed],
            refused: [a.refused, b.refused],
            cancelled: [a.lost - a.refused, b.lost - b.refused],
            mean_service,
        })
        .collect()
}

/// Whether it has at most one request of one seat at a time.
fn has_one_at_a_time(spec: &FlowSpec) -> bool {
    matches!(spec.arrivals, Arrivals::Closed { threads: 1, .. })
        && spec.names == FlowNames::One
        && spec.shared_name.is_none()
        && spec.width == (1, 1)
        && spec.final_seats == 0
}

/// The mean service time of the requests that executed, in seconds.
fn mean_service(world: &World, report: &WorldReport) -> f64 {
    let flows = || world.flows.iter().zip(&report.flows);
    let executed: f64 = flows().map(|(_, flow)| f64::from(flow.executed)).sum();
    if executed == 0.0 {
        let means = world.flows.iter().map(|flow| flow.service.mean_seconds);
        return means.sum::<f64>() / real(world.flows.len());
    }
    let seconds = flows().map(|(spec, flow)| spec.service.mean_seconds * f64::from(flow.executed));
    seconds.sum::<f64>() / executed
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Service, search::Harm},
        *,
    };

    /// A client within its share, of a level with a mean service time of 10 ms, whose requests waited as long as with the original.
    fn client() -> ClientComparison {
        ClientComparison {
            flow: 0,
            name: "a".to_owned(),
            judged: true,
            within_share: true,
            ideal_seats: 1.0,
            saturated: false,
            seats: [1.0; 2],
            p99: [0.1; 2],
            mean: [0.02; 2],
            executed: [1_000; 2],
            refused: [0; 2],
            cancelled: [0; 2],
            mean_service: 0.01,
        }
    }

    #[test]
    fn waits_may_be_a_fifth_and_a_service_time_longer_and_seats_a_twentieth_fewer() {
        let with = |p99, mean, seats| ClientComparison {
            p99: [0.1, p99],
            mean: [0.02, mean],
            seats: [1.0, seats],
            ..client()
        };
        assert!(!with(0.129, 0.033, 0.951).is_worse_off());
        assert!(with(0.131, 0.033, 1.0).waits_too_long());
        assert!(with(0.129, 0.035, 1.0).waits_too_long());
        assert!(with(0.129, 0.033, 0.949).gets_too_little());
    }

    #[test]
    fn only_the_99th_percentile_is_bounded_if_a_client_is_not_within_its_share() {
        let with = |p99, mean, seats| ClientComparison {
            within_share: false,
            p99: [0.1, p99],
            mean: [0.02, mean],
            seats: [1.0, seats],
            ..client()
        };
        assert!(!with(0.129, 0.1, 0.1).is_worse_off());
        assert!(with(0.131, 0.02, 1.0).waits_too_long());
    }

    #[test]
    fn one_request_of_one_seat_at_a_time_is_judged_beyond_its_share_and_two_are_not() {
        let closed =
            |name: &str, threads| FlowSpec::closed(name, threads, Service::constant(0.02), 0.0);
        let thinks = FlowSpec::closed("thinks", 1, Service::constant(0.02), 0.2);
        let flows = vec![
            closed("one", 1),
            closed("two", 2),
            closed("many", 9),
            thinks,
        ];
        let world = super::super::tests::world(2, flows);
        let clients = compare(&world, &run_both(&world), 4.0, 1);
        let judged: Vec<_> = clients.iter().map(|c| (c.judged, c.within_share)).collect();
        let [one, two, many, thinks] = judged[..] else {
            panic!("four clients");
        };
        assert_eq!(one, (true, false));
        assert_eq!([two, many], [(false, false); 2]);
        assert_eq!(thinks, (true, true));
    }

    #[test]
    fn what_remains_for_a_preferred_client_excuses_neither_much_more_harm_nor_another_one() {
        let with = |p99, seats| ClientComparison {
            p99: [0.1, p99],
            seats: [1.0, seats],
            ..client()
        };
        // The bound of the wait is 0.13 s.
        let late = with(0.65, 1.0);
        let part = |preferred| late.unavoidable_part(&preferred);
        assert_eq!(part(with(0.6, 1.0)), UnavoidablePart::Whole);
        assert_eq!(part(with(0.2, 1.0)), UnavoidablePart::Part);
        assert_eq!(part(with(0.12, 1.0)), UnavoidablePart::None);
        // It gets less than it may then, but does not wait.
        assert_eq!(part(with(0.1, 0.5)), UnavoidablePart::None);
        let late_and_little = with(0.65, 0.5);
        let only_late = late_and_little.unavoidable_part(&late);
        assert_eq!(only_late, UnavoidablePart::Part);
        let fine = with(0.1, 1.0);
        assert_eq!(fine.unavoidable_part(&late), UnavoidablePart::None);
    }

    #[test]
    fn more_refusals_than_with_the_original_are_harm() {
        let with = |refused, executed| ClientComparison {
            refused: [0, refused],
            executed: [1_000, executed],
            ..client()
        };
        let all = with(1_000, 0);
        assert!(all.is_worse_off(), "{all:?}");
        assert!(Harm::of(&all).worst() > 1.0);
        let beyond_its_share = ClientComparison {
            within_share: false,
            ..all.clone()
        };
        assert!(beyond_its_share.is_worse_off());
        assert!(Harm::of(&beyond_its_share).worst() > 1.0);
        let not_judged = ClientComparison {
            judged: false,
            ..all.clone()
        };
        assert!(!not_judged.is_worse_off());
        assert!(Harm::of(&not_judged).worst() <= 1.0);
        assert!(!with(10, 990).is_worse_off());
        assert!(with(11, 989).is_worse_off());
        let as_before = ClientComparison {
            refused: [500, 505],
            executed: [500, 495],
            ..client()
        };
        assert!(!as_before.is_worse_off());
        // An ideal server refuses nobody, so that it does not explain refusals.
        let fluid = FluidFlow {
            seats: 1.0,
            p99_wait: 0.1,
            mean_wait: 0.02,
            executed: 1_000,
            lost: 0,
        };
        assert!(!all.is_worse_off_only_as(&all.with_fluid(&fluid)));
    }

    #[test]
    fn an_ideal_server_explains_long_waits_only_if_they_are_too_long_with_it() {
        let fluid = |p99_wait, seats| FluidFlow {
            seats,
            p99_wait,
            mean_wait: 0.02,
            executed: 1_000,
            lost: 0,
        };
        let late = ClientComparison {
            p99: [0.1, 0.2],
            ..client()
        };
        let is_explained = |fluid| late.is_worse_off_only_as(&late.with_fluid(&fluid));
        assert!(is_explained(fluid(0.14, 1.0)));
        assert!(!is_explained(fluid(0.12, 1.0)));
        // Fewer seats there do not explain longer waits.
        assert!(!is_explained(fluid(0.12, 0.9)));
    }
}
