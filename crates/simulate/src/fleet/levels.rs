//! The policy of a fleet's levels, and the division as the coordinator needs it.

use std::sync::Arc;

use fairgate_core::apf::{
    Policy,
    borrowing::LevelLimits,
    objects::{Bootstrap, ObjectSet},
    policy::{LevelKind, PolicySettings, Semantics},
};
use fairgate_fleet::division::{FleetDivision, FleetLevel};
use serde_json::json;

use super::FleetWorld;

/// Seats that a gateway keeps when it is cut off.
pub(super) const FLOOR: u32 = 1;

/// The name of the level at `place`.
pub(super) fn level_name(place: usize) -> String {
    format!("level-{place}")
}

/// The policy of the world: all gateways have the same.
pub(super) fn policy(world: &FleetWorld) -> Arc<Policy> {
    let level = |(place, level): (usize, &super::LevelOfFleet)| {
        let name = level_name(place);
        let object = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "PriorityLevelConfiguration",
            "metadata": { "name": name },
            "spec": { "type": "Limited", "limited": {
                "nominalConcurrencyShares": level.shares,
                "lendablePercent": level.lendable_percent,
                "limitResponse": { "type": "Queue", "queuing": {
                    "queues": 64, "handSize": 8, "queueLengthLimit": 50,
                } },
            } },
        });
        (name, object)
    };
    let settings = PolicySettings {
        total_seats: world.total_seats,
        semantics: Semantics::Improved,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let objects = ObjectSet::read(world.levels.iter().enumerate().map(level));
    let objects = objects.with_bootstrap(Bootstrap::Mandatory);
    let compiled = Policy::compile(&objects, &settings).expect("the levels are valid");
    Arc::new(compiled.policy)
}

/// What the coordinator divides by, from the policy.
pub(super) fn division(policy: &Policy) -> FleetDivision {
    let share_sum = LevelLimits::share_sum(policy.levels());
    let settings = policy.settings();
    let level = |spec| FleetLevel {
        limits: LevelLimits::of(spec, settings.total_seats, share_sum),
        name: spec.name.to_string(),
        exempt: spec.kind == LevelKind::Exempt,
    };
    FleetDivision {
        levels: policy.levels().iter().map(level).collect(),
        tenant_weight: settings.tenant_weight,
        floor: FLOOR,
    }
}
