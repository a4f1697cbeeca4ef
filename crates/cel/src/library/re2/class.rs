//! Character classes and escapes of RE2.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::refused::{INVALID_ESCAPE, INVALID_RANGE, Refused};
use super::tables::{self, NamedClass};
use crate::unicode::{fold, negate};
use std::sync::Arc;

/// The highest code point.
const MAX_CODE_POINT: u32 = 0x10_FFFF;

/// Ranges of characters.
type Ranges = &'static [(char, char)];

/// The classes `\d`, `\s` and `\w`, which are ASCII only.
const DIGIT: Ranges = &[('0', '9')];
const SPACE: Ranges = &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')];
const WORD: Ranges = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];

/// The named POSIX classes, which are ASCII only.
const POSIX: [(&str, Ranges); 14] = [
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("ascii", &[('\0', '\x7f')]),
    ("blank", &[('\t', '\t'), (' ', ' ')]),
    ("cntrl", &[('\0', '\x1f'), ('\x7f', '\x7f')]),
    ("digit", DIGIT),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    ("punct", &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("word", WORD),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

/// A class of a pattern, and the steps that making it took: one for each range.
pub(super) struct ParsedClass {
    pub(super) class: ClassOf,
    pub(super) steps: u64,
}

/// The characters of a class.
pub(super) enum ClassOf {
    /// Those of a class of Unicode, which patterns share.
    Named(Arc<NamedClass>),
    Own(ClassUnicode),
}

impl ClassOf {
    pub(super) fn class(&self) -> &ClassUnicode {
        match self {
            Self::Named(named) => &named.class,
            Self::Own(class) => class,
        }
    }
}

/// Where names such as `[:alpha:]` may end in a pattern. Without this, each `[:` would be looked after to the end of the pattern.
#[derive(Clone, Copy)]
pub(super) struct PosixNames {
    /// The length of the pattern from the last `:]` on, if there is one.
    pub(super) length_after: Option<usize>,
}

impl PosixNames {
    /// The name that ends somewhere in `text`, and what is after it.
    fn name_in(self, text: &str) -> Option<(&str, &str)> {
        let length = self.length_after?;
        (text.len() >= length)
            .then(|| text.split_once(":]"))
            .flatten()
    }
}

/// Parses the class in brackets at the start of `text`. `folds` says whether the case of characters does not matter.
/// Returns the text after it, too.
pub(super) fn brackets(
    text: &str,
    folds: bool,
    posix: PosixNames,
) -> Result<(ParsedClass, &str), Refused> {
    let (negated, mut rest) = match text[1..].strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, &text[1..]),
    };
    // What is within is folded by itself, if it has a name, before it is negated.
    let (mut folded, mut plain) = (Vec::new(), Vec::new());
    let mut first = true;
    while first || !rest.starts_with(']') {
        if rest.is_empty() {
            return Err(("missing closing ]", text.to_owned()));
        }
        first = false;
        rest = match special(rest, folds, posix)? {
            Some((inside, after)) => {
                folded.extend_from_slice(inside.class().ranges());
                after
            }
            None => range(rest, text, &mut plain)?,
        };
    }
    let given = plain.len() + folded.len();
    let (class, folding) = union(plain, folded, folds, negated);
    let steps = (given + class.ranges().len()) as u64 + folding;
    let class = ClassOf::Own(class);
    Ok((ParsedClass { class, steps }, &rest[1..]))
}

/// A class of ranges whose case does not matter if `folds` says so, and of others. Returns the steps of that, too.
fn union(
    plain: Vec<ClassUnicodeRange>,
    folded: Vec<ClassUnicodeRange>,
    folds: bool,
    negated: bool,
) -> (ClassUnicode, u64) {
    let mut class = ClassUnicode::new(plain);
    let steps = if folds { fold(&mut class) } else { 0 };
    if !folded.is_empty() {
        class.union(&ClassUnicode::new(folded));
    }
    if negated {
        negate(&mut class);
    }
    (class, steps)
}

/// Parses `\d`, `\pL` and the like at the start of `text`, if it begins with one.
pub(super) fn escaped(text: &str, folds: bool) -> Result<Option<(ParsedClass, &str)>, Refused> {
    let Some((class, rest)) = perl(text, folds)? else {
        return Ok(None);
    };
    let steps = class.class().ranges().len() as u64;
    Ok(Some((ParsedClass { class, steps }, rest)))
}

/// Parses a class within a class, `[:alpha:]`, `\pL` or `\d`, if the text begins with one.
fn special(text: &str, folds: bool, posix: PosixNames) -> Result<Option<(ClassOf, &str)>, Refused> {
    if let Some(inside) = text.strip_prefix("[:")
        && let Some((name, rest)) = posix.name_in(inside)
    {
        let (negated, plain) = match name.strip_prefix('^') {
            Some(plain) => (true, plain),
            None => (false, name),
        };
        let Some((_, ranges)) = POSIX.iter().find(|(of, _)| *of == plain) else {
            return Err((INVALID_RANGE, format!("[:{name}:]")));
        };
        return Ok(Some((of_ranges(ranges, folds, negated), rest)));
    }
    perl(text, folds)
}

fn perl(text: &str, folds: bool) -> Result<Option<(ClassOf, &str)>, Refused> {
    let (ranges, negated) = match text.as_bytes() {
        [b'\\', b'd', ..] => (DIGIT, false),
        [b'\\', b'D', ..] => (DIGIT, true),
        [b'\\', b's', ..] => (SPACE, false),
        [b'\\', b'S', ..] => (SPACE, true),
        [b'\\', b'w', ..] => (WORD, false),
        [b'\\', b'W', ..] => (WORD, true),
        [b'\\', b'p' | b'P', ..] => return unicode(text, folds).map(Some),
        _ => return Ok(None),
    };
    Ok(Some((of_ranges(ranges, folds, negated), &text[2..])))
}

fn of_ranges(ranges: Ranges, folds: bool, negated: bool) -> ClassOf {
    let ranges = ranges.iter();
    let ranges = ranges.map(|&(first, last)| ClassUnicodeRange::new(first, last));
    let (class, _) = union(ranges.collect(), Vec::new(), folds, negated);
    ClassOf::Own(class)
}

/// Parses a character, or a range of two characters with a dash between them, and appends it to `ranges`. Returns the text
/// after it.
fn range<'p>(
    text: &'p str,
    class: &str,
    ranges: &mut Vec<ClassUnicodeRange>,
) -> Result<&'p str, Refused> {
    let (low, mut rest) = character(text, class)?;
    let mut high = low;
    if rest.starts_with('-') && rest.len() >= 2 && !rest[1..].starts_with(']') {
        (high, rest) = character(&rest[1..], class)?;
        if high < low {
            let wrong = &text[..text.len() - rest.len()];
            return Err((INVALID_RANGE, wrong.to_owned()));
        }
    }
    // A range may begin or end with a surrogate, which no text has.
    let low = char::from_u32(low).unwrap_or('\u{E000}');
    let high = char::from_u32(high).unwrap_or('\u{D7FF}');
    if low <= high {
        ranges.push(ClassUnicodeRange::new(low, high));
    }
    Ok(rest)
}

fn character<'p>(text: &'p str, class: &str) -> Result<(u32, &'p str), Refused> {
    match text.chars().next() {
        None => Err(("missing closing ]", class.to_owned())),
        Some('\\') => escape(text),
        Some(character) => Ok((character.into(), &text[character.len_utf8()..])),
    }
}

/// Parses `\pL` or `\p{Name}`. `P` in place of `p`, or a leading `^` in the name, negates it.
fn unicode(text: &str, folds: bool) -> Result<(ClassOf, &str), Refused> {
    let negated = text.starts_with(r"\P");
    let first = text[2..].chars().next();
    let (name, rest) = match first {
        None => return Err((INVALID_RANGE, text.to_owned())),
        Some('{') => match text[3..].split_once('}') {
            Some(parts) => parts,
            None => return Err((INVALID_RANGE, text.to_owned())),
        },
        Some(character) => text[2..].split_at(character.len_utf8()),
    };
    let whole = &text[..text.len() - rest.len()];
    let (negated, name) = match name.strip_prefix('^') {
        Some(name) => (!negated, name),
        None => (negated, name),
    };
    match tables::property(name, folds, negated) {
        Some(named) => Ok((ClassOf::Named(named), rest)),
        None => Err((INVALID_RANGE, whole.to_owned())),
    }
}

/// The code point of the escape at the start of `text`, which may be a surrogate, and the text after it.
pub(super) fn escape(text: &str) -> Result<(u32, &str), Refused> {
    let mut characters = text[1..].chars();
    let Some(kind) = characters.next() else {
        return Err(("trailing backslash at end of expression", String::new()));
    };
    let rest = characters.as_str();
    let wrong = |rest: &str| {
        let part = &text[..text.len() - rest.len()];
        Err((INVALID_ESCAPE, part.to_owned()))
    };
    let is_octal = |text: &str| text.starts_with(|c: char| ('0'..='7').contains(&c));
    let simple = match kind {
        'a' => '\x07',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '1'..='7' if !is_octal(rest) => return wrong(rest),
        '0'..='7' => return Ok(octal(&text[1..])),
        'x' => return hex(text, rest),
        _ if kind.is_ascii() && !kind.is_ascii_alphanumeric() => kind,
        _ => return wrong(rest),
    };
    Ok((simple.into(), rest))
}

/// The code point of up to three octal digits, and the text after them.
fn octal(text: &str) -> (u32, &str) {
    let digits = text
        .bytes()
        .take(3)
        .take_while(|byte| (b'0'..=b'7').contains(byte));
    let length = digits.count();
    let value = u32::from_str_radix(&text[..length], 8).unwrap_or_default();
    (value, &text[length..])
}

/// The code point of two hexadecimal digits, or of any number of them in braces, and the text after them. `text` begins
/// with the backslash, `rest` after the `x`. The error has what was read up to the first wrong character.
fn hex<'p>(text: &'p str, rest: &'p str) -> Result<(u32, &'p str), Refused> {
    let wrong = |rest: &str| {
        let part = &text[..text.len() - rest.len()];
        Err((INVALID_ESCAPE, part.to_owned()))
    };
    let Some(inside) = rest.strip_prefix('{') else {
        let mut characters = rest.chars();
        let digits = [characters.next(), characters.next()];
        let digits = digits.map(|one| one.and_then(|one| one.to_digit(16)));
        return match digits {
            [Some(high), Some(low)] => Ok((16 * high + low, characters.as_str())),
            _ => wrong(characters.as_str()),
        };
    };
    let mut characters = inside.chars();
    let mut code_point = None;
    while let Some(character) = characters.next() {
        let digit = match (character, code_point) {
            ('}', Some(code_point)) => return Ok((code_point, characters.as_str())),
            _ => character.to_digit(16),
        };
        let value = digit.map(|digit| 16 * code_point.unwrap_or_default() + digit);
        code_point = value.filter(|value| *value <= MAX_CODE_POINT);
        if code_point.is_none() {
            break;
        }
    }
    wrong(characters.as_str())
}
