//! Rules with numbers in the place of names.

use std::sync::Arc;

use k8s_openapi::api::flowcontrol::v1::{
    NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject as SubjectObject,
};

use super::{
    ACCOUNT_PREFIX, ALL_VERBS, ANY, CLUSTER, UNKNOWN,
    names::{NameScope, Names},
};
use crate::digest::Verb;

/// How many names may be out of use, however few are in use.
const SPARE_NAMES: usize = 1024;

/// A rule with its names as numbers.
pub(super) struct NumberedRule {
    pub(super) subjects: Box<[u32]>,
    pub(super) resources: Box<[ResourcePart]>,
    pub(super) paths: Box<[PathPart]>,
}

/// A resource rule; an empty list of names with its flag set means the wildcard.
pub(super) struct ResourcePart {
    pub(super) verbs: u16,
    pub(super) groups: Set,
    pub(super) resources: Set,
    pub(super) namespaces: Set,
    pub(super) cluster_scope: bool,
}

/// A non-resource rule.
pub(super) struct PathPart {
    pub(super) verbs: u16,
    pub(super) paths: Set,
}

/// The contents of a list of a rule.
#[derive(Default)]
pub(super) struct Set {
    pub(super) any: bool,
    /// Names before, classes after [`super::classes::Classes::of_rule`].
    pub(super) values: Box<[u32]>,
}

impl ResourcePart {
    /// The numbers of the places it is for.
    pub(super) fn places(&self) -> Vec<u32> {
        let mut places = self.namespaces.numbers();
        if self.cluster_scope {
            places.push(CLUSTER);
        }
        places
    }
}

impl Set {
    /// The numbers that stand for the set in keys.
    pub(super) fn numbers(&self) -> Vec<u32> {
        if self.any {
            vec![ANY]
        } else {
            self.values.to_vec()
        }
    }
}

/// The numbers of names. Those of a policy are continued by the next, so that only changed schemas are numbered.
#[derive(Clone)]
pub(super) struct Numbering {
    pub(super) names: Names,
    pub(super) root: u32,
    pub(super) everybody: u32,
    /// Directories, each with the one it is in.
    pub(super) parents: Vec<(u32, u32)>,
    /// How many names there were when all were in use.
    used: usize,
}

impl Numbering {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let mut names = Names::new(key);
        let everybody = names.intern(NameScope::EVERYBODY, b"");
        Self {
            names,
            root: UNKNOWN,
            everybody,
            parents: Vec::new(),
            used: 0,
        }
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Gives back the memory for further names. Vectors grow to up to twice what they hold.
    pub(super) fn shrink(&mut self) {
        self.names.shrink();
        self.parents.shrink_to_fit();
    }

    /// To be called when all rules that count have just been numbered.
    pub(super) fn all_are_used(&mut self) {
        self.used = self.len();
    }

    /// Whether so many names were added since all were in use that all should be numbered again. This bounds the names of
    /// rules that are gone.
    pub(super) fn is_mostly_unused(&self) -> bool {
        self.len() > 2 * self.used + SPARE_NAMES
    }

    /// Numbers the names of a schema's rules.
    pub(super) fn rules(&mut self, rules: &[PolicyRulesWithSubjects]) -> Arc<[NumberedRule]> {
        rules.iter().map(|rule| self.rule(rule)).collect()
    }

    fn rule(&mut self, rule: &PolicyRulesWithSubjects) -> NumberedRule {
        let mut subjects: Vec<u32> = Vec::new();
        subjects.extend(rule.subjects.iter().filter_map(|s| self.subject(s)));
        let resources = rule.resource_rules.iter().flatten();
        let paths = rule.non_resource_rules.iter().flatten();
        NumberedRule {
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
                // As in Kubernetes, the name may be a wildcard, and the namespace may not.
                if account.name == "*" {
                    (NameScope::ACCOUNTS, namespace)
                } else {
                    let user = format!("{ACCOUNT_PREFIX}{namespace}:{}", account.name);
                    return Some(self.names.intern(NameScope::USER, user.as_bytes()));
                }
            }
            // A kind that this version does not know matches nobody.
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
        // No request has such a subresource: it is one segment of the path.
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

/// Reads a list that may be the wildcard.
fn set(list: &[String], mut numbers: impl FnMut(&str) -> Vec<u32>) -> Set {
    if matches!(list, [only] if only == "*") {
        return Set {
            any: true,
            values: Box::default(),
        };
    }
    let values = list.iter().flat_map(|entry| numbers(entry)).collect();
    Set {
        any: false,
        values: distinct(values),
    }
}

fn verb_mask(verbs: &[String]) -> u16 {
    if matches!(verbs, [only] if only == "*") {
        return ALL_VERBS;
    }
    verbs
        .iter()
        .fold(0, |mask, verb| mask | Verb::from(verb.as_str()).bit())
}

pub(super) fn distinct(mut values: Vec<u32>) -> Box<[u32]> {
    values.sort_unstable();
    values.dedup();
    values.into()
}
