//! Counts what a request costs a whole gateway: instructions, allocations, copies, system calls, readings of the clock.
//!
//! Each case runs under callgrind twice, with N and 2N requests. Clients and upstream are on the first thread; what the
//! other threads did more in the second run is divided by N.
//!
//! - `-- --instructions` prints the figures, in any profile. `--times 3` counts three times, for the spread.
//! - `-- --check` compares them with a baseline in the repository, and fails where they differ. `FAIRGATE_BLESS=1` writes
//!   the baseline instead.

mod baseline;
mod callgrind;
mod cost;

use std::{path::Path, process::ExitCode};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use baseline::{Baseline, CHECK, RENEW};
use cost::{Cost, FIGURES, Room};

/// A kind of request, and how many of it are counted.
pub(crate) struct RequestCase {
    pub(crate) name: &'static str,
    pub(crate) requests: u64,
    /// How far its counts may be from the baseline, a request.
    pub(crate) count_room: f64,
}

/// The room of cases that do the same in each run: one more for every second request is a change of the code.
pub(crate) const COUNT_ROOM: f64 = 0.5;

/// Counts, if the arguments ask for it, and says how that ended. `run` starts a gateway and sends it as many requests of a
/// case. Cases without a baseline are only printed.
pub(crate) fn count_requests(
    cases: &[RequestCase],
    baseline: Option<&Path>,
    run: impl Fn(&str, u64),
) -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |wanted: &str| {
        let at = arguments.iter().position(|one| one == wanted)?;
        Some(&arguments[at + 1..])
    };
    if let Some(case) = after("--rounds") {
        // The program started itself under callgrind; `cargo bench` of other benches' arguments names no case.
        if let [requests, case, ..] = case {
            // Without a subscriber, the libraries' spans would be made for the facade `log`.
            let quiet = tracing_subscriber::registry().with(LevelFilter::WARN);
            tracing::subscriber::set_global_default(quiet).expect("it is the only one");
            run(case, requests.parse().expect("a number of requests"));
        }
        return Some(ExitCode::SUCCESS);
    }
    if let (Some(path), Some(_)) = (baseline, after("--check")) {
        return Some(check(cases, path));
    }
    after("--instructions")?;
    let times = after("--times").and_then(|times| times.first()?.parse().ok());
    let counted = print(cases, times.unwrap_or(1));
    Some(if counted.is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How often a case is counted at most that differs from its baseline. A busy machine changes the order of threads, and so
/// what is received together; a change of the code differs each time.
const TRIES: usize = 3;

/// Compares with the baseline in a file, or writes it.
fn check(cases: &[RequestCase], path: &Path) -> ExitCode {
    // `cargo bench` builds into target/release/deps, and another profile into its own directory.
    let program = std::env::current_exe().unwrap_or_default();
    if program
        .iter()
        .nth_back(2)
        .is_none_or(|directory| directory != "release")
    {
        eprintln!("the baseline is of CI's build, so it is compared by: {CHECK}");
        return ExitCode::FAILURE;
    }
    if std::env::var_os("FAIRGATE_BLESS").is_some() {
        let Some(counted) = print(cases, 1) else {
            return ExitCode::FAILURE;
        };
        baseline::write(path, &counted);
        return ExitCode::SUCCESS;
    }
    let baseline = Baseline::read(path);
    let mut differences = baseline.surplus(cases);
    print_head();
    for case in cases {
        let mut found = Vec::new();
        for _ in 0..TRIES {
            let Some(cost) = print_count(case) else {
                return ExitCode::FAILURE;
            };
            found = baseline.differences(case, &cost);
            if found.is_empty() {
                break;
            }
        }
        differences.extend(found);
    }
    if differences.is_empty() {
        return ExitCode::SUCCESS;
    }
    differences.extend(baseline.other_tools());
    eprintln!("\n{}", differences.join("\n"));
    eprintln!(
        "If that is intended, write {} anew and commit it: {RENEW}",
        path.display()
    );
    ExitCode::FAILURE
}

/// Counts each case so often, prints that, and returns the last costs. `None` if nothing can be counted here.
fn print(cases: &[RequestCase], times: usize) -> Option<Vec<(&'static str, Cost)>> {
    let mut last = Vec::new();
    print_head();
    for case in cases {
        let costs: Option<Vec<Cost>> = (0..times.max(1)).map(|_| print_count(case)).collect();
        let costs = costs?;
        if times > 1 {
            println!("{}", spread(&costs));
        }
        last.push((case.name, *costs.last()?));
    }
    Some(last)
}

fn print_head() {
    println!("{} {:>12}", cost::head("a request"), "in libc");
}

/// Counts what one request of a case costs, and prints it, with the instructions in shared libraries.
fn print_count(case: &RequestCase) -> Option<Cost> {
    let counts = [1, 2].map(|times| callgrind::count(case.name, times * case.requests));
    let [Some(once), Some(twice)] = counts else {
        eprintln!("valgrind is missing: apt-get install valgrind libc6-dbg");
        return None;
    };
    // Functions of libc that are no part of its interface, such as the variants of `memcpy`, have names there alone.
    if twice.copies == 0 {
        eprintln!("no copy has a name: apt-get install libc6-dbg, of the same version as libc");
        return None;
    }
    let (cost, in_libraries) = cost::per_request(once, twice, case.requests);
    println!("{} {in_libraries:>12.0}", cost::row(case.name, &cost));
    Some(cost)
}

/// How far counts of the same case are apart: relative or absolute, as their room is.
fn spread(costs: &[Cost]) -> String {
    let columns = FIGURES.iter().enumerate().map(|(at, figure)| {
        let values = costs.iter().map(|cost| cost[at]);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        match figure.room {
            Room::Share(_) => format!(" {:>10.2} %", 100.0 * (most - least) / least),
            Room::OfCase => format!(" {:>12.2}", most - least),
        }
    });
    format!("{:<32}{}", "  spread", columns.collect::<String>())
}
