//! Reports of comparisons: counts, and the known differences with their reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Deserialize;

/// A reason, and the cases that differ because of it: by name, or by a part of the text that describes the difference.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifference {
    reason: String,
    #[serde(default)]
    cases: Vec<String>,
    contains: Option<String>,
}

impl KnownDifference {
    fn explains(&self, case: &str, difference: &str) -> bool {
        let part = self.contains.as_deref();
        part.is_some_and(|part| difference.contains(part)) || self.cases.iter().any(|of| of == case)
    }
}

/// The cases of a corpus that differ, and how many agree.
pub(crate) struct Report {
    corpus: &'static str,
    /// By group: the number of cases that agree, and of all cases.
    groups: BTreeMap<String, (usize, usize)>,
    /// The difference, by the name of the case.
    different: BTreeMap<String, String>,
    seen: BTreeSet<String>,
}

impl Report {
    pub(crate) fn new(corpus: &'static str) -> Self {
        Self {
            corpus,
            groups: BTreeMap::new(),
            different: BTreeMap::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Adds a case; `difference` is `None` if it agrees.
    pub(crate) fn add(&mut self, group: &str, name: String, difference: Option<String>) {
        let counts = self.groups.entry(group.to_owned()).or_default();
        counts.1 += 1;
        counts.0 += usize::from(difference.is_none());
        self.seen.insert(name.clone());
        if let Some(difference) = difference {
            self.different.insert(name, difference);
        }
    }

    /// Prints the counts. Fails if there are unknown differences, or known ones that no longer occur.
    pub(crate) fn finish(self) {
        let (agree, all) = self
            .groups
            .values()
            .fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
        println!("{}: {agree} of {all} cases agree", self.corpus);
        for (group, (agree, all)) in &self.groups {
            println!("  {agree:6} of {all:6}  {group}");
        }
        let text = include_str!("known_differences.json");
        let mut corpora: BTreeMap<String, Vec<KnownDifference>> =
            serde_json::from_str(text).expect("known_differences.json");
        let known = corpora.remove(self.corpus).unwrap_or_default();
        let mut problems = String::new();
        for entry in &known {
            assert!(!entry.reason.is_empty(), "a known difference has a reason");
            let agrees =
                |case: &&String| self.seen.contains(*case) && !self.different.contains_key(*case);
            for case in entry.cases.iter().filter(agrees) {
                writeln!(
                    problems,
                    "agrees, remove it from known_differences.json: {case}"
                )
                .unwrap();
            }
            let occurs = self
                .different
                .iter()
                .any(|(case, text)| entry.explains(case, text));
            if entry.contains.is_some() && !occurs {
                writeln!(
                    problems,
                    "no longer occurs, remove it from known_differences.json: {}",
                    entry.reason
                )
                .unwrap();
            }
        }
        let unknown = self
            .different
            .iter()
            .filter(|(case, text)| !known.iter().any(|entry| entry.explains(case, text)));
        let unknown: Vec<_> = unknown.collect();
        for (case, difference) in &unknown {
            writeln!(problems, "{case}\n{difference}").unwrap();
        }
        assert!(
            problems.is_empty(),
            "{} unknown differences:\n{problems}",
            unknown.len()
        );
    }
}
