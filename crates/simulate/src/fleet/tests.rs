//! What clients of a fleet get, beside what they would get of one gateway that has all seats.

use std::thread;

use super::*;

const ALL: [SeatDivision; 3] = [
    SeatDivision::Equal,
    SeatDivision::ByDemand,
    SeatDivision::WithCharges,
];

/// Requests draw their times, so shares differ by about 2.5 % from seed to seed; the bound is twice that.
#[test]
fn a_flow_gets_one_share_wherever_its_requests_arrive() {
    for (world, ideal) in [
        (three_beside_one_each(), 15.0),
        (elephant_beside_nine(), 6.0),
    ] {
        let [equal, by_demand, ours] = ALL.map(|division| play(&world, division));
        // The other divisions give the first flow far more: the worlds tell them apart.
        assert!(equal[0].seats > 1.9 * ideal, "{equal:?}");
        assert!(by_demand[0].seats > 1.5 * ideal, "{by_demand:?}");
        for gain in &ours {
            let error = (gain.seats - ideal).abs() / ideal;
            assert!(error <= 0.05, "ideal {ideal}: {ours:?}");
        }
    }
}

/// The bounds are those of the design, over levels that lend and requests of several widths.
#[test]
fn drawn_fleets_are_nearly_as_fair_as_one_gateway() {
    let played: Vec<[FairnessFigures; 1]> = thread::scope(|scope| {
        let halves = [0..10, 10..20].map(|seeds| {
            scope.spawn(move || {
                let worlds = seeds.map(drawn_world);
                let compared = worlds.map(|world| compare(&world, [SeatDivision::WithCharges]));
                compared.collect::<Vec<_>>()
            })
        });
        let halves = halves.map(|half| half.join().expect("the worlds are valid"));
        halves.concat()
    });
    let summary = FairnessSummary::of(&played, 0);
    assert!(summary.jain.median >= 0.98, "{summary:?}");
    assert!(summary.worst_error.median <= 0.10, "{summary:?}");
    assert!(summary.used.median >= 0.97, "{summary:?}");
}

#[test]
fn the_same_world_gives_the_same() {
    let mut world = drawn_world(3);
    world.warm_up = Duration::from_secs(1);
    world.measured = Duration::from_secs(2);
    let [one, other] = [(); 2].map(|()| play(&world, SeatDivision::WithCharges));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
}

/// One request of the polite client takes 20 ms on average: what a fleet costs it beyond one gateway is at most that.
#[test]
fn an_attack_at_all_gateways_costs_a_polite_client_little_more_than_at_one() {
    let attacks = fleet_attacks();
    let played = thread::scope(|scope| {
        let halves = attacks.chunks(attacks.len().div_ceil(2)).map(|attacks| {
            scope.spawn(|| {
                let played = attacks.iter().map(|attack| {
                    let mut gains = play(&attack.world, SeatDivision::WithCharges);
                    (gains.remove(attack.polite), attack.at_one_gateway())
                });
                played.collect::<Vec<_>>()
            })
        });
        let halves: Vec<_> = halves.collect();
        let halves = halves
            .into_iter()
            .map(|half| half.join().expect("worlds are valid"));
        halves.collect::<Vec<_>>().concat()
    });
    for (attack, (polite, one)) in attacks.iter().zip(played) {
        let name = attack.name;
        assert_eq!(polite.refused, 0, "{name}: {polite:?}");
        let longest = one.p99_wait + Duration::from_millis(20);
        assert!(
            polite.seats >= 0.9 * one.seats && polite.p99_wait <= longest,
            "{name}: {polite:?} {one:?}"
        );
    }
}
