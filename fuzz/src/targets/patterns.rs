//! Regular expressions of the Common Expression Language, which follow the rules of RE2.
//!
//! The input is a pattern, a zero byte, and the text to be searched.
//!
//! Properties: compiling and searching end within their bounds; the three functions agree on whether the pattern occurs
//! and on where it occurs first; what is found is a part of the text; the engine takes every pattern that was rewritten,
//! but for its size.

use fairgate_cel::{CelEnvironment, CelType, CelValue, EvaluationLimits, library};

use crate::{Outcome, Target};

/// The target `patterns`.
pub const TARGET: Target = Target {
    name: "patterns",
    run,
    dictionary: WORDS,
};

/// The parts of patterns, and characters that they treat differently.
pub(super) const WORDS: &[&str] = &[
    "^",
    "$",
    "\\A",
    "\\z",
    "\\b",
    "\\B",
    "(?i)",
    "(?s)",
    "(?m)",
    "(?U)",
    "(?-i:",
    "(?P<n>",
    "(?<n>",
    "(?:",
    "(",
    ")",
    "|",
    "*",
    "+",
    "?",
    "*?",
    "{2}",
    "{2,}",
    "{0,1000}",
    "{,3}",
    "[a-z]",
    "[^",
    "]",
    "[[:alpha:]]",
    "[[:^digit:]]",
    "\\d",
    "\\D",
    "\\s",
    "\\w",
    "\\W",
    "\\pL",
    "\\p{Greek}",
    "\\P{^Lu}",
    "\\Q",
    "\\E",
    "\\x{10ffff}",
    "\\x4a",
    "\\101",
    "\\a",
    "\\f",
    "\\C",
    "\\pN",
    ".",
    "-",
    "&&",
    "~~",
    "\0",
    "aaaa",
    "\u{e9}",
    "\u{212a}",
    "\n",
];

const EXPRESSION: &str = "[[string(text.matches(pattern)), text.find(pattern)], text.findAll(pattern), text.findAll(pattern, 1)]";

fn run(data: &[u8]) -> Outcome {
    let data = String::from_utf8_lossy(data);
    let (pattern, text) = data
        .split_once('\0')
        .unwrap_or((&data, "aab Ab_9 \u{e9}\u{3b1}\n-x"));
    let environment = CelEnvironment::builder()
        .library(&library::RegexLibrary)
        .variable("pattern", CelType::String)
        .variable("text", CelType::String)
        .build();
    let program = environment
        .compile(EXPRESSION)
        .expect("the expression is right");
    let bindings = environment
        .bindings()
        .with("pattern", CelValue::string(pattern))
        .with("text", CelValue::string(text));
    let limits = EvaluationLimits::default();
    let evaluation = program.evaluate_within(&bindings, &limits);
    assert!(evaluation.work <= limits.work, "{pattern:?}");
    let found = match evaluation.result {
        Ok(found) => lists(&found),
        Err(error) => {
            let error = error.to_string();
            let why = error.split('`').next().unwrap_or_default();
            assert!(!why.contains("internal error"), "{pattern:?}: {why}");
            return Outcome::of(why.len());
        }
    };
    let [first, all, one] = &found[..] else {
        panic!("{found:?}");
    };
    let (occurs, first) = (first[0] == "true", &first[1]);
    assert_eq!(occurs, !all.is_empty(), "{pattern:?} in {text:?}: {all:?}");
    assert_eq!(one[..], all[..one.len()], "{pattern:?} in {text:?}");
    assert_eq!(one.len(), all.len().min(1), "{pattern:?} in {text:?}");
    assert_eq!(
        all.first().unwrap_or(&String::new()),
        first,
        "{pattern:?} in {text:?}"
    );
    assert!(
        all.iter().all(|part| text.contains(part.as_str())),
        "{pattern:?} in {text:?}: {all:?}"
    );
    Outcome::of((
        occurs,
        all.len().checked_ilog2(),
        first.len().checked_ilog2(),
    ))
}

/// The texts in the lists of a list.
pub(super) fn lists(value: &CelValue<'_>) -> Vec<Vec<String>> {
    let text = |value: CelValue<'_>| value.as_str().map(str::to_owned);
    let lists = items(value).into_iter();
    lists
        .map(|list| items(&list).into_iter().filter_map(text).collect())
        .collect()
}

/// The values of a list.
pub(super) fn items<'v>(value: &CelValue<'v>) -> Vec<CelValue<'v>> {
    match value {
        CelValue::List(list) => list.iter().collect(),
        other => panic!("{other:?} is no list"),
    }
}
