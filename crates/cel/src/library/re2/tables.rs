//! The general categories and scripts of Unicode, each made once and shared by all patterns.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

use super::charset::CharSet;

/// A class that has a name.
#[derive(Debug)]
pub(super) struct NamedClass {
    pub(super) class: ClassUnicode,
    pub(super) set: Arc<CharSet>,
}

impl NamedClass {
    fn new(class: ClassUnicode) -> Arc<Self> {
        let set = Arc::new(CharSet::of(&class));
        Arc::new(Self { class, set })
    }
}

/// How a name is written in a pattern: the name without case, underscores, dashes and spaces; whether the case of characters
/// does not matter; whether the others are meant.
type TableKey = (Box<str>, bool, bool);

/// The classes that were named so far. There are some two hundred names, and each is kept in four forms at most: 3 MB.
static TABLES: LazyLock<Mutex<HashMap<TableKey, Arc<NamedClass>>>> = LazyLock::new(Mutex::default);

/// The class of a general category or a script, or of all other characters.
///
/// As in Go, the case of letters does not matter, nor do underscores, dashes and spaces. Categories have short and long
/// names, scripts only long ones. (Go 1.25 and 1.26 do not find the scripts whose names have an underscore.)
pub(super) fn property(name: &str, folds: bool, negated: bool) -> Option<Arc<NamedClass>> {
    let name = name.replace(['_', '-', ' '], "").to_ascii_lowercase();
    let key = (name.into(), folds, negated);
    let tables = || TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = tables().get(&key) {
        return Some(Arc::clone(known));
    }
    let mut class = named(&key.0)?;
    if folds {
        fold(&mut class);
    }
    if negated {
        class.negate();
    }
    let made = NamedClass::new(class);
    tables().insert(key, Arc::clone(&made));
    Some(made)
}

fn named(name: &str) -> Option<ClassUnicode> {
    /// The scripts whose long name has four letters, as all short names have.
    const FOUR_LETTERS: [&str; 7] = ["ahom", "cham", "kawi", "lisu", "modi", "thai", "toto"];

    match name {
        "any" => return Some(range('\0', char::MAX)),
        "ascii" => return Some(range('\0', '\x7f')),
        "assigned" => {
            let mut unassigned = of_crate("gc", "cn")?;
            unassigned.negate();
            return Some(unassigned);
        }
        // No text has surrogates.
        "cs" | "surrogate" => return Some(ClassUnicode::empty()),
        _ => {}
    }
    // The crate `regex-syntax` ignores a leading `is`, with which no name in Unicode begins.
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if name.is_empty() || !is_plain || name.starts_with("is") {
        return None;
    }
    let is_script = name.len() != 4 || FOUR_LETTERS.contains(&name);
    of_crate("gc", name).or_else(|| is_script.then(|| of_crate("sc", name)).flatten())
}

/// The characters that another one may differ from in case alone, and some that none does.
static CASED: LazyLock<ClassUnicode> = LazyLock::new(|| {
    let cased = r"[\p{Cased}\p{CWCM}\p{CWCF}]";
    let parsed = regex_syntax::parse(cased).map(Hir::into_kind);
    match parsed {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        // All characters, which takes longer.
        _ => range('\0', char::MAX),
    }
});

/// Adds the characters that differ from those of a class in case alone. Returns the steps that it took: one for each character
/// that has a case. (The crate looks at every character of a class, which for a range of all of them takes 10 ms.)
pub(super) fn fold(class: &mut ClassUnicode) -> u64 {
    let mut cased = class.clone();
    cased.intersect(&CASED);
    let steps = cased.ranges().iter().map(ClassUnicodeRange::len);
    let steps = steps.sum::<usize>() as u64;
    cased.case_fold_simple();
    class.union(&cased);
    steps
}

pub(super) fn range(first: char, last: char) -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new(first, last)])
}

/// The class that the crate `regex-syntax` has for a property and its value.
fn of_crate(property: &str, value: &str) -> Option<ClassUnicode> {
    let parsed = regex_syntax::parse(&format!(r"\p{{{property}={value}}}")).ok()?;
    match parsed.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        // A class of one character.
        HirKind::Literal(literal) => {
            let character = std::str::from_utf8(&literal.0).ok()?.chars().next()?;
            Some(range(character, character))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_that_has_a_case_is_known() {
        let has_case = |character: char| {
            let mut class = range(character, character);
            class.case_fold_simple();
            class != range(character, character)
        };
        let set = CharSet::of(&CASED);
        let mut count = 0;
        for character in ('\0'..=char::MAX).filter(|one| has_case(*one)) {
            assert!(set.contains(character), "{character:?}");
            count += 1;
        }
        assert!(count > 2_000, "{count}");
        let mut all = range('\0', char::MAX);
        assert!((2_000..10_000).contains(&fold(&mut all)));
        assert_eq!(all, range('\0', char::MAX));
        let mut some = range('k', 'k');
        assert_eq!(fold(&mut some), 1);
        assert!(CharSet::of(&some).contains('\u{212a}'));
    }

    #[test]
    fn a_class_is_made_once() {
        let [one, other] =
            ["Lu", "l_U"].map(|name| property(name, false, false).expect("a category"));
        assert!(Arc::ptr_eq(&one, &other));
        let folded = property("lu", true, false).expect("a category");
        assert!(folded.set.contains('a') && !one.set.contains('a'));
        let others = property("lu", true, true).expect("a category");
        assert!(!others.set.contains('a') && others.set.contains('0'));
        assert!(property("nothing", false, false).is_none());
        // A class of one character.
        assert!(property("zl", false, false).is_some_and(|of| of.set.contains('\u{2028}')));
    }
}
