//! The costs that a change must not exceed, in a file of the repository.
//!
//! The file has a line for each case: its name and the figures. Lines that begin with `#` say with what it was written.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use super::{
    RequestCase,
    cost::{Cost, FIGURES, Room, head, row},
};

/// The command that compares with the file.
pub(super) const CHECK: &str = "cargo bench --bench forward -- --check";

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
            tools: tools.unwrap_or("unknown tools").to_owned(),
        }
    }

    /// The figures of a case that are further from the baseline than their room, a line each.
    pub(super) fn differences(&self, case: &RequestCase, cost: &Cost) -> Vec<String> {
        let Some(baseline) = self.costs.get(case.name) else {
            return vec![format!("{}: the baseline has no such case", case.name)];
        };
        let mut found = Vec::new();
        for (figure, (now, then)) in FIGURES.iter().zip(cost.iter().zip(baseline)) {
            let (name, decimals) = (figure.name, figure.decimals);
            let room = match figure.room {
                Room::Share(share) => share * then,
                Room::OfCase => case.count_room,
            };
            if (now - then).abs() > room {
                let verdict = if now > then { "more" } else { "fewer" };
                found.push(format!(
                    "{}: {now:.decimals$} {name} a request, {verdict} than the baseline of {then:.decimals$} ± {room:.decimals$}",
                    case.name
                ));
            }
        }
        found
    }

    /// Cases of the baseline that the bench does not have, a line each.
    pub(super) fn surplus(&self, cases: &[RequestCase]) -> Vec<String> {
        let is_known = |name: &str| cases.iter().any(|case| case.name == name);
        let surplus = self.costs.keys().filter(|name| !is_known(name));
        surplus
            .map(|name| format!("{name}: the bench has no such case"))
            .collect()
    }

    /// Says so if the baseline was written with other tools than those that are here.
    pub(super) fn other_tools(&self) -> Option<String> {
        let (then, now) = (&self.tools, tools());
        (now != *then).then(|| {
            format!("The baseline was written with {then}; this is {now}, which may be the reason.")
        })
    }
}

/// The beginning of the line that names the tools.
const TOOLS: &str = "# with ";

/// Writes the file.
pub(super) fn write(path: &Path, counted: &[(&str, Cost)]) {
    let mut text = format!(
        "# What one request costs the gateway in CI's build; see benches/README.md. Written by:\n# {RENEW}\n{TOOLS}{}\n{}\n",
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

/// What compiled the bench and counts it, and for which processors: another compiler makes other instructions of the same code.
fn tools() -> String {
    let said = |program: &str| {
        let run = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8(run.stdout).ok()?;
        Some(text.lines().next()?.to_owned())
    };
    let versions = [said("rustc"), said("valgrind")];
    let versions =
        versions.map(|version| version.unwrap_or_else(|| "an unknown version".to_owned()));
    format!("{}, {}", versions.join(", "), std::env::consts::ARCH)
}
