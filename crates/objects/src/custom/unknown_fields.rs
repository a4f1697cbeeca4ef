//! The unknown fields of a custom resource, as strict decoding lists them.
//!
//! Pruning walks through an object and says here where it is. A path is only made where a field is unknown. A short body may have
//! many unknown fields at a long path, so the texts of one object are bounded.
//!
//! Source: Kubernetes `apiextensions-apiserver/pkg/apiserver/schema/options.go`.

use std::fmt::Write as _;

/// The most bytes of paths of one object. A response has room for 4 KiB of warnings.
const MAX_BYTES: usize = 64 << 10;

/// A step into an object.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A member; how long the text of its key is.
    Member(usize),
    /// An item of a list.
    Item(usize),
}

/// Where pruning is, and the unknown fields that it has found.
#[derive(Debug, Default)]
pub(super) struct UnknownFields {
    steps: Vec<Step>,
    /// The keys of the members among the steps, one behind the other.
    keys: String,
    found: Vec<String>,
    bytes: usize,
}

impl UnknownFields {
    /// Goes into a member.
    pub(super) fn enter_member(&mut self, key: &str) {
        self.keys.push_str(key);
        self.steps.push(Step::Member(key.len()));
    }

    /// Goes into an item of a list.
    pub(super) fn enter_item(&mut self, index: usize) {
        self.steps.push(Step::Item(index));
    }

    /// Goes back.
    pub(super) fn leave(&mut self) {
        if let Some(Step::Member(length)) = self.steps.pop() {
            self.keys.truncate(self.keys.len() - length);
        }
    }

    /// Whether it is at the object itself.
    pub(super) fn is_at_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// Notes that a field of the present member is unknown.
    pub(super) fn record(&mut self, field: &str) {
        if self.bytes >= MAX_BYTES {
            return;
        }
        let mut path = self.path();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(field);
        self.bytes += path.len();
        self.found.push(path);
    }

    fn path(&self) -> String {
        let (mut path, mut keys) = (String::with_capacity(self.keys.len()), &*self.keys);
        for step in &self.steps {
            match *step {
                Step::Member(length) => {
                    let (key, rest) = keys.split_at(length);
                    keys = rest;
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
                Step::Item(index) => {
                    write!(path, "[{index}]").expect("writing to a string cannot fail");
                }
            }
        }
        path
    }

    /// The paths that were found since the last call.
    pub(super) fn take_found(&mut self) -> Vec<String> {
        std::mem::take(&mut self.found)
    }

    /// The same, in the order of their texts.
    pub(super) fn take_sorted(&mut self) -> Vec<String> {
        let mut found = self.take_found();
        found.sort_unstable();
        found
    }
}
