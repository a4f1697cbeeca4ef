//! The schemas of the kinds that policies are about, as far as they are known.
//!
//! Only kinds are kept that somebody asks for: whoever does asks again after every change, and what was not asked for since is dropped.
//! What is kept is bounded.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fairgate_admission::{CheckedKind, DeclaredType};

/// How many types all schemas together may have.
const MAX_TYPES: usize = 300_000;
/// How many changes an answer is kept for without being asked for.
const KEPT_CHANGES: u64 = 3;
/// How often a kind is looked for that is served, but has no schema yet: a server publishes the schemas of new kinds later than their
/// resources. Some servers publish none, against which nothing is checked.
const PATIENCE: u32 = 5;

/// A group and version as `OpenAPI` documents name them, such as `apis/apps/v1`, with the version of its document.
pub(crate) type OpenApiIndex = HashMap<String, Arc<str>>;

/// What a document says about a kind: its type, or none if it does not have it; or why that cannot be told.
pub(crate) type ReadSchema = Result<Option<DeclaredType>, String>;

/// What is known of the schema of a kind.
#[derive(Clone, Debug)]
pub(crate) enum FoundSchema {
    /// The version of the document, and the type.
    Known(Arc<str>, Arc<DeclaredType>),
    /// There is none. It may still come.
    Absent { is_final: bool },
    /// It could not be read yet, for this reason.
    Unread(String),
}

/// The schemas that were asked for.
#[derive(Debug, Default)]
pub(crate) struct SchemaCache {
    kinds: HashMap<CheckedKind, CachedSchema>,
    /// The size of all types.
    types: usize,
}

#[derive(Debug)]
struct CachedSchema {
    /// The number of changes when it was asked for the last time.
    asked_at: u64,
    /// The version of the document that was read; `None` if none was.
    at: Option<Arc<str>>,
    schema: Option<Arc<DeclaredType>>,
    size: usize,
    /// How often it was not there.
    absences: u32,
    failure: String,
}

impl SchemaCache {
    /// What is known of a kind after this number of changes, and whether it is asked for for the first time.
    pub(crate) fn ask(&mut self, kind: &CheckedKind, changes: u64) -> (FoundSchema, bool) {
        let mut is_new = false;
        let entry = self.kinds.entry(kind.clone()).or_insert_with(|| {
            is_new = true;
            CachedSchema {
                asked_at: changes,
                at: None,
                schema: None,
                size: 0,
                absences: 0,
                failure: "it has not been read yet".to_owned(),
            }
        });
        entry.asked_at = changes;
        let found = match (&entry.at, &entry.schema) {
            _ if !entry.failure.is_empty() => FoundSchema::Unread(entry.failure.clone()),
            (Some(at), Some(schema)) => FoundSchema::Known(Arc::clone(at), Arc::clone(schema)),
            _ => FoundSchema::Absent {
                is_final: entry.absences >= PATIENCE,
            },
        };
        (found, is_new)
    }

    /// Drops what was not asked for since some changes.
    pub(crate) fn prune(&mut self, changes: u64) {
        self.kinds
            .retain(|_, entry| changes < entry.asked_at + KEPT_CHANGES);
        self.types = self.kinds.values().map(|entry| entry.size).sum();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Nothing can be read, for this reason. What is known stays.
    pub(crate) fn fail(&mut self, why: &str) {
        let unread = self.kinds.values_mut();
        for entry in unread.filter(|entry| !entry.failure.is_empty()) {
            why.clone_into(&mut entry.failure);
        }
    }

    /// The kinds whose documents have to be read, by group and version. Those that the index does not have are absent from now on; counts
    /// how often. Returns also whether another answer is possible already.
    pub(crate) fn stale(
        &mut self,
        index: &OpenApiIndex,
    ) -> (BTreeMap<String, Vec<CheckedKind>>, bool) {
        let (mut stale, mut has_changed) = (BTreeMap::<_, Vec<_>>::new(), false);
        let mut kinds: Vec<_> = self.kinds.iter_mut().collect();
        kinds.sort_unstable_by_key(|(kind, _)| *kind);
        for (kind, entry) in kinds {
            let path = path_of(kind);
            match index.get(&path) {
                Some(at) if entry.at.as_ref() != Some(at) || !entry.failure.is_empty() => {
                    stale.entry(path).or_default().push(kind.clone());
                }
                Some(_) if entry.schema.is_some() => {}
                found => {
                    has_changed |= entry.schema.is_some() || !entry.failure.is_empty();
                    self.types -= std::mem::take(&mut entry.size);
                    (entry.at, entry.schema) = (found.cloned(), None);
                    entry.failure.clear();
                    has_changed |= entry.is_missed_again();
                }
            }
        }
        (stale, has_changed)
    }

    /// Takes what was read of a kind from the document of this version. Returns whether another answer is possible.
    pub(crate) fn take(&mut self, kind: &CheckedKind, at: &Arc<str>, read: ReadSchema) -> bool {
        let Some(entry) = self.kinds.get_mut(kind) else {
            return false;
        };
        let read = read.and_then(|schema| {
            let size = schema.as_ref().map_or(0, DeclaredType::size);
            if self.types - entry.size + size > MAX_TYPES {
                return Err("the schemas of all kinds that policies name are too large".to_owned());
            }
            Ok((schema, size))
        });
        match read {
            Ok((schema, size)) => {
                self.types = self.types - entry.size + size;
                entry.size = size;
                let is_same =
                    entry.failure.is_empty() && entry.schema.as_deref() == schema.as_ref();
                entry.at = Some(Arc::clone(at));
                entry.failure.clear();
                if is_same {
                    return schema.is_none() && entry.is_missed_again();
                }
                entry.schema = schema.map(Arc::new);
                if entry.schema.is_none() {
                    entry.is_missed_again();
                } else {
                    entry.absences = 0;
                }
                true
            }
            // What is known may be out of date, but a server that cannot be read is no reason to forget it. It stays stale.
            Err(why) => {
                if entry.schema.is_none() {
                    entry.failure = why;
                }
                false
            }
        }
    }
}

impl CachedSchema {
    /// Counts an absence; returns whether it is final from now on.
    fn is_missed_again(&mut self) -> bool {
        self.absences = self.absences.saturating_add(1);
        self.absences == PATIENCE
    }
}

/// How `OpenAPI` documents name the group and version of a kind.
pub(crate) fn path_of(kind: &CheckedKind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(number: usize) -> CheckedKind {
        CheckedKind {
            group: "x.io".to_owned(),
            version: "v1".to_owned(),
            kind: format!("K{number}"),
        }
    }

    fn of_size(size: usize) -> DeclaredType {
        let field = |number: usize| (number.to_string().into(), DeclaredType::Bool);
        DeclaredType::Object((1..size).map(field).collect())
    }

    fn is_known(cache: &mut SchemaCache, number: usize) -> bool {
        matches!(cache.ask(&kind(number), 0).0, FoundSchema::Known(..))
    }

    #[test]
    fn what_is_kept_is_bounded_and_dropped_when_nobody_asks_for_it() {
        let mut cache = SchemaCache::default();
        let at: Arc<str> = "1".into();
        for number in 0..3 {
            assert!(cache.ask(&kind(number), 0).1);
            assert!(cache.take(&kind(number), &at, Ok(Some(of_size(100_000)))));
            assert!(is_known(&mut cache, number));
        }
        cache.ask(&kind(3), 2);
        assert!(!cache.take(&kind(3), &at, Ok(Some(of_size(1)))));
        let (found, _) = cache.ask(&kind(3), 2);
        assert!(matches!(&found, FoundSchema::Unread(why) if why.contains("too large")));
        // A kind may change its size.
        assert!(cache.take(&kind(0), &at, Ok(Some(of_size(99_999)))));
        assert!(cache.take(&kind(3), &at, Ok(Some(of_size(1)))));
        cache.prune(KEPT_CHANGES);
        assert_eq!((cache.kinds.len(), cache.types), (1, 1));
        cache.prune(KEPT_CHANGES + 2);
        assert!(cache.is_empty() && cache.types == 0);
    }

    #[test]
    fn a_document_is_read_again_when_its_version_changes() {
        let mut cache = SchemaCache::default();
        cache.ask(&kind(0), 0);
        let index =
            |version: &str| OpenApiIndex::from([("apis/x.io/v1".to_owned(), version.into())]);
        let (stale, _) = cache.stale(&index("1"));
        assert_eq!(stale["apis/x.io/v1"], [kind(0)]);
        assert!(cache.take(&kind(0), &"1".into(), Ok(Some(of_size(1)))));
        assert_eq!(cache.stale(&index("1")), (BTreeMap::new(), false));
        assert_eq!(cache.stale(&index("2")).0.len(), 1);
        // What was known stays until the document can be read.
        assert!(!cache.take(&kind(0), &"2".into(), Err("down".to_owned())));
        assert!(is_known(&mut cache, 0));
        assert_eq!(cache.stale(&index("2")).0.len(), 1);
        // The same type is no change.
        assert!(!cache.take(&kind(0), &"2".into(), Ok(Some(of_size(1)))));
        assert_eq!(cache.stale(&index("2")).0.len(), 0);
        // The group is gone.
        assert_eq!(cache.stale(&OpenApiIndex::new()), (BTreeMap::new(), true));
        assert!(matches!(
            cache.ask(&kind(0), 0).0,
            FoundSchema::Absent { is_final: false }
        ));
        for _ in 1..PATIENCE {
            cache.stale(&OpenApiIndex::new());
        }
        assert!(matches!(
            cache.ask(&kind(0), 0).0,
            FoundSchema::Absent { is_final: true }
        ));
    }
}
