//! Searches of long texts with patterns of the Common Expression Language.
//!
//! The input is a pattern, a zero byte, and a text, which is repeated until it is long. Short texts are searched at once; long ones in
//! pieces, by automata that are given up for a machine of our own when they grow too large.
//!
//! Property: the pieces find what the machine finds. An alternative that is never found makes a pattern too large for automata.

use fairgate_cel::{CelEnvironment, CelType, CelValue, EvaluationLimits, library};

use super::patterns::{WORDS, items};
use crate::{Outcome, Target};

/// The target `long_searches`.
pub const TARGET: Target = Target {
    name: "long_searches",
    run,
    dictionary: WORDS,
};

/// The length of a text, in bytes. Patterns that only evaluation knows become machines for shorter ones. Each search but the first goes
/// through such a text in pieces, and with five characters in the pattern the first one, too.
const LENGTH: usize = 17_000;
/// Begins with a character that no text has, so that it costs little.
const NEVER_FOUND: &str = r"\x{10fffe}\pL{500}";

fn run(data: &[u8]) -> Outcome {
    let data = String::from_utf8_lossy(data);
    let Some((pattern, text)) = data.split_once('\0') else {
        return Outcome::of(0);
    };
    if text.is_empty() || text.contains('\u{10fffe}') {
        return Outcome::of(1);
    }
    let text = text.repeat(LENGTH.div_ceil(text.len()));
    let Some(found) = Searched::new(pattern, &text) else {
        return Outcome::of(2);
    };
    let Some(by_machine) = Searched::new(&format!("(?:{pattern})|{NEVER_FOUND}"), &text) else {
        return Outcome::of(3);
    };
    assert_eq!(found, by_machine, "{pattern:?} in {data:?}");
    Outcome::of((
        found.all.len().checked_ilog2(),
        found.all.first().map(|first| first.len().checked_ilog2()),
    ))
}

/// What is found in a text.
#[derive(Debug, PartialEq, Eq)]
struct Searched {
    occurs: bool,
    all: Vec<String>,
}

impl Searched {
    /// `None` if it is no pattern, or takes more than an evaluation may.
    fn new(pattern: &str, text: &str) -> Option<Self> {
        let environment = CelEnvironment::builder()
            .library(&library::RegexLibrary)
            .variable("pattern", CelType::String)
            .variable("text", CelType::String)
            .build();
        let expression = "[[string(text.matches(pattern))], text.findAll(pattern, 200)]";
        let program = environment
            .compile(expression)
            .expect("the expression is right");
        let bindings = environment
            .bindings()
            .with("pattern", CelValue::string(pattern))
            .with("text", CelValue::string(text));
        let limits = EvaluationLimits::default();
        let evaluation = program.evaluate_within(&bindings, &limits);
        let found = evaluation.result.ok()?;
        let text = |value: CelValue<'_>| value.as_str().map(str::to_owned);
        let texts = |list: &CelValue<'_>| items(list).into_iter().filter_map(text).collect();
        let lists: Vec<Vec<String>> = items(&found).iter().map(texts).collect();
        let [occurs, all] = <[Vec<String>; 2]>::try_from(lists).expect("two lists");
        Some(Self {
            occurs: occurs == ["true"],
            all,
        })
    }
}
