//! The search: random schedules by seed, with invariants after every step.
//!
//! `FAIRGATE_SCHEDULES` is the number of schedules, `FAIRGATE_SEED` the seed of the first.

mod engine;
mod invariants;
mod node;
mod world;

use invariants::Violation;
use world::World;

use crate::rules::Mutant;

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(usual, |text| text.parse().expect("a number"))
}

/// The first seed whose schedule breaks an invariant.
fn search(mutant: Option<Mutant>, from: u64, schedules: u64) -> Option<(u64, Violation)> {
    (from..from + schedules).find_map(|seed| {
        let played = World::drawn(seed, mutant).play();
        played.err().map(|violation| (seed, violation))
    })
}

#[test]
fn no_schedule_breaks_an_invariant() {
    let from = number("FAIRGATE_SEED", 1);
    let schedules = number("FAIRGATE_SCHEDULES", 2_000);
    assert_eq!(search(None, from, schedules), None);
}
