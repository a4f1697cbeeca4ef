//! A search for attacks: hill climbing over what a few attackers do, to find how much they can harm a client within its
//! share.
//!
//! The same seed gives the same attacks. Nothing here knows how a rule for fair queuing works; it only sees what the
//! victim gets.

mod attack;
mod victim;

pub use attack::{Attack, Attacker, Queues};
pub use victim::{VICTIM, Victim};

use super::{
    FlowSpec, TENANT_WEIGHT, World, WorldReport,
    judge::{ClientComparison, LEAST_SHARE, UnavoidablePart, compare, run_both},
    run, run_fluid, run_preferring,
};
use fairgate_core::{apf::policy::Semantics, random::Random};

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// The seed of the search.
    pub seed: u64,
    /// Evaluations from one random attack on, at least 1; then the search begins anew.
    pub climb: u32,
    /// The greatest weight of the flows of one tenant together, in the ideal.
    pub tenant_weight: f64,
    /// Whether requests may be as wide as the level. Otherwise they are as wide as the gateway estimates at most.
    pub any_width: bool,
    /// Whether each attacker has one name only.
    pub one_name: bool,
    /// Whether what a find does not need for its harm is left out of it.
    pub simplify: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            climb: 60,
            tenant_weight: TENANT_WEIGHT,
            any_width: false,
            one_name: false,
            simplify: false,
        }
    }
}

/// How much longer than in the search a world lasts when a find is confirmed.
const CONFIRMED_TIMES: f64 = 6.0;

/// The worst attack of one climb.
#[derive(Clone, Debug)]
pub struct Find {
    /// The number of the climb.
    pub number: u64,
    /// What the attackers do.
    pub attack: Attack,
    /// How it was found.
    pub searched: Harm,
    /// The world that confirms it, and the harm in that: the median over three seeds, of a longer time.
    pub world: World,
    /// See `world`.
    pub confirmed: Harm,
    /// The harm that remains if the victim goes before everybody else.
    pub unavoidable: Harm,
    /// The harm with a server that divides seats at each moment.
    pub fluid: Harm,
}

impl Find {
    /// Whether the victim is worse off than it may be.
    pub fn is_beyond(&self) -> bool {
        self.confirmed.worst() > 1.0
    }

    /// Whether the victim is worse off than it may be, and not about as badly if it goes before everybody else.
    pub fn is_avoidable(&self) -> bool {
        self.is_beyond() && self.unavoidable_part() != UnavoidablePart::Whole
    }

    /// How much of the harm remains if the victim goes before everybody else.
    pub fn unavoidable_part(&self) -> UnavoidablePart {
        self.confirmed.unavoidable_part(self.unavoidable)
    }

    /// Whether that is so, and a server that divides seats at each moment does not harm it either. Otherwise what it asks for at
    /// some moments is more than its part then, and only a rule that takes parts of others does better.
    pub fn is_unexplained(&self) -> bool {
        self.is_avoidable() && self.fluid.worst() <= 1.0
    }
}

/// How a victim fares, in bounds: above 1 it is worse off than it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Harm {
    /// Its waits divided by the greatest that they may be, which follow from the original's.
    pub waits: f64,
    /// The part that it misses of the seats that it got with the original, or of those of the ideal if these are fewer, divided
    /// by the greatest part that it may miss; 0 if it is not within its share.
    pub share: f64,
    /// The part of its requests that is refused beyond that with the original, divided by the greatest that it may be.
    pub refusals: f64,
}

impl Harm {
    /// The harm to a client; none if it is not judged.
    pub fn of(client: &ClientComparison) -> Self {
        if !client.judged {
            return Self::default();
        }
        let owed = client.ideal_seats.min(client.seats[0]);
        // Who got nothing with the original either, as all its requests were refused, is owed nothing.
        let missing = if client.within_share && owed > 0.0 {
            (1.0 - client.seats[1] / owed).max(0.0)
        } else {
            0.0
        };
        Self {
            waits: client.wait_excess(),
            share: missing / (1.0 - LEAST_SHARE),
            refusals: client.refusal_excess(),
        }
    }

    /// The harm to the victim of `world`, the client that is called [`VICTIM`]; none if there is no such client.
    pub fn in_world(world: &World, tenant_weight: f64) -> Self {
        Self::between(world, &run_both(world), tenant_weight)
    }

    /// The harm to the victim of `world` that remains if its requests start before those of all others, as soon as their seats are
    /// free: no rule can do less that divides what is left as `Improved` does, and interrupts nothing.
    pub fn unavoidable_in_world(world: &World, tenant_weight: f64) -> Self {
        let Some(place) = place_of_victim(world) else {
            return Self::default();
        };
        let reports = [
            run(world, Semantics::Compatible),
            run_preferring(world, place),
        ];
        Self::between(world, &reports, tenant_weight)
    }

    /// The harm to the victim of `world` if seats are divided at each moment, in parts of any size: a rule that gives each name its
    /// part by weight, whenever it has requests, can do little less.
    pub fn fluid_in_world(world: &World, tenant_weight: f64) -> Self {
        let Some(place) = place_of_victim(world) else {
            return Self::default();
        };
        let original = run(world, Semantics::Compatible);
        // The second report is a placeholder: `with_fluid` replaces what the client got by it.
        let clients = compare(world, &[original.clone(), original], tenant_weight, 1);
        let fluid = run_fluid(world, tenant_weight);
        Self::of(&clients[place].with_fluid(&fluid[place]))
    }

    fn between(world: &World, reports: &[WorldReport; 2], tenant_weight: f64) -> Self {
        let clients = compare(world, reports, tenant_weight, 1);
        let victim = clients.iter().find(|client| client.name == VICTIM);
        victim.map_or_else(Self::default, Self::of)
    }

    /// The greatest of all.
    pub fn worst(self) -> f64 {
        self.kinds().into_iter().fold(0.0, f64::max)
    }

    /// How much of it is among what `remains` if the victim goes before everybody else.
    pub fn unavoidable_part(self, remains: Self) -> UnavoidablePart {
        UnavoidablePart::of(self.kinds(), remains.kinds())
    }

    fn kinds(self) -> [f64; 3] {
        [self.waits, self.share, self.refusals]
    }
}

/// The place of the victim among the clients of `world`.
fn place_of_victim(world: &World) -> Option<usize> {
    let is_victim = |flow: &FlowSpec| flow.name == VICTIM;
    world.flows.iter().position(is_victim)
}

/// Climbs once. The number of the climb decides about the kind of victim and, with the seed, where it begins.
pub fn climb(options: &SearchOptions, number: u64) -> Find {
    let mixed = options.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95);
    let mut random = Random::seeded(mixed);
    let kinds = Victim::ALL;
    let victim = kinds[usize::try_from(number).unwrap_or(0) % kinds.len()];
    let allowed = |attack: Attack| {
        if options.one_name {
            attack.with_one_name()
        } else {
            attack
        }
    };
    let mut attack = allowed(Attack::draw(&mut random, victim, options.any_width));
    let world_seed = random.number();
    let harm = |attack: &Attack| Harm::in_world(&attack.world(world_seed), options.tenant_weight);
    let mut searched = harm(&attack);
    for _ in 1..options.climb {
        let other = allowed(attack.changed(&mut random));
        let found = harm(&other);
        // Equal harm is taken, too, so that the climb leaves a plateau, where most changes make no difference.
        if found.worst() >= searched.worst() {
            (attack, searched) = (other, found);
        }
    }
    let (mut world, mut confirmed) = confirm(&attack, world_seed, options.tenant_weight);
    if options.simplify && confirmed.worst() > 1.0 {
        let simple = simplified(&attack, |attack| harm(attack).worst() > 1.0);
        let (simple_world, simple_harm) = confirm(&simple, world_seed, options.tenant_weight);
        if simple_harm.worst() > 1.0 {
            (attack, world, confirmed) = (simple, simple_world, simple_harm);
        }
    }
    let [unavoidable, fluid] = if confirmed.worst() > 1.0 {
        [Harm::unavoidable_in_world, Harm::fluid_in_world]
            .map(|harm| harm(&world, options.tenant_weight))
    } else {
        [Harm::default(); 2]
    };
    Find {
        number,
        attack,
        searched,
        world,
        confirmed,
        unavoidable,
        fluid,
    }
}

/// The attack without what it does not need to do harm.
fn simplified(attack: &Attack, harms: impl Fn(&Attack) -> bool) -> Attack {
    let mut simple = attack.clone();
    while let Some(simpler) = simple.simpler().into_iter().find(&harms) {
        simple = simpler;
    }
    simple
}

/// The world of an attack that lasts longer, with the median harm over three seeds, so that it is not chance that was found.
fn confirm(attack: &Attack, seed: u64, tenant_weight: f64) -> (World, Harm) {
    let mut all: Vec<(World, Harm)> = (1..=3)
        .map(|other| {
            let mut world = attack.world(seed.wrapping_add(other) & 0xffff_ffff);
            world.seconds *= CONFIRMED_TIMES;
            let harm = Harm::in_world(&world, tenant_weight);
            (world, harm)
        })
        .collect();
    all.sort_by(|(_, a), (_, b)| a.worst().total_cmp(&b.worst()));
    all.swap_remove(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_finds_the_same_attack() {
        let options = SearchOptions {
            climb: 4,
            ..SearchOptions::default()
        };
        let find = || climb(&options, 0);
        let (one, other) = (find(), find());
        assert_eq!((one.attack, one.searched), (other.attack, other.searched));
        assert_eq!((one.world, one.confirmed), (other.world, other.confirmed));
    }

    /// A find with this harm, of which so much remains if the victim goes before everybody else.
    fn find(confirmed: Harm, unavoidable: Harm) -> Find {
        let mut random = Random::seeded(1);
        let attack = Attack::draw(&mut random, Victim::ALL[0], false);
        Find {
            number: 0,
            world: attack.world(1),
            attack,
            searched: confirmed,
            confirmed,
            unavoidable,
            fluid: Harm::default(),
        }
    }

    #[test]
    fn what_is_unavoidable_excuses_neither_much_more_harm_nor_another_one() {
        let waits = |waits| Harm {
            waits,
            ..Harm::default()
        };
        let share = |share| Harm {
            share,
            ..Harm::default()
        };
        let nearly_as_much = find(waits(5.0), waits(4.1));
        assert!(!nearly_as_much.is_avoidable());
        assert_eq!(nearly_as_much.unavoidable_part(), UnavoidablePart::Whole);
        let much_more = find(waits(5.0), waits(1.1));
        assert!(much_more.is_avoidable());
        assert_eq!(much_more.unavoidable_part(), UnavoidablePart::Part);
        let another = find(waits(5.0), share(9.0));
        assert!(another.is_avoidable());
        assert_eq!(another.unavoidable_part(), UnavoidablePart::None);
        assert!(find(waits(5.0), waits(0.9)).is_avoidable());
        assert!(!find(waits(0.9), waits(0.9)).is_avoidable());
    }

    #[test]
    fn nothing_harms_a_victim_on_its_own_with_a_server_that_divides_seats() {
        let alone = |victim: Victim| vec![victim.client(32, 6)];
        for victim in Victim::ALL {
            let world = crate::world::tests::world(32, alone(victim));
            let harm = Harm::fluid_in_world(&world, TENANT_WEIGHT);
            assert!(harm.worst() < 0.1, "{}: {harm:?}", victim.name());
        }
        let nobody = crate::world::tests::world(32, Vec::new());
        assert_eq!(
            Harm::fluid_in_world(&nobody, TENANT_WEIGHT),
            Harm::default()
        );
    }

    #[test]
    fn every_victim_is_within_its_share_whatever_the_attackers_do() {
        let mut random = Random::seeded(7);
        for victim in Victim::ALL {
            for number in 0..50 {
                let mut attack = Attack::draw(&mut random, victim, number % 2 == 0);
                attack = attack.changed(&mut random);
                if !attack.leaves_the_victim_its_part() {
                    continue;
                }
                let world = attack.world(1);
                let ideal = crate::world::ideal::ideal(&world);
                assert!(ideal[0].within_share, "{world:?}: {ideal:?}");
            }
        }
    }
}
