//! A FlowSchema as policies are compiled from it.
//!
//! There may be many thousands. So only the fields that a policy depends on are kept, and the rules are packed.

use std::sync::{Arc, LazyLock};

use k8s_openapi::{
    api::flowcontrol::v1::{FlowSchema, ResourcePolicyRule},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::bootstrap::{self, SpecOwner};
use crate::apf::{
    packed_rules::PackedRules,
    spec::{Distinguisher, TenantRule},
};

/// A FlowSchema without errors, reduced to what a policy depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactFlowSchema {
    pub(in crate::apf) name: Arc<str>,
    /// Empty if there is none.
    pub(in crate::apf) uid: Arc<str>,
    pub(super) upkeep: Upkeep,
    pub(in crate::apf) precedence: i32,
    pub(in crate::apf) distinguisher: Option<Distinguisher>,
    /// By the annotation [`TenantRule::ANNOTATION`]; its text, if that names no rule.
    pub(in crate::apf) tenant: Result<TenantRule, Box<str>>,
    /// The name of its priority level.
    pub(in crate::apf) level: Box<str>,
    pub(in crate::apf) rules: PackedRules,
    /// Whether its rules name a resource that looks like a pattern, which does not exist.
    pub(in crate::apf) has_pattern: bool,
}

/// What decides whether an object of a built-in name keeps its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upkeep {
    /// The annotation [`bootstrap::AUTOUPDATE`], if it is a boolean.
    pub(super) autoupdate: Option<bool>,
    /// Whether it has been stored once and never edited since.
    pub(super) is_unedited: bool,
}

impl Upkeep {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            autoupdate: bootstrap::autoupdate(metadata).and_then(bootstrap::parse_bool),
            is_unedited: bootstrap::is_unedited(metadata.generation),
        }
    }

    /// Whose spec takes effect.
    pub(super) fn owner(self) -> SpecOwner {
        bootstrap::owner(self.autoupdate, self.is_unedited)
    }
}

impl CompactFlowSchema {
    /// Keeps what a policy depends on.
    pub(super) fn new(name: Arc<str>, object: &FlowSchema) -> Self {
        let metadata = &object.metadata;
        let spec = object.spec.as_ref();
        let rules = spec.and_then(|spec| spec.rules.as_deref());
        let rules = rules.unwrap_or_default();
        let method = spec.and_then(|spec| spec.distinguisher_method.as_ref());
        let level = spec.map_or("", |spec| spec.priority_level_configuration.name.as_str());
        let parts = rules.iter().flat_map(|rule| rule.resource_rules.iter());
        let mut resources = parts.flatten().flat_map(|part| &part.resources);
        Self {
            name,
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            upkeep: Upkeep::of(metadata),
            precedence: spec
                .and_then(|spec| spec.matching_precedence)
                .unwrap_or_default(),
            distinguisher: method.map(|method| match method.type_.as_str() {
                "ByNamespace" => Distinguisher::ByNamespace,
                _ => Distinguisher::ByUser,
            }),
            tenant: tenant(metadata),
            level: level.into(),
            rules: PackedRules::new(rules),
            has_pattern: resources.any(|resource| is_pattern(resource)),
        }
    }

    /// Its resource rules with their fields, such as `spec.rules[0].resourceRules[1]`: for tools that review policies.
    pub fn resource_rules(&self) -> Vec<(String, ResourcePolicyRule)> {
        let rules = self.rules.unpack().into_iter().enumerate();
        let parts = rules.flat_map(|(i, rule)| {
            let parts = rule.resource_rules.into_iter().flatten().enumerate();
            parts.map(move |(j, part)| (format!("spec.rules[{i}].resourceRules[{j}]"), part))
        });
        parts.collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The built-in schemas.
    pub(super) fn built_in() -> &'static [Self] {
        static ALL: LazyLock<Vec<CompactFlowSchema>> = LazyLock::new(|| {
            let compact = |schema: &FlowSchema| {
                let name = schema.metadata.name.as_deref().unwrap_or_default();
                CompactFlowSchema::new(name.into(), schema)
            };
            bootstrap::flow_schemas().iter().map(compact).collect()
        });
        &ALL
    }

    /// The built-in schema of this name.
    pub(in crate::apf) fn built_in_of(name: &str) -> Option<&'static Self> {
        Self::built_in().iter().find(|schema| &*schema.name == name)
    }

    /// Whether the specs mean the same.
    pub(super) fn has_same_spec(&self, other: &Self) -> bool {
        self.precedence == other.precedence
            && self.distinguisher == other.distinguisher
            && self.level == other.level
            && self.rules == other.rules
    }

    /// Whether a policy is the same with this object as with `other` of the same name. A change of the
    /// generation alone accompanies a change of the spec.
    pub(super) fn has_same_policy(&self, other: &Self) -> bool {
        self.has_same_spec(other)
            && self.uid == other.uid
            && self.tenant == other.tenant
            && self.upkeep.autoupdate == other.upkeep.autoupdate
    }
}

fn tenant(metadata: &ObjectMeta) -> Result<TenantRule, Box<str>> {
    let annotations = metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(TenantRule::ANNOTATION)) else {
        return Ok(TenantRule::Default);
    };
    TenantRule::of_name(text).ok_or_else(|| text.as_str().into())
}

/// Whether an entry of `resources` looks like a pattern: only `*` by itself stands for more than itself.
pub(in crate::apf) fn is_pattern(resource: &str) -> bool {
    resource != "*" && resource.contains('*')
}
