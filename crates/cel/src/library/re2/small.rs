//! Small patterns, which the crate `regex-automata` compiles: it makes automata over bytes that search fast.
//!
//! It compiles by recursion and makes an automaton of each class, again for each repetition. So only patterns that are flat
//! and small come here.

use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use regex_syntax::hir::{Class, Hir, Look, Repetition};

use super::tree::{NodeId, PatternNode, PatternSize, PatternTree, Position};

/// How deep the patterns may nest: each level takes 1.5 KB of the stack, and 11 KB without optimization.
const MAX_HEIGHT: u32 = 100;

/// The maximum size. Compiling so much takes about a millisecond.
const MAX_ATOMS: u64 = 4_000;
const MAX_TABLES: u64 = 1_500;

/// The memory that the crate may take for a pattern, in bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// The memory in bytes and the steps for a pattern, and for each part of it.
const PATTERN_BYTES: u64 = 15_000;
const PATTERN_STEPS: u64 = 5_000;
const BYTES: PatternPartCost = PatternPartCost {
    atom: 64,
    table: 100,
};
const STEPS: PatternPartCost = PatternPartCost {
    atom: 50,
    table: 40,
};

/// What an atom and a range of a class take.
#[derive(Clone, Copy)]
struct PatternPartCost {
    atom: u64,
    table: u64,
}

impl PatternPartCost {
    fn of(self, size: PatternSize) -> u64 {
        let atoms = size.atoms.saturating_mul(self.atom);
        atoms.saturating_add(size.tables.saturating_mul(self.table))
    }
}

/// Whether a pattern is flat and small enough.
pub(super) fn is_small(size: PatternSize, height: u32) -> bool {
    height <= MAX_HEIGHT && size.atoms <= MAX_ATOMS && size.tables <= MAX_TABLES
}

/// The steps of compiling a pattern of this size.
pub(super) fn steps(size: PatternSize) -> u64 {
    PATTERN_STEPS.saturating_add(STEPS.of(size))
}

/// The memory that a pattern of this size takes, in bytes: an estimate that is the same everywhere.
pub(super) fn bytes(size: PatternSize) -> u64 {
    PATTERN_BYTES.saturating_add(BYTES.of(size))
}

/// Compiles a pattern. `None` if it takes too much memory after all: its size is an estimate.
pub(super) fn build(tree: &PatternTree) -> Option<Regex> {
    let config = Config::new().nfa_size_limit(Some(MAX_BYTES));
    let mut builder = Regex::builder();
    let built = builder
        .configure(config)
        .build_from_hir(&hir(tree, tree.root));
    built.ok()
}

/// The start and the end of the first match at or after `from`, in bytes.
pub(super) fn find(regex: &Regex, text: &str, from: usize) -> Option<(usize, usize)> {
    let found = regex.search(&Input::new(text).range(from..))?;
    Some((found.start(), found.end()))
}

/// Whether there is a match.
///
/// When the crate is asked only that, it ends at the first match, and if that is an empty one within a character, which is none, it
/// does not see that a longer one began before.
pub(super) fn is_match(regex: &Regex, tree: &PatternTree, text: &str) -> bool {
    if tree.is_nullable(tree.root) {
        return find(regex, text, 0).is_some();
    }
    regex.is_match(text)
}

/// The pattern below a node, as the crate takes it.
pub(super) fn hir(tree: &PatternTree, id: NodeId) -> Hir {
    let all = |first| tree.list(first).map(|id| hir(tree, id)).collect();
    match tree.node(id) {
        PatternNode::Empty => Hir::empty(),
        PatternNode::Char(character) => Hir::literal(character.to_string().into_bytes()),
        PatternNode::Set(set) => {
            let class = tree.sets[set as usize].to_class();
            Hir::class(Class::Unicode(class))
        }
        PatternNode::At(position) => Hir::look(look(position)),
        PatternNode::Concatenation(first, _) => Hir::concat(all(first)),
        PatternNode::Alternation(first, _) => Hir::alternation(all(first)),
        PatternNode::Repetition {
            of,
            least,
            most,
            greedy,
        } => Hir::repetition(Repetition {
            min: least.into(),
            max: most.map(u32::from),
            greedy,
            sub: Box::new(hir(tree, of)),
        }),
    }
}

fn look(position: Position) -> Look {
    match position {
        Position::TextStart => Look::Start,
        Position::TextEnd => Look::End,
        Position::LineStart => Look::StartLF,
        Position::LineEnd => Look::EndLF,
        Position::WordBoundary => Look::WordAscii,
        Position::NoWordBoundary => Look::WordAsciiNegate,
    }
}
