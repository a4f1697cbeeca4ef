//! What the benches share: median times, allocations, instructions, small policies.
//!
//! Times on shared machines vary, so each bench prints its baseline beside it, from the same
//! run. Instructions are exact: `cargo bench --profile dist --bench NAME -- --instructions` runs each case under
//! callgrind twice, with N and 2N rounds, and prints the difference.

#![allow(dead_code, reason = "not every bench uses everything")]

pub(crate) mod original;
pub(crate) mod pod;

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use fairgate_core::{
    apf::{ObjectSet, Policy, PolicySettings, Semantics},
    digest::{RequestDigest, RequestInfo, User},
};
use serde_json::{Value, json};

/// A case to be measured. It is set up only when its turn comes.
pub(crate) struct Case<'a> {
    pub(crate) name: String,
    set_up: Box<dyn FnOnce() -> Round<'a> + 'a>,
}

/// One round of a case.
type Round<'a> = Box<dyn FnMut() + 'a>;

impl<'a> Case<'a> {
    /// A case that repeats the operation that `set_up` returns.
    pub(crate) fn new<R>(name: impl Into<String>, set_up: impl FnOnce() -> R + 'a) -> Self
    where
        R: FnMut() + 'a,
    {
        Self {
            name: name.into(),
            set_up: Box::new(|| Box::new(set_up())),
        }
    }
}

/// Measures the cases that `cases` makes, as the arguments say. The first is the baseline. Returns the nanoseconds of
/// each; nothing if it was started to count the instructions of one case.
pub(crate) fn measure(question: &str, cases: Vec<Case<'_>>) -> Vec<f64> {
    measure_rounds(question, cases, 2_000)
}

/// As [`measure`], for operations that take milliseconds: the median is that of runs of `rounds` rounds, and instructions
/// are counted over 25 times as many.
pub(crate) fn measure_rounds(question: &str, cases: Vec<Case<'_>>, rounds: u32) -> Vec<f64> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(rounds) = rounds_of(&arguments) {
        // Under callgrind: one case, the given number of rounds, no output.
        let wanted = arguments.last().expect("a case is named");
        let case = cases.into_iter().find(|case| case.name == *wanted);
        let mut run = (case.expect("the case exists").set_up)();
        (0..rounds).for_each(|_| run());
        return Vec::new();
    }
    let count = arguments
        .iter()
        .any(|argument| argument == "--instructions");
    println!("{question}");
    println!(
        "{:<44} {:>9} {:>8} {:>7} {:>13}",
        "", "ns", "ratio", "allocs", "instructions"
    );
    let mut measured = Vec::with_capacity(cases.len());
    for case in cases {
        let mut run = (case.set_up)();
        let nanos = median(&mut run, rounds);
        let allocations = allocations(&mut run);
        let instructions = if count {
            instructions(&case.name, 25 * u64::from(rounds))
        } else {
            "-".to_owned()
        };
        measured.push(nanos);
        let ratio = nanos / measured[0];
        println!(
            "{:<44} {nanos:>9.0} {ratio:>7.2}x {allocations:>7.2} {instructions:>13}",
            case.name
        );
    }
    measured
}

/// Whether only a smoke run is wanted.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("FAIRGATE_BENCH_QUICK").is_some()
}

fn rounds_of(arguments: &[String]) -> Option<u64> {
    let at = arguments
        .iter()
        .position(|argument| argument == "--rounds")?;
    arguments.get(at + 1)?.parse().ok()
}

/// The median over runs of the nanoseconds one round takes.
fn median(run: &mut dyn FnMut(), rounds: u32) -> f64 {
    let (runs, rounds) = if is_quick() {
        (1, rounds.min(10))
    } else {
        (15, rounds)
    };
    (0..rounds).for_each(|_| run());
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = now();
            (0..rounds).for_each(|_| run());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn allocations(run: &mut dyn FnMut()) -> f64 {
    const ROUNDS: u32 = 100;
    let counted = allocation_counter::measure(|| (0..ROUNDS).for_each(|_| run()));
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let total = counted.count_total as f64;
    total / f64::from(ROUNDS)
}

/// The instructions of one round of a case, by callgrind. Many rounds make the cost of the set-up, which differs between
/// runs, negligible.
fn instructions(case: &str, rounds: u64) -> String {
    match (callgrind(case, rounds), callgrind(case, 2 * rounds)) {
        (Some(once), Some(twice)) => (twice.saturating_sub(once) / rounds).to_string(),
        _ => "no valgrind".to_owned(),
    }
}

fn callgrind(case: &str, rounds: u64) -> Option<u64> {
    let this = std::env::current_exe().ok()?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(["--bench", "--rounds", &rounds.to_string(), case])
        .output()
        .ok()?;
    let reported = String::from_utf8_lossy(&out.stderr).into_owned();
    let line = reported.lines().find(|line| line.contains("Collected :"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// The time, for benches alone.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
    Instant::now()
}

/// The wall-clock time that `run` takes.
pub(crate) fn time(run: impl FnOnce()) -> Duration {
    let start = now();
    run();
    start.elapsed()
}

pub(crate) fn settings(total_seats: u32) -> PolicySettings {
    PolicySettings {
        total_seats,
        semantics: Semantics::Improved,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    }
}

/// The built-in policy, with `more` schemas of disjoint users before the last.
pub(crate) fn policy(more: usize, total_seats: u32) -> Arc<Policy> {
    let objects = ObjectSet::read((0..more).map(|i| ("bench".to_owned(), schema(i))));
    Arc::new(
        Policy::compile(&objects, &settings(total_seats))
            .expect("it is valid")
            .policy,
    )
}

fn schema(i: usize) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": format!("bench-{i}")},
        "spec": {
            "matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "workload-low"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": format!("user-{i}")}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                                   "namespaces": ["*"], "clusterScope": true}],
            }],
        },
    })
}

/// Requests of different users of the level `workload-low`, or of `global-default`.
pub(crate) fn digests(count: usize) -> Vec<Arc<RequestDigest>> {
    let digest = |i: usize| {
        let target = format!("/api/v1/namespaces/ns-{}/pods/pod-{i}", i % 50);
        let info = RequestInfo::from_target("GET", &target).expect("it is well-formed");
        let user = User::new(format!("user-{i}"), [User::AUTHENTICATED]);
        Arc::new(RequestDigest {
            info,
            user: Arc::new(user),
        })
    };
    (0..count).map(digest).collect()
}
