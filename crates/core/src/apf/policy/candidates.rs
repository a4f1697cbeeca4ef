//! What compilation passes from step to step: schemas and levels with the objects they come from.

use std::sync::Arc;

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PolicyRulesWithSubjects};

use crate::apf::{
    objects::Located,
    spec::{LevelSpec, Schema},
};

/// A schema that takes part in matching, and its object.
pub(super) struct SchemaCandidate {
    pub(super) schema: Schema,
    pub(super) object: Arc<Located<FlowSchema>>,
}

impl SchemaCandidate {
    pub(super) fn rules(&self) -> &[PolicyRulesWithSubjects] {
        rules(&self.object)
    }
}

/// The rules of a schema.
pub(super) fn rules(schema: &Located<FlowSchema>) -> &[PolicyRulesWithSubjects] {
    let spec = schema.object.spec.as_ref();
    spec.and_then(|spec| spec.rules.as_deref())
        .unwrap_or_default()
}

/// A level, and where its object comes from.
pub(super) struct LevelCandidate {
    pub(super) spec: LevelSpec,
    pub(super) origin: Arc<str>,
}
