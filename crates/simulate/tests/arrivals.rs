//! Nobody within his share is worse off than with the original, whatever arrives: worlds in which somebody once was.

use fairgate_simulate::world::{
    TENANT_WEIGHT,
    arrival_table::ComparedWorld,
    known_attacks::{Weakness, known_attacks},
};

/// Plays all known attacks on this weakness.
#[track_caller]
fn holds_against(weakness: Weakness) {
    let attacks = known_attacks();
    let attacks = attacks.iter().filter(|attack| attack.weakness == weakness);
    let faults = attacks.flat_map(|attack| {
        let played = ComparedWorld::play(&attack.world, 0, TENANT_WEIGHT, 1);
        attack.faults(&played)
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
#[ignore = "not yet: the rule for arrivals"]
fn new_flows_do_not_starve_known_ones() {
    holds_against(Weakness::NewFlows);
}

#[test]
#[ignore = "not yet: the rule for arrivals"]
fn a_flow_of_two_service_times_does_not_take_all_seats() {
    holds_against(Weakness::TwoServiceTimes);
}

#[test]
#[ignore = "not yet: the rule for arrivals"]
fn many_names_of_one_tenant_do_not_take_the_share_of_another() {
    holds_against(Weakness::ManyNames);
}

#[test]
#[ignore = "not yet: the rule for arrivals"]
fn seats_that_idle_for_wide_requests_are_few() {
    holds_against(Weakness::IdleSeats);
}

#[test]
#[ignore = "not yet: the rule for arrivals"]
fn a_small_flow_is_not_refused_because_large_ones_fill_its_hand() {
    holds_against(Weakness::FullHands);
}
