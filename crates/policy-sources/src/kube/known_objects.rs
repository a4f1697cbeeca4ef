//! The objects of one kind, built from a list and the watch events after it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::document::PolicyDocument;
use fairgate_core::{
    apf::objects::ParsedDocument,
    finding::{Finding, Severity},
};
use fairgate_upstream::informer::{ApiResource, Event, WatchedObject, Whole};

/// An object as received.
pub(super) type RawObject = WatchedObject<Whole>;

/// A parsed object.
#[derive(Debug)]
pub(super) struct KnownObject {
    document: Arc<ParsedDocument>,
    /// Why it cannot be used. These are warnings, since the other objects can still be used.
    problems: Vec<Finding>,
    /// SHA-256 of the object as received, resource version included.
    digest: [u8; 32],
    /// The object as received, in JSON, and its origin.
    original: (String, Box<str>),
}

/// The objects of one kind by their names.
#[derive(Debug)]
pub(super) struct KnownObjects {
    /// The plural name, as in the paths of the API.
    plural: &'static str,
    objects: BTreeMap<String, KnownObject>,
    /// A list that is being received. The objects it replaces are valid until it is complete.
    incoming: BTreeMap<String, KnownObject>,
    /// Whether a list has been completed since the last failure.
    listed: bool,
}

impl KnownObject {
    fn parse(plural: &str, object: RawObject) -> Self {
        let version = object.resource_version().unwrap_or("no version");
        let origin = format!("{plural}/{} at {version}", object.name());
        let text = object.object.to_string();
        let digest = Sha256::digest(&text).into();
        let document = ParsedDocument::parse(&origin, object.object);
        Self {
            problems: problems(&document),
            document: Arc::new(document),
            digest,
            original: (origin, text.into()),
        }
    }

    /// The object as it was received, if it can be used.
    pub(super) fn original(&self) -> Option<PolicyDocument> {
        let (origin, text) = &self.original;
        self.usable()?;
        Some(PolicyDocument {
            origin: origin.clone(),
            object: serde_json::from_str(text).ok()?,
        })
    }

    /// The document, if it can be used.
    pub(super) fn usable(&self) -> Option<&Arc<ParsedDocument>> {
        self.problems.is_empty().then_some(&self.document)
    }

    /// Why it cannot be used, as warnings; empty if it can.
    pub(super) fn problems(&self) -> &[Finding] {
        &self.problems
    }

    /// The SHA-256 of the object as received, resource version included.
    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    fn has_same_policy(&self, other: &Self) -> bool {
        self.document.has_same_policy(&other.document)
    }
}

impl KnownObjects {
    /// An empty set for the kind with this plural name.
    pub(super) fn new(plural: &'static str) -> Self {
        Self {
            plural,
            objects: BTreeMap::new(),
            incoming: BTreeMap::new(),
            listed: false,
        }
    }

    /// Applies an event; returns whether the change can affect a policy.
    pub(super) fn take(&mut self, event: Event<RawObject>) -> bool {
        match event {
            Event::Init => {
                // What a list left here that was interrupted.
                self.incoming.clear();
                false
            }
            Event::InitApply(object) => {
                let name = object.name().to_owned();
                let known = KnownObject::parse(self.plural, object);
                self.incoming.insert(name, known);
                false
            }
            Event::InitDone => {
                let incoming = std::mem::take(&mut self.incoming);
                let before = std::mem::replace(&mut self.objects, incoming);
                self.listed = true;
                !same_objects(&before, &self.objects)
            }
            Event::Apply(object) => {
                let name = object.name().to_owned();
                let known = KnownObject::parse(self.plural, object);
                let before = self.objects.get(&name);
                let same = before.is_some_and(|before| before.has_same_policy(&known));
                // Also if the policy stays the same: origin and digest are those of the new version of the object.
                self.objects.insert(name, known);
                !same
            }
            Event::Delete(object) => self.objects.remove(object.name()).is_some(),
        }
    }

    /// After a failure: the objects stay until the next list is complete.
    pub(super) fn invalidate(&mut self) {
        self.incoming.clear();
        self.listed = false;
    }

    /// Whether all objects are known.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// All objects, in the order of their names.
    pub(super) fn objects(&self) -> impl Iterator<Item = &KnownObject> {
        self.objects.values()
    }
}

/// Sets `apiVersion` and `kind`, which the items of a list lack.
pub(super) fn set_type(object: &mut RawObject, kind: &ApiResource) {
    if let Value::Object(value) = &mut object.object {
        value.insert("apiVersion".to_owned(), kind.api_version.as_str().into());
        value.insert("kind".to_owned(), kind.kind.as_str().into());
    }
}

/// Why an object cannot be used, as warnings; empty if it can.
fn problems(document: &ParsedDocument) -> Vec<Finding> {
    let errors = document.findings().filter(|finding| finding.is_error());
    errors
        .map(|finding| Finding {
            severity: Severity::Warning,
            message: format!("{}, so the object has no effect", finding.message),
            ..finding.clone()
        })
        .collect()
}

fn same_objects(
    before: &BTreeMap<String, KnownObject>,
    after: &BTreeMap<String, KnownObject>,
) -> bool {
    before.len() == after.len()
        && before
            .iter()
            .zip(after)
            .all(|((a, before), (b, after))| a == b && before.has_same_policy(after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, precedence: u32) -> RawObject {
        let object = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": name, "resourceVersion": "7", "managedFields": [1]},
            "spec": {
                "priorityLevelConfiguration": {"name": "some"},
                "matchingPrecedence": precedence,
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn none_known() -> KnownObjects {
        KnownObjects::new("flowschemas")
    }

    fn names(known: &KnownObjects) -> Vec<&str> {
        known.objects.keys().map(String::as_str).collect()
    }

    #[test]
    fn a_list_replaces_the_known_objects_once_it_is_complete() {
        let mut known = none_known();
        for event in [Event::Init, Event::InitApply(object("a", 1))] {
            assert!(!known.take(event));
        }
        assert!(!known.is_listed());
        assert!(known.take(Event::InitDone));
        assert_eq!(names(&known), ["a"]);

        known.invalidate();
        assert!(!known.is_listed());
        known.take(Event::Init);
        known.take(Event::InitApply(object("b", 1)));
        assert_eq!(names(&known), ["a"], "the new list is not complete");
        assert!(known.take(Event::InitDone));
        assert_eq!(names(&known), ["b"]);
        known.take(Event::Init);
        known.take(Event::InitApply(object("b", 1)));
        assert!(!known.take(Event::InitDone), "the same again");
    }

    #[test]
    fn only_events_that_can_affect_a_policy_count() {
        let mut known = none_known();
        assert!(known.take(Event::Apply(object("a", 1))));
        assert!(!known.take(Event::Apply(object("a", 1))));
        assert!(known.take(Event::Apply(object("a", 2))));
        assert!(!known.take(Event::Delete(object("b", 1))));
        assert!(known.take(Event::Delete(object("a", 2))));
        assert_eq!(names(&known), [""; 0]);
    }

    #[test]
    fn an_object_that_cannot_be_used_is_reported_as_a_warning() {
        let level = |spec| {
            let object = json!({
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
                "kind": "PriorityLevelConfiguration",
                "metadata": {"name": "a"},
                "spec": spec,
            });
            let object = serde_json::from_value(object).unwrap();
            KnownObject::parse("prioritylevelconfigurations", object)
        };
        let reject = json!({"type": "Reject"});
        let sound = level(json!({"type": "Limited", "limited": {"limitResponse": reject}}));
        assert_eq!(sound.problems(), []);
        assert!(sound.usable().is_some());
        let unusable = level(json!({"type": 7}));
        assert!(unusable.usable().is_none());
        assert_eq!(unusable.problems().len(), 1);
        assert_eq!(unusable.problems()[0].severity, Severity::Warning);
        let message = unusable.problems()[0].to_string();
        assert!(message.contains("so the object has no effect"), "{message}");
    }
}
