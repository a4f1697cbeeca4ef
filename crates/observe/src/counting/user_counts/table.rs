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

/// The number of rows that are found without a hash that no client can predict.
const RECENT_ROWS: usize = 1 << RECENT_BITS;
const RECENT_BITS: u32 = 7;

/// What one core counts.
#[derive(Debug)]
pub(crate) struct UserTable {
    registry: Arc<UserRegistry>,
    /// The hasher that keys are made with.
    hasher: SipHasher13,
    rows: RefCell<HashMap<u64, Arc<UserRow>, BuildHasherDefault<IdentityHasher>>>,
    /// Rows in which was counted last, each at the place of its user. They are found by comparing names, which costs a third of
    /// the hash of a row. Users who choose names with the same place cost each other that comparison, and nothing else.
    recent: RefCell<[Option<Arc<UserRow>>; RECENT_ROWS]>,
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
            recent: RefCell::new([const { None }; RECENT_ROWS]),
        }
    }

    /// Adds `amount` to the count of a user. Takes two comparisons of names; for a user of whom something else, or of whose place another
    /// one, was counted last, also a hash and a table lookup. Allocates only for what is new to this core.
    pub(crate) fn count(&self, request: &UserRequest<'_>, amount: u64) {
        let drops = self.registry.drops();
        let mut recent = self.recent.borrow_mut();
        if self.drops.replace(drops) != drops {
            self.rows.borrow_mut().retain(|_, row| !row.is_dropped());
            recent.fill(None);
        }
        let recent = &mut recent[place(request.user)];
        match recent {
            Some(found) if is_of(&found.labels, request) => found.count.add(amount),
            _ => self.count_other(request, amount, recent),
        }
    }

    /// The same for a row that is not at its place, to which it is brought if it is or can be added.
    fn count_other(
        &self,
        request: &UserRequest<'_>,
        amount: u64,
        recent: &mut Option<Arc<UserRow>>,
    ) {
        let mut rows = self.rows.borrow_mut();
        // By the name as it is kept: names that differ only in what is cut off share a row.
        let user = sanitize(request.user, MAX_NAME);
        let key = self.key(&user, request);
        let row = match rows.get(&key) {
            Some(row) => Arc::clone(row),
            None if self.registry.is_full() || rows.len() >= MAX_KEYS => return,
            None => {
                let Some(row) = self.registry.add(labels(&user, request)) else {
                    return;
                };
                rows.insert(key, Arc::clone(&row));
                row
            }
        };
        row.count.add(amount);
        *recent = Some(row);
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

/// Whether the request has these labels. One whose user has another name there, because it was shortened, does not.
fn is_of(labels: &UserLabels, request: &UserRequest<'_>) -> bool {
    *labels.user == *request.user
        && *labels.level == *request.level
        && labels.refusal == request.refusal
}

/// The place of a user among the recent rows.
fn place(user: &str) -> usize {
    // An odd number with its bits spread: 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = user.as_bytes().as_chunks::<8>();
    let mix = |mixed: u64, word: u64| (mixed ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut mixed = words
        .iter()
        .fold(0, |mixed, word| mix(mixed, u64::from_le_bytes(*word)));
    for byte in rest {
        mixed = (mixed << 8) ^ u64::from(*byte) ^ (mixed >> 56);
    }
    let place = mixed.wrapping_mul(FACTOR) >> (u64::BITS - RECENT_BITS);
    usize::try_from(place).unwrap_or_default()
}

fn labels(user: &str, request: &UserRequest<'_>) -> UserLabels {
    UserLabels {
        level: request.level.into(),
        user: user.into(),
        refusal: request.refusal,
    }
}
