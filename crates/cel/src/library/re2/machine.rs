//! The machine for large patterns: instructions over characters, whose classes are shared sets.
//!
//! It is Thompson's, as in Go's package `regexp`: a counted repetition is written out, but an instruction takes 12 bytes
//! whatever its class. The crate `regex-automata` writes out an automaton over UTF-8 for each class instead; for the pattern
//! `(\pL|\pN|\pP|\pS){200}0` that is 13 MB, and here it is 12 KB. For small patterns the crate is much faster to search with, so
//! they stay with it ([`small`](super::small)).
//!
//! Not here: searching (`search`).

use std::sync::Arc;

use super::charset::CharSet;
use super::tree::{NodeId, PatternNode, PatternTree, Position};

/// The number of an instruction.
pub(super) type InstructionId = u32;

/// What is to be done at a place of a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// The text so far matches.
    Match,
    /// Takes this character.
    Char(char, InstructionId),
    /// Takes a character of the set with this number.
    Set(u32, InstructionId),
    /// Continues if this is the position.
    At(Position, InstructionId),
    /// Continues with both; the first is preferred.
    Both(InstructionId, InstructionId),
}

/// A pattern as instructions.
#[derive(Debug)]
pub(super) struct PatternMachine {
    pub(super) instructions: Box<[Instruction]>,
    pub(super) sets: Box<[Arc<CharSet>]>,
    pub(super) start: InstructionId,
    /// Whether every match begins at the start of the text.
    pub(super) anchored: bool,
}

impl PatternMachine {
    /// The machine of a pattern. It takes a step for each instruction.
    pub(super) fn new(tree: &PatternTree) -> Self {
        let mut writer = MachineWriter {
            tree,
            instructions: vec![Instruction::Match],
            sets: Vec::new(),
            numbers: vec![None; tree.sets.len()],
        };
        let start = writer.write(tree.root, 0);
        let first = &writer.instructions[start as usize];
        Self {
            anchored: matches!(first, Instruction::At(Position::TextStart, _)),
            instructions: writer.instructions.into(),
            sets: writer.sets.into(),
            start,
        }
    }
}

/// Writes instructions from the end of a pattern to its start, so that each knows what follows.
struct MachineWriter<'t> {
    tree: &'t PatternTree,
    instructions: Vec<Instruction>,
    /// The sets that are used, and their numbers by those in the tree.
    sets: Vec<Arc<CharSet>>,
    numbers: Vec<Option<u32>>,
}

impl MachineWriter<'_> {
    fn set(&mut self, number: u32) -> u32 {
        let known = &mut self.numbers[number as usize];
        let (sets, tree) = (&mut self.sets, self.tree);
        *known.get_or_insert_with(|| {
            sets.push(Arc::clone(&tree.sets[number as usize]));
            // There are no more than in the tree.
            u32::try_from(sets.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn push(&mut self, instruction: Instruction) -> InstructionId {
        let id = self.instructions.len();
        self.instructions.push(instruction);
        // The size of a pattern is bounded before it is written.
        u32::try_from(id).unwrap_or(u32::MAX)
    }

    /// Writes a node, which `next` follows, and returns where it starts. The recursion is as deep as the tree, at most 1000.
    fn write(&mut self, id: NodeId, next: InstructionId) -> InstructionId {
        match self.tree.node(id) {
            PatternNode::Empty => next,
            PatternNode::Char(character) => self.push(Instruction::Char(character, next)),
            PatternNode::Set(set) => {
                let set = self.set(set);
                self.push(Instruction::Set(set, next))
            }
            PatternNode::At(position) => self.push(Instruction::At(position, next)),
            PatternNode::Concatenation(first, _) => {
                let mut start = next;
                for part in self.backwards(first) {
                    start = self.write(part, start);
                }
                start
            }
            PatternNode::Alternation(first, _) => {
                let mut start = None;
                for one in self.backwards(first) {
                    let one = self.write(one, next);
                    start = Some(match start {
                        None => one,
                        Some(others) => self.push(Instruction::Both(one, others)),
                    });
                }
                start.unwrap_or(next)
            }
            PatternNode::Repetition {
                of,
                least,
                most,
                greedy,
            } => self.write_repetition((of, greedy), least, most, next),
        }
    }

    fn backwards(&self, first: NodeId) -> Vec<NodeId> {
        let mut all: Vec<_> = self.tree.list(first).collect();
        all.reverse();
        all
    }

    /// `x{2,4}` is `xx(x(x)?)?`, `x{2,}` is `xx+`, and `x*` is `(x+)?` if `x` may match nothing, as in Go.
    fn write_repetition(
        &mut self,
        (of, greedy): (NodeId, bool),
        least: u16,
        most: Option<u16>,
        next: InstructionId,
    ) -> InstructionId {
        let mut start = next;
        let mut copies = least;
        match most {
            Some(most) => {
                for _ in least..most {
                    let once = self.write(of, start);
                    start = self.either(once, next, greedy);
                }
            }
            None if least > 0 => {
                start = self.write_plus(of, greedy, next);
                copies -= 1;
            }
            None if self.tree.is_nullable(of) => {
                let plus = self.write_plus(of, greedy, next);
                start = self.either(plus, next, greedy);
            }
            None => {
                start = self.push(Instruction::Match);
                let once = self.write(of, start);
                self.instructions[start as usize] = choice(once, next, greedy);
            }
        }
        for _ in 0..copies {
            start = self.write(of, start);
        }
        start
    }

    fn write_plus(&mut self, of: NodeId, greedy: bool, next: InstructionId) -> InstructionId {
        let again = self.push(Instruction::Match);
        let once = self.write(of, again);
        self.instructions[again as usize] = choice(once, next, greedy);
        once
    }

    fn either(&mut self, once: InstructionId, next: InstructionId, greedy: bool) -> InstructionId {
        self.push(choice(once, next, greedy))
    }
}

fn choice(once: InstructionId, next: InstructionId, greedy: bool) -> Instruction {
    if greedy {
        Instruction::Both(once, next)
    } else {
        Instruction::Both(next, once)
    }
}
