//! Runs fuzz targets without libFuzzer: replays the corpus, then mutates it by seed.
//!
//! ```text
//! cargo run -p fairgate-fuzz -- --seconds 60              all targets, 60 s together
//! cargo run -p fairgate-fuzz -- request_info --runs 1000000 --seed 7
//! cargo run -p fairgate-fuzz -- request_documents --print 100
//! cargo run -p fairgate-fuzz -- request_info --input fuzz/artifacts/request_info/crash-…
//! ```
//!
//! The same seed and corpus give the same inputs in the same order, whatever the time. An input that breaks a property
//! is written to `fuzz/artifacts/NAME/`.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs, io,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::Parser;
use fairgate_base::{clock::Clock, stack};
use fairgate_core::time::Time;
use fairgate_fuzz::{Target, check, corpus, mutate::Mutator, targets::TARGETS};

/// How long one input may take. Only a hang takes that long.
const HANG: Duration = Duration::from_secs(60);

/// Replays the corpus of fuzz targets, then tries mutations of it.
#[derive(Parser)]
struct Arguments {
    /// Which targets; all of them if none is named.
    targets: Vec<String>,
    /// For how many seconds, all targets together.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many mutations of each target at most.
    #[arg(long, default_value_t = u64::MAX)]
    runs: u64,
    /// The seed of the mutations (default: `FAIRGATE_SEED`, or 1).
    #[arg(long)]
    seed: Option<u64>,
    /// Only tries this file.
    #[arg(long)]
    input: Option<PathBuf>,
    /// Prints so many mutations in hexadecimal, a line each, and runs none.
    #[arg(long, value_name = "NUMBER")]
    print: Option<usize>,
    /// Adds inputs with a new outcome, up to this length, to the corpus.
    #[arg(long, value_name = "BYTES")]
    keep: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // With the stack that a gateway's threads have.
    let running = stack::thread("fuzz".to_owned()).spawn(move || run(&arguments));
    let run = running.and_then(|thread| {
        let panicked = |_| io::Error::other("the runner itself panicked");
        thread.join().map_err(panicked)?
    });
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all properties held.
fn run(arguments: &Arguments) -> io::Result<bool> {
    let chosen = chosen(&arguments.targets)?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => std::env::var("FAIRGATE_SEED").map_or(Ok(1), |seed| {
            seed.parse()
                .map_err(|_| io::Error::other("FAIRGATE_SEED is not a number"))
        })?,
    };
    let share = Duration::from_secs(arguments.seconds) / u32::try_from(chosen.len()).unwrap_or(1);
    if let Some(count) = arguments.print {
        for target in chosen {
            print_mutations(target, seed, count)?;
        }
        return Ok(true);
    }
    let watchdog = Watchdog::start();
    let mut held = true;
    for target in chosen {
        let session = Session {
            target,
            seed,
            runs: arguments.runs,
            time: share,
            keep: arguments.keep,
            watchdog: &watchdog,
        };
        held &= match &arguments.input {
            Some(path) => session.holds("input", &fs::read(path)?)?.is_some(),
            None => session.run()?,
        };
    }
    Ok(held)
}

/// Prints mutations of the corpus of a target, the first of those that are run with this seed.
fn print_mutations(target: &Target, seed: u64, count: usize) -> io::Result<()> {
    let mut inputs = vec![Vec::new()];
    inputs.extend(corpus::read(target)?.into_iter().map(|(_, data)| data));
    let mut mutator = Mutator::new(seed, target.dictionary);
    for _ in 0..count {
        let mut digits = String::new();
        for byte in mutator.draw(&inputs) {
            write!(digits, "{byte:02x}").expect("writing to a string cannot fail");
        }
        println!("{digits}");
    }
    Ok(())
}

fn chosen(names: &[String]) -> io::Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let found = TARGETS.iter().find(|target| target.name == name);
        let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        found.ok_or_else(|| io::Error::other(format!("no target {name}; there are {known:?}")))
    };
    names.iter().map(find).collect()
}

/// One target being run.
struct Session<'a> {
    target: &'static Target,
    seed: u64,
    runs: u64,
    time: Duration,
    keep: Option<usize>,
    watchdog: &'a Watchdog,
}

impl Session<'_> {
    /// Replays the corpus and mutates it; whether the properties held.
    fn run(&self) -> io::Result<bool> {
        let clock = Clock::system();
        let end = clock.now().plus(self.time);
        let mut inputs = vec![Vec::new()];
        let mut outcomes = BTreeSet::new();
        for (path, data) in corpus::read(self.target)? {
            let Some(outcome) = self.holds(&path.display().to_string(), &data)? else {
                return Ok(false);
            };
            outcomes.insert(outcome);
            inputs.push(data);
        }
        let kept = inputs.len() - 1;
        let mut mutator = Mutator::new(self.seed, self.target.dictionary);
        let mut runs = 0;
        while runs < self.runs && clock.now() < end {
            let data = mutator.draw(&inputs);
            runs += 1;
            let Some(outcome) = self.holds(&format!("mutation {runs}"), &data)? else {
                return Ok(false);
            };
            if outcomes.insert(outcome) {
                if self.keep.is_some_and(|most| data.len() <= most) {
                    corpus::write("corpus", self.target, "", &data)?;
                }
                inputs.push(data);
            }
        }
        println!(
            "{:<24} FAIRGATE_SEED={} corpus {kept:>4}  mutations {runs:>9}  outcomes {:>6}",
            self.target.name,
            self.seed,
            outcomes.len()
        );
        Ok(true)
    }

    /// The outcome of an input; `None` if a property does not hold, which is then reported.
    fn holds(&self, what: &str, data: &[u8]) -> io::Result<Option<fairgate_fuzz::Outcome>> {
        self.watchdog.begin(self.target, data);
        let result = check(self.target, data);
        self.watchdog.end();
        let Err(panic) = result else {
            return Ok(result.ok());
        };
        let path = corpus::write("artifacts", self.target, "crash-", data)?;
        eprintln!(
            "{}: FAIRGATE_SEED={} {what}: {panic}\nwritten to {}",
            self.target.name,
            self.seed,
            path.display()
        );
        Ok(None)
    }
}

/// Ends the process when an input takes too long.
struct Watchdog {
    current: Arc<Mutex<Option<Running>>>,
    clock: Clock,
}

/// The input that is being tried.
struct Running {
    target: &'static Target,
    data: Vec<u8>,
    since: Time,
}

impl Watchdog {
    fn start() -> Self {
        let current: Arc<Mutex<Option<Running>>> = Arc::default();
        let watched = Arc::clone(&current);
        let clock = Clock::system();
        let its_clock = clock.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let running = watched.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(running) = &*running else { continue };
                if its_clock.now().since(running.since) > HANG {
                    let path = corpus::write("artifacts", running.target, "hang-", &running.data);
                    eprintln!(
                        "{}: an input takes over {HANG:?}: {path:?}",
                        running.target.name
                    );
                    std::process::exit(1);
                }
            }
        });
        Self { current, clock }
    }

    fn begin(&self, target: &'static Target, data: &[u8]) {
        self.set(Some(Running {
            target,
            data: data.to_vec(),
            since: self.clock.now(),
        }));
    }

    fn end(&self) {
        self.set(None);
    }

    fn set(&self, running: Option<Running>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }
}
