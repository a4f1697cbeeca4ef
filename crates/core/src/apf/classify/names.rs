//! The names that rules mention, as small numbers.
//!
//! A request's user, groups, resource and so on are looked up here once each; all further steps compare
//! numbers. Clients choose what is looked up, but not what is in the table: that comes from the policy, so they
//! cannot make chains long. The hash is keyed nevertheless, so that clients cannot aim at the longest chain. It
//! is fast rather than cryptographic.

use siphasher::sip::SipHasher13;

/// The kind of a name and what contains it; the same text in two scopes is two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NameScope(u64);

impl NameScope {
    /// Users.
    pub(super) const USER: Self = Self(1 << 32);
    /// Groups of users.
    pub(super) const GROUP: Self = Self(2 << 32);
    /// Namespaces whose service accounts are meant, all of them.
    pub(super) const ACCOUNTS: Self = Self(3 << 32);
    /// The name for all users, which is empty.
    pub(super) const EVERYBODY: Self = Self(4 << 32);
    /// API groups.
    pub(super) const API_GROUP: Self = Self(5 << 32);
    /// Resources without subresource.
    pub(super) const RESOURCE: Self = Self(6 << 32);
    /// Namespaces.
    pub(super) const NAMESPACE: Self = Self(7 << 32);
    /// The one name of the directory `/`, which is empty.
    pub(super) const ROOT: Self = Self(8 << 32);

    /// Subresources of a resource.
    pub(super) const fn subresource_of(resource: u32) -> Self {
        Self(9 << 32 | resource as u64)
    }

    /// Directories in a directory.
    pub(super) const fn directory_in(directory: u32) -> Self {
        Self(10 << 32 | directory as u64)
    }

    /// Paths that end in a directory.
    pub(super) const fn file_in(directory: u32) -> Self {
        Self(11 << 32 | directory as u64)
    }

    /// The directory, if this is the scope of paths that end in one.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(super) const fn directory_of_file(self) -> Option<u32> {
        if self.0 >> 32 == 11 {
            Some(self.0 as u32)
        } else {
            None
        }
    }
}

/// Numbers names from 0. Grows while a policy is compiled; then only looked into.
#[derive(Clone)]
pub(super) struct Names {
    key: [u64; 2],
    /// A power of two, at most a quarter full, so that chains are short.
    slots: Vec<NameSlot>,
    entries: Vec<NameEntry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct NameSlot {
    /// The upper half of the hash.
    tag: u32,
    /// The number of the name plus one; 0 is a free slot.
    number: u32,
}

#[derive(Clone, Copy)]
struct NameEntry {
    scope: NameScope,
    start: u32,
    len: u32,
}

const FREE: NameSlot = NameSlot { tag: 0, number: 0 };

impl Names {
    /// No names; hashed under `key`.
    pub(super) fn new(key: &[u8; 16]) -> Self {
        // The keys differ from that of the flow hash.
        let hasher = SipHasher13::new_with_key(key);
        Self {
            key: [hasher.hash(b"names 0"), hasher.hash(b"names 1")],
            slots: vec![FREE; 16],
            entries: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Gives back the memory for further names.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    /// The name of a number, and its scope.
    pub(super) fn get(&self, number: u32) -> (NameScope, &[u8]) {
        let entry = &self.entries[number as usize];
        (entry.scope, self.name(entry))
    }

    /// The number of a name, if it is mentioned.
    pub(super) fn find(&self, scope: NameScope, name: &[u8]) -> Option<u32> {
        super::count();
        let hash = self.hash(scope, name);
        match self.slot(hash, scope, name) {
            (_, NameSlot { number: 0, .. }) => None,
            (_, slot) => Some(slot.number - 1),
        }
    }

    /// The number of a name, which is new if need be.
    pub(super) fn intern(&mut self, scope: NameScope, name: &[u8]) -> u32 {
        let hash = self.hash(scope, name);
        let (at, slot) = self.slot(hash, scope, name);
        if slot.number != 0 {
            return slot.number - 1;
        }
        let small = |length| u32::try_from(length).expect("names of less than 4 GiB");
        self.entries.push(NameEntry {
            scope,
            start: small(self.bytes.len()),
            len: small(name.len()),
        });
        self.bytes.extend_from_slice(name);
        let number = u32::try_from(self.entries.len()).expect("fewer than 2^32 names");
        self.slots[at] = NameSlot {
            tag: tag(hash),
            number,
        };
        if self.entries.len() * 4 > self.slots.len() {
            self.grow();
        }
        number - 1
    }

    /// The slot a name is in, or the free one where it belongs.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a lookup costs little more than a call, and a request makes five"
    )]
    fn slot(&self, hash: u64, scope: NameScope, name: &[u8]) -> (usize, NameSlot) {
        let mask = self.slots.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "masked")]
        let mut at = hash as usize & mask;
        loop {
            super::count();
            let slot = self.slots[at];
            if slot.number == 0 || (slot.tag == tag(hash) && self.is(slot, scope, name)) {
                return (at, slot);
            }
            at = (at + 1) & mask;
        }
    }

    fn is(&self, slot: NameSlot, scope: NameScope, name: &[u8]) -> bool {
        let entry = &self.entries[slot.number as usize - 1];
        entry.scope == scope && self.name(entry) == name
    }

    fn name(&self, entry: &NameEntry) -> &[u8] {
        &self.bytes[entry.start as usize..][..entry.len as usize]
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![FREE; mask + 1];
        for (number, entry) in (1..).zip(&self.entries) {
            let hash = self.hash(entry.scope, self.name(entry));
            #[expect(clippy::cast_possible_truncation, reason = "masked")]
            let mut at = hash as usize & mask;
            while slots[at].number != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = NameSlot {
                tag: tag(hash),
                number,
            };
        }
        self.slots = slots;
    }

    /// Multiplies sixteen bytes at a time into 128 bits and folds them.
    fn hash(&self, scope: NameScope, name: &[u8]) -> u64 {
        let [low, high] = self.key;
        let mut hash = fold(low ^ scope.0, high ^ name.len() as u64);
        let mut rest = name;
        while let Some((block, after)) = rest.split_first_chunk::<16>()
            && !after.is_empty()
        {
            let (a, b) = words(block);
            hash = fold(a ^ high, b ^ hash);
            rest = after;
        }
        let (first, last) = match (rest.first_chunk(), rest.last_chunk()) {
            (Some(&a), Some(&b)) => (u64::from_le_bytes(a), u64::from_le_bytes(b)),
            _ => short(rest),
        };
        fold(fold(first ^ high, last ^ hash) ^ low, SPREAD)
    }
}

/// An odd number without a pattern.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The product of two words, its halves combined by exclusive or.
#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// The two halves of a block.
#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
fn words(block: &[u8; 16]) -> (u64, u64) {
    let block = u128::from_le_bytes(*block);
    (block as u64, (block >> 64) as u64)
}

/// Two words of fewer than eight bytes; no two names of the same length have the same.
fn short(bytes: &[u8]) -> (u64, u64) {
    match (bytes.first_chunk(), bytes.last_chunk(), bytes) {
        (Some(&a), Some(&b), _) => (u32::from_le_bytes(a).into(), u32::from_le_bytes(b).into()),
        (_, _, &[first, .., last]) => (
            u64::from(first) << 8 | u64::from(bytes[bytes.len() / 2]),
            last.into(),
        ),
        (_, _, &[only]) => (u64::from(only) << 8 | u64::from(only), only.into()),
        _ => (0, 0),
    }
}

const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_distinguished() {
        let names = Names::new(&[7; 16]);
        let mut hashes = Vec::new();
        for len in 0..100 {
            let text = vec![b'a'; len];
            hashes.push(names.hash(NameScope::USER, &text));
            for at in 0..len {
                let mut other = text.clone();
                other[at] = b'b';
                hashes.push(names.hash(NameScope::USER, &other));
            }
        }
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(
            hashes.len(),
            count,
            "every byte and the length change the hash"
        );
    }

    #[test]
    fn names_are_found_by_scope_and_text_alone() {
        let mut names = Names::new(&[7; 16]);
        let mut numbers = Vec::new();
        for i in 0..1000 {
            let name = format!("name-{i}");
            numbers.push(names.intern(NameScope::USER, name.as_bytes()));
            numbers.push(names.intern(NameScope::GROUP, name.as_bytes()));
        }
        assert_eq!(numbers, (0..2000).collect::<Vec<u32>>());
        assert_eq!(names.intern(NameScope::GROUP, b"name-3"), 7);
        assert_eq!(names.find(NameScope::USER, b"name-3"), Some(6));
        assert_eq!(names.find(NameScope::NAMESPACE, b"name-3"), None);
        assert_eq!(names.find(NameScope::USER, b"name-1000"), None);
        assert_eq!(names.find(NameScope::subresource_of(6), b"name-3"), None);
        assert_eq!(names.len(), 2000);
    }
}
