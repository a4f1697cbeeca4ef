//! Translates RE2's syntax, as Go's package `regexp` parses it, to that of the crate `regex`.
//!
//! RE2 differs from the crate in these points: `\d`, `\s`, `\w` and `\b` are ASCII only; a `{` that does not start a
//! repetition is a literal; there is `\Q…\E`; classes have no set operators; a repetition cannot follow another one;
//! counts are at most 1000; and the error messages are others.
//!
//! Only whole matches are of use here, so that no group captures: what is in a group without capture does not nest
//! deeper, and the crate compiles nested parts by recursion.

use std::mem;

use super::{
    class::{Class, NONE, escape},
    height::{GroupHeight, TooHigh},
    refused::{INVALID_ESCAPE, Refused, TOO_DEEP},
};

/// The maximum count of a repetition, and of the product of nested repetitions.
const MAX_REPEAT: u32 = 1_000;

/// The size of a class that is a table of Unicode, such as `\pL`: it takes so many times as long to compile as others.
const TABLE_SIZE: u64 = 64;

const MISSING_PAREN: &str = "missing closing )";
const INVALID_REPEAT: &str = "invalid repeat count";
const INVALID_PERL: &str = "invalid or unsupported Perl syntax";
const INVALID_NAME: &str = "invalid named capture";

/// A pattern in the syntax of the crate `regex`.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) text: String,
    /// Characters and classes, as often as counts repeat them.
    pub(super) size: u64,
    /// How deep it nests, as Go counts it. What the crate makes of it nests no deeper.
    pub(super) height: u32,
}

/// Translates a pattern.
///
/// # Errors
///
/// As Go's package `regexp` reports them.
pub(super) fn translate(pattern: &str) -> Result<Translated, Refused> {
    let mut translation = Translation {
        pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len() + 16),
        groups: Vec::new(),
        atom: None,
        weight: 1,
        size: 0,
        atom_size: 0,
        last_repeat: None,
        height: GroupHeight::new(false),
        atom_start: 0,
        pending: String::new(),
        is_ungreedy: false,
        was_ungreedy: false,
    };
    while !translation.rest.is_empty() {
        translation.step()?;
    }
    if !translation.groups.is_empty() {
        return Err((MISSING_PAREN, pattern.to_owned()));
    }
    let height = translation.height.end();
    Ok(Translated {
        text: translation.out,
        size: translation.size,
        height: height.map_err(|TooHigh| too_deep(pattern))?,
    })
}

fn too_deep(pattern: &str) -> Refused {
    (TOO_DEEP, pattern.to_owned())
}

struct Translation<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    /// For each open group, what is known of the group around it so far.
    groups: Vec<OuterGroup>,
    /// The weight of the part that a repetition would apply to: the largest product of nested counts in it. `None` if
    /// there is no such part.
    atom: Option<u32>,
    /// The largest weight in the current group so far.
    weight: u32,
    /// The size of the group so far, and of what a repetition would repeat.
    size: u64,
    atom_size: u64,
    /// The pattern from the repetition directly before the current position on, if there is one.
    last_repeat: Option<&'p str>,
    /// The height of the group so far.
    height: GroupHeight,
    /// Where the part begins in the translation that a repetition would apply to.
    atom_start: usize,
    /// Flags after that part. In Go a repetition after them still applies to it; so they are written after that.
    pending: String,
    /// Whether repetitions are lazy unless a question mark follows; and whether they were before the pending flags.
    is_ungreedy: bool,
    was_ungreedy: bool,
}

/// What is known of a group at the beginning of one inside of it.
struct OuterGroup {
    weight: u32,
    size: u64,
    height: GroupHeight,
    is_ungreedy: bool,
    /// Where the inner group begins in the translation.
    start: usize,
}

impl<'p> Translation<'p> {
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
                self.open(1, "(?:", true);
                Ok(())
            }
            ')' => self.close(),
            '|' => {
                self.rest = &before[1..];
                self.flush();
                self.out.push('|');
                self.atom = None;
                let ended = self.height.next_alternative();
                self.checked(ended)
            }
            '^' | '$' => {
                self.rest = &before[1..];
                self.push_position(&before[..1])
            }
            '.' => {
                self.rest = &before[1..];
                self.push_class(".")
            }
            '[' => {
                let (class, rest) = Class::parse(before)?;
                self.rest = rest;
                self.push_class(&class)
            }
            '\\' => self.backslash(),
            _ => self.literal(first),
        }
    }

    fn checked(&self, height: Result<(), TooHigh>) -> Result<(), Refused> {
        height.map_err(|TooHigh| too_deep(self.pattern))
    }

    fn push_class(&mut self, text: &str) -> Result<(), Refused> {
        self.push_atom(text);
        let pushed = self.height.class();
        self.checked(pushed)
    }

    fn push_position(&mut self, text: &str) -> Result<(), Refused> {
        self.push_atom(text);
        let pushed = self.height.position();
        self.checked(pushed)
    }

    /// Writes the pending flags: no repetition follows them.
    fn flush(&mut self) {
        self.out.push_str(&self.pending);
        self.pending.clear();
        self.was_ungreedy = self.is_ungreedy;
    }

    fn push_atom(&mut self, text: &str) {
        self.flush();
        self.atom_start = self.out.len();
        self.out.push_str(text);
        self.atom = Some(1);
        let is_table = text.contains(r"\p") || text.contains(r"\P");
        self.atom_size = if is_table { TABLE_SIZE } else { 1 };
        self.size = self.size.saturating_add(self.atom_size);
    }

    /// A character that stands for itself.
    fn literal(&mut self, character: char) -> Result<(), Refused> {
        self.rest = &self.rest[character.len_utf8()..];
        self.push_literal(character)
    }

    fn push_literal(&mut self, character: char) -> Result<(), Refused> {
        let mut buffer = [0; 4];
        let escaped = regex::escape(character.encode_utf8(&mut buffer));
        self.push_atom(&escaped);
        let pushed = self.height.letter();
        self.checked(pushed)
    }

    /// Translates a repetition whose text starts at `before`: one with `counts`, or `*`, `+` or `?`.
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
        let Some(weight) = self.atom else {
            return Err((
                "missing argument to repetition operator",
                text(self.rest, before),
            ));
        };
        if let Some((least, most)) = counts {
            let times = most.unwrap_or(least).max(1);
            let weight = weight.saturating_mul(times);
            if times >= 2 && weight > MAX_REPEAT {
                return Err((INVALID_REPEAT, text(self.rest, before)));
            }
            self.weight = self.weight.max(weight);
            self.atom = Some(weight);
            let added = self.atom_size.saturating_mul(u64::from(times - 1));
            self.size = self.size.saturating_add(added);
            self.atom_size = self.atom_size.saturating_add(added);
        }
        let has_mark = self.rest.len() < before.len() - operator.len();
        self.push_operator(&operator, has_mark);
        self.last_repeat = Some(before);
        let repeated = self.height.repeat();
        self.checked(repeated)
    }

    /// Writes a repetition. `has_mark` says whether a question mark follows it.
    fn push_operator(&mut self, operator: &str, has_mark: bool) {
        if !self.pending.is_empty() {
            // What is repeated may be a repetition, of which the operator must not become a part.
            self.out.insert_str(self.atom_start, "(?:");
            self.out.push(')');
        }
        self.out.push_str(operator);
        if has_mark != (self.is_ungreedy != self.was_ungreedy) {
            self.out.push('?');
        }
    }

    /// Opens a group. `length` is the length of its opening in the pattern, in bytes; `opening` is its translation.
    fn open(&mut self, length: usize, opening: &str, captures: bool) {
        self.rest = &self.rest[length..];
        self.flush();
        self.groups.push(OuterGroup {
            weight: self.weight,
            size: self.size,
            height: self.height,
            is_ungreedy: self.is_ungreedy,
            start: self.out.len(),
        });
        self.out.push_str(opening);
        (self.weight, self.size) = (1, 0);
        self.height = GroupHeight::new(captures);
        self.atom = None;
    }

    fn close(&mut self) -> Result<(), Refused> {
        let Some(outer) = self.groups.pop() else {
            return Err(("unexpected )", self.pattern.to_owned()));
        };
        self.rest = &self.rest[1..];
        // Flags end with their group.
        self.pending.clear();
        self.is_ungreedy = outer.is_ungreedy;
        self.was_ungreedy = outer.is_ungreedy;
        self.atom_start = outer.start;
        self.out.push(')');
        self.atom = Some(self.weight);
        self.weight = self.weight.max(outer.weight);
        self.atom_size = self.size;
        self.size = self.size.saturating_add(outer.size);
        let inside = mem::replace(&mut self.height, outer.height);
        let closed = self.height.close(inside);
        self.checked(closed)
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` or `(?flags:`.
    fn perl_group(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        let prefix = ["(?P<", "(?<"].into_iter().find(|of| start.starts_with(of));
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
            self.open(end + 1, "(?:", true);
            return Ok(());
        }
        self.flags()
    }

    fn flags(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        // Each flag is kept once: the last occurrence counts.
        let (mut on, mut off) = (String::new(), String::new());
        let (mut negated, mut any) = (false, false);
        for (at, character) in start.char_indices().skip(2) {
            let wrong = || Err((INVALID_PERL, start[..at + character.len_utf8()].to_owned()));
            match character {
                'i' | 'm' | 's' | 'U' => {
                    any = true;
                    on.retain(|of| of != character);
                    off.retain(|of| of != character);
                    if negated { &mut off } else { &mut on }.push(character);
                }
                '-' if negated => return wrong(),
                '-' => {
                    negated = true;
                    any = false;
                }
                ':' | ')' if negated && !any => return wrong(),
                ':' | ')' => {
                    let minus = if off.is_empty() { "" } else { "-" };
                    let opening = format!("(?{on}{minus}{off}{character}");
                    let ungreedy = if on.contains('U') {
                        true
                    } else {
                        self.is_ungreedy && !off.contains('U')
                    };
                    if character == ':' {
                        self.open(at + 1, &opening, false);
                        (self.is_ungreedy, self.was_ungreedy) = (ungreedy, ungreedy);
                        return Ok(());
                    }
                    if !on.is_empty() || !off.is_empty() {
                        self.pending.push_str(&opening);
                    }
                    self.is_ungreedy = ungreedy;
                    if self.atom.is_none() {
                        self.flush();
                    }
                    self.rest = &start[at + 1..];
                    return Ok(());
                }
                _ => return wrong(),
            }
        }
        Err((MISSING_PAREN, self.pattern.to_owned()))
    }

    fn backslash(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        let kind = start[1..].chars().next();
        let simple = match kind {
            Some('A') => r"\A",
            Some('b') => r"(?-u:\b)",
            Some('B') => r"(?-u:\B)",
            Some('z') => r"\z",
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('s') => r"[\t\n\x0c\r ]",
            Some('S') => r"[^\t\n\x0c\r ]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            Some('C') => return Err((INVALID_ESCAPE, r"\C".to_owned())),
            _ => "",
        };
        if !simple.is_empty() {
            self.rest = &start[2..];
            return if matches!(kind, Some('A' | 'b' | 'B' | 'z')) {
                self.push_position(simple)
            } else {
                self.push_class(simple)
            };
        }
        match kind {
            Some('Q') => {
                let (quoted, rest) = start[2..].split_once(r"\E").unwrap_or((&start[2..], ""));
                self.rest = rest;
                for character in quoted.chars() {
                    self.push_literal(character)?;
                }
            }
            Some('p' | 'P') => {
                let (class, rest) = super::class::unicode(start)?;
                self.rest = rest;
                self.push_class(&class)?;
            }
            _ => {
                let (code_point, rest) = escape(start)?;
                self.rest = rest;
                match char::from_u32(code_point) {
                    Some(character) => self.push_literal(character)?,
                    None => self.push_class(NONE)?,
                }
            }
        }
        Ok(())
    }
}

/// The minimum and maximum count of a repetition (`None`: no maximum), and the text after it.
type Counted<'p> = ((u32, Option<u32>), &'p str);

/// Parses `{n}`, `{n,}` or `{n,m}`. `None` for anything else, which is not a repetition.
fn counts(text: &str) -> Option<Counted<'_>> {
    let (inside, rest) = text[1..].split_once('}')?;
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
