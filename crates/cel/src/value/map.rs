//! Maps: of a document, of a program, or created by an expression.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{
    CelError, CelStr, CelValue, CelWork, LOOKUP, ValueSize, double_to_int, double_to_uint,
};
use crate::document::JsonObject;

/// Maps with more entries than this have an index.
const INDEXED_FROM: usize = 8;

/// A map. Cloning it is cheap.
///
/// Entries have a fixed order: that of the document or of the literal. (In the original, the order is random.)
#[derive(Clone)]
pub struct CelMap<'a>(MapKind<'a>);

#[derive(Clone)]
enum MapKind<'a> {
    Json(&'a JsonObject<'a>),
    Borrowed(&'a MapData<'a>),
    Shared(Arc<MapData<'a>>),
}

struct MapData<'a> {
    entries: Vec<(CelValue<'a>, CelValue<'a>)>,
    /// The positions of the entries by key; `None` unless there are more than [`INDEXED_FROM`] entries.
    index: Option<HashMap<MapKey, usize>>,
    size: ValueSize,
}

/// A key in a form that can be hashed, by type and value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MapKey {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(u64),
    String(Box<str>),
    Duration(i64),
    Timestamp(i64, u32),
    Type(Box<str>),
}

impl MapKey {
    /// The key for `value`; `None` for `NaN` and for values that cannot be keys, such as lists.
    pub(crate) fn of(value: &CelValue<'_>) -> Option<Self> {
        Some(match value {
            CelValue::Null => Self::Null,
            CelValue::Bool(value) => Self::Bool(*value),
            CelValue::Int(value) => Self::Int(*value),
            CelValue::Uint(value) => Self::Uint(*value),
            CelValue::Double(value) if value.is_nan() => return None,
            // Both zeros are the same key.
            CelValue::Double(value) => Self::Double((value + 0.0).to_bits()),
            CelValue::String(text) => Self::String((**text).into()),
            CelValue::Duration(span) => Self::Duration(span.nanoseconds()),
            CelValue::Timestamp(time) => Self::Timestamp(time.seconds(), time.nanoseconds()),
            CelValue::Type(of) => Self::Type(of.runtime_name().into()),
            _ => return None,
        })
    }
}

/// Whether two keys are of the same type and equal.
fn same_key(a: &CelValue<'_>, b: &CelValue<'_>) -> bool {
    match (a, b) {
        (CelValue::String(a), CelValue::String(b)) => **a == **b,
        (CelValue::Int(a), CelValue::Int(b)) => a == b,
        (CelValue::Uint(a), CelValue::Uint(b)) => a == b,
        _ => MapKey::of(a).is_some_and(|a| MapKey::of(b) == Some(a)),
    }
}

impl<'a> MapData<'a> {
    fn find(&self, key: &CelValue<'_>) -> Option<&CelValue<'a>> {
        if let Some(found) = self.find_exact(key) {
            return Some(found);
        }
        match key {
            CelValue::Double(value) => double_to_int(*value)
                .and_then(|of| self.find_exact(&CelValue::Int(of)))
                .or_else(|| {
                    double_to_uint(*value).and_then(|of| self.find_exact(&CelValue::Uint(of)))
                }),
            CelValue::Int(value) => {
                let other = u64::try_from(*value).ok()?;
                self.find_exact(&CelValue::Uint(other))
            }
            CelValue::Uint(value) => {
                let other = i64::try_from(*value).ok()?;
                self.find_exact(&CelValue::Int(other))
            }
            _ => None,
        }
    }

    fn find_exact(&self, key: &CelValue<'_>) -> Option<&CelValue<'a>> {
        let at = self.position(key)?;
        Some(&self.entries[at].1)
    }

    fn position(&self, key: &CelValue<'_>) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(&MapKey::of(key)?).copied(),
            None => self.entries.iter().position(|(of, _)| same_key(of, key)),
        }
    }

    /// Adds an entry. The map must not have its key yet.
    fn push(&mut self, key: CelValue<'a>, value: CelValue<'a>) -> Result<(), CelError> {
        let mut size = self.size;
        size.add(ValueSize::of([&key, &value]));
        self.size = size.check()?;
        let at = self.entries.len();
        self.entries.push((key, value));
        if at >= INDEXED_FROM {
            let first = if self.index.is_some() { at } else { 0 };
            let index = self.index.get_or_insert_default();
            for (at, (key, _)) in self.entries.iter().enumerate().skip(first) {
                if let Some(key) = MapKey::of(key) {
                    index.insert(key, at);
                }
            }
        }
        Ok(())
    }
}

impl<'a> CelMap<'a> {
    /// A map of `entries`. Of several entries with the same key, the last value is kept. Keys that cannot be looked up,
    /// such as lists, are kept and never found.
    ///
    /// # Errors
    ///
    /// If the map would nest deeper than [`MAX_DEPTH`](super::MAX_DEPTH) or have more than
    /// [`MAX_NODES`](super::MAX_NODES) parts.
    pub fn new(entries: Vec<(CelValue<'a>, CelValue<'a>)>) -> Result<Self, CelError> {
        let mut data = MapData {
            entries: Vec::with_capacity(entries.len()),
            index: None,
            size: ValueSize { depth: 1, nodes: 1 },
        };
        for (key, value) in entries {
            match data.position(&key) {
                Some(at) => data.entries[at].1 = value,
                None => data.push(key, value)?,
            }
        }
        // Anew: values that were replaced have been counted, too.
        let all = data.entries.iter().flat_map(|(key, value)| [key, value]);
        data.size = ValueSize::of(all).check()?;
        Ok(Self(MapKind::Shared(Arc::new(data))))
    }

    /// The members of a JSON object.
    #[inline]
    pub fn json(object: &'a JsonObject<'a>) -> Self {
        Self(MapKind::Json(object))
    }

    /// The JSON object, if the map is one.
    #[inline]
    pub(crate) fn as_json(&self) -> Option<&'a JsonObject<'a>> {
        match &self.0 {
            MapKind::Json(object) => Some(object),
            MapKind::Borrowed(_) | MapKind::Shared(_) => None,
        }
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            MapKind::Json(object) => object.members().len(),
            MapKind::Borrowed(data) => data.entries.len(),
            MapKind::Shared(data) => data.entries.len(),
        }
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `key`. A number also finds a key of another number type with the same value.
    pub fn get(&self, key: &CelValue<'_>) -> Option<CelValue<'a>> {
        match (&self.0, key) {
            (MapKind::Json(_), CelValue::String(key)) => self.get_str(key),
            (MapKind::Json(_), _) => None,
            (MapKind::Borrowed(data), _) => data.find(key).map(CelValue::borrowed),
            (MapKind::Shared(data), _) => data.find(key).cloned(),
        }
    }

    /// The value of the string `key`.
    #[inline]
    pub fn get_str(&self, key: &str) -> Option<CelValue<'a>> {
        match &self.0 {
            MapKind::Json(object) => object.get(key).map(CelValue::json),
            MapKind::Borrowed(_) | MapKind::Shared(_) => {
                self.get(&CelValue::String(CelStr::Borrowed(key)))
            }
        }
    }

    /// The keys in order.
    pub fn keys(&self) -> Vec<CelValue<'a>> {
        match &self.0 {
            MapKind::Json(object) => {
                let names = object.members().iter();
                names.map(|(name, _)| CelValue::from(&**name)).collect()
            }
            MapKind::Borrowed(data) => data.entries.iter().map(|(key, _)| key.borrowed()).collect(),
            MapKind::Shared(data) => data.entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// The key of the entry at `at`, in order.
    pub fn key_at(&self, at: usize) -> Option<CelValue<'a>> {
        match &self.0 {
            MapKind::Json(object) => {
                let (name, _) = object.members().get(at)?;
                Some(CelValue::from(&**name))
            }
            MapKind::Borrowed(data) => Some(data.entries.get(at)?.0.borrowed()),
            MapKind::Shared(data) => Some(data.entries.get(at)?.0.clone()),
        }
    }

    /// The entry at `at`, in order.
    pub fn entry_at(&self, at: usize) -> Option<(CelValue<'a>, CelValue<'a>)> {
        let key = self.key_at(at)?;
        let value = match &self.0 {
            MapKind::Json(object) => CelValue::json(&object.members()[at].1),
            MapKind::Borrowed(data) => data.entries[at].1.borrowed(),
            MapKind::Shared(data) => data.entries[at].1.clone(),
        };
        Some((key, value))
    }

    /// Adds an entry, in place if there is no other reference to the map.
    ///
    /// # Errors
    ///
    /// If the map has the key already, or would be too large.
    pub(crate) fn insert(
        &mut self,
        key: CelValue<'a>,
        value: CelValue<'a>,
        work: &mut CelWork<'_>,
    ) -> Result<(), CelError> {
        work.burn(LOOKUP + key.reading_work())?;
        if self.get(&key).is_some() || self.has_itself(&key, work)? {
            return Err(work.error(&[("insert failed: key ", &key)], " already exists"));
        }
        if let MapKind::Shared(data) = &mut self.0
            && let Some(data) = Arc::get_mut(data)
        {
            return data.push(key, value);
        }
        work.burn(LOOKUP * self.len() as u64)?;
        let mut entries = Vec::with_capacity(self.len() + 1);
        let mut at = 0;
        while let Some(entry) = self.entry_at(at) {
            entries.push(entry);
            at += 1;
        }
        entries.push((key, value));
        *self = Self::new(entries)?;
        Ok(())
    }

    /// Whether a key is this very list or map. In the original they are compared by their addresses, so equal ones are different keys, but
    /// a constant is the same key each time.
    fn has_itself(&self, key: &CelValue<'a>, work: &mut CelWork<'_>) -> Result<bool, CelError> {
        if !matches!(key, CelValue::List(_) | CelValue::Map(_)) {
            return Ok(false);
        }
        work.burn(self.len() as u64)?;
        let mut keys = (0..self.len()).filter_map(|at| self.key_at(at));
        Ok(keys.any(|known| match (&known, key) {
            (CelValue::List(one), CelValue::List(other)) => one.is_same(other),
            (CelValue::Map(one), CelValue::Map(other)) => one.is_same(other),
            _ => false,
        }))
    }

    /// Whether both are one map in memory.
    fn is_same(&self, other: &Self) -> bool {
        let address = |map: &Self| match &map.0 {
            MapKind::Json(_) => None,
            MapKind::Borrowed(data) => Some(std::ptr::from_ref::<MapData<'_>>(data).cast::<()>()),
            MapKind::Shared(data) => Some(Arc::as_ptr(data).cast::<()>()),
        };
        address(self).is_some_and(|one| address(other) == Some(one))
    }

    #[inline]
    pub(super) fn borrowed(&'a self) -> Self {
        Self(match &self.0 {
            MapKind::Shared(data) => MapKind::Borrowed(data),
            other => other.clone(),
        })
    }

    pub(super) fn into_owned(self) -> Result<CelMap<'static>, CelError> {
        let mut entries = Vec::with_capacity(self.len());
        let mut at = 0;
        while let Some((key, value)) = self.entry_at(at) {
            entries.push((key.into_owned()?, value.into_owned()?));
            at += 1;
        }
        CelMap::new(entries)
    }

    pub(super) fn size(&self) -> ValueSize {
        match &self.0 {
            MapKind::Borrowed(data) => data.size,
            MapKind::Shared(data) => data.size,
            MapKind::Json(_) => ValueSize { depth: 1, nodes: 1 },
        }
    }
}

impl fmt::Debug for CelMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        let mut at = 0;
        while let Some((key, value)) = self.entry_at(at) {
            map.entry(&key, &value);
            at += 1;
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: usize) -> CelMap<'static> {
        let entry = |at: usize| {
            let key = CelValue::Int(i64::try_from(at).unwrap());
            (key.clone(), key)
        };
        CelMap::new((0..entries).map(entry).collect()).unwrap()
    }

    #[test]
    fn numbers_of_other_types_find_keys_of_the_same_value() {
        for entries in [3, 30] {
            let map = map(entries);
            assert_eq!(map.get(&CelValue::Uint(2)), Some(CelValue::Int(2)));
            assert_eq!(map.get(&CelValue::Double(2.0)), Some(CelValue::Int(2)));
            assert_eq!(map.get(&CelValue::Double(2.5)), None);
            assert_eq!(map.get(&CelValue::Double(f64::NAN)), None);
            assert_eq!(map.get(&CelValue::from("2")), None);
        }
    }

    #[test]
    fn of_entries_with_the_same_key_the_last_value_is_kept() {
        let entries = vec![
            (CelValue::from("a"), CelValue::Int(1)),
            (CelValue::from("a"), CelValue::Int(2)),
        ];
        let map = CelMap::new(entries).unwrap();
        assert_eq!(map.len(), 1);
        assert_eq!(map.get_str("a"), Some(CelValue::Int(2)));
    }

    #[test]
    fn a_large_map_is_never_searched_entry_by_entry_not_even_for_keys_that_cannot_be_looked_up() {
        let key = || CelValue::list(Vec::new()).unwrap();
        let entries = (0..20).map(|_| (key(), CelValue::Null)).collect();
        let map = CelMap::new(entries).unwrap();
        let MapKind::Shared(data) = &map.0 else {
            panic!("the map is new");
        };
        assert_eq!(data.index.as_ref().map(HashMap::len), Some(0));
        assert_eq!((map.len(), map.get(&key())), (20, None));
    }

    #[test]
    fn a_key_can_be_inserted_only_once() {
        for entries in [3, 8, 30] {
            let mut map = map(entries);
            let mut work = CelWork::new(1_000, None);
            let (key, value) = (CelValue::Int(-1), CelValue::Int(7));
            map.insert(key.clone(), value.clone(), &mut work).unwrap();
            let again = map.insert(key, value, &mut work);
            let error = again.unwrap_err().to_string();
            assert_eq!(error, "insert failed: key -1 already exists");
            assert_eq!(map.len(), entries + 1);
            assert_eq!(map.get(&CelValue::Int(-1)), Some(CelValue::Int(7)));
        }
    }
}
