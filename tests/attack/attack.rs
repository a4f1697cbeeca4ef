//! Acceptance test of isolation: no client suffers from what others do.
//!
//! Plays attacks on a running fairgate binary over loopback, while other clients work, and prints for each
//! how the other clients were served, the gateway's memory and processor time, and whether each check passed. It knows
//! the gateway only from outside: its configuration, its ports, its log, its metrics.
//!
//! `tests/attack/run` builds what it needs and starts it; see README.md beside this file.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and the table shows it"
)]

mod cluster;
mod frames;
mod gateway;
mod goal;
mod header_lists;
mod hostile;
mod mode;
mod others;
mod own_work;
mod pods;
mod report;
mod scene;
mod time;
mod token_reviews;
mod upstream;

mod admin;
mod arrivals;
mod bodies;
mod budgets;
mod burst;
mod busy;
mod derived_fields;
mod eviction_waits;
mod floods;
mod h2spec;
mod hard_bodies;
mod heads;
mod http1;
mod ignored_policies;
mod long_heads;
mod noise;
mod params;
mod policies;
mod policy_files;
mod resets;
mod seats;
mod slow_readers;
mod strangers;
mod unread;
mod watches;
mod written_policies;

use std::{
    panic::AssertUnwindSafe,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use report::Outcome;

/// One attack.
pub(crate) struct Attack {
    name: &'static str,
    /// The guarantee that it tests.
    point: &'static str,
    about: &'static str,
    play: fn() -> Outcome,
}

/// All attacks, in the order in which they are played.
fn attacks() -> Vec<Attack> {
    let parts = [
        resets::ATTACKS,
        watches::ATTACKS,
        heads::ATTACKS,
        seats::ATTACKS,
        arrivals::ATTACKS,
        slow_readers::ATTACKS,
        unread::ATTACKS,
        bodies::ATTACKS,
        admin::ATTACKS,
        strangers::ATTACKS,
        http1::ATTACKS,
        long_heads::ATTACKS,
        burst::ATTACKS,
        noise::ATTACKS,
        policies::ATTACKS,
        policy_files::ATTACKS,
        ignored_policies::ATTACKS,
        derived_fields::ATTACKS,
        params::ATTACKS,
        written_policies::ATTACKS,
        budgets::ATTACKS,
        eviction_waits::ATTACKS,
        floods::ATTACKS,
        h2spec::ATTACKS,
    ];
    parts.into_iter().flatten().map(Attack::copy).collect()
}

impl Attack {
    const fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// Plays the attack. An attack that cannot be played fails.
    fn outcome(&self) -> Outcome {
        std::panic::catch_unwind(AssertUnwindSafe(self.play)).unwrap_or_else(|panic| {
            let text = (panic.downcast_ref::<String>().cloned())
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let mut outcome = Outcome::default();
            let why = text.unwrap_or_default();
            let why = why.lines().next().unwrap_or_default();
            outcome.check("the attack can be played", false, why);
            outcome
        })
    }
}

/// What the arguments ask for.
#[derive(Default)]
struct Wanted {
    only: Vec<String>,
    lists: bool,
    json: bool,
    measures: bool,
}

const USAGE: &str = "usage: attack [--list] [--json] [--measure] [--only NAME]...
NAME is the name of an attack, or the beginning of several names. FAIRGATE_BIN names the binary to attack.
--measure also measures times and memory, and prints which bounds they miss. Exits with 1 if a counted check fails, with 2 if the arguments are wrong.";

impl Wanted {
    fn of(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut wanted = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => wanted.lists = true,
                "--json" => wanted.json = true,
                "--measure" => wanted.measures = true,
                "--only" => {
                    let name = arguments.next().ok_or("--only: name an attack")?;
                    wanted.only.push(name);
                }
                other => return Err(format!("{other}: unknown argument")),
            }
        }
        Ok(wanted)
    }

    fn picks(&self, attack: &Attack) -> bool {
        let mut only = self.only.iter();
        self.only.is_empty() || only.any(|name| attack.name.starts_with(name.as_str()))
    }
}

fn main() -> ExitCode {
    let wanted = match Wanted::of(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let chosen: Vec<Attack> = (attacks().into_iter())
        .filter(|attack| wanted.picks(attack))
        .collect();
    if chosen.is_empty() {
        eprintln!("no attack has such a name\n{USAGE}");
        return ExitCode::from(2);
    }
    if wanted.lists {
        for attack in chosen {
            println!("{:<22} {:<6} {}", attack.name, attack.point, attack.about);
        }
        return ExitCode::SUCCESS;
    }
    if wanted.measures {
        mode::measure();
    }
    raise_descriptor_limit();
    std::panic::set_hook(Box::new(|panic| eprintln!("attack:   {panic}")));
    if play(&chosen, wanted.json) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How many attacks are played at a time where only counts decide: most of them wait most of the time.
const AT_ONCE: usize = 4;

/// Plays the attacks and prints their outcomes. Returns whether every counted check passed.
fn play(chosen: &[Attack], json: bool) -> bool {
    if !json {
        println!("{}", report::head());
    }
    let at_once = if mode::measures() { 1 } else { AT_ONCE };
    let next = AtomicUsize::new(0);
    let played = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(attack) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    eprintln!("attack: {}", attack.name);
                    let outcome = attack.outcome();
                    // Held while it is printed, so that its lines stay together.
                    let mut played = played.lock().unwrap();
                    print(attack, &outcome, json);
                    played.push((attack, outcome));
                }
            });
        }
    });
    let played = played.into_inner().unwrap();
    if json {
        let outcomes = played.iter();
        let outcomes = outcomes.map(|(attack, outcome)| outcome.json(attack.name, attack.point));
        println!("{}", serde_json::Value::Array(outcomes.collect()));
    }
    played.iter().all(|(_, outcome)| outcome.has_passed())
}

/// Prints what was found, and appends it to the figures where these are measured.
fn print(attack: &Attack, outcome: &Outcome, json: bool) {
    for note in outcome.all_notes() {
        eprintln!("attack: {}: {note}", attack.name);
    }
    if mode::measures()
        && let Err(error) = report::append_figures(attack.name, outcome)
    {
        eprintln!("attack: {}: FAIRGATE_MEASURED: {error}", attack.name);
    }
    if !json {
        println!("{}", report::line(attack.name, attack.point, outcome));
    }
}

/// Raises the descriptor limit of this process to its maximum: attackers need thousands.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
