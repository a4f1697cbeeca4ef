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

/// What is so today, not what should be: one gateway gives the polite client half as much again, since a tenant counts as up to four
/// flows at each gateway and remote charges are for flows, which an attacker with many names has at one gateway each.
#[test]
fn names_at_all_gateways_cost_a_polite_client_no_more_than_recorded() {
    for attack in fleet_attacks() {
        let gains = play(&attack.world, SeatDivision::WithCharges);
        let (polite, one) = (&gains[attack.polite], attack.at_one_gateway());
        let name = attack.name;
        assert_eq!(polite.refused, 0, "{name}: {gains:?}");
        assert!(
            polite.seats >= 0.6 * one.seats && polite.p99_wait <= Duration::from_millis(100),
            "{name}: {polite:?} {one:?}"
        );
    }
}
