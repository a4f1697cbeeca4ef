//! Splitting rules into the combinations that classification looks up.

use std::sync::Arc;

use super::{
    ANY, CLUSTER, Classifier, CombinedSchema, EVERY_PATH, FlowHash, LevelSpec, NAMED_GROUP,
    NAMED_PATH, NAMED_RESOURCE, PATH, Schema, SchemaIndex, Shapes, Subject, UNKNOWN,
    broad::{self, Dimension},
    classes::Classes,
    numbering::{NumberedRule, Numbering, PathPart, ResourcePart},
    tenants::TenantHash,
    tuples::{TupleKey, Tuples},
};
use crate::apf::packed_rules::PackedRules;

/// How many combinations are listed before a rule is kept whole.
///
/// Together the two bound the table to a small multiple of the objects.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// The maximum number of combinations for each part of a rule.
    pub(super) per_part: usize,
    /// The number of further combinations for each name that it lists.
    pub(super) per_name: usize,
}

impl Budget {
    const USUAL: Self = Self {
        per_part: 16,
        per_name: 8,
    };
}

/// A schema to classify by.
pub(in crate::apf) struct ClassifierSchema<'a> {
    pub(in crate::apf) schema: &'a Schema,
    pub(in crate::apf) rules: &'a PackedRules,
    /// The number of the schema that had the same rules in the classifier before.
    pub(in crate::apf) known: Option<SchemaIndex>,
}

impl Classifier {
    /// The classifier of these schemas, which are in matching order. What is known of unchanged rules is taken
    /// from the previous classifier, if there is one.
    ///
    /// Time and memory are in proportion to the rules; not reading unchanged ones again saves about half of the time.
    pub(in crate::apf) fn new(
        before: Option<&Self>,
        schemas: &[ClassifierSchema<'_>],
        levels: &[LevelSpec],
        key: [u8; 16],
    ) -> Self {
        Self::within(Budget::USUAL, before, schemas, levels, key)
    }

    pub(super) fn within(
        budget: Budget,
        before: Option<&Self>,
        schemas: &[ClassifierSchema<'_>],
        levels: &[LevelSpec],
        key: [u8; 16],
    ) -> Self {
        // The numbers of names that are gone are not used again, so at times all names are numbered anew.
        let before = before.filter(|before| !before.numbering.is_mostly_unused());
        let mut numbering = match before {
            Some(before) => before.numbering.clone(),
            None => Numbering::new(&key),
        };
        let rules: Box<[Arc<[NumberedRule]>]> = schemas
            .iter()
            .map(|schema| match (before, schema.known) {
                (Some(before), Some(known)) => Arc::clone(&before.rules[known.0 as usize]),
                _ => numbering.rules(&schema.rules.unpack()),
            })
            .collect();
        if before.is_none() {
            numbering.all_are_used();
        }
        numbering.shrink();
        let classes = Classes::of(rules.iter().flat_map(|rules| rules.iter()), numbering.len());
        let mut table = Table::new(budget, classes.subjects as usize);
        for (schema, rules) in (0..).zip(&rules) {
            for rule in rules.iter() {
                table.add(schema, &classes.of_rule(rule));
            }
        }
        let Table {
            budget: _,
            combinations,
            broad,
            mut subjects,
        } = table;
        let (tuples, entries) = pack(combinations);
        let broad = broad.build(|class, row, first| {
            let subject = &mut subjects[class as usize];
            subject.broad = row;
            subject.first = subject.first.min(first);
        });
        let flows = schemas.iter().map(|ClassifierSchema { schema, .. }| {
            let level = &levels[schema.level.0 as usize];
            FlowHash::new(schema, level, key)
        });
        Self {
            above: above(&numbering.parents, &classes.numbers),
            everybody: classes.numbers[numbering.everybody as usize],
            numbering,
            classes: classes.numbers.into(),
            subjects: subjects.into(),
            tuples,
            entries,
            broad,
            flows: flows.collect(),
            tenants: TenantHash::new(key),
            rules,
        }
    }
}

/// The combinations of all rules.
struct Table {
    budget: Budget,
    combinations: Vec<(TupleKey, CombinedSchema)>,
    broad: broad::BroadBuilder,
    subjects: Vec<Subject>,
}

impl Table {
    fn new(budget: Budget, subjects: usize) -> Self {
        let unmentioned = Subject {
            first: UNKNOWN,
            shapes: 0,
            broad: broad::PartSet::default(),
        };
        Self {
            budget,
            combinations: Vec::new(),
            broad: broad::BroadBuilder::default(),
            subjects: vec![unmentioned; subjects],
        }
    }

    fn add(&mut self, schema: u32, rule: &NumberedRule) {
        let Budget { per_part, per_name } = self.budget;
        let mut budget = rule.subjects.len() * per_name;
        for part in &rule.resources {
            let places = part.places();
            let sets = [&part.groups, &part.resources];
            let names: usize = sets.iter().map(|set| set.values.len()).sum();
            budget += per_part + per_name * (names + places.len());
            let combinations = sets
                .iter()
                .map(|set| set.numbers().len())
                .fold(places.len(), usize::saturating_mul)
                .saturating_mul(rule.subjects.len());
            if combinations <= budget {
                budget -= combinations;
                self.add_resources(schema, rule, part, &places);
            } else {
                self.add_broad_resources(schema, rule, part, &places);
            }
        }
        for part in &rule.paths {
            let paths = part.paths.numbers();
            budget += per_part + per_name * paths.len();
            let combinations = paths.len().saturating_mul(rule.subjects.len());
            if combinations <= budget {
                budget -= combinations;
                self.add_paths(schema, rule, part, &paths);
            } else {
                self.add_broad_paths(schema, rule, part, &paths);
            }
        }
    }

    fn add_resources(
        &mut self,
        schema: u32,
        rule: &NumberedRule,
        part: &ResourcePart,
        places: &[u32],
    ) {
        for &subject in &rule.subjects {
            for &group in &part.groups.numbers() {
                for &resource in &part.resources.numbers() {
                    for &place in places {
                        let shape = shape(group, resource, place);
                        let key = [subject, group, resource, place];
                        self.combine(key, 1 << shape, schema, part.verbs);
                    }
                }
            }
        }
    }

    fn add_paths(&mut self, schema: u32, rule: &NumberedRule, part: &PathPart, paths: &[u32]) {
        for &subject in &rule.subjects {
            for &path in paths {
                let shape = if path == ANY { EVERY_PATH } else { NAMED_PATH };
                self.combine([subject, PATH, path, 0], shape, schema, part.verbs);
            }
        }
    }

    fn combine(&mut self, key: TupleKey, shape: Shapes, schema: u32, verbs: u16) {
        let subject = &mut self.subjects[key[0] as usize];
        subject.shapes |= shape;
        subject.first = subject.first.min(schema);
        self.combinations
            .push((key, CombinedSchema { schema, verbs }));
    }

    fn add_broad_resources(
        &mut self,
        schema: u32,
        rule: &NumberedRule,
        part: &ResourcePart,
        places: &[u32],
    ) {
        self.add_broad(schema, rule, part.verbs);
        for group in part.groups.numbers() {
            self.broad.value(Dimension::Group, group);
        }
        for resource in part.resources.numbers() {
            self.broad.value(Dimension::Resource, resource);
        }
        for &place in places {
            self.broad.value(Dimension::Place, place);
        }
    }

    fn add_broad_paths(
        &mut self,
        schema: u32,
        rule: &NumberedRule,
        part: &PathPart,
        paths: &[u32],
    ) {
        self.add_broad(schema, rule, part.verbs);
        for &path in paths {
            self.broad.value(Dimension::Path, path);
        }
    }

    fn add_broad(&mut self, schema: u32, rule: &NumberedRule, verbs: u16) {
        self.broad.part(schema);
        for &subject in &rule.subjects {
            self.broad.subject(subject);
        }
        for bit in (0..u16::BITS).filter(|bit| verbs >> bit & 1 != 0) {
            self.broad.value(Dimension::Verb, bit);
        }
    }
}

/// The number of a key's shape; its bit is the one of [`Shapes`].
fn shape(group: u32, resource: u32, place: u32) -> u32 {
    let place = match place {
        CLUSTER => 0,
        ANY => 1,
        _ => 2,
    };
    let named = |value, flag| if value == ANY { 0 } else { flag };
    place << 2 | named(group, NAMED_GROUP) | named(resource, NAMED_RESOURCE)
}

/// Sorts combinations by key and drops entries whose verbs earlier schemas take.
fn pack(mut combinations: Vec<(TupleKey, CombinedSchema)>) -> (Tuples, Box<[CombinedSchema]>) {
    combinations.sort_by_key(|&(key, entry)| (key, entry.schema));
    let mut entries: Vec<CombinedSchema> = Vec::new();
    let mut ranges = Vec::new();
    for same_key in combinations.chunk_by(|(a, _), (b, _)| a == b) {
        let start = entries.len();
        let mut taken = 0;
        for &(_, entry) in same_key {
            if entry.verbs & !taken != 0 {
                taken |= entry.verbs;
                entries.push(entry);
            }
        }
        if entries.len() > start {
            let place = |at| u32::try_from(at).expect("fewer than 2^32 combinations");
            ranges.push((same_key[0].0, place(start)..place(entries.len())));
        }
    }
    (Tuples::new(&ranges), entries.into())
}

/// For each name that is a directory, the nearest one above it that has a class.
fn above(parents: &[(u32, u32)], classes: &[u32]) -> Box<[u32]> {
    let mut above = vec![UNKNOWN; classes.len()];
    // A directory comes after the one it is in.
    for &(directory, within) in parents {
        if within == UNKNOWN {
            continue;
        }
        above[directory as usize] = if classes[within as usize] == UNKNOWN {
            above[within as usize]
        } else {
            within
        };
    }
    above.into()
}
