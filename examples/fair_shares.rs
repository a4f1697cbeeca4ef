//! The shares of flows in one priority level, under both semantics, compared with the ideal.
//!
//! Plays worlds drawn by seed in virtual time and prints the medians of each kind of world:
//!
//! ```sh
//! cargo run --release -p fairgate-simulate --example fair_shares -- --worlds 50 --seed 1
//! ```
//!
//! `--arrivals` plays worlds in which arrivals change and lists every client that is worse off than with the original,
//! and what an ideal server that divides seats at each moment gives it;
//! with `--all` also in worlds in which they do not. With `--control` the original is compared with itself, under other
//! random numbers: so much is chance.
//! `--tenant-weight C` is what the flows of one tenant weigh together at most there, in the core and in the ideal. `--known-attacks` plays the worlds in which a
//! rule went wrong once, `--suggested` worlds of Kubernetes' suggested FlowSchemas with several weights of tenants.
//!
//! `--check` fails if a requirement is not met (`table::TableRow::faults`, `KnownAttack::faults`, with `--arrivals` that nobody is
//! worse off), or if nothing was judged, as with `--suggested`; `--kind NAME` plays one kind alone, and `--each`
//! prints every world, its flows and what they got.

use std::{env, process::ExitCode, str::FromStr, thread};

use fairgate_core::apf::{PolicySettings, Semantics};
use fairgate_simulate::world::{
    World,
    arrival_kinds::ArrivalKind,
    arrival_table::{self, ArrivalRow, RunBoth},
    judge::{run_both, run_original_twice},
    kinds::WorldKind,
    known_attacks::known_attacks,
    lenders::{self, play_lenders},
    run,
    suggested::{self, suggested_worlds},
    table::{HEADING, TableRow},
};

struct Options {
    worlds: u64,
    seed: u64,
    kind: Option<String>,
    each: bool,
    check: bool,
    arrivals: bool,
    all: bool,
    control: bool,
    known_attacks: bool,
    suggested: bool,
    tenant_weight: u32,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        worlds: 50,
        seed: 1,
        kind: None,
        each: false,
        check: false,
        arrivals: false,
        all: false,
        control: false,
        known_attacks: false,
        suggested: false,
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or(format!("{argument}: a value is missing"))
        };
        match argument.as_str() {
            "--worlds" => options.worlds = number(&value()?)?,
            "--seed" => options.seed = number(&value()?)?,
            "--kind" => options.kind = Some(value()?),
            "--each" => options.each = true,
            "--check" => options.check = true,
            "--arrivals" => options.arrivals = true,
            "--all" => options.all = true,
            "--control" => options.control = true,
            "--known-attacks" => options.known_attacks = true,
            "--suggested" => options.suggested = true,
            "--tenant-weight" => options.tenant_weight = number(&value()?)?,
            other => {
                return Err(format!(
                    "{other}: unknown; there are --worlds N, --seed N, --kind NAME, --each, --check, --arrivals, --all, --control, --tenant-weight C, --known-attacks and --suggested"
                ));
            }
        }
    }
    match &options.kind {
        Some(kind) if !is_kind(kind, options.arrivals) => Err(format!(
            "{kind}: no kind has this name; the first column of the table has the names"
        )),
        _ => Ok(options),
    }
}

/// Whether a kind of worlds that can be played has this name; those in which arrivals change need `--arrivals`.
fn is_kind(name: &str, arrivals: bool) -> bool {
    let changing = ArrivalKind::ALL.map(ArrivalKind::name);
    WorldKind::ALL.iter().any(|kind| kind.name() == name)
        || arrivals && (changing.contains(&name) || name == lenders::NAME)
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}

/// Plays the worlds of `kind` on two threads.
fn play(kind: WorldKind, options: &Options) -> TableRow {
    let (seed, worlds) = (options.seed, options.worlds);
    let halves = [0, 1].map(|half| {
        let numbers = (0..worlds).filter(move |number| number % 2 == half);
        thread::spawn(move || TableRow::play(kind, seed, numbers))
    });
    let [one, other] = halves.map(|half| half.join().expect("playing a world does not panic"));
    let worlds = [one.worlds, other.worlds].concat();
    TableRow { kind, worlds }
}

/// Plays worlds on two threads; `play` plays those with the numbers it is given.
fn play_arrivals<P>(options: &Options, play: P) -> ArrivalRow
where
    P: Fn(Vec<u64>) -> ArrivalRow + Copy + Send + 'static,
{
    let worlds = options.worlds;
    let halves = [0, 1].map(|half| {
        let numbers = (0..worlds).filter(move |number| number % 2 == half);
        thread::spawn(move || play(numbers.collect()))
    });
    let [mut one, other] = halves.map(|half| half.join().expect("playing a world does not panic"));
    one.worlds.extend(other.worlds);
    one.worlds.sort_by_key(|world| world.number);
    one
}

/// Plays worlds in which arrivals change. Somebody who is worse off than he may be is a fault, and so is that nobody is judged.
fn arrivals(options: &Options) -> Vec<String> {
    println!("{}", arrival_table::HEADING);
    let mut exceptions = Vec::new();
    let mut any_judged = false;
    let (seed, tenant_weight) = (options.seed, options.tenant_weight);
    let ideal_weight = f64::from(tenant_weight);
    let with_weight = move |mut world: World| {
        world.level.tenant_weight = tenant_weight;
        world
    };
    let both: RunBoth = if options.control {
        run_original_twice
    } else {
        run_both
    };
    let is_asked_for = |name| options.kind.as_deref().is_none_or(|asked| asked == name);
    let mut show = |row: ArrivalRow| {
        println!("{row}");
        any_judged |= row.judges_anybody();
        exceptions.extend(row.exceptions());
    };
    for kind in ArrivalKind::ALL {
        if is_asked_for(kind.name()) {
            show(play_arrivals(options, move |numbers| {
                ArrivalRow::play(kind.name(), ideal_weight, both, numbers, |number| {
                    with_weight(kind.draw(seed, number))
                })
            }));
        }
    }
    for kind in WorldKind::ALL {
        let asked_for = options.all || options.kind.is_some();
        if asked_for && is_asked_for(kind.name()) {
            show(play_arrivals(options, move |numbers| {
                ArrivalRow::play(kind.name(), ideal_weight, both, numbers, |number| {
                    with_weight(kind.draw(seed, number))
                })
            }));
        }
    }
    if is_asked_for(lenders::NAME) && !options.control {
        show(play_arrivals(options, move |numbers| {
            play_lenders(seed, ideal_weight, numbers)
        }));
    }
    println!("\nWorse off than with the original (under Compatible, under Improved):");
    println!("{}", exceptions.join("\n"));
    if !any_judged {
        exceptions.push("no client was judged".to_owned());
    }
    exceptions
}

/// Plays the worlds in which a rule went wrong once.
fn attacks(options: &Options) -> Vec<String> {
    let weight = f64::from(options.tenant_weight);
    let mut faults = Vec::new();
    for mut attack in known_attacks() {
        attack.world.level.tenant_weight = options.tenant_weight;
        let played = attack.play(weight);
        println!("{}", attack.figures(&played));
        faults.extend(attack.faults(&played));
    }
    faults
}

/// Plays the worlds of the suggested FlowSchemas, about which nothing is required.
fn suggestions() -> Vec<String> {
    println!("{}", suggested::heading());
    for world in suggested_worlds() {
        println!("{}", suggested::figures(&world));
    }
    vec![
        "--suggested: nothing is required of these worlds, so --check has nothing to judge"
            .to_owned(),
    ]
}

/// Plays worlds in which arrivals do not change.
fn table(options: &Options) -> Vec<String> {
    println!("{HEADING}");
    let is_asked_for = |kind: &WorldKind| {
        options
            .kind
            .as_deref()
            .is_none_or(|name| name == kind.name())
    };
    let kinds = WorldKind::ALL.into_iter().filter(is_asked_for);
    let faults = kinds.flat_map(|kind| {
        if options.each {
            print_each(kind, options);
        }
        let row = play(kind, options);
        println!("{row}");
        row.faults()
    });
    faults.collect()
}

fn print_each(kind: WorldKind, options: &Options) {
    for number in 0..options.worlds {
        let world = kind.draw(options.seed, number);
        println!("\n{} {number}: {:?}", kind.name(), world.level);
        let [compatible, improved] =
            [Semantics::Compatible, Semantics::Improved].map(|semantics| run(&world, semantics));
        let idle = [&compatible, &improved].map(|report| report.idle * 100.0);
        println!("  idle {:.1} {:.1} %", idle[0], idle[1]);
        let flows = world
            .flows
            .iter()
            .zip(&compatible.flows)
            .zip(&improved.flows);
        for ((spec, a), b) in flows {
            println!(
                "  width {:?} {:?} {:?} final {}x{:.3}: ideal {:.3} got {:.3} {:.3}; longest {:.3} {:.3} s, p99 {:.3} {:.3} s, ratio {:.2} {:.2}, lost {} {}",
                spec.width,
                spec.arrivals,
                spec.service,
                spec.final_seats,
                spec.additional_latency_seconds,
                a.ideal.seats,
                a.seats,
                b.seats,
                a.longest_wait,
                b.longest_wait,
                a.p99_wait,
                b.p99_wait,
                a.wait_ratio,
                b.wait_ratio,
                a.lost,
                b.lost
            );
        }
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::FAILURE;
        }
    };
    let faults = if options.known_attacks {
        attacks(&options)
    } else if options.suggested {
        suggestions()
    } else if options.arrivals {
        arrivals(&options)
    } else {
        table(&options)
    };
    if options.check && !faults.is_empty() {
        eprintln!("{}", faults.join("\n"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
