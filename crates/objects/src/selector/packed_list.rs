//! Many short texts in one piece of memory.
//!
//! A selector may have a hundred thousand keys and values of a few bytes each. As texts of their own they take ten times that.

/// So many texts are gone through to find one; the place of each first one of so many is kept.
const BLOCK: usize = 16;
/// The length of a text is this byte and four others, if it does not fit into one byte.
const LONG: u8 = u8::MAX;

/// Texts, as bytes, in one piece of memory: a byte or two more than they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedList {
    bytes: Box<[u8]>,
    /// Where each block begins, but for the first.
    blocks: Box<[u32]>,
    len: usize,
}

impl<T: AsRef<[u8]>> FromIterator<T> for PackedList {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let (mut bytes, mut blocks, mut len) = (Vec::new(), Vec::new(), 0);
        for text in texts {
            if len > 0 && len % BLOCK == 0 {
                blocks.push(position_of(bytes.len()));
            }
            push(&mut bytes, text.as_ref());
            len += 1;
        }
        Self {
            bytes: bytes.into(),
            blocks: blocks.into(),
            len,
        }
    }
}

impl PackedList {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> PackedTexts<'_> {
        PackedTexts(&self.bytes)
    }

    /// The text at `index`. It costs `O(1)`.
    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        self.block(index / BLOCK)?.nth(index % BLOCK)
    }

    /// Where `text` is in a list that is sorted. It costs `O(log n)` comparisons.
    pub(super) fn position(&self, text: &[u8]) -> Option<usize> {
        let starts_before = |at: &u32| {
            PackedTexts(self.from(*at))
                .next()
                .is_some_and(|first| first <= text)
        };
        let block = self.blocks.partition_point(starts_before);
        let in_block = self
            .block(block)?
            .take(BLOCK)
            .position(|other| other == text)?;
        Some(block * BLOCK + in_block)
    }

    /// The texts of a block, and those after it.
    fn block(&self, block: usize) -> Option<PackedTexts<'_>> {
        let at = match block.checked_sub(1) {
            None => 0,
            Some(before) => *self.blocks.get(before)?,
        };
        Some(PackedTexts(self.from(at)))
    }

    fn from(&self, at: u32) -> &[u8] {
        self.bytes.get(at as usize..).unwrap_or_default()
    }
}

/// Texts one after the other, each behind its length.
#[derive(Clone, Debug)]
pub(super) struct PackedTexts<'b>(pub(super) &'b [u8]);

impl<'b> Iterator for PackedTexts<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let (&first, rest) = self.0.split_first()?;
        let (length, rest) = if first == LONG {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        } else {
            (usize::from(first), rest)
        };
        let (text, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

/// Appends a text behind its length.
pub(super) fn push(bytes: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(length) if length != LONG => bytes.push(length),
        _ => {
            bytes.push(LONG);
            bytes.extend(position_of(text.len()).to_le_bytes());
        }
    }
    bytes.extend(text);
}

/// A length or a place in a selector, which comes in a request of a few megabytes at most.
fn position_of(length: usize) -> u32 {
    u32::try_from(length).expect("a selector is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_come_back_in_order_and_are_found(
            texts in prop::collection::btree_set("[a-c]{0,5}|x{250,260}", 0..100),
            others in prop::collection::vec("[a-d]{0,5}|x{250,260}", 0..20),
        ) {
            let texts: BTreeSet<String> = texts;
            let list: PackedList = texts.iter().collect();
            prop_assert_eq!(list.len(), texts.len());
            prop_assert!(list.iter().eq(texts.iter().map(String::as_bytes)));
            for (index, text) in texts.iter().enumerate() {
                prop_assert_eq!(list.get(index), Some(text.as_bytes()));
                prop_assert_eq!(list.position(text.as_bytes()), Some(index));
            }
            prop_assert_eq!(list.get(texts.len()), None);
            for other in others {
                prop_assert_eq!(list.position(other.as_bytes()).is_some(), texts.contains(&other));
            }
        }
    }
}
