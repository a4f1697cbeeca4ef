//! Differences that are known, with their reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Deserialize;

/// A reason with the cases that differ because of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifference {
    reason: String,
    cases: Vec<String>,
}

/// The cases that differ, and how many agree.
#[derive(Default)]
pub(crate) struct Comparison {
    seen: BTreeSet<String>,
    /// The case's name, and what differs.
    different: BTreeMap<String, String>,
}

impl Comparison {
    /// Counts a case; `difference` is what differs.
    pub(crate) fn add(&mut self, name: &str, difference: Option<String>) {
        let is_new = self.seen.insert(name.to_owned());
        assert!(is_new, "two cases have the name {name}");
        if let Some(difference) = difference {
            self.different.insert(name.to_owned(), difference);
        }
    }

    /// Shows the counts; fails on differences that are not known, and on known ones that are gone.
    pub(crate) fn finish(self) {
        let all = self.seen.len();
        let agree = all - self.different.len();
        println!("{agree} of {all} cases agree");
        let known: Vec<KnownDifference> =
            serde_json::from_str(include_str!("known_differences.json"))
                .expect("known_differences.json");
        let mut problems = String::new();
        let mut explained = BTreeSet::new();
        for entry in &known {
            assert!(!entry.reason.is_empty(), "a known difference has a reason");
            for case in &entry.cases {
                if self.seen.contains(case) && !self.different.contains_key(case) {
                    writeln!(
                        problems,
                        "agrees, take it out of known_differences.json: {case}"
                    )
                    .unwrap();
                }
                explained.insert(case);
            }
        }
        let unknown: Vec<_> = self
            .different
            .iter()
            .filter(|(case, _)| !explained.contains(case))
            .collect();
        for (case, difference) in &unknown {
            writeln!(problems, "{case}\n{difference}").unwrap();
        }
        assert!(
            problems.is_empty(),
            "{agree} of {all} cases agree; {} differences are not known:\n{problems}",
            unknown.len()
        );
    }
}
