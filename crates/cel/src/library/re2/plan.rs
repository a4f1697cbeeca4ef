//! What compiling a pattern will take, which is known once it is parsed, and compiling it.

use super::machine::PatternMachine;
use super::parse::parse;
use super::refused::{Refused, TOO_LARGE};
use super::tree::PatternTree;
use super::{Pattern, PatternEngine, small};
use crate::pattern_budget::PatternUse;

/// The steps of parsing one pattern, at most.
const MAX_STEPS: u64 = 500_000;

/// The instructions of a machine, at most: 3.6 MB. Go allows ten times as many.
const MAX_INSTRUCTIONS: u64 = 300_000;

/// The steps and the memory in bytes of a machine, and of each of its instructions.
const MACHINE_STEPS: u64 = 100;
const MACHINE_BYTES: u64 = 200;
const INSTRUCTION_STEPS: u64 = 1;
const INSTRUCTION_BYTES: u64 = 12;

/// So many ranges of a class count as one atom when a text is searched.
const TABLES_PER_ATOM: u64 = 10;

/// A pattern that was parsed.
pub(super) struct PatternPlan {
    tree: PatternTree,
    is_small: bool,
    /// What parsing and building it takes.
    pub(super) takes: PatternUse,
}

impl PatternPlan {
    /// Parses a pattern, which becomes a machine unless it is small and `may_be_small`. It takes at most `most` steps, and adds
    /// them to `steps`.
    ///
    /// # Errors
    ///
    /// As Go's package `regexp` reports them; and when the pattern is too large.
    pub(super) fn new(
        pattern: &str,
        may_be_small: bool,
        most: u64,
        steps: &mut u64,
    ) -> Result<Self, Refused> {
        let parsed = parse(pattern, most.min(MAX_STEPS), steps)?;
        let tree = parsed.tree;
        let is_small = may_be_small && small::is_small(tree.size, parsed.height);
        if !is_small && tree.size.instructions > MAX_INSTRUCTIONS {
            return Err((TOO_LARGE, pattern.to_owned()));
        }
        let (build, bytes) = if is_small {
            (small::steps(tree.size), small::bytes(tree.size))
        } else {
            let instructions = tree.size.instructions;
            let sets: u64 = tree.sets.iter().map(|set| set.bytes()).sum();
            let bytes = MACHINE_BYTES + instructions * INSTRUCTION_BYTES + sets;
            (MACHINE_STEPS + instructions * INSTRUCTION_STEPS, bytes)
        };
        let takes = PatternUse {
            steps: *steps + build,
            bytes: pattern.len() as u64 + bytes,
        };
        Ok(Self {
            tree,
            is_small,
            takes,
        })
    }

    /// Compiles it.
    pub(super) fn build(self) -> Pattern {
        let size = self.tree.size;
        let small = self.is_small.then(|| small::build(&self.tree)).flatten();
        let engine = match small {
            Some(regex) => PatternEngine::Small {
                regex,
                atoms: size.atoms + size.tables / TABLES_PER_ATOM,
                tree: self.tree,
            },
            None => self.machine(),
        };
        Pattern {
            engine,
            takes: self.takes,
        }
    }

    /// The machine, also of a small pattern.
    pub(super) fn machine(&self) -> PatternEngine {
        PatternEngine::Machine(PatternMachine::new(&self.tree))
    }
}
