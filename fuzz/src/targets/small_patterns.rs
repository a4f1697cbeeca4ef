//! Patterns of the Common Expression Language that are constants of an expression, and the same ones as values that only
//! evaluation knows.
//!
//! The input is a pattern, a zero byte, and the text to be searched.
//!
//! Property: both are refused, or both find the same. A small constant is compiled by the crate `regex-automata`, and a value that
//! searches a short text becomes a machine of our own, so two engines are compared that share the parser alone.

use std::fmt::Write as _;

use fairgate_cel::{CelEnvironment, CelType, CelValue, EvaluationLimits, library};

use super::patterns::{WORDS, lists};
use crate::{Outcome, Target};

/// The target `small_patterns`.
pub const TARGET: Target = Target {
    name: "small_patterns",
    run,
    dictionary: WORDS,
};

/// Texts of 16 KiB are searched by the crate in both cases.
const LONGEST_TEXT: usize = 8 << 10;

fn run(data: &[u8]) -> Outcome {
    let data = String::from_utf8_lossy(data);
    let (pattern, text) = data
        .split_once('\0')
        .unwrap_or((&data, "aab Ab_9 \u{e9}\u{3b1}\n-x"));
    if text.len() > LONGEST_TEXT {
        return Outcome::of(0);
    }
    match (
        found(&literal(pattern), pattern, text),
        found("pattern", pattern, text),
    ) {
        (Ok(constant), Ok(value)) => {
            assert_eq!(constant, value, "{pattern:?} in {text:?}");
            Outcome::of((
                constant[1].len().checked_ilog2(),
                constant[0][1].len().checked_ilog2(),
                text.len().checked_ilog2(),
            ))
        }
        (constant, value) => {
            let is_refused = [&constant, &value].map(|found| found == &Err(Unfound::Syntax));
            assert_eq!(
                is_refused[0], is_refused[1],
                "{pattern:?}: {constant:?}, {value:?}"
            );
            Outcome::of((is_refused, constant.is_ok(), value.is_ok()))
        }
    }
}

/// Why nothing is searched.
#[derive(Debug, PartialEq, Eq)]
enum Unfound {
    /// It is no pattern.
    Syntax,
    /// It takes more than is allowed, which differs between constants and values.
    TooMuch,
}

/// What the functions find in a text by an expression of a pattern: whether and what first, all, and one.
fn found(expression: &str, pattern: &str, text: &str) -> Result<Vec<Vec<String>>, Unfound> {
    let environment = CelEnvironment::builder()
        .library(&library::RegexLibrary)
        .variable("pattern", CelType::String)
        .variable("text", CelType::String)
        .build();
    let all = format!(
        "[[string(text.matches({expression})), text.find({expression})], text.findAll({expression}), text.findAll({expression}, 1)]"
    );
    let program = environment.compile(&all);
    let program = program.map_err(|error| unfound(&error.to_string()))?;
    let bindings = environment
        .bindings()
        .with("pattern", CelValue::string(pattern))
        .with("text", CelValue::string(text));
    let evaluation = program.evaluate_within(&bindings, &EvaluationLimits::default());
    let found = evaluation.result;
    found
        .map(|found| lists(&found))
        .map_err(|error| unfound(&error.to_string()))
}

fn unfound(error: &str) -> Unfound {
    let is_size = error.contains("expression too large") || error.contains("nests too deeply");
    if error.contains("error parsing regexp") && !is_size {
        return Unfound::Syntax;
    }
    Unfound::TooMuch
}

/// A literal of the language.
fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for character in text.chars() {
        write!(literal, "\\U{:08x}", u32::from(character))
            .expect("writing to a string cannot fail");
    }
    literal + "\""
}
