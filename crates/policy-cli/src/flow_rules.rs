//! Names in the rules of flow control that are probably not those that were meant.
//!
//! Not here: what makes a name one of these (`resource_names`), and warnings that need no list of Kubernetes' resources, which
//! compiling a policy gives.

use fairgate_core::{
    apf::objects::{FLOW_SCHEMA, ObjectSet},
    finding::{Finding, Severity},
};

use crate::resource_names::misspelt_names;

/// A warning for each name of a group or resource in a rule of a `FlowSchema` that is probably not the one that was meant. It takes a
/// microsecond for each name that Kubernetes has, and some more for each other one.
pub fn misspelt_rules(objects: &ObjectSet) -> Vec<Finding> {
    let mut found = Vec::new();
    for located in objects.flow_schemas() {
        for (field, rule) in located.object.resource_rules() {
            let groups: Vec<&str> = rule.api_groups.iter().map(String::as_str).collect();
            let resources: Vec<&str> = rule.resources.iter().map(String::as_str).collect();
            found.extend(
                misspelt_names(&groups, &resources)
                    .into_iter()
                    .map(|name| Finding {
                        severity: Severity::Warning,
                        origin: located.origin.to_string(),
                        kind: FLOW_SCHEMA.to_owned(),
                        name: located.object.name().to_owned(),
                        field: format!("{field}.{}", name.list),
                        message: name.message,
                        remedy: name.remedy,
                    }),
            );
        }
    }
    found
}
