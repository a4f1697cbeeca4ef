//! Chains of lenders: levels that lend each other seats, all with clients of their own.

use std::sync::Arc;

use serde_json::json;

use super::{
    World,
    arrival_kinds::ArrivalKind,
    arrival_table::{ArrivalRow, ComparedWorld},
    judge::FEWEST_REQUESTS,
    run_lending,
};
use fairgate_core::{
    apf::{
        Policy,
        objects::{Bootstrap, ObjectSet},
        policy::{LevelIndex, PolicySettings, Semantics},
        units::Seats,
    },
    random::Random,
};

/// The name of this kind of worlds in tables.
pub const NAME: &str = "chains of lenders";

/// Levels that lend each other seats.
#[derive(Clone, Debug)]
pub struct Lenders {
    /// The server's concurrency limit, in seats.
    total_seats: Seats,
    /// Each level's name, lendable percent, borrowing limit in percent if there is one, and clients.
    levels: Vec<(String, u32, Option<u32>, World)>,
}

impl Lenders {
    /// The levels with this number and seed: two to four, with clients of several kinds of worlds.
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut random = Random::seeded(seed ^ 0x1e4d << 32 ^ number << 40);
        let count = random.within(2..5);
        let kinds = [
            ArrivalKind::Bursts,
            ArrivalKind::Cancels,
            ArrivalKind::MovingLimit,
            ArrivalKind::TwoServiceTimes,
        ];
        let levels = (0..count).map(|place| {
            let kind = *random.pick(&kinds);
            let mut world = kind.draw(random.number(), number);
            world.level.limits.clear();
            let lendable = u32::try_from(random.within(0..51)).unwrap_or(0);
            let limit = random
                .percent(40)
                .then(|| u32::try_from(random.within(10..300)).unwrap_or(10));
            (format!("level-{place}"), lendable, limit, world)
        });
        let mut levels: Vec<_> = levels.collect();
        let longest = levels.iter().map(|(_, _, _, world)| world.seconds);
        let longest = longest.fold(0.0, f64::max);
        let warm_up = levels.iter().map(|(_, _, _, world)| world.warm_up_seconds);
        let warm_up = warm_up.fold(0.0, f64::max);
        for (_, _, _, world) in &mut levels {
            world.seconds = longest;
            world.warm_up_seconds = warm_up;
        }
        let seats = levels.iter().map(|(_, _, _, world)| world.level.seats);
        Self {
            // The level `catch-all`, which is always there, has five.
            total_seats: seats.sum::<Seats>() + 5,
            levels,
        }
    }

    /// Plays the levels under both semantics and compares; a client is called after its level, too.
    ///
    /// # Panics
    ///
    /// If the policy of the levels is not valid.
    pub fn play(&self, number: u64, tenant_weight: f64, fewest: u32) -> ComparedWorld {
        let [original, ours] = [Semantics::Compatible, Semantics::Improved].map(|semantics| {
            let policy = self.policy(semantics);
            let worlds: Vec<(LevelIndex, World)> = self
                .levels
                .iter()
                .map(|(name, _, _, world)| {
                    let index = policy.level_by_name(name);
                    (index.expect("the level is in the policy"), world.clone())
                })
                .collect();
            run_lending(&policy, &worlds)
        });
        let mut all = ComparedWorld {
            number,
            clients: Vec::new(),
            // Not measured: a level's limit is not that of its world.
            idle: [0.0; 2],
            unavoidable: Vec::new(),
            fluid: Vec::new(),
        };
        let parts = self.levels.iter().zip(original.into_iter().zip(ours));
        for ((level, lendable, _, world), (original, ours)) in parts {
            let reports = [original, ours];
            // What the level has for certain.
            let mut certain = world.clone();
            certain.level.seats = (world.level.seats * (100 - lendable) / 100).max(1);
            let compared = ComparedWorld::of(&certain, number, tenant_weight, fewest, &reports);
            all.clients
                .extend(compared.clients.into_iter().map(|mut client| {
                    client.name = format!("{level}/{}", client.name);
                    client
                }));
        }
        all
    }

    fn policy(&self, semantics: Semantics) -> Arc<Policy> {
        let level = |(name, lendable, limit, world): &(String, u32, Option<u32>, World)| {
            let shape = &world.level;
            let mut limited = json!({
                "nominalConcurrencyShares": shape.seats,
                "lendablePercent": lendable,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {
                        "queues": shape.queues,
                        "handSize": shape.hand_size,
                        "queueLengthLimit": shape.queue_length_limit,
                    },
                },
            });
            if let Some(limit) = limit {
                limited["borrowingLimitPercent"] = json!(limit);
            }
            let object = json!({
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
                "kind": "PriorityLevelConfiguration",
                "metadata": { "name": name },
                "spec": { "type": "Limited", "limited": limited },
            });
            (name.clone(), object)
        };
        let settings = PolicySettings {
            total_seats: self.total_seats,
            semantics,
            hash_key: [0; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        let objects = ObjectSet::read(self.levels.iter().map(level));
        let objects = objects.with_bootstrap(Bootstrap::Mandatory);
        let compiled = Policy::compile(&objects, &settings).expect("the levels are valid");
        Arc::new(compiled.policy)
    }
}

/// Plays the levels with these numbers.
pub fn play_lenders(
    seed: u64,
    tenant_weight: f64,
    numbers: impl IntoIterator<Item = u64>,
) -> ArrivalRow {
    let worlds = numbers.into_iter().map(|number| {
        let lenders = Lenders::draw(seed, number);
        lenders.play(number, tenant_weight, FEWEST_REQUESTS)
    });
    ArrivalRow {
        name: NAME,
        worlds: worlds.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{FlowSpec, Service};

    #[test]
    fn the_levels_have_at_least_their_certain_seats_in_use_when_they_are_asked_for() {
        let mut lenders = Lenders::draw(1, 0);
        for (_, _, _, world) in &mut lenders.levels {
            world.seconds = 20.0;
            let greedy = FlowSpec::closed("greedy", 200, Service::constant(0.01), 0.0);
            world.flows.push(greedy);
        }
        let played = lenders.play(0, 4.0, 1);
        for (level, lendable, _, world) in &lenders.levels {
            let clients = played.clients.iter();
            let of_level = clients.filter(|client| client.name.starts_with(level));
            let seats: f64 = of_level.map(|client| client.seats[1]).sum();
            let certain = f64::from(world.level.seats * (100 - lendable) / 100);
            assert!(seats > 0.95 * certain, "{level}: {seats} of {certain}");
        }
    }
}
