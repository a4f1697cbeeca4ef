//! Regular expressions with the syntax and semantics of RE2, as Go's package `regexp` has them.
//!
//! A pattern is parsed into a tree. If that is small, the crate `regex-automata` compiles and searches it: its automata are fast.
//! A large one becomes a machine of our own, which shares character classes and takes a few bytes for each part, where the
//! crate takes up to 65 KB and half a millisecond for a class of Unicode, each time that it is repeated. Both give the same matches.
//!
//! What a pattern takes is counted before it is compiled, and bounded: by itself, for an expression and beyond
//! ([`PatternBudget`]), and for one that only evaluation knows, by the work of the evaluation.

mod cache;
mod charset;
mod class;
mod height;
mod machine;
mod parse;
mod plan;
mod refused;
mod search;
mod small;
mod stepped;
mod tables;
mod tree;

use std::sync::Arc;

use regex_automata::meta::Regex;

use crate::declarations::CelFunction;
use crate::pattern_budget::{PatternBudget, PatternUse};
use crate::value::{CelError, CelResult, CelValue, CelWork, DEFAULT_WORK_LIMIT};
use machine::PatternMachine;
use plan::PatternPlan;
use refused::{Refused, TOO_LARGE};
use search::MachineSearch;
use stepped::SteppedSearch;
use tree::PatternTree;

/// The steps of each byte of a pattern that only evaluation knows, before it is parsed.
const STEPS_PER_BYTE: u64 = 4;

/// A text of so many bytes is searched faster by a small pattern than that is compiled.
const LONG_TEXT: usize = 16 << 10;

/// How many pairs of a character of the text and an atom of a small pattern count as one step.
///
/// Most patterns run as an automaton that looks at a character once, whatever the size of the pattern. The engine turns
/// to one that may look at all of the pattern for each character where the automaton would become too large.
const MEETINGS_PER_STEP: u64 = 8;

/// The most such pairs of a search that is not interrupted: 10 000 steps.
const MEETINGS_AT_ONCE: u64 = 80_000;

/// The most of them of each but the first search of a text: there may be as many searches as the text has characters.
const MEETINGS_OF_NEXT: u64 = 16_000;

/// How many of them count as one step in each but the first search of a text. Most find a match soon.
const NEXT_MEETINGS_PER_STEP: u64 = 64;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    engine: PatternEngine,
    /// What compiling it takes, by estimates that are the same everywhere.
    takes: PatternUse,
}

#[derive(Debug)]
enum PatternEngine {
    Small {
        regex: Regex,
        /// Characters and classes, as often as counts repeat them.
        atoms: u64,
        tree: PatternTree,
    },
    Machine(PatternMachine),
}

/// The searches of one text for a pattern.
pub(super) struct PatternSearch<'p, 't> {
    text: &'t str,
    /// Whether it has been searched from its beginning.
    is_begun: bool,
    engine: SearchEngine<'p, 't>,
}

enum SearchEngine<'p, 't> {
    /// All of the text at once.
    Small {
        regex: &'p Regex,
        atoms: u64,
        tree: &'p PatternTree,
    },
    Stepped(Box<SteppedSearch<'p, 't>>),
    Machine(MachineSearch<'p, 't>),
}

impl Pattern {
    /// Begins to search `text`.
    ///
    /// # Errors
    ///
    /// When that may take more than `work` allows.
    pub(super) fn search<'p, 't>(
        &'p self,
        text: &'t str,
        work: &mut CelWork<'_>,
    ) -> Result<PatternSearch<'p, 't>, CelError> {
        let engine = match &self.engine {
            PatternEngine::Small { regex, atoms, tree } => {
                let meetings = atoms.saturating_mul(text.len() as u64);
                let (atoms, steps) = (*atoms, meetings / MEETINGS_PER_STEP);
                if meetings <= MEETINGS_AT_ONCE {
                    work.burn(steps)?;
                    SearchEngine::Small { regex, atoms, tree }
                } else {
                    let is_long = steps >= stepped::steps(tree);
                    let search = SteppedSearch::new(tree, atoms, text, is_long, work)?;
                    SearchEngine::Stepped(Box::new(search))
                }
            }
            PatternEngine::Machine(machine) => {
                SearchEngine::Machine(MachineSearch::new(machine, text, work)?)
            }
        };
        Ok(PatternSearch {
            text,
            is_begun: false,
            engine,
        })
    }
}

impl PatternSearch<'_, '_> {
    /// The start and the end of the first match at or after `from`, in bytes.
    ///
    /// # Errors
    ///
    /// When it takes more than `work` allows, or is interrupted.
    pub(super) fn find(
        &mut self,
        from: usize,
        work: &mut CelWork<'_>,
    ) -> Result<Option<(usize, usize)>, CelError> {
        self.prepare_next(from, work)?;
        match &mut self.engine {
            SearchEngine::Small { regex, .. } => Ok(small::find(regex, self.text, from)),
            SearchEngine::Stepped(search) => search.find(from, false, work),
            SearchEngine::Machine(machine) => machine.find(from, false, work),
        }
    }

    /// Counts each but the first of many searches at once, which may each read the rest of the text.
    fn prepare_next(&mut self, from: usize, work: &mut CelWork<'_>) -> Result<(), CelError> {
        let is_next = std::mem::replace(&mut self.is_begun, true);
        let SearchEngine::Small { atoms, tree, .. } = self.engine else {
            return Ok(());
        };
        if !is_next {
            return Ok(());
        }
        let meetings = atoms.saturating_mul((self.text.len() - from) as u64);
        if meetings > MEETINGS_OF_NEXT {
            let search = SteppedSearch::new(tree, atoms, self.text, true, work)?;
            self.engine = SearchEngine::Stepped(Box::new(search));
            return Ok(());
        }
        work.burn(meetings / NEXT_MEETINGS_PER_STEP)
    }

    /// Whether there is a match.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    fn is_match(&mut self, work: &mut CelWork<'_>) -> Result<bool, CelError> {
        match &mut self.engine {
            SearchEngine::Small { regex, tree, .. } => Ok(small::is_match(regex, tree, self.text)),
            SearchEngine::Stepped(search) => Ok(search.find(0, true, work)?.is_some()),
            SearchEngine::Machine(machine) => Ok(machine.find(0, true, work)?.is_some()),
        }
    }
}

/// Compiles a constant pattern, unless an equal one is known, and counts what that takes in `budget`.
///
/// # Errors
///
/// The message of Go's package `regexp`, or that of the budget.
pub(super) fn compile(pattern: &str, budget: &mut PatternBudget) -> Result<Arc<Pattern>, CelError> {
    if let Some(known) = cache::COMPILED.get(pattern) {
        budget.take(pattern, known.takes)?;
        return Ok(known);
    }
    let mut steps = 0;
    let plan = match PatternPlan::new(pattern, true, budget.steps_left(), &mut steps) {
        Ok(plan) => plan,
        Err(why) => {
            // What was parsed counts, too. If nothing is left, that is the error.
            let bytes = 0;
            budget.take(pattern, PatternUse { steps, bytes })?;
            return Err(failed(&why));
        }
    };
    budget.take(pattern, plan.takes)?;
    let compiled = Arc::new(plan.build());
    cache::COMPILED.insert(pattern, &compiled);
    Ok(compiled)
}

/// Compiles a pattern that is not a constant, to search `text` once. An expression may do so again and again, so it becomes a
/// machine, which takes a few microseconds to make, unless the text is long.
///
/// # Errors
///
/// As [`compile`], and when that takes more than `work` allows.
pub(super) fn compile_within(
    pattern: &str,
    text: &str,
    work: &mut CelWork<'_>,
) -> Result<Pattern, CelError> {
    work.burn(STEPS_PER_BYTE.saturating_mul(pattern.len() as u64))?;
    let mut steps = 0;
    let plan = PatternPlan::new(pattern, text.len() >= LONG_TEXT, work.left(), &mut steps);
    let takes = plan.as_ref().map_or(steps, |plan| plan.takes.steps);
    work.burn(takes)?;
    let plan = plan.map_err(|why| failed(&why))?;
    Ok(plan.build())
}

/// Go may accept a pattern that is too large here, so that is a limit of ours.
fn failed((what, part): &Refused) -> CelError {
    let text = format!("error parsing regexp: {what}: `{part}`");
    if *what == TOO_LARGE {
        CelError::own_limit(text)
    } else {
        CelError::new(text)
    }
}

/// The cost of matching `text` with `pattern`.
pub(super) fn match_cost(text: &CelValue<'_>, pattern: &CelValue<'_>) -> u64 {
    let text = text.cost_size().saturating_add(1).div_ceil(10);
    text.saturating_mul(pattern.cost_size().div_ceil(4))
}

/// Prepares `matches` for a constant pattern, which is compiled once.
pub(super) fn prepare_matches(
    pattern: &CelValue<'_>,
    budget: &mut PatternBudget,
) -> Result<Option<Arc<dyn CelFunction>>, CelError> {
    let CelValue::String(pattern) = pattern else {
        return Ok(None);
    };
    Ok(Some(Arc::new(MatchesConstant(compile(pattern, budget)?))))
}

/// The text to search, which is the first argument. The original does not check its type if the pattern is a constant,
/// and takes a type for its name.
pub(super) fn searched<'v>(args: &'v [CelValue<'_>]) -> Result<&'v str, CelError> {
    match args.first() {
        Some(CelValue::String(text)) => Ok(text),
        Some(CelValue::Type(of)) => Ok(of.runtime_name()),
        _ => Err(CelError::no_such_overload()),
    }
}

/// Whether `text` matches.
pub(super) fn is_match<'a>(pattern: &Pattern, text: &str, work: &mut CelWork<'_>) -> CelResult<'a> {
    let found = pattern.search(text, work)?.is_match(work)?;
    Ok(CelValue::Bool(found))
}

struct MatchesConstant(Arc<Pattern>);

impl CelFunction for MatchesConstant {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        self.call_within(args, &mut CelWork::new(DEFAULT_WORK_LIMIT, None))
    }

    fn call_within<'a>(&self, args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
        is_match(&self.0, searched(args)?, work)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod unicode_tests;
