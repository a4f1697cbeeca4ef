//! The compiled policy: an immutable snapshot of FlowSchemas and priority levels.
//!
//! It is always complete: mandatory objects that are not given are added. What the objects look
//! like on the wire is in [`super::objects`]; how a request finds its schema in `classify`.

mod advice;
mod candidates;
mod compile;
mod in_force;

use std::{fmt, sync::Arc};

use k8s_openapi::api::flowcontrol::v1::PolicyRulesWithSubjects;

pub use advice::is_unreachable;

pub use super::classify::{Mismatch, RuleMatch, RuleMismatch, TenantName};
pub use super::spec::{
    Distinguisher, Flow, LevelIndex, LevelKind, LevelSpec, LimitResponse, Queuing, Schema,
    SchemaIndex, Semantics, TenantRule,
};
use super::{
    classify::{Classifier, explain_rules},
    objects::{CompactFlowSchema, Located},
    packed_rules::PackedRules,
    queueset::DEFAULT_TENANT_WEIGHT,
    units::Seats,
};
use crate::{digest::RequestDigest, finding::Finding};
use siphasher::sip::SipHasher13;

/// What the policy is compiled for, besides the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// The server concurrency limit, shared out among the levels.
    pub total_seats: Seats,
    /// See [`Semantics`].
    pub semantics: Semantics,
    /// Key of the flow hash.
    pub hash_key: [u8; 16],
    /// What the flows of one tenant weigh together at most in a level, where a flow weighs 1; at least 1. Only in
    /// [`Semantics::Improved`].
    pub tenant_weight: u32,
}

impl PolicySettings {
    /// [`PolicySettings::tenant_weight`], unless configured.
    pub const DEFAULT_TENANT_WEIGHT: u32 = DEFAULT_TENANT_WEIGHT;

    /// A hash under [`PolicySettings::hash_key`] that tells keys apart, and does not tell the key. No flow has its text.
    pub fn hash_key_mark(&self) -> u64 {
        SipHasher13::new_with_key(&self.hash_key).hash(b"fairgate.hash-key.v1")
    }
}

/// An immutable snapshot of all schemas and levels; see the module.
pub struct Policy {
    settings: PolicySettings,
    schemas: Box<[Schema]>,
    /// The object of each schema, whose rules are for explanations.
    objects: Box<[Arc<Located<CompactFlowSchema>>]>,
    levels: Box<[LevelSpec]>,
    catch_all: SchemaIndex,
    classifier: Classifier,
}

/// The result of compiling a set of objects.
#[derive(Debug)]
pub struct Compiled {
    /// Ready to use.
    pub policy: Policy,
    /// Warnings; errors would have refused the set.
    pub findings: Vec<Finding>,
    /// The names of schemas that take no part because their level does not exist.
    pub dangling: Vec<Arc<str>>,
}

impl Policy {
    /// The settings it was compiled for.
    pub fn settings(&self) -> &PolicySettings {
        &self.settings
    }

    /// All schemas that take part in matching, in matching order.
    pub fn schemas(&self) -> &[Schema] {
        &self.schemas
    }

    /// One schema.
    ///
    /// # Panics
    ///
    /// If `index` is of another policy that has more schemas.
    pub fn schema(&self, index: SchemaIndex) -> &Schema {
        &self.schemas[index.0 as usize]
    }

    /// The schema of this name, if it takes part in matching. `O(schemas)`: not for the request path.
    pub fn schema_by_name(&self, name: &str) -> Option<SchemaIndex> {
        let at = self.schemas.iter().position(|s| &*s.name == name)?;
        u32::try_from(at).ok().map(SchemaIndex)
    }

    /// The rules of one schema. Costs an allocation for each list and text.
    ///
    /// # Panics
    ///
    /// If `index` is of another policy that has more schemas.
    pub fn rules(&self, index: SchemaIndex) -> Vec<PolicyRulesWithSubjects> {
        self.packed_rules(index).unpack()
    }

    pub(super) fn packed_rules(&self, index: SchemaIndex) -> &PackedRules {
        &self.objects[index.0 as usize].object.rules
    }

    /// The schema of requests that no other schema matches.
    pub fn catch_all(&self) -> SchemaIndex {
        self.catch_all
    }

    /// All levels, sorted by name.
    pub fn levels(&self) -> &[LevelSpec] {
        &self.levels
    }

    /// One level.
    ///
    /// # Panics
    ///
    /// If `index` is of another policy that has more levels.
    pub fn level(&self, index: LevelIndex) -> &LevelSpec {
        &self.levels[index.0 as usize]
    }

    /// The level of this name. `O(log levels)`.
    pub fn level_by_name(&self, name: &str) -> Option<LevelIndex> {
        level_by_name(&self.levels, name)
    }

    /// The classifier, whose own tests look into it.
    #[cfg(test)]
    pub(super) fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// The schema, level and flow of a request.
    ///
    /// Takes the same time however many schemas there are; a user costs one lookup per group.
    /// Allocates nothing.
    pub fn classify(&self, digest: &RequestDigest) -> Flow {
        let schema = self.classifier.schema_of(digest).unwrap_or(self.catch_all);
        let hash = self.classifier.flow_hash(schema, digest);
        Flow {
            schema,
            level: self.schema(schema).level,
            hash,
            tenant: self.classifier.tenant_hash(schema, digest, hash),
        }
    }

    /// The flow distinguisher of this request in `schema`; empty where all its requests are one flow.
    ///
    /// # Panics
    ///
    /// If `schema` is of another policy that has more schemas.
    pub fn distinguisher<'a>(&self, schema: SchemaIndex, digest: &'a RequestDigest) -> &'a [u8] {
        self.classifier.distinguisher(schema, digest)
    }

    /// The tenant of this request in `schema`.
    ///
    /// # Panics
    ///
    /// If `schema` is of another policy that has more schemas.
    pub fn tenant<'a>(&self, schema: SchemaIndex, digest: &'a RequestDigest) -> TenantName<'a> {
        self.classifier.tenant(schema, digest)
    }

    /// Whether one schema, by itself, matches a request, and by which of its parts.
    ///
    /// Costs time in proportion to the schema; not for the request path.
    ///
    /// # Errors
    ///
    /// One [`RuleMismatch`] for each rule of the schema, if none matches.
    ///
    /// # Panics
    ///
    /// If `schema` is of another policy that has more schemas.
    pub fn explain(
        &self,
        schema: SchemaIndex,
        digest: &RequestDigest,
    ) -> Result<RuleMatch, Vec<RuleMismatch>> {
        explain_rules(&self.rules(schema), digest)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("semantics", &self.settings.semantics)
            .field("total_seats", &self.settings.total_seats)
            .field("schemas", &self.schemas)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

fn level_by_name(levels: &[LevelSpec], name: &str) -> Option<LevelIndex> {
    let at = levels.binary_search_by(|level| (*level.name).cmp(name));
    u32::try_from(at.ok()?).ok().map(LevelIndex)
}

#[cfg(test)]
mod tests;
