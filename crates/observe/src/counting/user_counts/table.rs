//! The counts of one core, in a hash table by user.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher as _, RandomState},
    sync::Arc,
};

use siphasher::sip::SipHasher13;

use super::{
    MAX_NAME, UserLabels, UserRegistry, UserRequest,
    registry::{MAX_KEYS, UserRow},
};
use crate::sanitized::sanitize;
use fairgate_core::identity_hasher::IdentityHasher;

/// What one core counts.
#[derive(Debug)]
pub(crate) struct UserTable {
    registry: Arc<UserRegistry>,
    /// The hasher that keys are made with.
    hasher: SipHasher13,
    rows: RefCell<HashMap<u64, Arc<UserRow>, BuildHasherDefault<IdentityHasher>>>,
    /// What [`UserRegistry::drops`] was when this table last followed it.
    drops: Cell<u32>,
}

impl UserTable {
    /// An empty table whose rows `registry` knows.
    pub(crate) fn new(registry: Arc<UserRegistry>) -> Self {
        use std::hash::BuildHasher as _;
        let random = RandomState::new();
        Self {
            drops: Cell::new(registry.drops()),
            registry,
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
            rows: RefCell::default(),
        }
    }

    /// Adds `amount` to the count of a user. Takes a hash and a table lookup; allocates only for what is new to this core.
    pub(crate) fn count(&self, request: &UserRequest<'_>, amount: u64) {
        let drops = self.registry.drops();
        let mut rows = self.rows.borrow_mut();
        if self.drops.replace(drops) != drops {
            rows.retain(|_, row| !row.is_dropped());
        }
        // By the name as it is kept: names that differ only in what is cut off share a row.
        let user = sanitize(request.user, MAX_NAME);
        let key = self.key(&user, request);
        if let Some(row) = rows.get(&key) {
            row.count.add(amount);
        } else if !self.registry.is_full()
            && rows.len() < MAX_KEYS
            && let Some(row) = self.registry.add(labels(&user, request))
        {
            row.count.add(amount);
            rows.insert(key, row);
        }
    }

    fn key(&self, user: &str, request: &UserRequest<'_>) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(user.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(request.level.as_bytes());
        if let Some(refusal) = request.refusal {
            hasher.write_u8(0xff);
            hasher.write(refusal.reason.as_bytes());
            hasher.write_u16(refusal.code);
        }
        hasher.finish()
    }
}

fn labels(user: &str, request: &UserRequest<'_>) -> UserLabels {
    UserLabels {
        level: request.level.into(),
        user: user.into(),
        refusal: request.refusal,
    }
}
