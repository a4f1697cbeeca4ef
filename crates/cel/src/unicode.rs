//! The version of Unicode: which characters are assigned, and which differ in case alone.
//!
//! The tables of the crate `regex-syntax` are those of a later version than those of the Go that Kubernetes is built with. A character that
//! is not assigned in that version has no category, no script and no case here either. `tests/corpus/unicode.jsonl` has what Go says of
//! every character.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

/// The version of Go's package `unicode`, in the syntax of `regex-syntax`.
const ASSIGNED: &str = r"\p{Age=15.0}";

/// The characters that are assigned, and those that never will be.
static KNOWN: LazyLock<ClassUnicode> = LazyLock::new(|| class(ASSIGNED));

/// The assigned characters that another one may differ from in case alone, and some that none does.
static CASED: LazyLock<ClassUnicode> =
    LazyLock::new(|| assigned(class(r"[\p{Cased}\p{CWCM}\p{CWCF}]")));

/// Characters that differ from one another in case alone since a later version, though they were assigned before.
const FOLDED_LATER: [[char; 2]; 3] = [
    ['\u{390}', '\u{1fd3}'],
    ['\u{3b0}', '\u{1fe3}'],
    ['\u{fb05}', '\u{fb06}'],
];

/// Turns a class into that of all other characters.
///
/// The crate takes the characters before and after the surrogates for such with something between them, and would add both.
pub(crate) fn negate(class: &mut ClassUnicode) {
    const BEFORE: char = '\u{d7ff}';
    const AFTER: char = '\u{e000}';

    if contains(class, BEFORE) && contains(class, AFTER) {
        class.push(ClassUnicodeRange::new(BEFORE, AFTER));
    }
    class.negate();
}

/// Whether another character may differ from this one in case alone.
pub(crate) fn may_have_case(character: char) -> bool {
    contains(&CASED, character)
}

/// The characters of a class that are assigned.
pub(crate) fn assigned(mut class: ClassUnicode) -> ClassUnicode {
    class.intersect(&KNOWN);
    class
}

/// The characters that are not assigned.
pub(crate) fn unassigned() -> ClassUnicode {
    let mut all = KNOWN.clone();
    negate(&mut all);
    all.union(&class(r"\p{Cn}"));
    all
}

/// Adds the characters that differ from those of a class in case alone. Returns the steps that it took: one for each character
/// that has a case. (The crate looks at every character of a class, which for a range of all of them takes 10 ms.)
pub(crate) fn fold(class: &mut ClassUnicode) -> u64 {
    let mut cased = class.clone();
    cased.intersect(&CASED);
    let steps = cased.ranges().iter().map(ClassUnicodeRange::len);
    let steps = steps.sum::<usize>() as u64;
    cased.case_fold_simple();
    let mut later = Vec::new();
    for pair in FOLDED_LATER {
        // Both are in it after folding, and nothing else folds to one of them.
        for [one, other] in [pair, [pair[1], pair[0]]] {
            if !contains(class, one) && contains(class, other) {
                later.push(ClassUnicodeRange::new(one, one));
            }
        }
    }
    cased.difference(&ClassUnicode::new(later));
    class.union(&assigned(cased));
    steps
}

fn contains(class: &ClassUnicode, character: char) -> bool {
    let ranges = class.ranges();
    let after = ranges.partition_point(|range| range.start() <= character);
    after > 0 && character <= ranges[after - 1].end()
}

/// A class in the syntax of the crate.
fn class(pattern: &str) -> ClassUnicode {
    let parsed = regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind);
    match parsed {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => unreachable!("{pattern} is a class"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: char, last: char) -> ClassUnicode {
        ClassUnicode::new([ClassUnicodeRange::new(first, last)])
    }

    #[test]
    fn every_character_that_has_a_case_is_known() {
        let has_case = |character: char| {
            let mut class = range(character, character);
            class.case_fold_simple();
            class != range(character, character)
        };
        let mut count = 0;
        let known = KNOWN.ranges().iter();
        let known = known.flat_map(|range| range.start()..=range.end());
        for character in known.filter(|one| has_case(*one)) {
            assert!(contains(&CASED, character), "{character:?}");
            count += 1;
        }
        assert!(count > 2_000, "{count}");
        let mut all = range('\0', char::MAX);
        assert!((2_000..10_000).contains(&fold(&mut all)));
        assert_eq!(all, range('\0', char::MAX));
        let mut some = range('k', 'k');
        assert_eq!(fold(&mut some), 1);
        assert!(contains(&some, '\u{212a}'));
    }
}
