//! The results of attacks, and the table of all.

use std::{
    cmp, env, fmt, fs,
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
    /// By the clock, beside a control: it is only printed. What was found, as a part of what is allowed.
    Measured(f64),
}

impl Verdict {
    fn is_counted(&self) -> bool {
        self.kind == VerdictKind::Counted
    }

    /// What was found, as a part of what is allowed; 0 where it was counted.
    fn part(&self) -> f64 {
        match self.kind {
            VerdictKind::Counted => 0.0,
            VerdictKind::Measured(part) => part,
        }
    }

    /// The verdicts about one requirement in several plays: of those that are measured the median, of those that are counted all
    /// that are missed, or one.
    fn of_plays(same: &[&Self]) -> Vec<Self> {
        let mut missed = same.iter().filter(|verdict| !verdict.is_met).peekable();
        if same[0].is_counted() && missed.peek().is_some() {
            return missed.map(|verdict| (*verdict).clone()).collect();
        }
        let median = middle(same, |one, other| one.part().total_cmp(&other.part()));
        vec![(*median).clone()]
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

/// A figure without a verdict. A person compares it with the last one.
#[derive(Clone, Debug)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The same in words.
    note: String,
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
    figures: Vec<Figure>,
    /// What else was found, in words.
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

    /// Records what the clock or resident memory says, where figures are measured: its name, value and unit, and a note. What else
    /// the machine does can spoil it, so there is no verdict: it is printed, and written by [`append_figures`].
    pub(crate) fn figure(
        &mut self,
        name: impl Into<String>,
        (value, unit): (f64, &'static str),
        note: impl Into<String>,
    ) {
        if !mode::measures() {
            return;
        }
        self.figures.push(Figure {
            name: name.into(),
            value,
            unit,
            note: note.into(),
        });
    }

    /// Records a figure that should not exceed `allowed`, and what was found in words, where figures are measured. It is only
    /// printed.
    ///
    /// `allowed` comes from a control, measured in slices that alternate with those of the figure, and the median of three at least
    /// decides: of the windows of one play, or of several plays ([`median`](Self::median)). What has no control is a
    /// [`figure`](Self::figure).
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

    /// The results of several plays as one. Of each figure, and of each requirement that is measured, the median counts, so that
    /// what else the machine did in one of them does not decide. What is counted has to be right in every play.
    pub(crate) fn median(plays: &[Self]) -> Self {
        let p99 = |stats: &ServiceStats| stats.percentile(99);
        let pair = |play: &Self| play.p99_ms().join(" → ");
        let all_p99 = plays.iter().map(pair).collect::<Vec<_>>().join(", ");
        let by_cpu = middle(plays, |one, other| {
            one.cpu_percent().cmp(&other.cpu_percent())
        });
        let resident = |index: usize| {
            let by = |one: &Self, other: &Self| one.resident[index].cmp(&other.resident[index]);
            middle(plays, by).resident[index]
        };
        let mut median = Self::new(
            middle(plays, |a, b| p99(&a.before).cmp(&p99(&b.before)))
                .before
                .clone(),
            middle(plays, |a, b| p99(&a.during).cmp(&p99(&b.during)))
                .during
                .clone(),
            [0, 1, 2].map(resident),
            by_cpu.cpu,
            by_cpu.took,
        );
        let verdicts = plays.iter().flat_map(|play| &play.verdicts);
        for same in groups(verdicts, |verdict| &verdict.wanted) {
            median.verdicts.extend(Verdict::of_plays(&same));
        }
        let figures = plays.iter().flat_map(|play| &play.figures);
        for same in groups(figures, |figure| &figure.name) {
            let kept = middle(&same, |one, other| one.value.total_cmp(&other.value));
            median.figures.push((*kept).clone());
        }
        for (number, play) in (1..).zip(plays) {
            let notes = play.notes.iter();
            let notes = notes.map(|note| format!("play {number}: {note}"));
            median.notes.extend(notes);
        }
        median.note(format!("others' p99 in each play: {all_p99} ms"));
        median
    }

    /// The other clients' p99 before and during it, in milliseconds; a dash where there was no request.
    fn p99_ms(&self) -> [String; 2] {
        [&self.before, &self.during].map(|stats| {
            let is_measured = stats.requests() > stats.failures;
            let time = is_measured.then(|| format!("{:.1}", millis(stats.percentile(99))));
            time.unwrap_or_else(|| "–".to_owned())
        })
    }

    /// The figures in words, and what else was found.
    pub(crate) fn all_notes(&self) -> impl Iterator<Item = &String> {
        let figures = self.figures.iter().map(|figure| &figure.note);
        figures.chain(&self.notes)
    }

    /// Adds what was found, without a verdict.
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
        let figure = |figure: &Figure| json!({"name": figure.name, "value": figure.value, "unit": figure.unit});
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
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
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
    let p99 = |stats: &ServiceStats| json!(millis(stats.percentile(99)));
    let mut figures = vec![
        ("others' p99 before", p99(&outcome.before), "ms"),
        ("others' p99", p99(&outcome.during), "ms"),
        ("peak resident memory", json!(peak >> 20), "MiB"),
    ];
    let further = outcome.figures.iter();
    figures.extend(further.map(|one| (one.name.as_str(), json!(one.value), one.unit)));
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

/// The middle one of some, of which there must be one at least.
fn middle<T>(all: &[T], by: impl Fn(&T, &T) -> cmp::Ordering) -> &T {
    let mut sorted: Vec<&T> = all.iter().collect();
    sorted.sort_by(|one, other| by(one, other));
    sorted[sorted.len() / 2]
}

/// Those of the same name together, in the order in which the names first occur.
fn groups<'a, T>(
    all: impl Iterator<Item = &'a T>,
    name: impl Fn(&T) -> &String,
) -> Vec<Vec<&'a T>> {
    let mut groups: Vec<Vec<&T>> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|same| name(same[0]) == name(one)) {
            Some(same) => same.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
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
