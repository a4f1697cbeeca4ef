//! What compilation passes from step to step: schemas and levels with the objects they come from.

use std::sync::Arc;

use crate::apf::{
    objects::{CompactFlowSchema, Located},
    spec::{LevelSpec, Schema},
};

/// A schema that takes part in matching, and its object.
pub(super) struct SchemaCandidate {
    pub(super) schema: Schema,
    pub(super) object: Arc<Located<CompactFlowSchema>>,
}

/// A level, and where its object comes from.
pub(super) struct LevelCandidate {
    pub(super) spec: LevelSpec,
    pub(super) origin: Arc<str>,
    /// Whether its spec is that of the built-in level of its name.
    pub(super) is_built_in: bool,
}
