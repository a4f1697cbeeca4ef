//! How deep a pattern nests, as Go's package `regexp` counts it.
//!
//! Go limits the height of the tree that it makes of a pattern. A capturing group, a repetition, a concatenation and an
//! alternation add 1 each. A group without capture adds nothing, and neither do concatenations and alternations that are
//! directly inside of one another, letters of one literal, and alternatives of one character each.
//!
//! Not here: common beginnings of alternatives, which Go takes out, so that its tree may be higher by 1 or 2.

/// The maximum height of a tree.
const MAX_HEIGHT: u32 = 1_000;

/// What a part of a pattern is in Go's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    /// One character of a literal.
    Letter,
    Literal,
    /// Any one of several characters.
    Class,
    Concatenation,
    Alternation,
    /// A repetition, a capturing group or a position.
    Other,
}

/// A part of a pattern, and the height of its tree.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: PartKind,
    height: u32,
}

impl Part {
    const fn leaf(kind: PartKind) -> Self {
        Self { kind, height: 1 }
    }
}

/// What is under one node: how many parts, and the height of the highest.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    count: u32,
    highest: u32,
}

impl Parts {
    /// Adds a part, or its parts if it is of the kind `same`.
    fn add(&mut self, part: Part, same: PartKind) {
        let (count, height) = if part.kind == same {
            (2, part.height - 1)
        } else {
            (1, part.height)
        };
        self.count = self.count.saturating_add(count);
        self.highest = self.highest.max(height);
    }
}

/// The height of the group that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupHeight {
    captures: bool,
    /// The parts of the current alternative but for the last one, which a repetition may follow.
    parts: Parts,
    last: Option<Part>,
    /// The first of the parts, if it is the only one.
    only: Option<Part>,
    /// Whether the part before the last one is a literal, to which letters are added.
    after_literal: bool,
    /// The alternatives before the current one.
    alternatives: Parts,
    only_alternative: Option<Part>,
    /// Whether each of them is a single character.
    are_characters: bool,
}

/// The pattern nests too deeply.
#[derive(Debug)]
pub(super) struct TooHigh;

impl GroupHeight {
    /// An empty group; the whole pattern is one without capture.
    pub(super) fn new(captures: bool) -> Self {
        Self {
            captures,
            parts: Parts::default(),
            last: None,
            only: None,
            after_literal: false,
            alternatives: Parts::default(),
            only_alternative: None,
            are_characters: true,
        }
    }

    pub(super) fn letter(&mut self) -> Result<(), TooHigh> {
        self.push(Part::leaf(PartKind::Letter))
    }

    /// A class, or any character.
    pub(super) fn class(&mut self) -> Result<(), TooHigh> {
        self.push(Part::leaf(PartKind::Class))
    }

    /// A position such as `^`.
    pub(super) fn position(&mut self) -> Result<(), TooHigh> {
        self.push(Part::leaf(PartKind::Other))
    }

    /// A repetition of the last part.
    pub(super) fn repeat(&mut self) -> Result<(), TooHigh> {
        let inside = self.last.map_or(1, |part| part.height);
        let height = checked(inside.saturating_add(1))?;
        let kind = PartKind::Other;
        self.last = Some(Part { kind, height });
        Ok(())
    }

    /// The end of an alternative.
    pub(super) fn next_alternative(&mut self) -> Result<(), TooHigh> {
        let alternative = self.alternative()?;
        self.only_alternative = Some(alternative);
        self.are_characters &= matches!(alternative.kind, PartKind::Letter | PartKind::Class);
        self.alternatives.add(alternative, PartKind::Alternation);
        (self.parts, self.last, self.only, self.after_literal) =
            (Parts::default(), None, None, false);
        Ok(())
    }

    /// The end of `inside`, which is a part of this group then.
    pub(super) fn close(&mut self, mut inside: Self) -> Result<(), TooHigh> {
        let part = inside.whole()?;
        if !inside.captures {
            return self.push(part);
        }
        let height = checked(part.height.saturating_add(1))?;
        let kind = PartKind::Other;
        self.push(Part { kind, height })
    }

    /// The end of the whole pattern: its height.
    pub(super) fn end(mut self) -> Result<u32, TooHigh> {
        self.whole().map(|part| part.height)
    }

    fn push(&mut self, part: Part) -> Result<(), TooHigh> {
        self.settle();
        self.last = Some(part);
        checked(part.height).map(|_| ())
    }

    /// Counts the last part, which no repetition follows.
    fn settle(&mut self) {
        let Some(last) = self.last.take() else {
            return;
        };
        let is_literal = matches!(last.kind, PartKind::Letter | PartKind::Literal);
        if is_literal && self.after_literal {
            if self.parts.count == 1 {
                self.only = Some(Part::leaf(PartKind::Literal));
            }
            return;
        }
        self.after_literal = is_literal;
        self.parts.add(last, PartKind::Concatenation);
        self.only = Some(last);
    }

    /// The parts of the current alternative as one.
    fn alternative(&mut self) -> Result<Part, TooHigh> {
        self.settle();
        match (self.parts.count, self.only) {
            (0, _) | (_, None) => Ok(Part::leaf(PartKind::Other)),
            (1, Some(only)) => Ok(only),
            // A concatenation alone is what it was.
            (2, Some(only)) if only.kind == PartKind::Concatenation => Ok(only),
            _ => Ok(Part {
                kind: PartKind::Concatenation,
                height: checked(self.parts.highest.saturating_add(1))?,
            }),
        }
    }

    fn whole(&mut self) -> Result<Part, TooHigh> {
        self.next_alternative()?;
        match (self.alternatives.count, self.only_alternative) {
            (1, Some(only)) => Ok(only),
            (2, Some(only)) if only.kind == PartKind::Alternation => Ok(only),
            _ if self.are_characters => Ok(Part::leaf(PartKind::Class)),
            _ => Ok(Part {
                kind: PartKind::Alternation,
                height: checked(self.alternatives.highest.saturating_add(1))?,
            }),
        }
    }
}

fn checked(height: u32) -> Result<u32, TooHigh> {
    if height > MAX_HEIGHT {
        return Err(TooHigh);
    }
    Ok(height)
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;

    #[test]
    fn heights_are_those_of_the_trees_of_go() {
        for (pattern, height) in [
            ("", 1),
            ("a", 1),
            ("abc", 1),
            ("a.", 2),
            ("ab*", 3),
            ("(a)", 2),
            ("((a))", 3),
            ("(?:(?:a))", 1),
            ("(?:a.)b", 2),
            ("(?:(?:a.)b)", 2),
            ("(a.)b", 4),
            ("a|b", 1),
            ("[ab]|c|.", 1),
            ("ab|c", 2),
            ("(?:ab|c)|d", 2),
            ("(ab|c)|d", 4),
            ("a.|b", 3),
            ("(?:a*)*", 3),
            ("x(?:ab)*y", 3),
            ("^a$", 2),
            ("|", 2),
            ("()", 2),
        ] {
            assert_eq!(
                parse(pattern, u64::MAX, &mut 0).unwrap().height,
                height,
                "{pattern}"
            );
        }
    }
}
