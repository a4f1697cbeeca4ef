//! The costs that a change must not exceed, in a file of the repository.
//!
//! The file has a line for each case: its name and the figures. Lines that begin with `#` say with what it was written.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use super::cost::{Cost, FIGURES, head, row};

/// The command that writes the file anew.
pub(super) const RENEW: &str = "FAIRGATE_BLESS=1 cargo bench --bench forward -- --check";

/// The costs in the file, by case.
pub(super) struct Baseline {
    costs: BTreeMap<String, Cost>,
    /// The tools that it was written with.
    tools: String,
}

impl Baseline {
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let (notes, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#'));
        let tools = notes.iter().find_map(|note| note.strip_prefix(TOOLS));
        Self {
            costs: lines.into_iter().filter_map(parsed).collect(),
            tools: tools.unwrap_or("# unknown tools").to_owned(),
        }
    }

    /// What of these costs is not as the baseline says, a line each. Nothing if all is well.
    pub(super) fn differences(&self, counted: &[(String, Cost)]) -> Vec<String> {
        let mut found = Vec::new();
        for (case, cost) in counted {
            match self.costs.get(case) {
                Some(baseline) => found.extend(exceeded(case, cost, baseline)),
                None => found.push(format!("{case}: the baseline has no such case")),
            }
        }
        for case in self.costs.keys() {
            if !counted.iter().any(|(name, _)| name == case) {
                found.push(format!("{case}: the bench has no such case"));
            }
        }
        let now = tools();
        if !found.is_empty() && now != self.tools {
            found.push(format!(
                "the baseline was written with {}; this is {now}, which may be the reason",
                self.tools
            ));
        }
        found
    }
}

/// The figures of a case that have no room left.
fn exceeded(case: &str, cost: &Cost, baseline: &Cost) -> Vec<String> {
    let mut found = Vec::new();
    for (figure, (now, then)) in FIGURES.iter().zip(cost.iter().zip(baseline)) {
        let room = figure.room.around(*then);
        if (now - then).abs() <= room {
            continue;
        }
        let (verdict, decimals) = (if now > then { "more" } else { "fewer" }, figure.decimals);
        found.push(format!(
            "{case}: {} {now:.decimals$} a request, {verdict} than the baseline of {then:.decimals$} ± {room:.decimals$}",
            figure.name
        ));
    }
    found
}

/// The beginning of the line that names the tools.
const TOOLS: &str = "# with ";

/// Writes the file.
pub(super) fn write(path: &Path, counted: &[(String, Cost)]) {
    let mut text = format!(
        "# What one request costs the gateway in CI's build; see benches/README.md.\n# {RENEW}\n{TOOLS}{}\n{}\n",
        tools(),
        head("# case"),
    );
    for (case, cost) in counted {
        text += &row(case, cost);
        text.push('\n');
    }
    fs::write(path, text).expect("the baseline can be written");
}

/// A line of the file. The name of a case may have spaces; the figures are what comes last.
fn parsed(line: &str) -> Option<(String, Cost)> {
    let mut cost = Cost::default();
    let mut rest = line.trim_end();
    for figure in cost.iter_mut().rev() {
        let (before, last) = rest.rsplit_once(' ')?;
        *figure = last.parse().ok()?;
        rest = before.trim_end();
    }
    Some((rest.to_owned(), cost))
}

/// What compiled the bench and counts it: another compiler makes other instructions of the same code.
fn tools() -> String {
    let said = |program: &str| {
        let run = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8(run.stdout).ok()?;
        Some(text.lines().next()?.to_owned())
    };
    [said("rustc"), said("valgrind")]
        .map(|version| version.unwrap_or_else(|| "an unknown version".to_owned()))
        .join(", ")
}
