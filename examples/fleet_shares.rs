//! The shares of flows in a fleet of gateways, under three ways to divide the seats, compared with one gateway that has all.
//!
//! Plays the worked cases, worlds drawn by seed and two attacks in virtual time, with the dispatcher and the protocol of the program:
//!
//! ```sh
//! cargo run --release -p fairgate-simulate --example fleet_shares -- 30
//! ```
//!
//! The argument is the number of drawn worlds.

use std::{env, process::ExitCode};

use fairgate_simulate::fleet::{
    FairnessFigures, FairnessSummary, FleetWorld, SeatDivision, compare, drawn_world,
    elephant_beside_nine, fleet_attacks, play, three_beside_one_each,
};

const DIVISIONS: [SeatDivision; 3] = [
    SeatDivision::Equal,
    SeatDivision::ByDemand,
    SeatDivision::WithCharges,
];

fn main() -> ExitCode {
    let worlds = env::args().nth(1).map_or(Ok(30), |text| text.parse());
    let Some(worlds) = worlds.ok().filter(|worlds| *worlds > 0_u64) else {
        eprintln!("the argument is the number of worlds, at least 1");
        return ExitCode::FAILURE;
    };
    let drawn: Vec<[FairnessFigures; 3]> = (0..worlds)
        .map(|seed| compare(&drawn_world(seed), DIVISIONS))
        .collect();
    let cases = [three_beside_one_each(), elephant_beside_nine()];
    println!(
        "{:<26} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "seats are divided", "Jain", "least", "error", "most", "used", "of 15", "of 6"
    );
    for (place, division) in DIVISIONS.into_iter().enumerate() {
        let summary = FairnessSummary::of(&drawn, place);
        let [three, nine] = [&cases[0], &cases[1]].map(|world| first_seats(world, division));
        println!(
            "{:<26} {:>8.3} {:>8.3} {:>8.2} {:>8.2} {:>8.2} {three:>8.1} {nine:>8.1}",
            name(division),
            summary.jain.median,
            summary.jain.least,
            summary.worst_error.median,
            summary.worst_error.greatest,
            summary.used.median,
        );
    }
    for attack in fleet_attacks() {
        println!("{}:", attack.name);
        let mut lines = vec![("at one gateway", attack.at_one_gateway())];
        let beside = DIVISIONS.map(|division| {
            let mut gains = play(&attack.world, division);
            (name(division), gains.remove(attack.polite))
        });
        lines.extend(beside);
        for (name, gain) in lines {
            let millis = gain.p99_wait.as_secs_f64() * 1e3;
            println!(
                "  {name:<24} {:>8.2} seats, p99 wait {millis:.0} ms",
                gain.seats
            );
        }
    }
    ExitCode::SUCCESS
}

fn name(division: SeatDivision) -> &'static str {
    match division {
        SeatDivision::Equal => "equally",
        SeatDivision::ByDemand => "by demand",
        SeatDivision::WithCharges => "with remote charges",
    }
}

/// What the first client gets.
fn first_seats(world: &FleetWorld, division: SeatDivision) -> f64 {
    play(world, division)[0].seats
}
