//! Counts the instructions that a whole gateway spends on a request.
//!
//! `cargo bench --profile dist --bench NAME -- --instructions` runs each case under callgrind twice, with N and 2N requests, one
//! after another. Clients and upstream are on the first thread; what the other threads executed more in the second
//! run is divided by N. Two counts of one build differ by 0.1 % where a data core does all the work, and by up to 4 %
//! where the control runtime takes part, whose threads sleep and wake at other times in each run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

/// A kind of request, and how many of it are counted.
pub(crate) struct RequestCase {
    pub(crate) name: &'static str,
    pub(crate) requests: u64,
}

/// Counts, if the arguments ask for it, and returns whether they do. `run` starts a gateway and sends it as many
/// requests of a case.
pub(crate) fn count_instructions(cases: &[RequestCase], run: impl Fn(&str, u64)) -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|one| one == "--rounds") {
        // The program started itself under callgrind; `cargo bench` of other benches' arguments names no case.
        if let [requests, case, ..] = &arguments[at + 1..] {
            // Without a subscriber, the libraries' spans would be made for the facade `log`.
            let quiet = tracing_subscriber::registry().with(LevelFilter::WARN);
            tracing::subscriber::set_global_default(quiet).expect("it is the only one");
            run(case, requests.parse().expect("a number of requests"));
        }
        return true;
    }
    if !arguments.iter().any(|one| one == "--instructions") {
        return false;
    }
    println!("{:<32} {:>24}", "", "instructions a request");
    for case in cases {
        let counts = [1, 2].map(|times| gateway_instructions(case.name, times * case.requests));
        let text = match counts {
            [Some(once), Some(twice)] => (twice.saturating_sub(once) / case.requests).to_string(),
            _ => "no valgrind".to_owned(),
        };
        println!("{:<32} {text:>24}", case.name);
    }
    true
}

/// A directory for the output of callgrind, removed with this value.
struct Output(PathBuf);

impl Output {
    fn new() -> Self {
        let name = format!("fairgate-callgrind-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("the temporary directory can be written");
        Self(directory)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The instructions of all threads but the first.
fn gateway_instructions(case: &str, requests: u64) -> Option<u64> {
    let (this, output) = (std::env::current_exe().ok()?, Output::new());
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=yes"])
        .arg(format!("--callgrind-out-file={}/out", output.0.display()))
        .arg(this)
        .args(["--bench", "--rounds", &requests.to_string(), case])
        .output()
        .ok()?;
    let log = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{case}: {log}");
    let files = fs::read_dir(&output.0).expect("it was just made");
    let paths = files.map(|file| file.expect("it can be read").path());
    let others = paths.filter(|path| path.extension().is_none() && !path.ends_with("out-01"));
    Some(others.map(|path| total(&path)).sum())
}

/// The instructions in a file of callgrind.
fn total(path: &Path) -> u64 {
    let text = fs::read_to_string(path).expect("callgrind wrote it");
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals: "));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}
