//! The results of attacks, and the table of all.

use std::{
    env, fmt, fs,
    io::{self, Write as _},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{mode, others::ServiceStats};

/// A requirement, and whether it was met.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) wanted: String,
    pub(crate) is_met: bool,
    /// What was found.
    pub(crate) found: String,
    kind: VerdictKind,
}

/// How a requirement is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum VerdictKind {
    /// By what was counted, and the order of events: it decides whether the attack is withstood.
    Counted,
    /// By the clock or by resident memory, which the rest of the machine can spoil: it is only printed. What was found, as a
    /// part of what is allowed.
    Measured(f64),
}

impl Verdict {
    fn is_counted(&self) -> bool {
        self.kind == VerdictKind::Counted
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, found, .. } = self;
        match self.kind {
            VerdictKind::Counted => write!(f, "**{wanted}**: {found}"),
            VerdictKind::Measured(_) => write!(f, "missed: {wanted}: {found}"),
        }
    }
}

/// The results of one attack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) before: ServiceStats,
    pub(crate) during: ServiceStats,
    /// Resident memory of the gateway before it, at its peak, and after it; in bytes.
    pub(crate) resident: [u64; 3],
    /// Processor time of the gateway during it.
    pub(crate) cpu: Duration,
    /// How long it took.
    pub(crate) took: Duration,
    pub(crate) verdicts: Vec<Verdict>,
    /// Further figures, in words.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(
        before: ServiceStats,
        during: ServiceStats,
        resident: [u64; 3],
        cpu: Duration,
        took: Duration,
    ) -> Self {
        Self {
            before,
            during,
            resident,
            cpu,
            took,
            ..Self::default()
        }
    }

    /// Records whether the requirement `wanted` is met, and what was found. It decides whether the attack is withstood.
    pub(crate) fn check(
        &mut self,
        wanted: impl Into<String>,
        is_met: bool,
        found: impl Into<String>,
    ) {
        self.verdicts.push(Verdict {
            wanted: wanted.into(),
            is_met,
            found: found.into(),
            kind: VerdictKind::Counted,
        });
    }

    /// Records a figure that should not exceed `allowed`, and what was found in words. It is only printed, and only where
    /// figures are measured.
    pub(crate) fn measure(
        &mut self,
        wanted: impl Into<String>,
        (figure, allowed): (f64, f64),
        found: impl Into<String>,
    ) {
        if !mode::measures() {
            return;
        }
        self.verdicts.push(Verdict {
            wanted: wanted.into(),
            is_met: figure <= allowed,
            found: found.into(),
            kind: VerdictKind::Measured(figure / allowed),
        });
    }

    /// The median of several plays by their figures ([`measure`](Self::measure)), so that what else the machine did in one
    /// of them does not decide. What is counted has to be right in every play.
    pub(crate) fn median(mut plays: Vec<Self>) -> Self {
        plays.sort_by(|one, other| one.part().total_cmp(&other.part()));
        let pair = |play: &Self| play.p99_ms().join(" → ");
        let p99 = plays.iter().map(pair).collect::<Vec<_>>().join(", ");
        let mut median = plays.remove(plays.len() / 2);
        let others = plays.into_iter().flat_map(|play| play.verdicts);
        let missed = others.filter(|verdict| !verdict.is_met && verdict.is_counted());
        median.verdicts.extend(missed);
        median.note(format!("others' p99 in each play: {p99} ms"));
        median
    }

    /// The largest part of a figure allowed.
    fn part(&self) -> f64 {
        let parts = self
            .verdicts
            .iter()
            .filter_map(|verdict| match verdict.kind {
                VerdictKind::Counted => None,
                VerdictKind::Measured(part) => Some(part),
            });
        parts.fold(0.0, f64::max)
    }

    /// The other clients' p99 before and during it, in milliseconds; a dash where there was no request.
    fn p99_ms(&self) -> [String; 2] {
        [&self.before, &self.during].map(|stats| {
            let is_measured = stats.requests() > stats.failures;
            let time = is_measured.then(|| format!("{:.1}", millis(stats.percentile(99))));
            time.unwrap_or_else(|| "–".to_owned())
        })
    }

    /// Adds a figure without a verdict.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Whether all requirements are met that are checked by counting.
    pub(crate) fn has_passed(&self) -> bool {
        let mut counted = self.verdicts.iter().filter(|verdict| verdict.is_counted());
        let any = self.verdicts.iter().any(Verdict::is_counted);
        any && counted.all(|verdict| verdict.is_met)
    }

    /// The gateway's processor time during it, in hundredths of one core.
    pub(crate) fn cpu_percent(&self) -> u64 {
        let took = self.took.as_micros().max(1);
        u64::try_from(self.cpu.as_micros() * 100 / took).unwrap_or(u64::MAX)
    }

    /// As a JSON object.
    pub(crate) fn json(&self, name: &str, point: &str) -> Value {
        let stats = |stats: &ServiceStats| {
            json!({
                "requests": stats.requests(),
                "failures": stats.failures,
                "endedWatches": stats.ended_watches,
                "p50Ms": millis(stats.percentile(50)),
                "p99Ms": millis(stats.percentile(99)),
            })
        };
        let verdict = |verdict: &Verdict| json!({"wanted": verdict.wanted, "counted": verdict.is_counted(), "ok": verdict.is_met, "found": verdict.found});
        json!({
            "attack": name,
            "point": point,
            "ok": self.has_passed(),
            "before": stats(&self.before),
            "during": stats(&self.during),
            "residentMiB": self.resident.map(|bytes| bytes >> 20),
            "cpuPercent": self.cpu_percent(),
            "seconds": self.took.as_secs_f64(),
            "verdicts": self.verdicts.iter().map(verdict).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// Appends the figures of an attack to the file that `FAIRGATE_MEASURED` names, if any, as the tests of clusters do: a line of
/// JSON each.
pub(crate) fn append_figures(attack: &str, outcome: &Outcome) -> io::Result<()> {
    let Some(path) = env::var_os("FAIRGATE_MEASURED") else {
        return Ok(());
    };
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    let [_, peak, _] = outcome.resident;
    let figures = [
        (
            "others' p99 before",
            json!(millis(outcome.before.percentile(99))),
            "ms",
        ),
        (
            "others' p99",
            json!(millis(outcome.during.percentile(99))),
            "ms",
        ),
        ("peak resident memory", json!(peak >> 20), "MiB"),
    ];
    for (what, value, unit) in figures {
        let name = format!("attack {attack}: {what}");
        writeln!(
            file,
            "{}",
            json!({"name": name, "value": value, "unit": unit})
        )?;
    }
    Ok(())
}

/// Milliseconds, to a tenth.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

/// The head of the table, in Markdown.
pub(crate) fn head() -> String {
    format!(
        "| {:<22} | {:<6} | {:>15} | {:>15} | {:>15} | {:>5} | {}\n{}",
        "attack",
        "point",
        "p99 ms",
        "failures",
        "memory MiB",
        "CPU %",
        "verdict |",
        "|:-----------------------|:-------|----------------:|----------------:|----------------:|------:|:--------|"
    )
}

/// The line of an attack: each pair is before → during, memory before → peak → after.
pub(crate) fn line(name: &str, point: &str, outcome: &Outcome) -> String {
    let failures = [&outcome.before, &outcome.during].map(|stats| stats.failures.to_string());
    let memory = outcome.resident.map(|bytes| (bytes >> 20).to_string());
    let wrong: Vec<String> = (outcome.verdicts.iter())
        .filter(|verdict| !verdict.is_met)
        .map(Verdict::to_string)
        .collect();
    let verdict = if wrong.is_empty() && outcome.has_passed() {
        "ok".to_owned()
    } else {
        wrong.join("; ")
    };
    format!(
        "| {name:<22} | {point:<6} | {:>15} | {:>15} | {:>15} | {:>5} | {verdict} |",
        outcome.p99_ms().join(" → "),
        failures.join(" → "),
        memory.join(" → "),
        outcome.cpu_percent(),
    )
}
