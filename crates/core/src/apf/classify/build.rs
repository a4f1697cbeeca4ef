//! Splitting rules into the combinations that classification looks up.

use k8s_openapi::api::flowcontrol::v1::{
    NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject as SubjectObject,
};

use super::{
    ACCOUNT_PREFIX, ALL_VERBS, ANY, CLUSTER, Classifier, CombinedSchema, EVERY_PATH, FIRST_CLASS,
    FlowHash, LevelSpec, NAMED_GROUP, NAMED_PATH, NAMED_RESOURCE, NameScope, PATH, Schema, Shapes,
    Subject, UNKNOWN,
    broad::{self, Dimension},
    names::Names,
    tuples::{TupleKey, Tuples},
};
use crate::digest::Verb;

/// How many combinations are listed before a rule is kept whole.
///
/// Together the two bound the table to a small multiple of the objects.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// For each part of a rule.
    pub(super) per_part: usize,
    /// And for each name it lists.
    pub(super) per_name: usize,
}

impl Budget {
    const USUAL: Self = Self {
        per_part: 16,
        per_name: 8,
    };
}

/// A rule with its names as numbers.
struct NumberedRule {
    schema: u32,
    subjects: Vec<u32>,
    resources: Vec<ResourcePart>,
    paths: Vec<PathPart>,
}

/// A resource rule; an empty list of names with its flag set means the wildcard.
struct ResourcePart {
    verbs: u16,
    groups: Set,
    resources: Set,
    namespaces: Set,
    cluster_scope: bool,
}

/// A non-resource rule.
struct PathPart {
    verbs: u16,
    paths: Set,
}

/// The contents of a list of a rule.
#[derive(Default)]
struct Set {
    any: bool,
    /// Names before, classes after [`Classes::apply`].
    values: Vec<u32>,
}

impl Classifier {
    /// The classifier of these schemas, which are in matching order.
    ///
    /// Time and memory are in proportion to the rules.
    pub(in crate::apf) fn new(
        schemas: &[(&Schema, &[PolicyRulesWithSubjects])],
        levels: &[LevelSpec],
        key: [u8; 16],
    ) -> Self {
        Self::within(Budget::USUAL, schemas, levels, key)
    }

    pub(super) fn within(
        budget: Budget,
        schemas: &[(&Schema, &[PolicyRulesWithSubjects])],
        levels: &[LevelSpec],
        key: [u8; 16],
    ) -> Self {
        let mut reader = NameReader::new(&key);
        let mut rules = Vec::new();
        for (schema, (_, of_schema)) in (0..).zip(schemas) {
            rules.extend(of_schema.iter().map(|rule| reader.rule(schema, rule)));
        }
        let NameReader {
            names,
            root,
            everybody,
            parents,
        } = reader;
        let classes = Classes::of(&rules, names.len());
        for rule in &mut rules {
            classes.apply(rule);
        }
        let everybody = classes.numbers[everybody as usize];
        let subjects = classes.subjects as usize;
        let mut table = Table::new(budget, subjects);
        for rule in &rules {
            table.add(rule);
        }
        let above = above(&parents, &classes.numbers);
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
        let flows = schemas.iter().map(|(schema, _)| {
            let level = &levels[schema.level.0 as usize];
            FlowHash::new(schema, level, key)
        });
        Self {
            names,
            classes: classes.numbers.into(),
            above,
            root,
            everybody,
            subjects: subjects.into(),
            tuples,
            entries,
            broad,
            flows: flows.collect(),
        }
    }
}

/// Turns names into numbers.
struct NameReader {
    names: Names,
    root: u32,
    everybody: u32,
    /// Directories, each with the one it is in.
    parents: Vec<(u32, u32)>,
}

impl NameReader {
    fn new(key: &[u8; 16]) -> Self {
        let mut names = Names::new(key);
        let everybody = names.intern(NameScope::EVERYBODY, b"");
        Self {
            names,
            root: UNKNOWN,
            everybody,
            parents: Vec::new(),
        }
    }

    fn rule(&mut self, schema: u32, rule: &PolicyRulesWithSubjects) -> NumberedRule {
        let mut subjects: Vec<u32> = Vec::new();
        subjects.extend(rule.subjects.iter().filter_map(|s| self.subject(s)));
        let resources = rule.resource_rules.iter().flatten();
        let paths = rule.non_resource_rules.iter().flatten();
        NumberedRule {
            schema,
            subjects: distinct(subjects),
            resources: resources.map(|part| self.resource_part(part)).collect(),
            paths: paths.map(|part| self.path_part(part)).collect(),
        }
    }

    /// The number of a subject, if it can match anybody.
    fn subject(&mut self, subject: &SubjectObject) -> Option<u32> {
        let (scope, name) = match subject.kind.as_str() {
            "User" => (NameScope::USER, &subject.user.as_ref()?.name),
            "Group" => (NameScope::GROUP, &subject.group.as_ref()?.name),
            "ServiceAccount" => {
                let account = subject.service_account.as_ref()?;
                let namespace = &account.namespace;
                if account.name == "*" {
                    (NameScope::ACCOUNTS, namespace)
                } else {
                    let user = format!("{ACCOUNT_PREFIX}{namespace}:{}", account.name);
                    return Some(self.names.intern(NameScope::USER, user.as_bytes()));
                }
            }
            _ => return None,
        };
        if name == "*" && scope != NameScope::ACCOUNTS {
            return Some(self.everybody);
        }
        Some(self.names.intern(scope, name.as_bytes()))
    }

    fn resource_part(&mut self, part: &ResourcePolicyRule) -> ResourcePart {
        let namespaces = part.namespaces.as_deref().unwrap_or_default();
        ResourcePart {
            verbs: verb_mask(&part.verbs),
            groups: set(&part.api_groups, |group| {
                vec![self.names.intern(NameScope::API_GROUP, group.as_bytes())]
            }),
            resources: set(&part.resources, |resource| {
                Vec::from_iter(self.resource(resource))
            }),
            namespaces: set(namespaces, |namespace| {
                vec![
                    self.names
                        .intern(NameScope::NAMESPACE, namespace.as_bytes()),
                ]
            }),
            cluster_scope: part.cluster_scope == Some(true),
        }
    }

    /// The number of `resource` or `resource/subresource`, if any request can have it.
    fn resource(&mut self, resource: &str) -> Option<u32> {
        let Some((resource, subresource)) = resource.split_once('/') else {
            return Some(self.names.intern(NameScope::RESOURCE, resource.as_bytes()));
        };
        if subresource.is_empty() || subresource.contains('/') {
            return None;
        }
        let within = self.names.intern(NameScope::RESOURCE, resource.as_bytes());
        let scope = NameScope::subresource_of(within);
        Some(self.names.intern(scope, subresource.as_bytes()))
    }

    fn path_part(&mut self, part: &NonResourcePolicyRule) -> PathPart {
        PathPart {
            verbs: verb_mask(&part.verbs),
            paths: set(&part.non_resource_urls, |url| self.url(url)),
        }
    }

    /// The numbers of what an entry covers: a directory, and the path itself if it is none.
    fn url(&mut self, url: &str) -> Vec<u32> {
        let stem = url.strip_suffix('*').unwrap_or(url);
        let Some(path) = stem.strip_prefix('/') else {
            return Vec::new();
        };
        if self.root == UNKNOWN {
            self.root = self.names.intern(NameScope::ROOT, b"");
            self.parents.push((self.root, UNKNOWN));
        }
        let mut directory = self.root;
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            if segments.peek().is_some() {
                directory = self.directory(directory, segment);
            } else if !segment.is_empty() {
                let file = self
                    .names
                    .intern(NameScope::file_in(directory), segment.as_bytes());
                return vec![file, self.directory(directory, segment)];
            }
        }
        vec![directory]
    }

    fn directory(&mut self, within: u32, segment: &str) -> u32 {
        let scope = NameScope::directory_in(within);
        let known = self.names.len();
        let directory = self.names.intern(scope, segment.as_bytes());
        if self.names.len() > known {
            self.parents.push((directory, within));
        }
        directory
    }
}

/// Names that occur in the same lists share a class, which is as good as a name.
struct Classes {
    /// The class of each name.
    numbers: Vec<u32>,
    /// How many subject classes there are, those from 0 to [`FIRST_CLASS`] included.
    subjects: u32,
}

impl Classes {
    /// Refines a partition of the names by each list in turn: two names stay together as long as each
    /// list has both or neither. Costs `O(names in all lists)`.
    fn of(rules: &[NumberedRule], names: usize) -> Self {
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

    /// Puts classes in the place of names.
    fn apply(&self, rule: &mut NumberedRule) {
        let apply = |values: &mut Vec<u32>| {
            for value in values.iter_mut() {
                *value = self.numbers[*value as usize];
            }
            *values = distinct(std::mem::take(values));
        };
        apply(&mut rule.subjects);
        for part in &mut rule.resources {
            apply(&mut part.groups.values);
            apply(&mut part.resources.values);
            apply(&mut part.namespaces.values);
        }
        for part in &mut rule.paths {
            apply(&mut part.paths.values);
        }
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

    fn add(&mut self, rule: &NumberedRule) {
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
                self.add_resources(rule, part, &places);
            } else {
                self.add_broad_resources(rule, part, &places);
            }
        }
        for part in &rule.paths {
            let paths = part.paths.numbers();
            budget += per_part + per_name * paths.len();
            let combinations = paths.len().saturating_mul(rule.subjects.len());
            if combinations <= budget {
                budget -= combinations;
                self.add_paths(rule, part, &paths);
            } else {
                self.add_broad_paths(rule, part, &paths);
            }
        }
    }

    fn add_resources(&mut self, rule: &NumberedRule, part: &ResourcePart, places: &[u32]) {
        for &subject in &rule.subjects {
            for &group in &part.groups.numbers() {
                for &resource in &part.resources.numbers() {
                    for &place in places {
                        let shape = shape(group, resource, place);
                        let key = [subject, group, resource, place];
                        self.combine(key, 1 << shape, rule.schema, part.verbs);
                    }
                }
            }
        }
    }

    fn add_paths(&mut self, rule: &NumberedRule, part: &PathPart, paths: &[u32]) {
        for &subject in &rule.subjects {
            for &path in paths {
                let shape = if path == ANY { EVERY_PATH } else { NAMED_PATH };
                self.combine([subject, PATH, path, 0], shape, rule.schema, part.verbs);
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

    fn add_broad_resources(&mut self, rule: &NumberedRule, part: &ResourcePart, places: &[u32]) {
        self.add_broad(rule, part.verbs);
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

    fn add_broad_paths(&mut self, rule: &NumberedRule, part: &PathPart, paths: &[u32]) {
        self.add_broad(rule, part.verbs);
        for &path in paths {
            self.broad.value(Dimension::Path, path);
        }
    }

    fn add_broad(&mut self, rule: &NumberedRule, verbs: u16) {
        self.broad.part(rule.schema);
        for &subject in &rule.subjects {
            self.broad.subject(subject);
        }
        for bit in (0..u16::BITS).filter(|bit| verbs >> bit & 1 != 0) {
            self.broad.value(Dimension::Verb, bit);
        }
    }
}

impl ResourcePart {
    /// The numbers of the places it is for.
    fn places(&self) -> Vec<u32> {
        let mut places = self.namespaces.numbers();
        if self.cluster_scope {
            places.push(CLUSTER);
        }
        places
    }
}

impl Set {
    /// What the set has in keys.
    fn numbers(&self) -> Vec<u32> {
        if self.any {
            vec![ANY]
        } else {
            self.values.clone()
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

/// Reads a list that may be the wildcard.
fn set(list: &[String], mut numbers: impl FnMut(&str) -> Vec<u32>) -> Set {
    if matches!(list, [only] if only == "*") {
        return Set {
            any: true,
            values: Vec::new(),
        };
    }
    let values = list.iter().flat_map(|entry| numbers(entry)).collect();
    Set {
        any: false,
        values: distinct(values),
    }
}

pub(super) fn verb_mask(verbs: &[String]) -> u16 {
    if matches!(verbs, [only] if only == "*") {
        return ALL_VERBS;
    }
    verbs
        .iter()
        .fold(0, |mask, verb| mask | Verb::from(verb.as_str()).bit())
}

fn distinct(mut values: Vec<u32>) -> Vec<u32> {
    values.sort_unstable();
    values.dedup();
    values
}
