//! What compilation passes from step to step: schemas and levels with the objects they come from.

use std::sync::Arc;

use k8s_openapi::api::flowcontrol::v1::PolicyRulesWithSubjects;

use crate::apf::spec::{LevelSpec, Schema};

/// A schema that takes part in matching, with its rules and where its object comes from.
pub(super) struct SchemaCandidate {
    pub(super) schema: Schema,
    pub(super) rules: Vec<PolicyRulesWithSubjects>,
    pub(super) origin: Arc<str>,
}

/// A level, and where its object comes from.
pub(super) struct LevelCandidate {
    pub(super) spec: LevelSpec,
    pub(super) origin: Arc<str>,
}
