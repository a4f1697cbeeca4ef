//! The compiled policy: an immutable snapshot of FlowSchemas and priority levels.
//!
//! Always whole: the mandatory objects are in it, imagined where nobody gave them. What the objects
//! look like on the wire is in [`super::objects`]; how a request finds its schema in
//! `classify`.

mod advice;
mod compile;

use std::{fmt, sync::Arc};

pub use advice::is_unreachable;

use k8s_openapi::api::flowcontrol::v1::PolicyRulesWithSubjects;

use super::{classify::Classifier, units::Seats};
use crate::finding::Finding;

/// Whose behaviour to follow where the original is known to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Semantics {
    /// As the original behaves, its defects included.
    Compatible,
    /// As the original is meant.
    #[default]
    Improved,
}

/// A schema's index in its [`Policy`]; in matching order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaIndex(pub u32);

/// A level's index in its [`Policy`]; sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelIndex(pub u32);

/// One FlowSchema that takes part in matching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The object's name.
    pub name: Arc<str>,
    /// The object's UID, or a stable one made from kind and name; never empty.
    pub uid: Arc<str>,
    /// Matching precedence; low wins.
    pub precedence: i32,
    /// The level its requests go to.
    pub level: LevelIndex,
    /// How its requests are split into flows; `None`: all are one flow.
    pub distinguisher: Option<Distinguisher>,
}

/// How the requests of a schema are split into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// By the user's name.
    ByUser,
    /// By the request's namespace.
    ByNamespace,
}

/// One priority level as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSpec {
    /// The object's name.
    pub name: Arc<str>,
    /// The object's UID, or a stable one made from kind and name; never empty.
    pub uid: Arc<str>,
    /// Concurrency shares.
    pub shares: u32,
    /// Percent of the nominal limit that others may borrow.
    pub lendable_percent: u32,
    /// How requests are held back.
    pub kind: LevelKind,
}

/// How a level holds its requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelKind {
    /// Not at all.
    Exempt,
    /// By a concurrency limit.
    Limited {
        /// Percent of the nominal limit that it may borrow; `None`: all there is.
        borrowing_limit_percent: Option<u32>,
        /// What happens at the limit.
        response: LimitResponse,
    },
}

/// What a limited level does with a request that finds no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitResponse {
    /// Refuse it.
    Reject,
    /// Queue it fairly.
    Queue(Queuing),
}

/// The shape of a level's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    /// The deck: 1 to 10 000 000.
    pub queues: u32,
    /// 1 to `queues`, within 60 bits of entropy.
    pub hand_size: u32,
    /// Waiting requests a queue takes.
    pub queue_length_limit: u32,
}

/// Where a request belongs: the outcome of classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The schema that matched.
    pub schema: SchemaIndex,
    /// Its level.
    pub level: LevelIndex,
    /// Hash of schema and flow distinguisher; 0 where the level has no more than one queue.
    pub hash: u64,
}

/// What the policy is compiled for, besides the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// The server concurrency limit, shared out among the levels.
    pub total_seats: Seats,
    /// See [`Semantics`].
    pub semantics: Semantics,
    /// Key of the flow hash.
    pub hash_key: [u8; 16],
}

/// An immutable snapshot of all schemas and levels; see the module.
pub struct Policy {
    settings: PolicySettings,
    schemas: Box<[Schema]>,
    /// The rules of each schema, for explanations.
    rules: Box<[Vec<PolicyRulesWithSubjects>]>,
    levels: Box<[LevelSpec]>,
    catch_all: SchemaIndex,
    classifier: Classifier,
}

/// What compiling a set of objects gives.
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

    /// The rules of one schema.
    ///
    /// # Panics
    ///
    /// If `index` is of another policy that has more schemas.
    pub fn rules(&self, index: SchemaIndex) -> &[PolicyRulesWithSubjects] {
        &self.rules[index.0 as usize]
    }

    /// The schema of whatever nothing else matches.
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

    pub(super) fn classifier(&self) -> &Classifier {
        &self.classifier
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
