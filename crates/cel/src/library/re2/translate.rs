//! Translates RE2's syntax, as Go's package `regexp` parses it, to that of the crate `regex`.
//!
//! RE2 differs from the crate in these points: `\d`, `\s`, `\w` and `\b` are ASCII only; a `{` that does not start a
//! repetition is a literal; there is `\Q…\E`; classes have no set operators; a repetition cannot follow another one;
//! counts are at most 1000; and the error messages are others.

use super::{
    class::{Class, NONE, escape},
    refused::{INVALID_ESCAPE, Refused},
};

/// The maximum count of a repetition, and of the product of nested repetitions.
const MAX_REPEAT: u32 = 1_000;

/// The maximum depth of groups. (In the original: 1000.)
const MAX_GROUPS: usize = 240;

/// The size of a class that is a table of Unicode, such as `\pL`: it takes so many times as long to compile as others.
const TABLE_SIZE: u64 = 64;

const MISSING_PAREN: &str = "missing closing )";
const INVALID_REPEAT: &str = "invalid repeat count";
const INVALID_PERL: &str = "invalid or unsupported Perl syntax";
const INVALID_NAME: &str = "invalid named capture";

/// Translates a pattern. Also gives its size: characters and classes, as often as counts repeat them.
///
/// # Errors
///
/// As Go's package `regexp` reports them.
pub(super) fn translate(pattern: &str) -> Result<(String, u64), Refused> {
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
    };
    while !translation.rest.is_empty() {
        translation.step()?;
    }
    if translation.groups.is_empty() {
        return Ok((translation.out, translation.size));
    }
    Err((MISSING_PAREN, pattern.to_owned()))
}

struct Translation<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    /// For each open group, the largest weight and the size of the group around it so far.
    groups: Vec<(u32, u64)>,
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
                self.literal(first);
                Ok(())
            }
            '(' if before.starts_with("(?") => self.perl_group(),
            '(' => self.open(1, "("),
            ')' => self.close(),
            '|' => {
                self.rest = &before[1..];
                self.out.push('|');
                self.atom = None;
                Ok(())
            }
            '^' | '$' | '.' => {
                self.rest = &before[1..];
                self.push_atom(&before[..1]);
                Ok(())
            }
            '[' => {
                let (class, rest) = Class::parse(before)?;
                self.rest = rest;
                self.push_atom(&class);
                Ok(())
            }
            '\\' => self.backslash(),
            _ => {
                self.literal(first);
                Ok(())
            }
        }
    }

    fn push_atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.atom = Some(1);
        let is_table = text.contains(r"\p") || text.contains(r"\P");
        self.atom_size = if is_table { TABLE_SIZE } else { 1 };
        self.size = self.size.saturating_add(self.atom_size);
    }

    /// A character that stands for itself.
    fn literal(&mut self, character: char) {
        self.rest = &self.rest[character.len_utf8()..];
        self.push_literal(character);
    }

    fn push_literal(&mut self, character: char) {
        let mut buffer = [0; 4];
        let escaped = regex::escape(character.encode_utf8(&mut buffer));
        self.push_atom(&escaped);
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
        self.out.push_str(&text(self.rest, before));
        self.last_repeat = Some(before);
        Ok(())
    }

    /// Opens a group. `length` is the length of its opening in the pattern, in bytes; `opening` is its translation.
    fn open(&mut self, length: usize, opening: &str) -> Result<(), Refused> {
        if self.groups.len() >= MAX_GROUPS {
            return Err(("expression nests too deeply", self.pattern.to_owned()));
        }
        self.rest = &self.rest[length..];
        self.out.push_str(opening);
        self.groups.push((self.weight, self.size));
        (self.weight, self.size) = (1, 0);
        self.atom = None;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refused> {
        let Some((around, before)) = self.groups.pop() else {
            return Err(("unexpected )", self.pattern.to_owned()));
        };
        self.rest = &self.rest[1..];
        self.out.push(')');
        self.atom = Some(self.weight);
        self.weight = self.weight.max(around);
        self.atom_size = self.size;
        self.size = self.size.saturating_add(before);
        Ok(())
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
            return self.open(end + 1, "(");
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
                    if character == ':' {
                        return self.open(at + 1, &opening);
                    }
                    if !on.is_empty() || !off.is_empty() {
                        self.out.push_str(&opening);
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
            self.push_atom(simple);
            return Ok(());
        }
        match kind {
            Some('Q') => {
                let (quoted, rest) = start[2..].split_once(r"\E").unwrap_or((&start[2..], ""));
                self.rest = rest;
                for character in quoted.chars() {
                    self.push_literal(character);
                }
            }
            Some('p' | 'P') => {
                let (class, rest) = super::class::unicode(start)?;
                self.rest = rest;
                self.push_atom(&class);
            }
            _ => {
                let (code_point, rest) = escape(start)?;
                self.rest = rest;
                match char::from_u32(code_point) {
                    Some(character) => self.push_literal(character),
                    None => self.push_atom(NONE),
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
