//! A bitmap index for rules with too many combinations of attributes to list.
//!
//! A *part* is one resource or non-resource rule with the subjects of the rule around it. Each name
//! that parts mention has a row: the set of those parts, 64 to a word, without empty words. The
//! first part in all the rows of a request is the one that matches. Memory is in proportion to the
//! rules, and time to a sixty-fourth of the parts that the subject is in.

use std::collections::BTreeMap;

use super::{ANY, CLUSTER, Request};

/// A place in [`BroadRules::words`]; empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartSet {
    start: u32,
    end: u32,
}

impl PartSet {
    /// Whether no part is in it.
    pub(super) const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A dimension of parts besides the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dimension {
    /// The bit of a verb.
    Verb,
    /// API groups.
    Group,
    /// Resources with their subresources.
    Resource,
    /// Namespaces, or cluster scope.
    Place,
    /// Non-resource paths.
    Path,
}

/// The parts and the rows of all names but subjects.
#[derive(Default)]
pub(super) struct BroadRules {
    /// The schema of each part; ascending.
    schemas: Box<[u32]>,
    words: Box<[(u32, u64)]>,
    rows: [Box<[PartSet]>; 5],
}

/// Collects parts, in the order of their schemas.
#[derive(Default)]
pub(super) struct BroadBuilder {
    schemas: Vec<u32>,
    subjects: BTreeMap<u32, Vec<(u32, u64)>>,
    rows: BTreeMap<(Dimension, u32), Vec<(u32, u64)>>,
}

impl BroadBuilder {
    /// A new part of `schema`, which is not less than that of the part before.
    pub(super) fn part(&mut self, schema: u32) {
        self.schemas.push(schema);
    }

    /// Puts the last part into the row of a subject.
    pub(super) fn subject(&mut self, class: u32) {
        let part = self.schemas.len() - 1;
        set_bit(self.subjects.entry(class).or_default(), part);
    }

    /// Puts the last part into the row of a value.
    pub(super) fn value(&mut self, dimension: Dimension, value: u32) {
        let part = self.schemas.len() - 1;
        set_bit(self.rows.entry((dimension, value)).or_default(), part);
    }

    /// The finished parts; `subject` gets the row of each subject class and its first schema.
    pub(super) fn build(self, mut subject: impl FnMut(u32, PartSet, u32)) -> BroadRules {
        let mut words = Vec::new();
        let mut lay = |row: Vec<(u32, u64)>| {
            let start = words.len();
            words.extend(row);
            let place = |at| u32::try_from(at).expect("fewer than 2^32 words");
            PartSet {
                start: place(start),
                end: place(words.len()),
            }
        };
        for (class, row) in self.subjects {
            let (word, bits) = row[0];
            let first = self.schemas[part_of(word, bits)];
            subject(class, lay(row), first);
        }
        let mut rows: [Vec<PartSet>; 5] = Default::default();
        for ((dimension, value), row) in self.rows {
            let rows = &mut rows[dimension as usize];
            rows.resize(value as usize, PartSet::default());
            rows.push(lay(row));
        }
        BroadRules {
            schemas: self.schemas.into(),
            words: words.into(),
            rows: rows.map(Vec::into_boxed_slice),
        }
    }
}

impl BroadRules {
    /// The first schema before `best` that has a part for this subject and request; else `best`.
    pub(super) fn first(&self, subject: PartSet, request: &mut Request<'_>, best: u32) -> u32 {
        for &(word, mut bits) in self.row(subject) {
            super::count();
            // Parts are in the order of their schemas, so none that follows is better.
            if self.schemas[part_of(word, bits)] >= best {
                break;
            }
            bits &= self.matching(word, request);
            if bits != 0 {
                return best.min(self.schemas[part_of(word, bits)]);
            }
        }
        best
    }

    /// The parts of one word that a request matches, regardless of its user.
    fn matching(&self, word: u32, request: &mut Request<'_>) -> u64 {
        use Dimension::{Group, Path, Place, Resource, Verb};
        let mut bits = self.bits(Verb, request.verb.trailing_zeros(), word);
        if bits == 0 {
            return 0;
        }
        if request.is_resource {
            bits &= match request.namespace() {
                // In a rule, `*` is any namespace, but not cluster scope.
                CLUSTER => self.bits(Place, CLUSTER, word),
                namespace => self.any_or(Place, namespace, word),
            };
            bits &= self.any_or(Group, request.group(), word);
            bits &= self.any_or(Resource, request.resource(), word);
            return bits;
        }
        let mut covering = self.bits(Path, ANY, word);
        for path in request.paths() {
            covering |= self.bits(Path, path, word);
        }
        bits & covering
    }

    fn any_or(&self, dimension: Dimension, value: u32, word: u32) -> u64 {
        self.bits(dimension, ANY, word) | self.bits(dimension, value, word)
    }

    fn bits(&self, dimension: Dimension, value: u32, word: u32) -> u64 {
        super::count();
        let Some(&row) = self.rows[dimension as usize].get(value as usize) else {
            return 0;
        };
        let row = self.row(row);
        match row.binary_search_by_key(&word, |&(at, _)| at) {
            Ok(at) => row[at].1,
            Err(_) => 0,
        }
    }

    fn row(&self, row: PartSet) -> &[(u32, u64)] {
        &self.words[row.start as usize..row.end as usize]
    }
}

fn set_bit(row: &mut Vec<(u32, u64)>, part: usize) {
    let word = u32::try_from(part / 64).expect("fewer than 2^32 rules");
    let bit = 1 << (part % 64);
    match row.last_mut() {
        Some((last, bits)) if *last == word => *bits |= bit,
        _ => row.push((word, bit)),
    }
}

fn part_of(word: u32, bits: u64) -> usize {
    word as usize * 64 + bits.trailing_zeros() as usize
}
