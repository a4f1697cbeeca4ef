//! Finds the policies that may match a request without looking at the others.
//!
//! Policies are entered by the resources and operations of their rules, and below that by one label that they require of
//! the namespace. A lookup is a few searches in hash tables, whatever the number of policies; it allocates nothing unless
//! more than [`INLINE`] policies may match.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::rules::OPERATIONS;
use super::selector::label;
use super::{MatchRequest, ResourceMatcher, labels};

/// How many policies a lookup can find without allocating.
const INLINE: usize = 32;

/// The numbers of the policies that may match, in order, each once.
pub(crate) type Candidates = SmallVec<[u32; INLINE]>;

/// Policies by what they match.
#[derive(Default)]
pub(crate) struct PolicyIndex {
    /// By the resource of a pattern; `*` is any.
    resources: HashMap<Box<str>, Vec<SubresourceEntry>>,
    /// Policies that take all resources, or whose configuration is wrong.
    always: LabelledPolicies,
}

struct SubresourceEntry {
    /// The subresource of the pattern; `*` is any.
    subresource: Box<str>,
    /// By operation, in the order of [`OPERATIONS`].
    operations: [LabelledPolicies; 4],
}

/// Policies with the same pattern.
#[derive(Default)]
struct LabelledPolicies {
    /// Those that require no label of the namespace.
    plain: Vec<u32>,
    /// Those that require one, by the key of the label.
    by_key: Vec<LabelEntry>,
}

struct LabelEntry {
    key: Box<str>,
    by_value: HashMap<Box<str>, Vec<u32>>,
    all: Vec<u32>,
}

impl PolicyIndex {
    /// Enters a policy; `number`s come in ascending order.
    pub(crate) fn insert(&mut self, number: u32, matcher: Result<&ResourceMatcher, &String>) {
        let Ok(matcher) = matcher else {
            self.always.insert(number, None);
            return;
        };
        let required = matcher.required_namespace_label();
        if matcher.rules.is_empty() {
            self.always.insert(number, required);
        }
        for rule in &matcher.rules {
            for (resource, subresource) in rule.patterns() {
                let entry = self.entry(resource, subresource);
                for (operation, policies) in OPERATIONS.iter().zip(&mut entry.operations) {
                    if rule.takes_operation(*operation) {
                        policies.insert(number, required);
                    }
                }
            }
        }
    }

    fn entry(&mut self, resource: &str, subresource: &str) -> &mut SubresourceEntry {
        let entries = self.resources.entry(resource.into()).or_default();
        let known = entries
            .iter()
            .position(|entry| *entry.subresource == *subresource);
        let at = known.unwrap_or_else(|| {
            // Nearly always there is one; room for more would be most of what an index takes.
            entries.reserve_exact(1);
            entries.push(SubresourceEntry {
                subresource: subresource.into(),
                operations: Default::default(),
            });
            entries.len() - 1
        });
        &mut entries[at]
    }

    /// The policies that may match: all that do are among them.
    pub(crate) fn candidates(&self, request: &MatchRequest<'_>) -> Candidates {
        let mut found = Candidates::new();
        self.always.collect(request, &mut found);
        let attributes = request.attributes;
        let requested = attributes.resource.resource;
        self.collect(requested, request, &mut found);
        self.collect("*", request, &mut found);
        let equivalents = request
            .inputs
            .equivalents(attributes.resource, attributes.subresource);
        for other in equivalents {
            if other.resource.resource != requested {
                self.collect(other.resource.resource, request, &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect(&self, resource: &str, request: &MatchRequest<'_>, found: &mut Candidates) {
        let Some(entries) = self.resources.get(resource) else {
            return;
        };
        let attributes = request.attributes;
        let operation = attributes.operation as usize;
        for entry in entries {
            if *entry.subresource == *"*" || *entry.subresource == *attributes.subresource {
                entry.operations[operation].collect(request, found);
            }
        }
    }
}

impl LabelledPolicies {
    fn insert(&mut self, number: u32, required: Option<(&str, &[String])>) {
        let Some((key, values)) = required else {
            push(&mut self.plain, number);
            return;
        };
        let known = self.by_key.iter().position(|entry| *entry.key == *key);
        let at = known.unwrap_or_else(|| {
            self.by_key.push(LabelEntry {
                key: key.into(),
                by_value: HashMap::new(),
                all: Vec::new(),
            });
            self.by_key.len() - 1
        });
        let entry = &mut self.by_key[at];
        push(&mut entry.all, number);
        for value in values {
            let policies = entry.by_value.entry(value.as_str().into());
            push(policies.or_default(), number);
        }
    }

    fn collect(&self, request: &MatchRequest<'_>, found: &mut Candidates) {
        found.extend_from_slice(&self.plain);
        if self.by_key.is_empty() {
            return;
        }
        let attributes = request.attributes;
        // A request for a namespace is selected by the labels of the object that is written, and one without a
        // namespace is not selected by labels: all these policies may match.
        let selectable =
            !attributes.namespace.is_empty() && attributes.resource.resource != "namespaces";
        let namespace =
            selectable.then(|| request.inputs.cluster().namespace(attributes.namespace));
        let Some(Ok(namespace)) = namespace else {
            for entry in &self.by_key {
                found.extend_from_slice(&entry.all);
            }
            return;
        };
        let Some(labels) = labels(namespace) else {
            return;
        };
        for entry in &self.by_key {
            let value = label(labels, &entry.key);
            if let Some(policies) = value.and_then(|value| entry.by_value.get(value)) {
                found.extend_from_slice(policies);
            }
        }
    }
}

/// Adds a number, unless it was the last one added.
fn push(numbers: &mut Vec<u32>, number: u32) {
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}
