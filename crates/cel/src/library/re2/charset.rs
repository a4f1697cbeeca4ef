//! Sets of characters as range tables, which all places of a pattern that name the same set share.
//!
//! The crate `regex-automata` makes an automaton over UTF-8 of each class, again for each repetition: `\pL` takes 65 KB each
//! time. A table takes 8 bytes for each range, once, and is searched in a dozen steps.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// A set of characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CharSet {
    /// The ASCII characters, a bit for each.
    ascii: u128,
    /// The others, in order: the first and the last of each range.
    ranges: Box<[(char, char)]>,
}

/// The first character that is not ASCII.
const NON_ASCII: char = '\u{80}';

impl CharSet {
    pub(super) fn of(class: &ClassUnicode) -> Self {
        let mut ascii = 0;
        let mut ranges = Vec::with_capacity(class.ranges().len());
        for range in class.ranges() {
            for character in range.start()..=range.end().min('\x7f') {
                ascii |= 1 << u32::from(character);
            }
            if range.end() >= NON_ASCII {
                ranges.push((range.start().max(NON_ASCII), range.end()));
            }
        }
        Self {
            ascii,
            ranges: ranges.into(),
        }
    }

    /// The same set as the crate `regex-syntax` has it.
    pub(super) fn to_class(&self) -> ClassUnicode {
        let ascii = ('\0'..NON_ASCII).filter(|character| self.contains(*character));
        let ascii = ascii.map(|character| ClassUnicodeRange::new(character, character));
        let others = self.ranges.iter();
        let others = others.map(|&(first, last)| ClassUnicodeRange::new(first, last));
        ClassUnicode::new(ascii.chain(others))
    }

    #[inline]
    pub(super) fn contains(&self, character: char) -> bool {
        if character.is_ascii() {
            return self.ascii >> u32::from(character) & 1 == 1;
        }
        let after = self.ranges.partition_point(|range| range.0 <= character);
        after > 0 && character <= self.ranges[after - 1].1
    }

    /// The number of ranges of characters that are not ASCII.
    pub(super) fn tables(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.ranges)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_its_class_contains() {
        let ranges = [
            ('b', 'd'),
            ('z', '\u{85}'),
            ('é', 'é'),
            ('\u{10000}', char::MAX),
        ];
        let ranges = ranges.map(|(first, last)| ClassUnicodeRange::new(first, last));
        let class = ClassUnicode::new(ranges);
        let set = CharSet::of(&class);
        for (character, inside) in [
            ('a', false),
            ('b', true),
            ('d', true),
            ('e', false),
            ('z', true),
            ('\x7f', true),
            ('\u{80}', true),
            ('\u{85}', true),
            ('\u{86}', false),
            ('é', true),
            ('ê', false),
            ('\u{ffff}', false),
            ('\u{10000}', true),
            (char::MAX, true),
        ] {
            assert_eq!(set.contains(character), inside, "{character:?}");
        }
        assert_eq!(set.to_class(), class);
        assert_eq!(set.tables(), 3);
        let none = CharSet::of(&ClassUnicode::empty());
        assert!(!none.contains('a') && !none.contains('é'));
    }
}
