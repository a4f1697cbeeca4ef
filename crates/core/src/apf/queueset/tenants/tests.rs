//! Weights, and what tenants have received and learnt.

use super::*;

/// The weight of each flow of a tenant that has `flows` active ones, in thousandths.
fn thousandths(flows: u32) -> u64 {
    let mut tenants = TenantTable::new(4);
    let number = tenants.acquire(7, SeatSeconds::ZERO);
    (0..flows).for_each(|_| tenants.activate(number));
    1_000_000 / tenants.weight_of(number).divide(1000)
}

#[test]
fn flows_of_a_tenant_weigh_one_each_up_to_the_allowance_and_share_it_beyond() {
    assert_eq!(
        [1, 4, 5, 8, 400].map(thousandths),
        [1000, 1000, 800, 500, 10]
    );
}

#[test]
fn all_flows_weigh_together_what_their_tenants_may() {
    let mut tenants = TenantTable::new(4);
    let [few, many] = [1, 2].map(|hash| tenants.acquire(hash, SeatSeconds::ZERO));
    (0..3).for_each(|_| tenants.activate(few));
    (0..10).for_each(|_| tenants.activate(many));
    assert_eq!(tenants.times_all(1), 3 + 4);
    (0..7).for_each(|_| tenants.deactivate(many));
    assert_eq!(tenants.times_all(1), 3 + 3);
}

#[test]
fn what_flows_weigh_follows_a_changed_allowance() {
    let mut tenants = TenantTable::new(4);
    let [few, many] = [1, 2].map(|hash| tenants.acquire(hash, SeatSeconds::ZERO));
    (0..3).for_each(|_| tenants.activate(few));
    (0..10).for_each(|_| tenants.activate(many));
    for (allowance, weight, flow) in [(1, 2, 10), (8, 3 + 8, 80), (1000, 13, 100)] {
        tenants.set_allowance(allowance);
        assert_eq!(tenants.times_all(1), weight);
        let divided = tenants.weight_of(many).divide(1000);
        assert_eq!(100_000 / divided, flow, "hundredths of each of many flows");
    }
}

#[test]
fn flows_at_other_gateways_take_a_part_of_what_a_tenant_may_weigh() {
    let mut tenants = TenantTable::new(4);
    let [few, many] = [1, 2].map(|hash| tenants.acquire(hash, SeatSeconds::ZERO));
    (0..2).for_each(|_| tenants.activate(few));
    (0..10).for_each(|_| tenants.activate(many));
    // Two and two are what a tenant may have; ten and thirty share the weight of four.
    tenants.set_elsewhere([(1, 2), (2, 30), (3, 7)]);
    assert_eq!(tenants.times_all(1_000), 2_000 + 1_000);
    assert_eq!(tenants.divide_by_all(3_000), 1_000);
    assert_eq!(tenants.weight_of(few), Weight::ONE);
    assert_eq!(tenants.weight_of(many).divide(1_000), 10_000);
    assert_eq!(tenants.divide_by_weight_of(many, 1_000), 1_000);
    // One more of the first: five share the weight of four, and three of them are here.
    tenants.activate(few);
    assert_eq!(tenants.times_all(1_000), 2_400 + 1_000 + 1, "rounded up");
    tenants.deactivate(few);
    assert_eq!(tenants.weight_of_another(2).divide(1_000), 10_250);
    assert_eq!(tenants.weight_of_another(3).divide(1_000), 2_000);
    let new = tenants.acquire(3, SeatSeconds::ZERO);
    tenants.activate(new);
    assert_eq!(tenants.times_all(1_000), 2_000 + 1_000 + 500);
    tenants.set_elsewhere([]);
    assert_eq!(tenants.times_all(1), 2 + 4 + 1);
    assert_eq!(tenants.weight_of(many).divide(1_000), 2_500);
}

#[test]
fn how_long_the_requests_of_a_tenant_take_is_known_from_the_first_that_ends() {
    let mut tenants = TenantTable::new(4);
    let number = tenants.acquire(1, SeatSeconds::ZERO);
    assert_eq!(tenants.mean(number), None);
    tenants.learn(number, Nanos::from_millis(400));
    assert_eq!(tenants.mean(number), Some(Nanos::from_millis(400)));
    (0..200).for_each(|_| tenants.learn(number, Nanos::from_millis(10)));
    let mean = tenants.mean(number).unwrap();
    assert!(mean < Nanos::from_millis(12), "{mean:?}");
    let other = tenants.acquire(2, SeatSeconds::ZERO);
    tenants.learn(other, Nanos::from_nanos(u64::MAX));
    assert_eq!(tenants.mean(other), Some(LONGEST_ASSUMED));
}

#[test]
fn a_tenant_is_known_as_long_as_a_flow_names_it() {
    let mut tenants = TenantTable::new(4);
    let first = tenants.acquire(1, SeatSeconds::ZERO);
    assert_eq!(tenants.acquire(1, SeatSeconds::ZERO), first);
    tenants.release(first);
    assert_ne!(tenants.acquire(2, SeatSeconds::ZERO), first);
    tenants.release(first);
    assert_eq!(
        tenants.acquire(3, SeatSeconds::ZERO),
        first,
        "its place is used again"
    );
}

#[test]
fn what_is_divided_by_a_small_weight_does_not_overflow() {
    let mut tenants = TenantTable::new(1);
    let number = tenants.acquire(1, SeatSeconds::ZERO);
    (0..1000).for_each(|_| tenants.activate(number));
    assert_eq!(
        tenants.weight_of(number).divide(u64::MAX / 2),
        u64::MAX / 16
    );
}
