//! Nobody within his share is worse off than with the original, whatever arrives: worlds in which somebody once was.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fairgate_simulate::world::{
    FlowNames, FlowSpec, LevelShape, Service, TENANT_WEIGHT, Tenant, World,
    arrival_table::ComparedWorld,
    judge::UnavoidablePart,
    known_attacks::{Weakness, known_attacks},
    search::{Harm, VICTIM},
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
fn new_flows_do_not_starve_known_ones() {
    holds_against(Weakness::NewFlows);
}

#[test]
fn a_flow_of_two_service_times_does_not_take_all_seats() {
    holds_against(Weakness::TwoServiceTimes);
}

#[test]
fn many_names_of_one_tenant_do_not_take_the_share_of_another() {
    holds_against(Weakness::ManyNames);
}

#[test]
fn nobody_is_harmed_by_who_joins_his_flow() {
    holds_against(Weakness::SharedNames);
}

/// The others have their shares. How many seats idle follows from how often the wide requests are served: see docs/fair-shares.md.
#[test]
fn seats_that_idle_for_wide_requests_are_paid_for_by_whose_they_are() {
    holds_against(Weakness::IdleSeats);
}

#[test]
fn few_seats_idle_where_the_requests_of_a_flow_differ_in_width() {
    holds_against(Weakness::MixedWidths);
}

#[test]
fn a_small_flow_is_not_refused_because_large_ones_fill_its_hand() {
    holds_against(Weakness::FullHands);
}

/// Flows that are due have turns; others must not wait for as long as there are such.
#[test]
fn new_users_who_are_all_due_starve_neither_a_wide_flow_nor_a_tenant_of_many_names() {
    let service = Service::constant(0.02);
    let mut world = World {
        name: "new users beside a wide flow and a tenant of many names".into(),
        seed: 1,
        level: LevelShape {
            seats: 32,
            queues: 64,
            hand_size: 8,
            queue_length_limit: 50,
            limits: Vec::new(),
            tenant_weight: 4,
        },
        flows: Vec::new(),
        warm_up_seconds: 5.0,
        seconds: 60.0,
    };
    world.flows = vec![
        FlowSpec {
            names: FlowNames::Each,
            tenant: Tenant::EachName,
            ..FlowSpec::closed("new users", 200, service, 0.0)
        },
        FlowSpec {
            width: (3, 3),
            ..FlowSpec::closed("wide", 10, service, 0.0)
        },
        FlowSpec {
            names: FlowNames::Of(40),
            ..FlowSpec::closed("many names", 80, service, 0.0)
        },
    ];
    let played = ComparedWorld::play(&world, 0, TENANT_WEIGHT, 1);
    for client in &played.clients {
        let (ideal, seats) = (client.ideal_seats, client.seats[1]);
        assert!(
            seats >= 0.8 * ideal,
            "{}: {seats:.3} of {ideal:.3} seats",
            client.name
        );
    }
}

/// Found attacks that still do harm, and how much at most. Those with any width do it by requests wider than the gateway ever estimates, most of
/// them as wide as the level, which drain it and give up or hold all of it.
/// In those of seed 6001, but for 3, the victim is another client of a tenant with many names, some of them at one short queue.
const STILL_HARMFUL: [(&str, f64); 22] = [
    ("any-width-seed-2-climb-26.json", 2.7),
    ("any-width-seed-202-climb-12.json", 257.0),
    ("any-width-seed-202-climb-29.json", 21.6),
    ("any-width-seed-202-climb-33.json", 11.3),
    ("any-width-seed-202-climb-80.json", 3.5),
    ("own-tenant-sched-seed1.json", 1.05),
    ("seed-101-climb-4.json", 6.5),
    ("seed-101-climb-50.json", 4.3),
    ("seed-3001-climb-44.json", 1.3),
    ("seed-3001-climb-59.json", 4.5),
    ("seed-404-climb-15.json", 2.1),
    ("seed-5-climb-1.json", 1.5),
    ("seed-6001-climb-117.json", 22.5),
    ("seed-6001-climb-132.json", 100.0),
    ("seed-6001-climb-166.json", 6.2),
    ("seed-6001-climb-3.json", 2.9),
    ("seed-6001-climb-70.json", 4.7),
    ("seed-6001-climb-9.json", 11.1),
    ("seed-955-climb-68.json", 9.5),
    ("seed-972-climb-10.json", 2.3),
    ("seed-978-climb-19.json", 2.3),
    ("seed-984-climb-0.json", 10.6),
];

/// Those of [`STILL_HARMFUL`] in which the victim is worse off than it may be even if its requests go before those of all others: how much of
/// the harm that is.
const UNAVOIDABLE: [(&str, UnavoidablePart); 8] = [
    ("any-width-seed-202-climb-12.json", UnavoidablePart::Whole),
    ("any-width-seed-202-climb-29.json", UnavoidablePart::Whole),
    ("any-width-seed-202-climb-33.json", UnavoidablePart::Whole),
    ("any-width-seed-202-climb-80.json", UnavoidablePart::Whole),
    ("seed-101-climb-4.json", UnavoidablePart::Whole),
    ("seed-101-climb-50.json", UnavoidablePart::Whole),
    ("seed-955-climb-68.json", UnavoidablePart::Whole),
    ("seed-984-climb-0.json", UnavoidablePart::Whole),
];

/// Found attacks that harm the victim more than may be even if seats are divided at each moment, whatever Improved does.
const HARMFUL_WITH_FLUID: [&str; 5] = [
    "any-width-seed-202-climb-80.json",
    "seed-3001-climb-44.json",
    "seed-3001-climb-59.json",
    "seed-404-climb-15.json",
    "seed-902-climb-113.json",
];

/// Worlds that a search found to harm a client within its share, which is called `victim` in them. They are in `tests/worlds`;
/// `examples/arrivals_search.rs` writes such files. In those called `own-tenant` the victim is another client of the attacker's tenant,
/// which leaves much final work, as a controller does that thousands watch.
#[test]
fn no_attack_that_was_found_harms_a_client_within_its_share_but_for_known_ones() {
    let harms = found_attacks()
        .into_iter()
        .map(|(file, world)| (file, Harm::in_world(&world, TENANT_WEIGHT).worst()));
    let harmful: Vec<(String, f64)> = harms.filter(|(_, harm)| *harm > 1.0).collect();
    let names: Vec<&str> = harmful.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(names, STILL_HARMFUL.map(|(file, _)| file), "{harmful:.2?}");
    for ((file, harm), (_, most)) in harmful.iter().zip(STILL_HARMFUL) {
        assert!(*harm <= most, "{file}: {harm}");
    }
}

#[test]
fn some_harm_is_done_even_to_a_victim_that_goes_before_everybody_else() {
    for (file, part) in UNAVOIDABLE {
        let world = found_attacks().into_iter().find(|(name, _)| name == file);
        let (_, world) = world.expect("the world is kept");
        let found = Harm::in_world(&world, TENANT_WEIGHT);
        let remains = Harm::unavoidable_in_world(&world, TENANT_WEIGHT);
        assert_eq!(
            found.unavoidable_part(remains),
            part,
            "{file}: {found:?}, {remains:?}"
        );
    }
}

#[test]
fn some_harm_is_done_even_with_a_server_that_divides_seats_at_each_moment() {
    for file in HARMFUL_WITH_FLUID {
        let world = found_attacks().into_iter().find(|(name, _)| name == file);
        let (_, world) = world.expect("the world is kept");
        let harm = Harm::fluid_in_world(&world, TENANT_WEIGHT).worst();
        assert!(harm > 1.0, "{file}: {harm}");
    }
}

#[test]
fn every_attack_that_was_found_has_a_victim() {
    for (file, world) in found_attacks() {
        let victims = world.flows.iter().filter(|flow| flow.name == VICTIM);
        assert_eq!(victims.count(), 1, "{file}");
    }
}

/// The worlds of `tests/worlds` by the names of their files.
fn found_attacks() -> Vec<(String, World)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worlds");
    let files = fs::read_dir(&directory).expect("the directory of worlds is there");
    let mut paths: Vec<PathBuf> = files
        .map(|file| file.expect("a directory can be read").path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no worlds in {}", directory.display());
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a world can be read");
        let world = serde_json::from_str(&text);
        let world = world.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = path.file_name().map(|name| name.display().to_string());
        (file.unwrap_or_default(), world)
    };
    paths.iter().map(read).collect()
}
