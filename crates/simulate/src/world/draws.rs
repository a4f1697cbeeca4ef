//! What is random about the requests of a client: names, widths, service times, gaps.

use std::{collections::BTreeMap, time::Duration};

use super::{Arrivals, FlowNames, FlowSpec, Service, ServiceDistribution, Tenant, World, duration};
use fairgate_core::{apf::units::Seats, random::Random};

/// The random numbers of one flow.
pub(super) struct Draws {
    random: Random,
    services: Deck,
    gaps: Deck,
    /// The least service time of a Pareto distribution, as a part of the mean.
    least_part: f64,
}

/// Numbers from 0 to 1, of which each run of [`Deck::SIZE`] is spread evenly: means hold over few
/// draws, so that differences from the ideal are caused by the scheduler and not by chance.
struct Deck {
    cards: Vec<u32>,
}

/// The names under which requests come, as the core knows them: hashes.
pub(super) struct NameHashes {
    flows: Vec<ClientHashes>,
}

struct ClientHashes {
    /// The hash of the name, or the stem of those of the names.
    stem: u64,
    tenant: u64,
    /// How many new names there have been.
    begun: u64,
    random: Random,
}

impl Draws {
    pub(super) fn new(spec: &FlowSpec, seed: u64) -> Self {
        Self {
            random: Random::seeded(seed),
            services: Deck { cards: Vec::new() },
            gaps: Deck { cards: Vec::new() },
            least_part: match spec.service.shape {
                ServiceDistribution::Pareto { alpha, cut } => least_of_pareto(alpha, cut),
                _ => 1.0,
            },
        }
    }

    pub(super) fn width(&mut self, spec: &FlowSpec) -> Seats {
        let (least, most) = spec.width;
        let drawn = self.random.within(u64::from(least)..u64::from(most) + 1);
        Seats::try_from(drawn).expect("a width")
    }

    pub(super) fn service_time(&mut self, service: Service) -> Duration {
        let drawn = self.services.draw(&mut self.random);
        let mean = service.mean_seconds;
        let seconds = match service.shape {
            ServiceDistribution::Constant => mean,
            ServiceDistribution::Exponential => mean * exponential(drawn).min(10.0),
            ServiceDistribution::Bimodal if drawn < 0.1 => mean * 5.5,
            ServiceDistribution::Bimodal => mean * 0.5,
            ServiceDistribution::TwoMode {
                long_part,
                long_seconds,
            } => {
                if drawn < long_part {
                    long_seconds
                } else {
                    (mean - long_part * long_seconds) / (1.0 - long_part)
                }
            }
            ServiceDistribution::Pareto { alpha, cut } => {
                let part = self.least_part * (1.0 - drawn).powf(-1.0 / alpha);
                mean * part.min(cut)
            }
        };
        duration(seconds).max(Duration::from_nanos(1))
    }

    /// When one of the threads that begin together begins, in nanoseconds below `spread`, which is above 0.
    pub(super) fn start(&mut self, spread: u64) -> u64 {
        self.random.within(0..spread)
    }

    /// From half to one and a half times `mean_seconds`, drawn evenly.
    pub(super) fn think(&mut self, mean_seconds: f64) -> Duration {
        let part = 0.5 + self.gaps.draw(&mut self.random);
        duration(mean_seconds * part)
    }

    /// The time to the next request of an open loop; none of a closed one.
    pub(super) fn gap(&mut self, arrivals: Arrivals) -> Option<Duration> {
        let (drawn, rate) = match arrivals {
            Arrivals::Closed { .. } => return None,
            Arrivals::Open { rate, .. } => (self.gaps.draw(&mut self.random), rate),
            Arrivals::Poisson { rate, .. } => (self.random.unit(), rate),
        };
        Some(duration(exponential(drawn) / rate))
    }
}

impl NameHashes {
    /// The names of the flows of `world`; `seeds` gives one number for each.
    pub(super) fn new(world: &World, seeds: &mut Random) -> Self {
        let mut shared = BTreeMap::new();
        let flows = world.flows.iter().map(|spec| {
            let own = seeds.number();
            let stem = match &spec.shared_name {
                Some(name) => *shared.entry(name).or_insert(own),
                None => own,
            };
            let tenant = match &spec.tenant {
                Tenant::Named(name) => hash_of(name),
                Tenant::Own | Tenant::EachName => hash_of(&spec.name),
            };
            ClientHashes {
                stem,
                tenant,
                begun: 0,
                random: Random::seeded(!own),
            }
        });
        Self {
            flows: flows.collect(),
        }
    }

    /// The hashes of the name of the next request of `spec`, which is number `flow`, and of its tenant.
    pub(super) fn next(&mut self, flow: u32, spec: &FlowSpec) -> (u64, u64) {
        let known = &mut self.flows[flow as usize];
        let number = match spec.names {
            FlowNames::One => None,
            FlowNames::Of(names) => Some(known.random.within(0..u64::from(names.max(1)))),
            FlowNames::Each => {
                known.begun += 1;
                Some(known.begun)
            }
        };
        let hash = number.map_or(known.stem, |number| mix(known.stem, number));
        let tenant = match spec.tenant {
            Tenant::EachName => mix(hash, u64::MAX),
            Tenant::Own | Tenant::Named(_) => known.tenant,
        };
        (hash, tenant)
    }
}

impl Deck {
    const SIZE: u32 = 40;

    fn draw(&mut self, random: &mut Random) -> f64 {
        if self.cards.is_empty() {
            self.cards.extend(0..Self::SIZE);
        }
        let place = random.within(0..self.cards.len() as u64);
        let card = self.cards.swap_remove(usize::try_from(place).unwrap_or(0));
        (f64::from(card) + random.unit()) / f64::from(Self::SIZE)
    }
}

/// A hash of two numbers.
fn mix(one: u64, other: u64) -> u64 {
    let odd = other.wrapping_mul(2).wrapping_add(1);
    Random::seeded(one ^ odd.wrapping_mul(0xd6e8_feb8_6659_fd93)).number()
}

/// A hash of a text, the same everywhere.
fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0, |hash, byte| mix(hash, byte.into()))
}

/// The exponential distribution of mean 1 at its quantile `part`.
fn exponential(part: f64) -> f64 {
    -(1.0 - part).ln()
}

/// The least value of a Pareto distribution whose mean is 1 after it was cut off at `cut`.
fn least_of_pareto(alpha: f64, cut: f64) -> f64 {
    // The mean grows with the least value; it is below 1 for 0 and not for 1.
    let mean = |least: f64| {
        let tail = least.powf(alpha) * cut.powf(1.0 - alpha);
        (least * alpha - tail) / (alpha - 1.0)
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if mean(middle) < 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_has_the_stated_mean() {
        let two_mode = Service::two_mode(0.001, 0.2, 0.2);
        assert!((two_mode.mean_seconds - 0.0408).abs() < 1e-9);
        let pareto = Service {
            mean_seconds: 0.02,
            shape: ServiceDistribution::Pareto {
                alpha: 1.5,
                cut: 50.0,
            },
        };
        for service in [
            Service::constant(0.02),
            Service::exponential(0.02),
            two_mode,
            pareto,
        ] {
            let mut draws = Draws::new(&FlowSpec::closed("a", 1, service, 0.0), 1);
            let times = (0..40_000).map(|_| draws.service_time(service).as_secs_f64());
            let mean = times.sum::<f64>() / 40_000.0;
            let error = (mean / service.mean_seconds - 1.0).abs();
            assert!(error < 0.02, "{service:?}: {mean}");
        }
    }

    #[test]
    fn names_and_tenants_are_shared_as_stated() {
        let client = |name: &str| FlowSpec::closed(name, 1, Service::constant(0.01), 0.0);
        let shares = |name: &str| FlowSpec {
            shared_name: Some("namespace".to_owned()),
            ..client(name)
        };
        let many = |names| FlowSpec {
            names,
            tenant: Tenant::Named("a".to_owned()),
            ..client("many")
        };
        let each_tenant = FlowSpec {
            names: FlowNames::Each,
            tenant: Tenant::EachName,
            ..client("users")
        };
        let flows = vec![
            client("a"),
            shares("b"),
            shares("c"),
            many(FlowNames::Of(4)),
            many(FlowNames::Each),
            each_tenant,
        ];
        let world = World {
            flows,
            ..super::super::tests::world(1, Vec::new())
        };
        let mut names = NameHashes::new(&world, &mut Random::seeded(1));
        let mut of = |flow: u32| {
            let drawn = (0..100).map(|_| names.next(flow, &world.flows[flow as usize]));
            let (mut hashes, mut tenants): (Vec<_>, Vec<_>) = drawn.unzip();
            hashes.sort_unstable();
            hashes.dedup();
            tenants.sort_unstable();
            tenants.dedup();
            (hashes, tenants)
        };
        let [a, b, c, four, each, users] = [0, 1, 2, 3, 4, 5].map(&mut of);
        assert_eq!((a.0.len(), a.1.len()), (1, 1));
        assert!(b.0 == c.0 && b.0 != a.0 && b.1 != c.1);
        assert_eq!((four.0.len(), &four.1), (4, &a.1));
        assert_eq!((each.0.len(), &each.1), (100, &a.1));
        assert_eq!((users.0.len(), users.1.len()), (100, 100));
    }
}
