//! Classes of names: the names that occur in the same rules.

use super::{
    FIRST_CLASS, UNKNOWN,
    numbering::{NumberedRule, PathPart, ResourcePart, Set, distinct},
};

/// Names that occur in the same lists share a class, which lookups use in place of the name.
pub(super) struct Classes {
    /// The class of each name.
    pub(super) numbers: Vec<u32>,
    /// How many subject classes there are, those from 0 to [`FIRST_CLASS`] included.
    pub(super) subjects: u32,
}

impl Classes {
    /// Refines a partition of the names by each list in turn: two names stay together as long as each
    /// list has both or neither. Costs `O(names in all lists)`.
    pub(super) fn of<'r>(rules: impl Iterator<Item = &'r NumberedRule>, names: usize) -> Self {
        let mut parts = Partition::new(names);
        let mut subjects = vec![false; names];
        for rule in rules {
            parts.split(&rule.subjects);
            for &subject in &rule.subjects {
                subjects[subject as usize] = true;
            }
            for part in &rule.resources {
                parts.split(&part.groups.values);
                parts.split(&part.resources.values);
                parts.split(&part.namespaces.values);
            }
            for part in &rule.paths {
                parts.split(&part.paths.values);
            }
        }
        // Subjects are numbered by themselves, because they have a table of their own. No name is both.
        let mut next = [FIRST_CLASS; 2];
        let mut known = vec![UNKNOWN; parts.len()];
        let mut numbers = vec![UNKNOWN; names];
        for (name, &part) in parts.of_names.iter().enumerate() {
            if part == Partition::UNLISTED {
                continue;
            }
            let number = &mut known[part as usize];
            if *number == UNKNOWN {
                let next = &mut next[usize::from(subjects[name])];
                *number = *next;
                *next += 1;
            }
            numbers[name] = *number;
        }
        Self {
            numbers,
            subjects: next[1],
        }
    }

    /// A rule with classes in the place of names.
    pub(super) fn of_rule(&self, rule: &NumberedRule) -> NumberedRule {
        let set = |set: &Set| Set {
            any: set.any,
            values: self.of_names(&set.values),
        };
        let resource = |part: &ResourcePart| ResourcePart {
            verbs: part.verbs,
            groups: set(&part.groups),
            resources: set(&part.resources),
            namespaces: set(&part.namespaces),
            cluster_scope: part.cluster_scope,
        };
        let path = |part: &PathPart| PathPart {
            verbs: part.verbs,
            paths: set(&part.paths),
        };
        NumberedRule {
            subjects: self.of_names(&rule.subjects),
            resources: rule.resources.iter().map(resource).collect(),
            paths: rule.paths.iter().map(path).collect(),
        }
    }

    fn of_names(&self, names: &[u32]) -> Box<[u32]> {
        distinct(
            names
                .iter()
                .map(|&name| self.numbers[name as usize])
                .collect(),
        )
    }
}

/// Which names occur together in lists.
struct Partition {
    /// The part of each name.
    of_names: Vec<u32>,
    /// For each part, the last list that split it, and the part of its names in that list.
    split: Vec<(u32, u32)>,
    lists: u32,
}

impl Partition {
    /// The part of names that are in no list.
    const UNLISTED: u32 = 0;

    fn new(names: usize) -> Self {
        Self {
            of_names: vec![Self::UNLISTED; names],
            split: vec![(0, Self::UNLISTED)],
            lists: 0,
        }
    }

    /// Separates the names in a list from those that are not in it.
    fn split(&mut self, list: &[u32]) {
        self.lists += 1;
        for &name in list {
            let part = &mut self.of_names[name as usize];
            let (last, inside) = self.split[*part as usize];
            *part = if last == self.lists {
                inside
            } else {
                let new = u32::try_from(self.split.len()).expect("fewer than 2^32 names in lists");
                self.split[*part as usize] = (self.lists, new);
                self.split.push((0, Self::UNLISTED));
                new
            };
        }
    }

    fn len(&self) -> usize {
        self.split.len()
    }
}
