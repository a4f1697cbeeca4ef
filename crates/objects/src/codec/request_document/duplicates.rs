//! Removing members whose key occurs again.

use std::collections::BTreeSet;

use crate::codec::tree::{JsonMember, JsonNode, repeats_key};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDuplicates {
    /// The last member of each key is left.
    Removed,
    /// Which of them counts depends on what they are for.
    Ambiguous,
}

/// Leaves the last member of each key in every object of a document in which a key occurs twice. In a JSON patch only the operations themselves may have such
/// members, because the server decodes their values later along the table of the object.
pub(super) fn remove_duplicates(document: &mut JsonNode<'_>, is_json_patch: bool) -> KeyDuplicates {
    if !is_json_patch {
        remove(document);
        return KeyDuplicates::Removed;
    }
    let JsonNode::List(operations) = document else {
        return KeyDuplicates::Ambiguous;
    };
    for operation in operations {
        if let JsonNode::Object(members) = operation {
            if members.iter_mut().any(|(_, value)| remove(value)) {
                return KeyDuplicates::Ambiguous;
            }
            remove_members(members);
        } else if remove(operation) {
            return KeyDuplicates::Ambiguous;
        }
    }
    KeyDuplicates::Removed
}

/// Returns whether something was removed.
fn remove(node: &mut JsonNode<'_>) -> bool {
    let mut removed = false;
    match node {
        JsonNode::List(items) => {
            for item in items {
                removed |= remove(item);
            }
        }
        JsonNode::Object(members) => {
            removed = remove_members(members);
            for (_, value) in members {
                removed |= remove(value);
            }
        }
        _ => {}
    }
    removed
}

fn remove_members(members: &mut Vec<JsonMember<'_>>) -> bool {
    if !repeats_key(members) {
        return false;
    }
    let mut seen = BTreeSet::new();
    let is_last: Vec<bool> = members
        .iter()
        .rev()
        .map(|(key, _)| seen.insert(&**key))
        .collect();
    let mut is_last = is_last.into_iter().rev();
    members.retain(|_| is_last.next().unwrap_or(true));
    true
}
