//! What a guarded deletion of a collection has carried out when it is evaluated again after a conflict.
//!
//! A server lists the objects once, and deletes each of them once. The gateway lists them again, and what it has deleted may still be listed: with
//! finalizers, as a pod that is being stopped, or at the old revision that the client asked for. Such an object is not evaluated or deleted again, but it
//! counts in the client's `limit`.

use std::collections::HashMap;

use http::{HeaderMap, HeaderValue, header::WARNING};
use serde_json::Value;

use crate::object::{guard::EvaluatedItem, objects};

/// How many different warnings of the upstream a client gets at most.
const MAX_WARNINGS: usize = 32;

/// The objects that were deleted, and what the upstream said about that.
#[derive(Debug, Default)]
pub(crate) struct DeletedItems {
    number: usize,
    /// Their UIDs by name.
    uids: HashMap<String, String>,
    warnings: Vec<HeaderValue>,
}

impl DeletedItems {
    /// How many they are.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Notes that an object was deleted. `headers` are those of the response.
    pub(crate) fn add(&mut self, item: EvaluatedItem, headers: &HeaderMap) {
        self.number += 1;
        self.uids.insert(item.name, item.version.uid);
        for warning in headers.get_all(WARNING) {
            if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
    }

    /// The different warnings of all responses.
    pub(crate) fn take_warnings(&mut self) -> Vec<HeaderValue> {
        std::mem::take(&mut self.warnings)
    }

    /// Removes from a page what was deleted, and what exceeds the `left` objects that may still be deleted.
    pub(crate) fn remove_from(&self, page: &mut Vec<Value>, left: Option<usize>) {
        // A server may ignore the limit where it lists from its cache, and deletes what it has listed.
        if self.number == 0 {
            return;
        }
        page.retain(|item| !self.has(item));
        page.truncate(left.unwrap_or(usize::MAX));
    }

    fn has(&self, item: &Value) -> bool {
        let uid = item["metadata"]["uid"].as_str().unwrap_or_default();
        let deleted = self.uids.get(objects::name_of(item));
        // Another object may have the name now.
        deleted.is_some_and(|deleted| deleted == uid)
    }
}
