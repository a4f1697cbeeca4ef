//! The tree of a pattern: what follows what, what repeats, and which characters.
//!
//! A repetition is one node, whatever its count, and equal classes are one set, so that the tree is no larger than the pattern.
//! A concatenation in a concatenation and an alternation in an alternation are one, and groups are none, so that the tree is
//! no higher than that of Go's package `regexp` ([`height`](super::height)).

use std::collections::HashMap;
use std::sync::Arc;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::charset::CharSet;
use crate::unicode::{fold, may_have_case};

/// The number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

/// A position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    TextStart,
    TextEnd,
    LineStart,
    LineEnd,
    /// Between a word and what is none; words are ASCII.
    WordBoundary,
    NoWordBoundary,
}

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternNode {
    Empty,
    Char(char),
    /// One character of the set with this number.
    Set(u32),
    At(Position),
    /// The first and the last of the parts that follow each other.
    Concatenation(NodeId, NodeId),
    /// The first and the last of the alternatives; those before are preferred.
    Alternation(NodeId, NodeId),
    Repetition {
        of: NodeId,
        least: u16,
        /// `None`: any number.
        most: Option<u16>,
        /// Whether more repetitions are preferred to less.
        greedy: bool,
    },
}

/// A node and the one beside it.
#[derive(Clone, Copy, Debug)]
struct TreeNode {
    node: PatternNode,
    /// The next part or alternative.
    next: Option<NodeId>,
    /// Whether it can match nothing at all.
    nullable: bool,
}

/// How large a pattern is, each part counted as often as it is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PatternSize {
    /// Characters, classes and positions.
    pub(super) atoms: u64,
    /// Ranges of characters that are not ASCII in these classes.
    pub(super) tables: u64,
    /// Instructions of the machine, at most.
    pub(super) instructions: u64,
}

impl PatternSize {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            atoms: self.atoms.saturating_add(other.atoms),
            tables: self.tables.saturating_add(other.tables),
            instructions: self.instructions.saturating_add(other.instructions),
        }
    }

    /// Without a part.
    pub(super) fn less(self, part: Self) -> Self {
        Self {
            atoms: self.atoms.saturating_sub(part.atoms),
            tables: self.tables.saturating_sub(part.tables),
            instructions: self.instructions.saturating_sub(part.instructions),
        }
    }

    /// So many times, with instructions that choose between them.
    pub(super) fn times(self, count: u64, choices: u64) -> Self {
        Self {
            atoms: self.atoms.saturating_mul(count),
            tables: self.tables.saturating_mul(count),
            instructions: self
                .instructions
                .saturating_mul(count)
                .saturating_add(choices),
        }
    }
}

/// A pattern as a tree.
#[derive(Debug)]
pub(super) struct PatternTree {
    nodes: Vec<TreeNode>,
    pub(super) sets: Vec<Arc<CharSet>>,
    pub(super) root: NodeId,
    pub(super) size: PatternSize,
}

impl PatternTree {
    pub(super) fn node(&self, id: NodeId) -> PatternNode {
        self.nodes[id.0 as usize].node
    }

    pub(super) fn is_nullable(&self, id: NodeId) -> bool {
        self.nodes[id.0 as usize].nullable
    }

    /// A node and those beside it.
    pub(super) fn list(&self, first: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(first), |id| self.nodes[id.0 as usize].next)
    }
}

/// Nodes beside each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeList {
    ends: Option<(NodeId, NodeId)>,
    /// Whether one of them can match nothing at all, and whether one of them cannot.
    some_nullable: bool,
    some_not: bool,
}

/// Makes a tree from its leaves to its root.
#[derive(Debug, Default)]
pub(super) struct TreeBuilder {
    nodes: Vec<TreeNode>,
    sets: Vec<Arc<CharSet>>,
    numbers: HashMap<Arc<CharSet>, u32>,
    /// The sets of characters whose case does not matter; `None` for one that has none.
    folded: HashMap<char, Option<u32>>,
}

impl TreeBuilder {
    pub(super) fn leaf(&mut self, node: PatternNode) -> NodeId {
        let nullable = matches!(node, PatternNode::Empty | PatternNode::At(_));
        self.add(node, nullable)
    }

    /// A character, or any of those that differ only in case.
    pub(super) fn character(&mut self, character: char, folds: bool) -> NodeId {
        let set = if folds { self.folded(character) } else { None };
        self.leaf(set.map_or(PatternNode::Char(character), PatternNode::Set))
    }

    fn folded(&mut self, character: char) -> Option<u32> {
        // Folding allocates a class; most characters have only one case.
        if !may_have_case(character) {
            return None;
        }
        if let Some(known) = self.folded.get(&character) {
            return *known;
        }
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(character, character)]);
        fold(&mut class);
        let has_case = class
            .ranges()
            .iter()
            .map(ClassUnicodeRange::len)
            .sum::<usize>()
            > 1;
        let set = has_case.then(|| self.set(Arc::new(CharSet::of(&class))));
        self.folded.insert(character, set);
        set
    }

    /// The number of a set. Equal sets are one.
    pub(super) fn set(&mut self, set: Arc<CharSet>) -> u32 {
        if let Some(known) = self.numbers.get(&set) {
            return *known;
        }
        let number = index(self.sets.len());
        self.sets.push(Arc::clone(&set));
        self.numbers.insert(set, number);
        number
    }

    /// The ranges of the set with this number, ASCII left out.
    pub(super) fn tables_of(&self, id: NodeId) -> u64 {
        match self.nodes[id.0 as usize].node {
            PatternNode::Set(set) => self.sets[set as usize].tables(),
            _ => 0,
        }
    }

    /// The number of ranges in the alternatives of a list, if there are several and each is one character or a set.
    pub(super) fn ranges_of(&self, list: NodeList) -> Option<u64> {
        let (first, last) = list.ends.filter(|(first, last)| first != last)?;
        let mut ranges = 0;
        let mut id = first;
        loop {
            let part = self.nodes[id.0 as usize];
            ranges += match part.node {
                PatternNode::Char(_) => 1,
                PatternNode::Set(set) => 1 + self.sets[set as usize].tables(),
                _ => return None,
            };
            match part.next {
                Some(next) if id != last => id = next,
                _ => return Some(ranges),
            }
        }
    }

    /// These alternatives as one set.
    pub(super) fn one_of(&mut self, list: NodeList) -> NodeId {
        let mut ranges = Vec::new();
        let mut next = list.ends.map(|(first, _)| first);
        while let Some(id) = next {
            let part = self.nodes[id.0 as usize];
            match part.node {
                PatternNode::Char(one) => ranges.push(ClassUnicodeRange::new(one, one)),
                PatternNode::Set(set) => {
                    ranges.extend_from_slice(self.sets[set as usize].to_class().ranges());
                }
                _ => {}
            }
            next = part.next;
        }
        let set = self.set(Arc::new(CharSet::of(&ClassUnicode::new(ranges))));
        self.leaf(PatternNode::Set(set))
    }

    pub(super) fn repetition(
        &mut self,
        of: NodeId,
        least: u16,
        most: Option<u16>,
        greedy: bool,
    ) -> NodeId {
        let nullable = least == 0 || self.nodes[of.0 as usize].nullable;
        let node = PatternNode::Repetition {
            of,
            least,
            most,
            greedy,
        };
        self.add(node, nullable)
    }

    /// Adds a part to a concatenation.
    pub(super) fn follow(&mut self, list: &mut NodeList, part: NodeId) {
        match self.nodes[part.0 as usize].node {
            PatternNode::Empty => {}
            PatternNode::Concatenation(first, last) => self.join(list, part, first, last),
            _ => self.join(list, part, part, part),
        }
    }

    /// Adds an alternative.
    pub(super) fn or(&mut self, list: &mut NodeList, alternative: NodeId) {
        match self.nodes[alternative.0 as usize].node {
            PatternNode::Alternation(first, last) => self.join(list, alternative, first, last),
            _ => self.join(list, alternative, alternative, alternative),
        }
    }

    /// Appends the nodes from `first` to `last`, which are all of `whole`.
    fn join(&mut self, list: &mut NodeList, whole: NodeId, first: NodeId, last: NodeId) {
        let nullable = self.nodes[whole.0 as usize].nullable;
        list.some_nullable |= nullable;
        list.some_not |= !nullable;
        list.ends = match list.ends {
            None => Some((first, last)),
            Some((start, end)) => {
                // The links are in the nodes, so a node can be in one list only: parts of an inner list move to the outer one.
                self.nodes[end.0 as usize].next = Some(first);
                Some((start, last))
            }
        };
    }

    /// The parts of a list, one after the other, as one node.
    pub(super) fn concatenation(&mut self, list: NodeList) -> NodeId {
        match list.ends {
            None => self.leaf(PatternNode::Empty),
            Some((first, last)) if first == last => first,
            Some((first, last)) => {
                self.add(PatternNode::Concatenation(first, last), !list.some_not)
            }
        }
    }

    /// The alternatives of a list as one node.
    pub(super) fn alternation(&mut self, list: NodeList) -> NodeId {
        match list.ends {
            None => self.leaf(PatternNode::Empty),
            Some((first, last)) if first == last => first,
            Some((first, last)) => {
                self.add(PatternNode::Alternation(first, last), list.some_nullable)
            }
        }
    }

    pub(super) fn finish(self, root: NodeId, size: PatternSize) -> PatternTree {
        PatternTree {
            nodes: self.nodes,
            sets: self.sets,
            root,
            size,
        }
    }

    fn add(&mut self, node: PatternNode, nullable: bool) -> NodeId {
        let id = NodeId(index(self.nodes.len()));
        self.nodes.push(TreeNode {
            node,
            next: None,
            nullable,
        });
        id
    }
}

/// Patterns are far shorter than 2³² bytes, and a node takes one at least.
fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
