//! Classification: from a request's digest to its schema, level and flow.
//!
//! The schemas are not scanned. When a policy is compiled, every rule is split into combinations of a subject,
//! an API group, a resource and a place (or of a subject and a path), any of which may be a wildcard. A request
//! has few combinations of its own (its user and groups, each with or without wildcards in the other places),
//! and each is one lookup in a table, however many schemas there are. A table entry lists the schemas in
//! matching order, each only if its verbs are not all taken by those before it, so an entry is short too.
//!
//! Names that always occur together (say, the forty users that every rule of a team lists) share a
//! number, a *class*, which keeps the combinations few. A rule that would still have too many is
//! kept whole (see `broad`), so memory stays in proportion to the objects.
//!
//! Not here: what a digest is (`digest`), which objects there are (`objects`), hands (`shard`).

mod broad;
mod build;
mod classes;
mod cover;
mod explain;
mod names;
mod numbering;
mod tenants;
mod tuples;

use std::{hash::Hasher, sync::Arc};

use siphasher::sip::SipHasher13;

use crate::{
    apf::spec::{Distinguisher, LevelKind, LevelSpec, LimitResponse, Schema, SchemaIndex},
    digest::{RequestDigest, RequestInfo, User, Verb},
};
use broad::{BroadRules, PartSet};
use names::NameScope;
use numbering::{NumberedRule, Numbering};
use tenants::{TenantHash, TenantSource};
use tuples::Tuples;

pub(in crate::apf) use build::ClassifierSchema;
pub(crate) use cover::Cover;
pub(in crate::apf) use explain::explain_rules;
pub use explain::{Mismatch, RuleMatch, RuleMismatch};
pub use tenants::TenantName;

/// The prefix of the user names of service accounts; the namespace and a colon follow.
const ACCOUNT_PREFIX: &str = User::ACCOUNT_PREFIX;

/// A name that no rule mentions.
const UNKNOWN: u32 = u32::MAX;
/// Means all values at one place of a key.
const ANY: u32 = 0;
/// Means requests without a namespace.
const CLUSTER: u32 = 1;
/// The first number of a class.
const FIRST_CLASS: u32 = 2;
/// In the place of the API group, it marks the key of a path.
const PATH: u32 = u32::MAX;

/// The bit of all verbs that no rule can name; the nine others are [`Verb::bit`].
const OTHER_VERBS: u16 = 1 << 9;
/// The verbs that `*` means.
const ALL_VERBS: u16 = Verb::ALL_BITS | OTHER_VERBS;

/// Which combinations of wildcards and names the rules of a subject have; each bit costs one lookup in the table.
///
/// There are 14 possible lookups, of which most subjects need a few: rules of one subject tend to use the same
/// combinations. The bit's number is the shape: bit 0 says whether the resource is named, bit 1 whether the
/// group is, and bits 2 and 3 are 0 for cluster scope, 1 for every namespace and 2 for a named one. So a mask
/// has a hex digit for each kind of place (`0x00f` for cluster scope), in which `a` (binary 1010) selects the
/// shapes with a named resource and `c` (1100) those with a named group. Numbers 12 and 13 are for paths.
type Shapes = u16;

/// In a shape's number: the resource is named.
const NAMED_RESOURCE: u32 = 1;
/// In a shape's number: the API group is named.
const NAMED_GROUP: u32 = 2;
/// The shapes for requests without namespace: four, with and without wildcards for group and resource.
const CLUSTER_SHAPES: Shapes = 0x00f;
/// The shapes for every namespace.
const EVERY_NAMESPACE_SHAPES: Shapes = 0x0f0;
/// The shapes for a named namespace.
const NAMED_NAMESPACE_SHAPES: Shapes = 0xf00;
/// The shapes with a named resource.
const NAMED_RESOURCE_SHAPES: Shapes = 0xaaa;
/// The shapes with a named API group.
const NAMED_GROUP_SHAPES: Shapes = 0xccc;
/// The shape for every path.
const EVERY_PATH: Shapes = 1 << 12;
/// The shape for named paths.
const NAMED_PATH: Shapes = 1 << 13;

/// Finds schemas. Part of a policy; built once, then only read.
pub(super) struct Classifier {
    numbering: Numbering,
    /// The rules of each schema, with the numbers of their names.
    rules: Box<[Arc<[NumberedRule]>]>,
    /// The class of each name, in its dimension; [`UNKNOWN`] for names that only others need.
    classes: Box<[u32]>,
    /// The nearest directory above each directory that has a class; else [`UNKNOWN`].
    above: Box<[u32]>,
    /// The subject class of all users.
    everybody: u32,
    subjects: Box<[Subject]>,
    tuples: Tuples,
    entries: Box<[CombinedSchema]>,
    broad: BroadRules,
    flows: Box<[FlowHash]>,
    tenants: TenantHash,
}

/// What is known of a subject class before its combinations are looked up.
#[derive(Clone, Copy)]
struct Subject {
    /// The first schema that mentions it.
    first: u32,
    shapes: Shapes,
    broad: PartSet,
}

/// One schema of a combination.
#[derive(Clone, Copy)]
struct CombinedSchema {
    schema: u32,
    verbs: u16,
}

/// How the flows of a schema are distinguished, and whose they are.
enum FlowHash {
    /// Not at all: its level has no more than one queue.
    Zero,
    /// By a hasher that has taken in the schema's name and a zero byte.
    ///
    /// SipHash-1-3 under the policy's key: no client sees a hash, so none can search for names that
    /// share the hand of another flow; more rounds would only cost time.
    Of(SipHasher13, Option<Distinguisher>, TenantSource),
}

impl Classifier {
    /// The first schema in matching order that matches a request, if any does.
    ///
    /// Takes the same time however many schemas there are; a user costs one lookup per group.
    /// Allocates nothing.
    pub(super) fn schema_of(&self, digest: &RequestDigest) -> Option<SchemaIndex> {
        match self.first_match(digest) {
            UNKNOWN => None,
            found => Some(SchemaIndex(found)),
        }
    }

    /// The hash of a request's flow among those of `schema`, which must be of the same policy.
    pub(super) fn flow_hash(&self, schema: SchemaIndex, digest: &RequestDigest) -> u64 {
        self.flows[schema.0 as usize].of(digest)
    }

    /// The hash of a request's tenant, whose flow in `schema` has the hash `flow`: equal for all flows of the tenant that
    /// one schema may make many of.
    pub(super) fn tenant_hash(
        &self,
        schema: SchemaIndex,
        digest: &RequestDigest,
        flow: u64,
    ) -> u64 {
        match &self.flows[schema.0 as usize] {
            FlowHash::Of(_, _, tenant) => self.tenants.of(*tenant, digest, flow),
            FlowHash::Zero => flow,
        }
    }

    /// The tenant of a request in `schema`, which must be of the same policy.
    pub(super) fn tenant<'a>(
        &self,
        schema: SchemaIndex,
        digest: &'a RequestDigest,
    ) -> TenantName<'a> {
        match &self.flows[schema.0 as usize] {
            FlowHash::Of(_, _, tenant) => tenant.name(digest),
            FlowHash::Zero => TenantName::Flow,
        }
    }

    /// The flow distinguisher of a request in `schema`, which must be of the same policy; empty where flows are
    /// not distinguished.
    pub(super) fn distinguisher<'a>(
        &self,
        schema: SchemaIndex,
        digest: &'a RequestDigest,
    ) -> &'a [u8] {
        match &self.flows[schema.0 as usize] {
            FlowHash::Zero => b"",
            FlowHash::Of(_, method, _) => distinguisher(*method, digest),
        }
    }
}

impl FlowHash {
    fn new(schema: &Schema, level: &LevelSpec, key: [u8; 16]) -> Self {
        match level.kind {
            LevelKind::Limited {
                response: LimitResponse::Queue(queuing),
                ..
            } if queuing.queues >= 2 => {
                let mut hasher = SipHasher13::new_with_key(&key);
                hasher.write(schema.name.as_bytes());
                hasher.write(b"\0");
                let tenant = TenantSource::new(schema.tenant, schema.distinguisher);
                Self::Of(hasher, schema.distinguisher, tenant)
            }
            _ => Self::Zero,
        }
    }

    fn of(&self, digest: &RequestDigest) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Of(hasher, method, _) => {
                let mut hasher = *hasher;
                hasher.write(distinguisher(*method, digest));
                hasher.finish()
            }
        }
    }
}

fn distinguisher(method: Option<Distinguisher>, digest: &RequestDigest) -> &[u8] {
    match method {
        None => b"",
        Some(Distinguisher::ByUser) => digest.user.name.as_bytes(),
        Some(Distinguisher::ByNamespace) => digest.info.namespace(),
    }
}

impl Classifier {
    /// The first schema that matches, [`UNKNOWN`] if none does.
    fn first_match(&self, digest: &RequestDigest) -> u32 {
        let user = &digest.user;
        let mut request = Request::new(self, &digest.info);
        let mut best = UNKNOWN;
        let everybody = self.everybody;
        self.visit(everybody, &mut request, &mut best);
        let named = self.class(NameScope::USER, user.name.as_bytes());
        self.visit(named, &mut request, &mut best);
        if let Some(namespace) = account_namespace(&user.name) {
            let accounts = self.class(NameScope::ACCOUNTS, namespace.as_bytes());
            self.visit(accounts, &mut request, &mut best);
        }
        for group in &user.groups {
            // Nothing precedes the first schema. The built-in policy has `exempt` there, whose only subject is the
            // group `system:masters`, so its members save the lookups of their other groups.
            if best == 0 {
                break;
            }
            let group = self.class(NameScope::GROUP, group.as_bytes());
            self.visit(group, &mut request, &mut best);
        }
        best
    }

    /// Lowers `best` to the first schema that matches a request by this subject class.
    fn visit(&self, class: u32, request: &mut Request<'_>, best: &mut u32) {
        count();
        let Some(subject) = self.subjects.get(class as usize) else {
            return;
        };
        // No rule of this subject can precede what was found already.
        if subject.first >= *best {
            return;
        }
        if request.is_resource {
            self.visit_resource(class, subject.shapes, request, best);
        } else {
            self.visit_path(class, subject.shapes, request, best);
        }
        if !subject.broad.is_empty() {
            *best = self.broad.first(subject.broad, request, *best);
        }
    }

    fn visit_resource(
        &self,
        class: u32,
        mut shapes: Shapes,
        request: &mut Request<'_>,
        best: &mut u32,
    ) {
        // A name that no rule mentions cannot be found, so the lookups that need it are skipped. Each name is looked up
        // only if a shape needs it.
        if request.is_cluster {
            shapes &= CLUSTER_SHAPES;
        } else {
            shapes &= EVERY_NAMESPACE_SHAPES | NAMED_NAMESPACE_SHAPES;
            if shapes & NAMED_NAMESPACE_SHAPES != 0 && request.namespace() == UNKNOWN {
                shapes &= !NAMED_NAMESPACE_SHAPES;
            }
        }
        if shapes & NAMED_GROUP_SHAPES != 0 && request.group() == UNKNOWN {
            shapes &= !NAMED_GROUP_SHAPES;
        }
        if shapes & NAMED_RESOURCE_SHAPES != 0 && request.resource() == UNKNOWN {
            shapes &= !NAMED_RESOURCE_SHAPES;
        }
        while shapes != 0 {
            let shape = shapes.trailing_zeros();
            shapes &= shapes - 1;
            let group = if shape & NAMED_GROUP != 0 {
                request.group()
            } else {
                ANY
            };
            let resource = if shape & NAMED_RESOURCE != 0 {
                request.resource()
            } else {
                ANY
            };
            let place = match shape >> 2 {
                0 => CLUSTER,
                1 => ANY,
                _ => request.namespace(),
            };
            self.look(&[class, group, resource, place], request.verb, best);
        }
    }

    fn visit_path(&self, class: u32, shapes: Shapes, request: &mut Request<'_>, best: &mut u32) {
        if shapes & EVERY_PATH != 0 {
            self.look(&[class, PATH, ANY, 0], request.verb, best);
        }
        if shapes & NAMED_PATH != 0 {
            for path in request.paths() {
                self.look(&[class, PATH, path, 0], request.verb, best);
            }
        }
    }

    fn look(&self, key: &tuples::TupleKey, verb: u16, best: &mut u32) {
        let Some(range) = self.tuples.find(*key) else {
            return;
        };
        for entry in &self.entries[range] {
            count();
            if entry.schema >= *best {
                return;
            }
            if entry.verbs & verb != 0 {
                *best = entry.schema;
                return;
            }
        }
    }

    /// The class of a name; [`UNKNOWN`] if it has none.
    fn class(&self, scope: NameScope, name: &[u8]) -> u32 {
        self.numbering
            .names
            .find(scope, name)
            .map_or(UNKNOWN, |number| self.classes[number as usize])
    }

    /// The class of a resource with its subresource, which is empty if there is none.
    fn resource_class(&self, resource: &[u8], subresource: &[u8]) -> u32 {
        let Some(number) = self.numbering.names.find(NameScope::RESOURCE, resource) else {
            return UNKNOWN;
        };
        if subresource.is_empty() {
            return self.classes[number as usize];
        }
        self.class(NameScope::subresource_of(number), subresource)
    }

    /// The class of a path itself, and the number of the deepest directory of it that is mentioned.
    fn walk(&self, path: &[u8]) -> (u32, u32) {
        let Some((b'/', mut rest)) = path.split_first() else {
            return (UNKNOWN, UNKNOWN);
        };
        let mut directory = self.numbering.root;
        if directory == UNKNOWN {
            return (UNKNOWN, UNKNOWN);
        }
        while let Some(at) = rest.iter().position(|&byte| byte == b'/') {
            let scope = NameScope::directory_in(directory);
            let Some(next) = self.numbering.names.find(scope, &rest[..at]) else {
                return (UNKNOWN, directory);
            };
            directory = next;
            rest = &rest[at + 1..];
        }
        (self.class(NameScope::file_in(directory), rest), directory)
    }
}

/// A request as the index sees it: numbers, each looked up when first needed.
struct Request<'a> {
    classifier: &'a Classifier,
    info: Option<&'a RequestInfo>,
    is_resource: bool,
    is_cluster: bool,
    /// The verb as a mask with one bit set.
    verb: u16,
    group: Option<u32>,
    resource: Option<u32>,
    namespace: Option<u32>,
    /// The class of the path and the number of its deepest directory.
    path: Option<(u32, u32)>,
}

impl<'a> Request<'a> {
    fn new(classifier: &'a Classifier, info: &'a RequestInfo) -> Self {
        Self {
            classifier,
            info: Some(info),
            is_resource: info.is_resource,
            is_cluster: info.namespace().is_empty(),
            verb: match info.verb.bit() {
                0 => OTHER_VERBS,
                bit => bit,
            },
            group: None,
            resource: None,
            namespace: None,
            path: None,
        }
    }

    fn group(&mut self) -> u32 {
        let look = |info: &RequestInfo| self.classifier.class(NameScope::API_GROUP, info.group());
        *self
            .group
            .get_or_insert_with(|| self.info.map_or(UNKNOWN, look))
    }

    fn resource(&mut self) -> u32 {
        let look = |info: &RequestInfo| {
            self.classifier
                .resource_class(info.resource(), info.subresource())
        };
        *self
            .resource
            .get_or_insert_with(|| self.info.map_or(UNKNOWN, look))
    }

    /// [`CLUSTER`] if it has none.
    fn namespace(&mut self) -> u32 {
        if self.is_cluster {
            return CLUSTER;
        }
        let look = |info: &RequestInfo| {
            self.classifier
                .class(NameScope::NAMESPACE, info.namespace())
        };
        *self
            .namespace
            .get_or_insert_with(|| self.info.map_or(UNKNOWN, look))
    }

    /// The classes of the path and of its directories, the deepest first.
    fn paths(&mut self) -> Paths<'a> {
        let look = |info: &RequestInfo| self.classifier.walk(info.path());
        let (file, directory) = *self
            .path
            .get_or_insert_with(|| self.info.map_or((UNKNOWN, UNKNOWN), look));
        Paths {
            classifier: self.classifier,
            file,
            directory,
        }
    }
}

/// See [`Request::paths`].
struct Paths<'a> {
    classifier: &'a Classifier,
    file: u32,
    directory: u32,
}

impl Iterator for Paths<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        count();
        if self.file != UNKNOWN {
            return Some(std::mem::replace(&mut self.file, UNKNOWN));
        }
        while self.directory != UNKNOWN {
            let number = self.directory as usize;
            self.directory = self.classifier.above[number];
            let class = self.classifier.classes[number];
            if class != UNKNOWN {
                return Some(class);
            }
        }
        None
    }
}

/// The namespace of a service account, from its user name.
fn account_namespace(user: &str) -> Option<&str> {
    let (namespace, _) = user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    Some(namespace)
}

/// Counts a step of classification, in tests only: they prove its cost without a clock.
#[inline]
fn count() {
    #[cfg(test)]
    tests::STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
mod tests;
