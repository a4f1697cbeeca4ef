//! The shares of flows in one priority level, under both semantics, compared with the ideal.
//!
//! Plays worlds drawn by seed in virtual time and prints the medians of each kind of world:
//!
//! ```sh
//! cargo run --release -p fairgate-simulate --example fair_shares -- --worlds 50 --seed 1
//! ```
//!
//! `--check` fails if a requirement is not met (`table::TableRow::faults`), `--kind NAME` plays one kind alone, and `--each`
//! prints every world, its flows and what they got.

use std::{env, process::ExitCode, thread};

use fairgate_core::apf::Semantics;
use fairgate_simulate::world::{
    kinds::WorldKind,
    run,
    table::{HEADING, TableRow},
};

struct Options {
    worlds: u64,
    seed: u64,
    kind: Option<String>,
    each: bool,
    check: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        worlds: 50,
        seed: 1,
        kind: None,
        each: false,
        check: false,
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
            other => {
                return Err(format!(
                    "{other}: unknown; there are --worlds N, --seed N, --kind NAME, --each and --check"
                ));
            }
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
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
    println!("{HEADING}");
    let mut faults = Vec::new();
    for kind in WorldKind::ALL {
        if options
            .kind
            .as_deref()
            .is_some_and(|name| name != kind.name())
        {
            continue;
        }
        if options.each {
            print_each(kind, &options);
        }
        let row = play(kind, &options);
        println!("{row}");
        faults.extend(row.faults());
    }
    if options.check && !faults.is_empty() {
        eprintln!("{}", faults.join("\n"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
