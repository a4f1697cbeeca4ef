//! Parses patterns in the syntax of RE2, as Go's package `regexp` does.
//!
//! `\d`, `\s`, `\w` and `\b` are ASCII only; a `{` that does not start a repetition is a literal; there is `\Q…\E`; classes have
//! no set operators; a repetition cannot follow another one; counts are at most 1000, and so are the products of nested counts.
//! Only whole matches are of use here, so that no group captures.
//!
//! Parsing uses no recursion. It takes a step for each byte of the pattern, and one for each range of each class that is
//! not equal to one before.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use regex_syntax::hir::ClassUnicode;

use crate::unicode::negate;

use super::{
    charset::CharSet,
    class::{self, ClassOf, ParsedClass, escape},
    height::{GroupHeight, TooHigh},
    refused::{INVALID_ESCAPE, Refused, TOO_DEEP, TOO_LARGE},
    tables,
    tree::{NodeId, NodeList, PatternNode, PatternSize, PatternTree, Position, TreeBuilder},
};

/// The maximum count of a repetition, and of the product of nested repetitions.
const MAX_REPEAT: u32 = 1_000;

const MISSING_PAREN: &str = "missing closing )";
const INVALID_REPEAT: &str = "invalid repeat count";
const INVALID_PERL: &str = "invalid or unsupported Perl syntax";
const INVALID_NAME: &str = "invalid named capture";

/// A pattern that was parsed.
#[derive(Debug)]
pub(super) struct ParsedPattern {
    pub(super) tree: PatternTree,
    /// How deep it nests, as Go counts it. The tree nests no deeper.
    pub(super) height: u32,
}

/// Parses a pattern. It takes at most `most` steps and adds those that it took to `steps`, also if there is an error.
///
/// # Errors
///
/// As Go's package `regexp` reports them; and when it takes more steps.
pub(super) fn parse(pattern: &str, most: u64, steps: &mut u64) -> Result<ParsedPattern, Refused> {
    let mut parser = Parser {
        pattern,
        rest: pattern,
        tree: TreeBuilder::default(),
        classes: HashMap::new(),
        after_posix: pattern.rfind(":]").map(|at| pattern.len() - at),
        steps: 0,
        most,
        groups: Vec::new(),
        group: Group::new(Flags::default(), false),
        last_repeat: None,
    };
    let parsed = parser.all();
    *steps = steps.saturating_add(parser.steps);
    parsed
}

fn too_deep(pattern: &str) -> Refused {
    (TOO_DEEP, pattern.to_owned())
}

/// What `(?imsU)` sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Flags {
    /// Case does not matter.
    folds: bool,
    /// `^` and `$` are positions of lines.
    lines: bool,
    /// `.` is any character, line feeds included.
    any: bool,
    /// Less repetitions are preferred unless a question mark follows.
    ungreedy: bool,
}

/// What a repetition would repeat.
#[derive(Clone, Copy, Debug)]
struct Atom {
    node: NodeId,
    /// The largest product of nested counts in it.
    weight: u32,
    size: PatternSize,
}

/// A group that is being read; the whole pattern is one.
#[derive(Clone, Debug)]
struct Group {
    flags: Flags,
    /// The largest weight in it so far.
    weight: u32,
    size: PatternSize,
    height: GroupHeight,
    /// The last part of the current alternative. It is not among `parts` yet, because a repetition may follow.
    last: Option<NodeId>,
    parts: NodeList,
    alternatives: NodeList,
    /// What a repetition would apply to, which is `last`; `None` if there is no such part.
    atom: Option<Atom>,
}

impl Group {
    fn new(flags: Flags, captures: bool) -> Self {
        Self {
            flags,
            weight: 1,
            size: PatternSize::default(),
            height: GroupHeight::new(captures),
            last: None,
            parts: NodeList::default(),
            alternatives: NodeList::default(),
            atom: None,
        }
    }
}

struct Parser<'p> {
    pattern: &'p str,
    rest: &'p str,
    tree: TreeBuilder,
    /// The classes so far, by their text and flags.
    classes: HashMap<(&'p str, Flags), u32>,
    /// The length of the pattern from the last `:]` on, if there is one.
    after_posix: Option<usize>,
    steps: u64,
    /// The steps that parsing may take.
    most: u64,
    /// The open groups around the current one.
    groups: Vec<Group>,
    group: Group,
    /// The pattern from the repetition directly before the current position on, if there is one.
    last_repeat: Option<&'p str>,
}

impl<'p> Parser<'p> {
    fn all(&mut self) -> Result<ParsedPattern, Refused> {
        while !self.rest.is_empty() {
            self.step()?;
        }
        if !self.groups.is_empty() {
            return Err((MISSING_PAREN, self.pattern.to_owned()));
        }
        self.finish()
    }

    fn step(&mut self) -> Result<(), Refused> {
        let before = self.rest;
        let first = before.chars().next().unwrap_or_default();
        let last_repeat = self.last_repeat.take();
        match first {
            '*' | '+' | '?' => {
                self.rest = &before[1..];
                self.repeat(before, last_repeat, None)
            }
            '{' => {
                if let Some((counts, rest)) = counts(before) {
                    self.rest = rest;
                    return self.repeat(before, last_repeat, Some(counts));
                }
                self.literal(first)
            }
            '(' if before.starts_with("(?") => self.perl_group(),
            '(' => {
                self.open(1, self.group.flags, true);
                Ok(())
            }
            ')' => self.close(),
            '|' => {
                self.rest = &before[1..];
                self.end_alternative();
                let ended = self.group.height.next_alternative();
                self.checked(ended)
            }
            '^' | '$' => {
                self.rest = &before[1..];
                let position = match (first, self.group.flags.lines) {
                    ('^', false) => Position::TextStart,
                    ('^', true) => Position::LineStart,
                    (_, false) => Position::TextEnd,
                    (_, true) => Position::LineEnd,
                };
                self.push_position(position)
            }
            '.' => self.any_character(),
            '[' => self.brackets(),
            '\\' => self.backslash(),
            _ => self.literal(first),
        }
    }

    fn checked(&self, height: Result<(), TooHigh>) -> Result<(), Refused> {
        height.map_err(|TooHigh| too_deep(self.pattern))
    }

    /// Counts steps.
    fn take(&mut self, steps: u64) -> Result<(), Refused> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.most {
            return Err((TOO_LARGE, self.pattern.to_owned()));
        }
        Ok(())
    }

    /// Any character, or any but a line feed.
    fn any_character(&mut self) -> Result<(), Refused> {
        let mut class = ClassUnicode::empty();
        if !self.group.flags.any {
            class = tables::range('\n', '\n');
        }
        negate(&mut class);
        let class = ClassOf::Own(class);
        self.push_class(ParsedClass { class, steps: 2 }, &self.rest[1..])
    }

    /// A class in brackets.
    fn brackets(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        if let Some((set, rest)) = self.known_class(start) {
            self.rest = rest;
            return self.push_set(set);
        }
        let posix = class::PosixNames {
            length_after: self.after_posix,
        };
        let (class, rest) = class::brackets(start, self.group.flags.folds, posix)?;
        self.push_class(class, rest)
    }

    /// The class at the start of `text`, and what follows, if the pattern had the same before. What begins with a whole class
    /// begins with no longer one.
    fn known_class(&self, text: &'p str) -> Option<(u32, &'p str)> {
        /// A class with more brackets in it is parsed again.
        const MOST_BRACKETS: usize = 8;

        let ends = text.match_indices(']').take(MOST_BRACKETS);
        let mut ends = ends.map(|(at, _)| text.split_at(at + 1));
        ends.find_map(|(class, rest)| {
            let known = self.classes.get(&(class, self.group.flags));
            known.map(|set| (*set, rest))
        })
    }

    /// Adds a class, which ends before `rest`.
    fn push_class(&mut self, parsed: ParsedClass, rest: &'p str) -> Result<(), Refused> {
        let text = &self.rest[..self.rest.len() - rest.len()];
        self.rest = rest;
        let key = (text, self.group.flags);
        if let Some(known) = self.classes.get(&key) {
            return self.push_set(*known);
        }
        self.take(parsed.steps)?;
        let set = match parsed.class {
            ClassOf::Named(named) => Arc::clone(&named.set),
            ClassOf::Own(class) => Arc::new(CharSet::of(&class)),
        };
        let set = self.tree.set(set);
        self.classes.insert(key, set);
        self.push_set(set)
    }

    fn push_set(&mut self, set: u32) -> Result<(), Refused> {
        let node = self.tree.leaf(PatternNode::Set(set));
        self.push(node)?;
        let pushed = self.group.height.class();
        self.checked(pushed)
    }

    fn push_position(&mut self, position: Position) -> Result<(), Refused> {
        let node = self.tree.leaf(PatternNode::At(position));
        self.push(node)?;
        let pushed = self.group.height.position();
        self.checked(pushed)
    }

    /// Adds a part of one character, or a position.
    fn push(&mut self, node: NodeId) -> Result<(), Refused> {
        self.take(1)?;
        self.settle();
        let size = PatternSize {
            atoms: 1,
            tables: self.tree.tables_of(node),
            instructions: 1,
        };
        self.group.size = self.group.size.plus(size);
        self.group.last = Some(node);
        let weight = 1;
        self.group.atom = Some(Atom { node, weight, size });
        Ok(())
    }

    /// Adds the last part to the others: no repetition follows it.
    fn settle(&mut self) {
        if let Some(last) = self.group.last.take() {
            self.tree.follow(&mut self.group.parts, last);
        }
        self.group.atom = None;
    }

    fn end_alternative(&mut self) {
        self.settle();
        let parts = mem::take(&mut self.group.parts);
        let alternative = self.tree.concatenation(parts);
        self.tree.or(&mut self.group.alternatives, alternative);
        // The instruction that tries it.
        let size = &mut self.group.size;
        size.instructions = size.instructions.saturating_add(1);
    }

    /// A character that stands for itself.
    fn literal(&mut self, character: char) -> Result<(), Refused> {
        self.rest = &self.rest[character.len_utf8()..];
        self.push_literal(character)
    }

    fn push_literal(&mut self, character: char) -> Result<(), Refused> {
        let node = self.tree.character(character, self.group.flags.folds);
        self.push(node)?;
        let pushed = self.group.height.letter();
        self.checked(pushed)
    }

    /// Parses a repetition whose text starts at `before`: one with `counts`, or `*`, `+` or `?`.
    fn repeat(
        &mut self,
        before: &'p str,
        last: Option<&'p str>,
        counts: Option<(u32, Option<u32>)>,
    ) -> Result<(), Refused> {
        let text = |rest: &str, from: &str| from[..from.len() - rest.len()].to_owned();
        let operator = text(self.rest, before);
        if let Some((least, most)) = counts
            && (least > MAX_REPEAT || most.is_some_and(|most| most > MAX_REPEAT || least > most))
        {
            return Err((INVALID_REPEAT, operator));
        }
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
        }
        if let Some(last) = last {
            return Err(("invalid nested repetition operator", text(self.rest, last)));
        }
        let Some(atom) = self.group.atom else {
            return Err((
                "missing argument to repetition operator",
                text(self.rest, before),
            ));
        };
        let has_mark = self.rest.len() < before.len() - operator.len();
        let (least, most) = match operator.as_bytes() {
            b"*" => (0, None),
            b"+" => (1, None),
            b"?" => (0, Some(1)),
            _ => counts.unwrap_or_default(),
        };
        let times = most.unwrap_or(least).max(1);
        let weight = atom.weight.saturating_mul(times);
        if counts.is_some() && times >= 2 && weight > MAX_REPEAT {
            return Err((INVALID_REPEAT, text(self.rest, before)));
        }
        self.repeat_atom(atom, (least, most), has_mark);
        self.last_repeat = Some(before);
        let repeated = self.group.height.repeat();
        self.checked(repeated)
    }

    /// Puts a repetition in the place of the last part.
    fn repeat_atom(&mut self, atom: Atom, (least, most): (u32, Option<u32>), has_mark: bool) {
        let times = most.unwrap_or(least).max(1);
        let choices = most.map_or(2, |most| most.saturating_sub(least));
        let size = atom.size.times(times.into(), choices.into());
        let group = &mut self.group;
        group.size = group.size.less(atom.size).plus(size);
        let weight = atom.weight.saturating_mul(times);
        group.weight = group.weight.max(weight);
        // Counts are at most 1000.
        let count = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        let greedy = has_mark == group.flags.ungreedy;
        let (least, most) = (count(least), most.map(count));
        let node = self.tree.repetition(atom.node, least, most, greedy);
        group.last = Some(node);
        group.atom = Some(Atom { node, weight, size });
    }

    /// Opens a group. `length` is the length of its opening in the pattern, in bytes.
    fn open(&mut self, length: usize, flags: Flags, captures: bool) {
        self.rest = &self.rest[length..];
        self.settle();
        let outer = mem::replace(&mut self.group, Group::new(flags, captures));
        self.groups.push(outer);
    }

    fn close(&mut self) -> Result<(), Refused> {
        let Some(outer) = self.groups.pop() else {
            return Err(("unexpected )", self.pattern.to_owned()));
        };
        self.rest = &self.rest[1..];
        let node = self.end_group()?;
        // Flags end with their group.
        let inside = mem::replace(&mut self.group, outer);
        let group = &mut self.group;
        group.last = Some(node);
        group.atom = Some(Atom {
            node,
            weight: inside.weight,
            size: inside.size,
        });
        group.weight = group.weight.max(inside.weight);
        group.size = group.size.plus(inside.size);
        let closed = group.height.close(inside.height);
        self.checked(closed)
    }

    /// The current group as one part.
    fn end_group(&mut self) -> Result<NodeId, Refused> {
        self.end_alternative();
        let alternatives = mem::take(&mut self.group.alternatives);
        let Some(ranges) = self.tree.ranges_of(alternatives) else {
            return Ok(self.tree.alternation(alternatives));
        };
        self.take(ranges)?;
        let node = self.tree.one_of(alternatives);
        self.group.size = PatternSize {
            atoms: 1,
            tables: self.tree.tables_of(node),
            instructions: 1,
        };
        Ok(node)
    }

    fn finish(&mut self) -> Result<ParsedPattern, Refused> {
        let root = self.end_group()?;
        let height = self.group.height.end();
        let tree = mem::take(&mut self.tree).finish(root, self.group.size);
        Ok(ParsedPattern {
            tree,
            height: height.map_err(|TooHigh| too_deep(self.pattern))?,
        })
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` or `(?flags:`.
    fn perl_group(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        // With nothing after it, Go takes it for a flag.
        let begins = |of: &&str| start.starts_with(of) && start.len() > of.len();
        let prefix = ["(?P<", "(?<"].into_iter().find(begins);
        if let Some(prefix) = prefix {
            let Some(end) = start.find('>') else {
                return Err((INVALID_NAME, start.to_owned()));
            };
            let name = &start[prefix.len()..end];
            let valid = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(valid) {
                return Err((INVALID_NAME, start[..=end].to_owned()));
            }
            // Names have no use here and are dropped. In the original they may start with a digit and occur twice,
            // which `regex` refuses.
            self.open(end + 1, self.group.flags, true);
            return Ok(());
        }
        self.flags()
    }

    fn flags(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        let mut flags = self.group.flags;
        let (mut negated, mut any) = (false, false);
        for (at, character) in start.char_indices().skip(2) {
            let wrong = || Err((INVALID_PERL, start[..at + character.len_utf8()].to_owned()));
            match character {
                'i' => (flags.folds, any) = (!negated, true),
                'm' => (flags.lines, any) = (!negated, true),
                's' => (flags.any, any) = (!negated, true),
                'U' => (flags.ungreedy, any) = (!negated, true),
                '-' if negated => return wrong(),
                '-' => (negated, any) = (true, false),
                ':' | ')' if negated && !any => return wrong(),
                ':' => {
                    self.open(at + 1, flags, false);
                    return Ok(());
                }
                ')' => {
                    // What is before them can still be repeated.
                    self.group.flags = flags;
                    self.rest = &start[at + 1..];
                    return Ok(());
                }
                _ => return wrong(),
            }
        }
        Err((INVALID_PERL, start.to_owned()))
    }

    fn backslash(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        let kind = start[1..].chars().next();
        let position = match kind {
            Some('A') => Position::TextStart,
            Some('z') => Position::TextEnd,
            Some('b') => Position::WordBoundary,
            Some('B') => Position::NoWordBoundary,
            Some('C') => return Err((INVALID_ESCAPE, r"\C".to_owned())),
            Some('Q') => return self.quoted(),
            _ => return self.escaped(),
        };
        self.rest = &start[2..];
        self.push_position(position)
    }

    /// `\Q`, and what is literal up to `\E`.
    fn quoted(&mut self) -> Result<(), Refused> {
        let start = &self.rest[2..];
        let (quoted, rest) = start.split_once(r"\E").unwrap_or((start, ""));
        self.rest = rest;
        for character in quoted.chars() {
            self.push_literal(character)?;
        }
        Ok(())
    }

    /// A class such as `\d`, or one character.
    fn escaped(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        if let Some((class, rest)) = class::escaped(start, self.group.flags.folds)? {
            return self.push_class(class, rest);
        }
        let (code_point, rest) = escape(start)?;
        if let Some(character) = char::from_u32(code_point) {
            self.rest = rest;
            return self.push_literal(character);
        }
        // A surrogate, which no text has.
        let class = ClassOf::Own(ClassUnicode::empty());
        self.push_class(ParsedClass { class, steps: 1 }, rest)
    }
}

/// The minimum and maximum count of a repetition (`None`: no maximum), and the text after it.
type Counted<'p> = ((u32, Option<u32>), &'p str);

/// Parses `{n}`, `{n,}` or `{n,m}`. `None` for anything else, which is not a repetition.
fn counts(text: &str) -> Option<Counted<'_>> {
    // No further than the counts go: there may be many such braces.
    let end = text[1..].find(|c: char| c != ',' && !c.is_ascii_digit())?;
    let inside = &text[1..=end];
    let rest = text[1 + end..].strip_prefix('}')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let leading = text.len() > 1 && text.starts_with('0');
        (digits && !leading).then(|| text.parse().unwrap_or(u32::MAX))
    };
    let counts = match inside.split_once(',') {
        None => {
            let count = number(inside)?;
            (count, Some(count))
        }
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((counts, rest))
}
