//! Policy objects as data: FlowSchemas and PriorityLevelConfigurations.
//!
//! An [`ObjectSet`] is a complete set of objects as users wrote them, of `v1` or `v1beta3`, with defaults
//! filled in, checked, and with all mistakes as [`Finding`]s. [`ObjectSet::effective`] adds the built-in
//! objects by the rules of a server that maintains them. Which schema catches a request is not here (see
//! [`super::policy`]), and no file is read.

pub mod bootstrap;
mod changes;
mod compact;
pub mod defaults;
mod parsed;
mod read;
pub mod v1beta3;
pub mod validate;

use std::{collections::HashMap, sync::Arc};

use fairgate_gotext::Quoted;
use k8s_openapi::api::flowcontrol::v1::{FlowSchemaCondition, PriorityLevelConfiguration};
use serde_json::Value;

use crate::finding::{Finding, Severity};
pub use bootstrap::Bootstrap;
pub use changes::ObjectChanges;
pub use compact::CompactFlowSchema;
pub(in crate::apf) use compact::is_pattern;
pub use parsed::ParsedDocument;
pub use read::GROUP;

use bootstrap::SpecOwner;
use compact::Upkeep;
use parsed::{ParsedObject, UsableObject};

/// The kind of a FlowSchema.
pub const FLOW_SCHEMA: &str = "FlowSchema";
/// The kind of a priority level.
pub const PRIORITY_LEVEL: &str = "PriorityLevelConfiguration";
/// The origin of built-in objects.
pub const BUILT_IN: &str = "built in";

/// An object and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// Such as `file.yaml, document 2`; [`BUILT_IN`] for what is built in.
    pub origin: Arc<str>,
    /// The object.
    pub object: T,
}

/// A complete set of policy objects, as given, and the findings about it.
#[derive(Clone, Debug, Default)]
pub struct ObjectSet {
    flow_schemas: Vec<Arc<Located<CompactFlowSchema>>>,
    priority_levels: Vec<Arc<Located<PriorityLevelConfiguration>>>,
    findings: Vec<Finding>,
    bootstrap: Bootstrap,
    /// Whether there are documents that could not be read.
    has_unread_documents: bool,
    /// Kind and name to the origin of the object that has them.
    seen: HashMap<(&'static str, Arc<str>), Arc<str>>,
}

/// The objects that take effect, including the built-in ones that are not given.
///
/// Mandatory objects that are not given are *not* in it: compiling a policy adds them.
#[derive(Clone, Debug, Default)]
pub struct EffectiveSet {
    /// In no particular order.
    pub flow_schemas: Vec<Arc<Located<CompactFlowSchema>>>,
    /// In no particular order.
    pub priority_levels: Vec<Arc<Located<PriorityLevelConfiguration>>>,
    /// Objects that do not take effect as written, and why.
    pub findings: Vec<Finding>,
}

impl ObjectSet {
    /// Reads objects out of documents, each with its origin (such as `file.yaml, document 2`).
    ///
    /// See [`ParsedDocument::parse`] for what a document may be. What is wrong is kept in
    /// [`Self::findings`]; nothing stops at the first mistake.
    pub fn read<O: AsRef<str>>(documents: impl IntoIterator<Item = (O, Value)>) -> Self {
        let mut set = Self::default();
        for (origin, value) in documents {
            set.add(&ParsedDocument::parse(origin.as_ref(), value));
        }
        set
    }

    /// The objects of documents that were parsed before. Shares the objects, so that of many
    /// documents only the changed ones are parsed again. Costs `O(1)` for each object.
    pub fn of<'a>(documents: impl IntoIterator<Item = &'a ParsedDocument>) -> Self {
        let mut set = Self::default();
        for document in documents {
            set.add(document);
        }
        set
    }

    /// Takes objects that are `v1` already, all of one origin.
    #[cfg(test)]
    pub(crate) fn from_objects(
        origin: &str,
        flow_schemas: impl IntoIterator<Item = k8s_openapi::api::flowcontrol::v1::FlowSchema>,
        priority_levels: impl IntoIterator<Item = PriorityLevelConfiguration>,
    ) -> Self {
        let mut document = ParsedDocument::default();
        for object in flow_schemas {
            document.add_flow_schema(origin, object);
        }
        for object in priority_levels {
            document.add_level(origin, object);
        }
        Self::of([&document])
    }

    /// The same objects, with another choice of built-in ones.
    #[must_use]
    pub fn with_bootstrap(mut self, bootstrap: Bootstrap) -> Self {
        self.bootstrap = bootstrap;
        self
    }

    /// The same objects, of a source that also has documents that could not be read, or has none: what is missing may be in them.
    #[must_use]
    pub fn with_unread_documents(mut self, has_some: bool) -> Self {
        self.has_unread_documents = has_some;
        self
    }

    /// Whether there are documents that could not be read.
    pub(in crate::apf) fn has_unread_documents(&self) -> bool {
        self.has_unread_documents
    }

    /// The schemas as given, with defaults.
    pub fn flow_schemas(&self) -> &[Arc<Located<CompactFlowSchema>>] {
        &self.flow_schemas
    }

    /// The levels as given, with defaults.
    pub fn priority_levels(&self) -> &[Arc<Located<PriorityLevelConfiguration>>] {
        &self.priority_levels
    }

    /// The findings about the objects, each by itself.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Applies the rules by which a server maintains its built-in objects.
    ///
    /// With [`Bootstrap::Suggested`]: a suggested object that is not given is added. One that is given takes
    /// effect as written if its annotation [`bootstrap::AUTOUPDATE`] is false, and as built in if it is true;
    /// without a boolean there, as built in only if its generation is 1, which means it was never edited. An
    /// object from a file has no generation: it takes effect as written. With [`Bootstrap::Mandatory`], objects
    /// of suggested names are taken as they are.
    ///
    /// An object whose annotation is true and whose name is not built in is left out, because a
    /// server would delete it.
    pub fn effective(&self) -> EffectiveSet {
        let mut set = EffectiveSet::default();
        for located in &self.flow_schemas {
            set.flow_schemas
                .extend(self.keep(located, &mut set.findings));
        }
        for located in &self.priority_levels {
            set.priority_levels
                .extend(self.keep(located, &mut set.findings));
        }
        if self.bootstrap == Bootstrap::Suggested {
            let schemas = CompactFlowSchema::built_in().iter();
            let levels = bootstrap::priority_levels().iter();
            set.flow_schemas
                .extend(schemas.filter_map(|s| self.suggested(s)));
            set.priority_levels
                .extend(levels.filter_map(|l| self.suggested(l)));
        }
        set
    }

    /// The object as it takes effect; `None` if it does not.
    fn keep<T: PolicyObject>(
        &self,
        located: &Arc<Located<T>>,
        findings: &mut Vec<Finding>,
    ) -> Option<Arc<Located<T>>> {
        let name = located.object.name();
        let upkeep = located.object.upkeep();
        let mut warn = |message: &str, remedy: &str| {
            findings.push(Finding {
                severity: Severity::Warning,
                origin: located.origin.to_string(),
                kind: T::KIND.to_owned(),
                name: name.to_owned(),
                field: format!("metadata.annotations[{}]", bootstrap::AUTOUPDATE),
                message: message.to_owned(),
                remedy: remedy.to_owned(),
            });
        };
        let Some(original) = T::built_in(name) else {
            if upkeep.autoupdate == Some(true) {
                warn(
                    "is true on an object that is not built in, so the object is left out, as an \
                     API server would delete it",
                    "remove the annotation",
                );
                return None;
            }
            return Some(Arc::clone(located));
        };
        // The spec of a mandatory object cannot be another one here: validation has refused it, except for the shares of `exempt`, which are the
        // author's to choose.
        let as_given = bootstrap::is_mandatory(name)
            || self.bootstrap == Bootstrap::Mandatory
            || upkeep.owner() == SpecOwner::Author
            || located.object.has_same_spec(original);
        if as_given {
            return Some(Arc::clone(located));
        }
        warn(
            "keeps the object at its built-in spec, so the spec given here has no effect",
            "set the annotation to \"false\" to use this spec, or remove the object",
        );
        Some(Arc::new(Located {
            origin: Arc::clone(&located.origin),
            object: original.instead_of(&located.object),
        }))
    }

    /// The suggested built-in object, unless one of its name is given.
    fn suggested<T: PolicyObject>(&self, object: &T) -> Option<Arc<Located<T>>> {
        let name = object.name();
        let is_added =
            // `seen` has unusable objects, too: a mistake in an object does not bring the built-in one back in its place.
            !bootstrap::is_mandatory(name) && !self.seen.contains_key(&(T::KIND, name.into()));
        is_added.then(|| Arc::new(Located::built_in(object)))
    }

    /// Adds the objects of a document. Of two objects of one name, the first counts.
    fn add(&mut self, document: &ParsedDocument) {
        for parsed in document.objects() {
            self.findings.extend_from_slice(&parsed.findings);
            if self.is_first_of_its_name(parsed) {
                match &parsed.usable {
                    Some(UsableObject::FlowSchema(object)) => {
                        self.flow_schemas.push(Arc::clone(object));
                    }
                    Some(UsableObject::PriorityLevel(object)) => {
                        self.priority_levels.push(Arc::clone(object));
                    }
                    None => {}
                }
            }
        }
    }

    /// Notes the name of an object; reports one that another object has already.
    fn is_first_of_its_name(&mut self, parsed: &ParsedObject) -> bool {
        let key = (parsed.kind, Arc::clone(&parsed.name));
        if let Some(first) = self.seen.get(&key) {
            self.findings.push(Finding {
                severity: Severity::Error,
                origin: parsed.origin.to_string(),
                kind: parsed.kind.to_owned(),
                name: parsed.name.to_string(),
                field: "metadata.name".to_owned(),
                message: format!("is the name of another {}, in {first}", parsed.kind),
                remedy: "remove or rename one of them".to_owned(),
            });
            return false;
        }
        // Objects without a name have an error of their own, and are not duplicates of each other.
        if !parsed.name.is_empty() {
            self.seen.insert(key, Arc::clone(&parsed.origin));
        }
        true
    }
}

impl<T: Clone> Located<T> {
    /// A built-in object.
    pub(super) fn built_in(object: &T) -> Self {
        Self {
            origin: BUILT_IN.into(),
            object: object.clone(),
        }
    }
}

/// The condition `Dangling` of a FlowSchema that names `level`, which exists or not; without a time.
///
/// The texts are those of the API server, which compares them: servers of one cluster that write
/// different ones overwrite each other forever.
pub fn dangling_condition(level: &str, exists: bool) -> FlowSchemaCondition {
    let (status, reason, outcome) = if exists {
        ("False", "Found", "it exists")
    } else {
        ("True", "NotFound", "there is no such object")
    };
    let conjunction = if exists { "and" } else { "but" };
    FlowSchemaCondition {
        type_: Some("Dangling".to_owned()),
        status: Some(status.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {} \
             {conjunction} {outcome}",
            Quoted(level)
        )),
        last_transition_time: None,
    }
}

/// What the two kinds have in common.
trait PolicyObject: Clone + 'static {
    const KIND: &'static str;

    fn name(&self) -> &str;
    fn upkeep(&self) -> Upkeep;
    /// The built-in object of this name.
    fn built_in(name: &str) -> Option<&'static Self>;
    /// Whether the specs mean the same.
    fn has_same_spec(&self, other: &Self) -> bool;
    /// This spec with the metadata of `given`.
    fn instead_of(&self, given: &Self) -> Self;
}

impl PolicyObject for CompactFlowSchema {
    const KIND: &'static str = FLOW_SCHEMA;

    fn name(&self) -> &str {
        &self.name
    }

    fn upkeep(&self) -> Upkeep {
        self.upkeep
    }

    fn built_in(name: &str) -> Option<&'static Self> {
        Self::built_in_of(name)
    }

    fn has_same_spec(&self, other: &Self) -> bool {
        self.has_same_spec(other)
    }

    fn instead_of(&self, given: &Self) -> Self {
        Self {
            name: Arc::clone(&given.name),
            uid: Arc::clone(&given.uid),
            upkeep: given.upkeep,
            tenant: given.tenant.clone(),
            ..self.clone()
        }
    }
}

impl PolicyObject for PriorityLevelConfiguration {
    const KIND: &'static str = PRIORITY_LEVEL;

    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn upkeep(&self) -> Upkeep {
        Upkeep::of(&self.metadata)
    }

    fn built_in(name: &str) -> Option<&'static Self> {
        bootstrap::priority_level(name)
    }

    fn has_same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn instead_of(&self, given: &Self) -> Self {
        Self {
            metadata: given.metadata.clone(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests;
