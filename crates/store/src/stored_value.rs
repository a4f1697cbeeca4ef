//! The bytes of an entry, compressed while they are not in use.
//!
//! Objects of one resource resemble each other: field names, managed fields and conditions are most of
//! their JSON. So one value of a resource is the dictionary that the others are compressed with (LZ4). An
//! object of 2 KiB then takes 200 to 600 bytes; compressing or decompressing it takes a few microseconds.
//!
//! New values stay as they are, since watches and reconcilers read them at once. The maintenance of the
//! store compresses them some seconds later.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use fairgate_core::sync::{Mutex, lock};
use lz4_flex::block::{compress_with_dict, decompress_with_dict};

/// Shorter values are not compressed: they would gain little beside the memory of an entry.
const MIN_BYTES: usize = 256;

/// The longest dictionary in bytes. LZ4 finds repetitions within 64 KiB, and every use of a dictionary
/// costs time in proportion to its length.
const MAX_DICTIONARY_BYTES: usize = 8 << 10;

/// The bytes of an entry.
#[derive(Default)]
pub(crate) struct StoredValue(Mutex<Form>);

enum Form {
    Plain(Bytes),
    /// Compressed; that it decompresses to the same bytes was checked.
    Compressed {
        bytes: Box<[u8]>,
        plain_length: usize,
        dictionary: Arc<[u8]>,
    },
    /// Not worth compressing.
    Incompressible(Bytes),
}

impl Default for Form {
    fn default() -> Self {
        Self::Plain(Bytes::new())
    }
}

impl StoredValue {
    /// The bytes. Costs an allocation if they are compressed.
    pub(crate) fn bytes(&self) -> Bytes {
        match &*lock(&self.0) {
            Form::Plain(bytes) | Form::Incompressible(bytes) => bytes.clone(),
            Form::Compressed {
                bytes,
                plain_length,
                dictionary,
            } => decompress_with_dict(bytes, *plain_length, dictionary)
                .expect("compressed values were decompressed once as a check")
                .into(),
        }
    }

    /// The length in bytes when it is not compressed.
    pub(crate) fn len(&self) -> usize {
        match &*lock(&self.0) {
            Form::Plain(bytes) | Form::Incompressible(bytes) => bytes.len(),
            Form::Compressed { plain_length, .. } => *plain_length,
        }
    }

    /// Whether [`compress`](Self::compress) has not been called.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(&*lock(&self.0), Form::Plain(_))
    }

    /// Compresses the bytes with the dictionary for `key`, if that saves at least a quarter of them.
    pub(crate) fn compress(&self, key: &str, dictionaries: &Dictionaries) {
        let plain = match &*lock(&self.0) {
            Form::Plain(bytes) => bytes.clone(),
            Form::Compressed { .. } | Form::Incompressible(_) => return,
        };
        // Without the lock: a reader does not wait for this.
        let form = compressed(&plain, key, dictionaries);
        *lock(&self.0) = form.unwrap_or(Form::Incompressible(plain));
    }
}

impl From<Bytes> for StoredValue {
    fn from(bytes: Bytes) -> Self {
        Self(Mutex::new(Form::Plain(bytes)))
    }
}

impl PartialEq for StoredValue {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.bytes() == other.bytes()
    }
}

impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.bytes(), f)
    }
}

fn compressed(plain: &Bytes, key: &str, dictionaries: &Dictionaries) -> Option<Form> {
    if plain.len() < MIN_BYTES {
        return None;
    }
    let dictionary = dictionaries.of(key, plain);
    let bytes = compress_with_dict(plain, &dictionary);
    let is_smaller = bytes.len() <= plain.len() / 4 * 3;
    let is_same =
        || decompress_with_dict(&bytes, plain.len(), &dictionary).is_ok_and(|b| b == **plain);
    (is_smaller && is_same()).then(|| Form::Compressed {
        bytes: bytes.into(),
        plain_length: plain.len(),
        dictionary,
    })
}

/// One dictionary for each resource: a value of it, cut to [`MAX_DICTIONARY_BYTES`].
#[derive(Default)]
pub(crate) struct Dictionaries(Mutex<BTreeMap<Box<str>, Arc<[u8]>>>);

impl Dictionaries {
    /// The dictionary for values such as that of `key`; `value` becomes it if there is none yet.
    fn of(&self, key: &str, value: &[u8]) -> Arc<[u8]> {
        let mut dictionaries = lock(&self.0);
        if let Some(known) = dictionaries.get(resource(key)) {
            return Arc::clone(known);
        }
        let dictionary: Arc<[u8]> = value[..value.len().min(MAX_DICTIONARY_BYTES)].into();
        dictionaries.insert(resource(key).into(), Arc::clone(&dictionary));
        dictionary
    }
}

/// The first two segments of a key, `/GROUP/RESOURCE`: few of them exist, however many objects there are.
fn resource(key: &str) -> &str {
    let end = key
        .match_indices('/')
        .nth(2)
        .map_or(key.len(), |(at, _)| at);
    &key[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(name: &str) -> String {
        let fields = (0..40).map(|n| format!(r#""f:field{n}":{{}},"#));
        let fields = fields.collect::<Vec<_>>().concat();
        format!(r#"{{"metadata":{{"name":"{name}","managedFields":{{{fields}".":{{}}}}}}}}"#)
    }

    fn compressed_length(value: &StoredValue) -> Option<usize> {
        match &*lock(&value.0) {
            Form::Compressed { bytes, .. } => Some(bytes.len()),
            Form::Plain(_) | Form::Incompressible(_) => None,
        }
    }

    #[test]
    fn similar_values_become_a_fraction_of_their_length_and_read_the_same() {
        let dictionaries = Dictionaries::default();
        for n in 0..10 {
            let plain = object(&format!("object-{n}"));
            let value = StoredValue::from(Bytes::from(plain.clone()));
            assert!(value.is_plain());
            value.compress(&format!("/group/things/{n}"), &dictionaries);
            assert!(!value.is_plain());
            assert!(compressed_length(&value).unwrap() < plain.len() / 8);
            assert_eq!(
                (value.len(), &value.bytes()[..]),
                (plain.len(), plain.as_bytes())
            );
            assert_eq!(value, StoredValue::from(Bytes::from(plain)));
        }
        assert_eq!(lock(&dictionaries.0).len(), 1);
    }

    #[test]
    fn each_resource_has_one_dictionary_of_bounded_length() {
        let dictionaries = Dictionaries::default();
        let long = vec![b'x'; 3 * MAX_DICTIONARY_BYTES];
        for key in ["/g/a/x", "/g/a/y/z", "/g/b/x", "/g/b"] {
            assert_eq!(dictionaries.of(key, &long).len(), MAX_DICTIONARY_BYTES);
        }
        let known = lock(&dictionaries.0);
        assert!(known.keys().map(|key| &**key).eq(["/g/a", "/g/b"]));
    }

    #[test]
    fn short_values_stay_as_they_are_and_are_tried_once() {
        let value = StoredValue::from(Bytes::from_static(b"{}"));
        value.compress("/g/a/x", &Dictionaries::default());
        assert_eq!(compressed_length(&value), None);
        assert!(!value.is_plain());
        assert_eq!(&value.bytes()[..], b"{}");
    }

    proptest! {
        #[test]
        fn any_bytes_read_the_same_after_compression(
            values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 1..4),
            repeats in 1_usize..20,
        ) {
            let dictionaries = Dictionaries::default();
            for plain in values.iter().map(|value| value.repeat(repeats)) {
                let value = StoredValue::from(Bytes::from(plain.clone()));
                value.compress("/g/a/x", &dictionaries);
                prop_assert_eq!(&value.bytes()[..], &plain[..]);
            }
        }
    }
}
