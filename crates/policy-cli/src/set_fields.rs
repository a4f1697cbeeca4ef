//! Expressions that read what only a server can set, so that a gateway evaluates them exactly by a dry run alone.

use std::fmt::Write as _;

use fairgate_admission::{Fidelity, FieldSetByServer, expressions_about_set_fields};
use fairgate_core::finding::Finding;
use fairgate_objects::metadata;

use crate::{
    documents::{FileObject, items},
    rules,
};

/// How many fields a warning names.
const MAX_NAMED: usize = 4;

const OPERATIONS: &[&str] = &["CREATE", "UPDATE"];

/// A warning for each expression of the policy that may read such a field of a resource that its rules name, unless the policy asks
/// for dry runs. `fidelity` is that of policies without an annotation.
pub(super) fn warnings(policy: &FileObject, fidelity: Fidelity) -> Vec<Finding> {
    let own = metadata::entry(&policy.value, "annotations", Fidelity::ANNOTATION);
    let own = own.and_then(Fidelity::of_name);
    if own.unwrap_or(fidelity) == Fidelity::DryRun {
        return Vec::new();
    }
    // What is wrong with an object that cannot be read is reported elsewhere.
    let expressions = expressions_about_set_fields(&policy.value).unwrap_or_default();
    let found = expressions.iter().filter_map(|expression| {
        let fields = expression.set_by_server.iter().copied();
        let fields: Vec<_> = fields.filter(|field| is_evaluated(policy, field)).collect();
        if fields.is_empty() {
            return None;
        }
        let remedy = format!(
            "set the annotation {} of the policy to dryRun, or expect other verdicts than the server's",
            Fidelity::ANNOTATION
        );
        Some(policy.warning(&expression.field, message(&fields), remedy))
    });
    found.collect()
}

/// Whether the policy is about writes of the resource that has the field.
fn is_evaluated(policy: &FileObject, field: &FieldSetByServer) -> bool {
    let constraints = &policy.value["spec"]["matchConstraints"];
    let takes = |list: &str| {
        items(&constraints[list]).any(|rule| {
            let resource = [field.group(), field.resource(), field.subresource()];
            rules::takes(rule, OPERATIONS, resource)
        })
    };
    takes("resourceRules") && !takes("excludeResourceRules")
}

fn message(fields: &[&FieldSetByServer]) -> String {
    let mut text = "it reads what only the server can set: ".to_owned();
    for (at, field) in fields.iter().take(MAX_NAMED).enumerate() {
        let separator = if at == 0 { "" } else { "; " };
        let (resource, by) = (field.shown_resource(), field.by());
        // Writing to a text cannot fail.
        let _ = write!(text, "{separator}{field} of {resource} ({by})");
    }
    if let more @ 1.. = fields.len().saturating_sub(MAX_NAMED) {
        let _ = write!(text, "; and {more} more");
    }
    text
}
