//! The general categories and scripts of Unicode, each made once and shared by all patterns.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::charset::CharSet;
use crate::unicode::{assigned, fold, negate, unassigned};

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

/// The scripts that have a class, by their long names. Go 1.25 and 1.26 do not find those whose names have an underscore or a capital
/// letter within, and their Unicode has no newer ones.
const SCRIPTS: &str = "adlam ahom arabic armenian avestan balinese bamum batak bengali bhaiksuki bopomofo brahmi \
    braille buginese buhid carian chakma cham cherokee chorasmian common coptic cuneiform \
    cypriot cyrillic deseret devanagari dogra duployan elbasan elymaic ethiopic georgian \
    glagolitic gothic grantha greek gujarati gurmukhi han hangul hanunoo hatran hebrew \
    hiragana inherited javanese kaithi kannada katakana kawi kharoshthi khmer khojki khudawadi \
    lao latin lepcha limbu lisu lycian lydian mahajani makasar malayalam mandaic manichaean \
    marchen medefaidrin miao modi mongolian mro multani myanmar nabataean nandinagari newa nko \
    nushu ogham oriya osage osmanya palmyrene phoenician rejang runic samaritan saurashtra \
    sharada shavian siddham sinhala sogdian soyombo sundanese syriac tagalog tagbanwa takri \
    tamil tangsa tangut telugu thaana thai tibetan tifinagh tirhuta toto ugaritic vai vithkuqi \
    wancho yezidi yi";

/// The class of a general category or a script, or of all other characters.
///
/// As in Go, the case of letters does not matter, nor do underscores, dashes and spaces. Categories have short and long
/// names, scripts only long ones.
pub(super) fn property(name: &str, folds: bool, negated: bool) -> Option<Arc<NamedClass>> {
    let name = name.replace(['_', '-', ' '], "").to_ascii_lowercase();
    let key = (name.into(), folds, negated);
    let tables = || TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = tables().get(&key) {
        return Some(Arc::clone(known));
    }
    let mut class = named(&key.0)?;
    // Go has no characters that differ in case from those of the letters that have a case.
    if folds && !["lc", "casedletter"].contains(&&*key.0) {
        fold(&mut class);
    }
    if negated {
        negate(&mut class);
    }
    let made = NamedClass::new(class);
    tables().insert(key, Arc::clone(&made));
    Some(made)
}

fn named(name: &str) -> Option<ClassUnicode> {
    /// Of another category since a later version.
    const NONSPACING: char = '\u{1171e}';

    match name {
        "any" => return Some(range('\0', char::MAX)),
        "ascii" => return Some(range('\0', '\x7f')),
        "assigned" => {
            let mut all = unassigned();
            negate(&mut all);
            return Some(all);
        }
        // No text has surrogates.
        "cs" | "surrogate" => return Some(ClassUnicode::empty()),
        _ => {}
    }
    if SCRIPTS.split(' ').any(|script| script == name) {
        return of_crate("sc", name).map(assigned);
    }
    // The crate `regex-syntax` ignores a leading `is`, with which no name in Unicode begins.
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if name.is_empty() || !is_plain || name.starts_with("is") {
        return None;
    }
    let mut category = assigned(of_crate("gc", name)?);
    match name {
        "c" | "other" | "cn" | "unassigned" => category.union(&unassigned()),
        "mn" | "nonspacingmark" => category.union(&range(NONSPACING, NONSPACING)),
        "mc" | "spacingmark" => category.difference(&range(NONSPACING, NONSPACING)),
        _ => {}
    }
    Some(category)
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
