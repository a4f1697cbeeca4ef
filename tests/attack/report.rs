//! The results of attacks, and the table of all.

use std::time::Duration;

use serde_json::{Value, json};

use crate::others::ServiceStats;

/// A requirement, and whether it was met.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) wanted: String,
    pub(crate) is_met: bool,
    /// What was found.
    pub(crate) found: String,
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

    /// Records whether the requirement `wanted` is met, and what was found.
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
        });
    }

    /// Adds a figure without a verdict.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Whether all requirements are met.
    pub(crate) fn has_passed(&self) -> bool {
        !self.verdicts.is_empty() && self.verdicts.iter().all(|verdict| verdict.is_met)
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
        let verdict = |verdict: &Verdict| json!({"wanted": verdict.wanted, "ok": verdict.is_met, "found": verdict.found});
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
    let p99 = [&outcome.before, &outcome.during].map(|stats| {
        let is_measured = stats.requests() > stats.failures;
        is_measured.then(|| format!("{:.1}", millis(stats.percentile(99))))
    });
    let p99 = p99.map(|time| time.unwrap_or_else(|| "–".to_owned()));
    let failures = [&outcome.before, &outcome.during].map(|stats| stats.failures.to_string());
    let memory = outcome.resident.map(|bytes| (bytes >> 20).to_string());
    let wrong: Vec<String> = (outcome.verdicts.iter())
        .filter(|verdict| !verdict.is_met)
        .map(|verdict| format!("**{}**: {}", verdict.wanted, verdict.found))
        .collect();
    let verdict = if outcome.has_passed() {
        "ok".to_owned()
    } else {
        wrong.join("; ")
    };
    format!(
        "| {name:<22} | {point:<6} | {:>15} | {:>15} | {:>15} | {:>5} | {verdict} |",
        p99.join(" → "),
        failures.join(" → "),
        memory.join(" → "),
        outcome.cpu_percent(),
    )
}
