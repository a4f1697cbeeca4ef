//! Expressions that fail for objects without labels or annotations, or at operations without an object or an old one.

use fairgate_admission::{AbsentPart, expressions_that_fail_without};
use fairgate_core::finding::Finding;
use serde_json::Value;

use crate::documents::{FileObject, items};

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const CHANGES: &[&str] = &["UPDATE", "DELETE"];

/// What has labels and annotations, and where it is.
const OWNERS: [(&str, &str, &[&str]); 4] = [
    ("an", "object", &[]),
    ("a", "template", &["spec", "template"]),
    ("a", "job template", &["spec", "jobTemplate"]),
    (
        "a",
        "pod template",
        &["spec", "jobTemplate", "spec", "template"],
    ),
];

/// Labels or annotations of an object, or of a part of it.
struct LabelMap {
    /// From `object` or `oldObject` on.
    path: Vec<&'static str>,
    /// The operations at which there are such objects.
    operations: &'static [&'static str],
    /// In words.
    owner: String,
}

impl LabelMap {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (root, operations) in [("object", WRITES), ("oldObject", CHANGES)] {
            for (article, owner, parents) in OWNERS {
                let article = if root == "object" { article } else { "an old" };
                for name in ["labels", "annotations"] {
                    all.push(Self {
                        path: [&[root], parents, &["metadata", name]].concat(),
                        operations,
                        owner: format!("{article} {owner}"),
                    });
                }
            }
        }
        all
    }

    /// Whether all objects have some: the template of a workload has the labels of its selector.
    fn is_required(&self) -> bool {
        matches!(*self.path, [_, "spec", "template", "metadata", "labels"])
    }

    /// Whether these are the labels by which `objectSelector` selects.
    fn is_selected_by(&self) -> bool {
        matches!(*self.path, [_, "metadata", "labels"])
    }

    /// Whether the text of a policy names all members of the path: else no expression reads them.
    fn is_named_in(&self, text: &str) -> bool {
        self.path.iter().all(|member| text.contains(member))
    }

    /// What is told of an expression that fails without the map: when that is, and the remedy.
    fn without_any(&self) -> (String, String) {
        let (whole, read) = (self.path.join("."), self.optional());
        (
            format!("{} has no {}", self.owner, self.name()),
            format!("test has({whole}) && 'NAME' in {whole} first, or read {read}"),
        )
    }

    /// The same of one that fails without one key.
    fn without_one(&self) -> (String, String) {
        let (whole, read) = (self.path.join("."), self.optional());
        let (owner, name) = (&self.owner, self.name());
        (
            format!("{owner} has other {name}, but not the one that is read"),
            format!("test 'NAME' in {whole}, too, or read {read}"),
        )
    }

    fn name(&self) -> &'static str {
        self.path.last().copied().unwrap_or_default()
    }

    /// An expression that reads a value, if there is one.
    fn optional(&self) -> String {
        let parents = self.path[..self.path.len() - 1].join(".");
        format!("{parents}.?{}[?'NAME'].orValue('')", self.name())
    }
}

/// A warning for each expression of the policy that fails when something is absent.
pub(super) fn warnings(policy: &FileObject) -> Vec<Finding> {
    let spec = &policy.value["spec"];
    let constraints = &spec["matchConstraints"];
    let effect = match spec["failurePolicy"].as_str() {
        Some("Ignore") => "the policy does not evaluate it",
        _ => "the request is refused",
    };
    // What is wrong with an object that cannot be read is reported elsewhere.
    let failing = |part: AbsentPart<'_>| {
        expressions_that_fail_without(&policy.value, part).unwrap_or_default()
    };
    let mut found = Vec::new();
    let mut warn = |field: &str, when: &str, remedy: &str| {
        let message = format!("it fails when {when}: {effect}");
        found.push(policy.warning(field, message, remedy));
    };
    let text = spec.to_string();
    for map in LabelMap::all() {
        if !takes_operation(constraints, map.operations)
            || !map.is_named_in(&text)
            || map.is_selected_by() && has_labels(constraints)
        {
            continue;
        }
        let mut without_any = Vec::new();
        if !map.is_required() {
            without_any = failing(AbsentPart::Member(&map.path));
        }
        let (when, remedy) = map.without_any();
        for field in &without_any {
            warn(field, &when, &remedy);
        }
        // What fails without any fails without one, too.
        let (when, remedy) = map.without_one();
        for field in failing(AbsentPart::Keys(&map.path)) {
            if !without_any.contains(&field) {
                warn(&field, &when, &remedy);
            }
        }
    }
    for (part, operation, when, remedy) in NULLS {
        if takes_operation(constraints, &[operation]) {
            for field in failing(part) {
                warn(&field, when, remedy);
            }
        }
    }
    found
}

/// The object that is null at an operation.
const NULLS: [(AbsentPart<'static>, &str, &str, &str); 2] = [
    (
        AbsentPart::Object,
        "DELETE",
        "an object is deleted, since object is null then",
        "test object != null first, read oldObject, or take DELETE out of the rules",
    ),
    (
        AbsentPart::OldObject,
        "CREATE",
        "an object is created, since oldObject is null then",
        "test oldObject != null first, or take CREATE out of the rules",
    ),
];

/// Whether the rules are for one of these operations.
fn takes_operation(constraints: &Value, operations: &[&str]) -> bool {
    items(&constraints["resourceRules"]).any(|rule| {
        let mut all = items(&rule["operations"]);
        all.any(|one| one == "*" || operations.iter().any(|of| one == of))
    })
}

/// Whether all objects that match have labels.
fn has_labels(constraints: &Value) -> bool {
    let selector = &constraints["objectSelector"];
    let is_named = selector["matchLabels"]
        .as_object()
        .is_some_and(|labels| !labels.is_empty());
    let is_required = |requirement: &Value| {
        requirement["operator"] == "Exists" || requirement["operator"] == "In"
    };
    // Each namespace has one with its name.
    let is_namespace = |rule: &Value| items(&rule["resources"]).all(|name| name == "namespaces");
    is_named
        || items(&selector["matchExpressions"]).any(is_required)
        || items(&constraints["resourceRules"]).all(is_namespace)
}
