//! The counts of one core, in a hash table by request attributes.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher as _, RandomState},
    sync::Arc,
};

use siphasher::sip::SipHasher13;

use super::{
    FinishedRequest, RequestLabels, RequestRegistry,
    registry::{FORGOTTEN_SWEEPS, Row},
    request_labels::{scope_label, verb_label},
};
use fairgate_core::{digest::RequestInfo, identity_hasher::IdentityHasher};

/// The maximum number of resources that one core knows to exist.
const MAX_RESOURCES: usize = 4096;

/// Rows by the hash of their kind.
type Rows = HashMap<u64, Arc<Row>, BuildHasherDefault<IdentityHasher>>;

/// What one core counts.
#[derive(Debug)]
pub(crate) struct RequestTable {
    registry: Arc<RequestRegistry>,
    /// The hasher that keys are made with.
    hasher: SipHasher13,
    rows: RefCell<Rows>,
    /// Resources that exist, by their hashes, each with the sweep after which it was last used.
    resources: RefCell<HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>>,
    /// The last sweep that this table has followed.
    swept: Cell<u32>,
}

impl RequestTable {
    /// An empty table whose rows `registry` knows.
    pub(crate) fn new(registry: Arc<RequestRegistry>) -> Self {
        use std::hash::BuildHasher as _;
        let random = RandomState::new();
        Self {
            registry,
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
            rows: RefCell::default(),
            resources: RefCell::default(),
            swept: Cell::new(0),
        }
    }

    /// Counts a request. Takes two hashes of a few dozen bytes and two table lookups; allocates only for
    /// the first of its kind.
    pub(crate) fn count(&self, request: &FinishedRequest<'_>) {
        let sweep = self.registry.sweep_number();
        if self.swept.replace(sweep) != sweep {
            self.forget(sweep);
        }
        let (verb, scope) = (verb_label(request), scope_label(request.info));
        let resource = self.resource_key(request.info);
        let known = self.knows(resource, request);
        let mut rows = self.rows.borrow_mut();
        let key = self.key(if known { resource } else { 0 }, verb, scope);
        let kind = || RequestLabels::of(request.info, scope, verb);
        let key = if rows.contains_key(&key) || known && self.add(&mut rows, key, &kind()) {
            key
        } else {
            self.key(0, verb, scope)
        };
        let other = || self.registry.add_other(RequestLabels::other(scope, verb));
        let row = rows.entry(key).or_insert_with(other);
        row.count(request, sweep);
        if !request.executed {
            return;
        }
        let is_read = matches!(verb, "GET" | "LIST");
        if row.is_timed() {
            row.timings.observe(request, is_read);
        } else {
            let row = rows.entry(self.key(0, verb, scope)).or_insert_with(other);
            row.timings.observe(request, is_read);
        }
    }

    /// How many rows and resources it holds.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.rows.borrow().len(), self.resources.borrow().len())
    }

    /// Adds a row for a kind that is new to this core; false if there are too many already.
    fn add(&self, rows: &mut Rows, key: u64, kind: &RequestLabels) -> bool {
        let row = self.registry.add(kind);
        row.is_some_and(|row| rows.insert(key, row).is_none())
    }

    /// Drops the rows that the registry has removed. O(rows), at most once in a
    /// [`SWEEP_PERIOD`](super::SWEEP_PERIOD).
    fn forget(&self, sweep: u32) {
        let is_there = |row: &Arc<Row>| !row.is_removed();
        self.rows.borrow_mut().retain(|_, row| is_there(row));
        let mut resources = self.resources.borrow_mut();
        resources.retain(|_, seen| sweep.saturating_sub(*seen) <= FORGOTTEN_SWEEPS);
    }

    fn key(&self, resource: u64, verb: &str, scope: &str) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u64(resource);
        hasher.write(verb.as_bytes());
        hasher.write_u8(0);
        hasher.write(scope.as_bytes());
        hasher.finish()
    }

    fn resource_key(&self, info: &RequestInfo) -> u64 {
        if !info.is_resource {
            return 1;
        }
        let mut hasher = self.hasher;
        for part in [
            info.group(),
            info.version(),
            info.resource(),
            info.subresource(),
        ] {
            hasher.write(part);
            hasher.write_u8(0);
        }
        // 0 stands for everything that is not distinguished, 1 for paths that are no resources.
        hasher.finish() | 2
    }

    /// Whether there is such a resource, as far as this core has seen.
    fn knows(&self, resource: u64, request: &FinishedRequest<'_>) -> bool {
        if !request.info.is_resource {
            return true;
        }
        if let Some(seen) = self.resources.borrow_mut().get_mut(&resource) {
            *seen = self.swept.get();
            return true;
        }
        // The upstream responds like this only for resources that exist.
        let exists = matches!(request.code, 100..400 | 409 | 422) && !request.terminated;
        let mut resources = self.resources.borrow_mut();
        let learn = exists && resources.len() < MAX_RESOURCES && !self.registry.is_full();
        learn && resources.insert(resource, self.swept.get()).is_none()
    }
}
