//! Searches for attacks that harm a client within its share, in virtual time:
//!
//! ```sh
//! cargo run --release -p fairgate-simulate --example arrivals_search -- --evaluations 10000 --seed 1
//! ```
//!
//! Hill climbing over what one to three attackers do to six kinds of clients, with two runs for each evaluation: one with the
//! original's rule and one with `Improved`. A find is confirmed in longer worlds with other seeds. Harm is in bounds: above 1
//! the client is worse off than it may be. A find is played once more with the client before everybody else: what it suffers then is
//! unavoidable, if it is of the same kind and at least four fifths of the harm; otherwise the find says "in part". It is played with an ideal server, too, which divides seats at each moment: a find is unexplained if it is avoidable and
//! does no harm there. Requests are as wide as the gateway estimates at most, or with `--any-width` as wide as the
//! level. `--one-name` leaves each attacker one name. `--simplify` leaves out of each find what it does not
//! need to do harm. `--climb N` is the number of evaluations from one random attack on, `--first N` the number of the first climb (0), to go on where another
//! run has ended or to see one find again, `--worst N` how many
//! worlds are printed as JSON for each kind of client (1), and `--write DIRECTORY` writes them there. `--play DIRECTORY` searches nothing, and prints the harm
//! to the victims of the worlds that are there. `--check` fails if an attack is beyond the
//! bounds. The same numbers give the same finds.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::Mutex,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use fairgate_simulate::world::{
    World,
    arrival_table::{ClientLine, ComparedWorld},
    judge::UnavoidablePart,
    search::{Find, Harm, SearchOptions, Victim, climb},
};

struct Options {
    evaluations: u64,
    first: u64,
    search: SearchOptions,
    worst: usize,
    threads: u32,
    write: Option<PathBuf>,
    play: Option<PathBuf>,
    check: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        evaluations: 10_000,
        first: 0,
        search: SearchOptions::default(),
        worst: 1,
        threads: 2,
        write: None,
        play: None,
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
            "--evaluations" => options.evaluations = number(&value()?)?,
            "--first" => options.first = number(&value()?)?,
            "--seed" => options.search.seed = number(&value()?)?,
            "--climb" => options.search.climb = number(&value()?)?,
            "--worst" => options.worst = number(&value()?)?,
            "--threads" => options.threads = number(&value()?)?,
            "--tenant-weight" => options.search.tenant_weight = number(&value()?)?,
            "--write" => options.write = Some(value()?.into()),
            "--play" => options.play = Some(value()?.into()),
            "--any-width" => options.search.any_width = true,
            "--one-name" => options.search.one_name = true,
            "--simplify" => options.search.simplify = true,
            "--check" => options.check = true,
            other => {
                return Err(format!(
                    "{other}: unknown; there are --evaluations N, --seed N, --first N, --climb N, --worst N, --threads N, --tenant-weight C, --any-width, --one-name, --simplify, --write DIRECTORY, --play DIRECTORY and --check"
                ));
            }
        }
    }
    options.search.climb = options.search.climb.max(1);
    Ok(options)
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}

/// Climbs until the evaluations are done; worst first.
fn search(options: &Options) -> Vec<Find> {
    let climbs = options.evaluations.div_ceil(options.search.climb.into());
    let next = AtomicU64::new(options.first);
    let found = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.first + climbs {
                        return;
                    }
                    let find = climb(&options.search, number);
                    print_find(&find);
                    found.lock().expect("no climb panics").push(find);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no climb panics");
    found.sort_by(|a, b| {
        let by_harm = b.confirmed.worst().total_cmp(&a.confirmed.worst());
        by_harm.then(a.number.cmp(&b.number))
    });
    found
}

fn print_find(find: &Find) {
    println!(
        "climb {:>5}: {:<34} harm {:>8.2}, confirmed {:>8.2} (waits {:.2}, share {:.2}, refusals {:.2}), unavoidable {:.2}{}, ideal server {:.2}",
        find.number,
        find.attack.victim.name(),
        find.searched.worst(),
        find.confirmed.worst(),
        find.confirmed.waits,
        find.confirmed.share,
        find.confirmed.refusals,
        find.unavoidable.worst(),
        match find.unavoidable_part() {
            UnavoidablePart::Part => " (in part)",
            UnavoidablePart::None | UnavoidablePart::Whole => "",
        },
        find.fluid.worst(),
    );
}

/// Prints the world of a find, and writes it if that was asked for.
fn show(find: &Find, options: &Options) -> Result<(), String> {
    print_find(find);
    let played = ComparedWorld::play(&find.world, 0, options.search.tenant_weight, 1);
    for client in &played.clients {
        println!("  {}", ClientLine(client));
    }
    println!("{}", serde_json::to_string(&find.world).unwrap_or_default());
    let Some(directory) = &options.write else {
        return Ok(());
    };
    let widths = if options.search.any_width {
        "any-width-"
    } else {
        ""
    };
    let (seed, climb) = (options.search.seed, find.number);
    let file = format!("{widths}seed-{seed}-climb-{climb}.json");
    let path = directory.join(file);
    let failed = |error: &dyn Error| format!("{}: {error}", path.display());
    let text = serde_json::to_string_pretty(&find.world).map_err(|error| failed(&error))?;
    fs::write(&path, text + "\n").map_err(|error| failed(&error))
}

/// Prints the harm that the worlds in `directory` do to their victims.
fn play(directory: &Path, tenant_weight: f64) -> Result<(), String> {
    let failed = |path: &Path, error: &dyn Error| format!("{}: {error}", path.display());
    let files = fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let world: World = serde_json::from_str(&text).map_err(|error| failed(&path, &error))?;
        let harm = Harm::in_world(&world, tenant_weight);
        println!(
            "{:<60} waits {:>7.2}, share {:>6.2}, refusals {:>6.2}",
            path.file_name().unwrap_or_default().display(),
            harm.waits,
            harm.share,
            harm.refusals,
        );
    }
    Ok(())
}

/// How many finds are so, and the harm of the worst of them.
fn counted(finds: &[&Find], is_so: impl Fn(&Find) -> bool) -> (usize, f64) {
    let harms = finds.iter().filter(|find| is_so(find));
    let harms: Vec<f64> = harms.map(|find| find.confirmed.worst()).collect();
    (harms.len(), harms.into_iter().fold(0.0, f64::max))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(directory) = &options.play {
        return match play(directory, options.search.tenant_weight) {
            Ok(()) => ExitCode::SUCCESS,
            Err(mistake) => {
                eprintln!("{mistake}");
                ExitCode::FAILURE
            }
        };
    }
    let found = search(&options);
    println!("\nThe worst attacks on each kind of client:");
    for victim in Victim::ALL {
        let of_victim = found.iter().filter(|find| find.attack.victim == victim);
        for find in of_victim.take(options.worst) {
            if let Err(mistake) = show(find, &options) {
                eprintln!("{mistake}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "\nvictim                              climbs  beyond the bounds  worst  avoidable  worst  unexplained  worst"
    );
    for victim in Victim::ALL {
        let finds: Vec<&Find> = found
            .iter()
            .filter(|find| find.attack.victim == victim)
            .collect();
        let (beyond, worst) = counted(&finds, Find::is_beyond);
        let (avoidable, worst_avoidable) = counted(&finds, Find::is_avoidable);
        let (unexplained, worst_unexplained) = counted(&finds, Find::is_unexplained);
        println!(
            "{:<34} {:>7} {beyond:>18} {worst:>6.2} {avoidable:>10} {worst_avoidable:>6.2} {unexplained:>12} {worst_unexplained:>6.2}",
            victim.name(),
            finds.len()
        );
    }
    let all: Vec<&Find> = found.iter().collect();
    let (beyond, _) = counted(&all, Find::is_beyond);
    let (avoidable, _) = counted(&all, Find::is_avoidable);
    let (unexplained, _) = counted(&all, Find::is_unexplained);
    println!(
        "{} climbs, {} evaluations: {beyond} attacks beyond the bounds, {avoidable} of them avoidable, {unexplained} unexplained",
        found.len(),
        found.len() as u64 * u64::from(options.search.climb),
    );
    if options.check && beyond > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
