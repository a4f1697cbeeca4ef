//! The objects of one kind, built from a list and the watch events after it, for many readers.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use fairgate_admission::{SharedObject, object_bytes};
use fairgate_cel::CelJson;
use fairgate_upstream::informer::{Event, WatchedObject, Whole};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::watch;

/// How many bytes the objects of one kind may take in memory.
const MAX_BYTES: usize = 256 << 20;

/// The form in which objects are kept.
pub(crate) trait KeptForm: Clone + Send + Sync + 'static {
    /// The form of an object, and how many bytes it takes.
    fn of(object: Value) -> (Self, usize);

    /// Whether this certainly is the same version of an object.
    fn is_same(&self, _other: &Self) -> bool {
        false
    }
}

impl KeptForm for SharedObject {
    fn of(object: Value) -> (Self, usize) {
        // Any JSON value can be read as one.
        let object = CelJson::deserialize(object).unwrap_or(CelJson::Null);
        let bytes = object_bytes(&object);
        (Arc::new(object), bytes)
    }
}

impl KeptForm for Arc<Value> {
    fn of(object: Value) -> (Self, usize) {
        let bytes = object.to_string().len() * 2;
        (Arc::new(object), bytes)
    }

    fn is_same(&self, other: &Self) -> bool {
        let of = |object: &Value| {
            let metadata = &object["metadata"];
            let [uid, version] = ["uid", "resourceVersion"].map(|field| metadata[field].clone());
            version.is_string().then_some((uid, version))
        };
        of(self).is_some_and(|version| Some(version) == of(other))
    }
}

/// The objects exceed the memory that those of one kind may take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyObjects;

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct KindObjects<T> {
    known: RwLock<KnownObjects<T>>,
    max_bytes: usize,
    /// Counts the changes since the objects were first listed; 0 until then.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct KnownObjects<T> {
    objects: HeldObjects<T>,
    /// A list that is being received. The objects it replaces are valid until it is complete.
    incoming: HeldObjects<T>,
}

/// Objects, each with its size in bytes, by name.
type ByName<T> = BTreeMap<Box<str>, (T, usize)>;

/// Objects by namespace, which is empty for kinds without, and name.
#[derive(Debug)]
struct HeldObjects<T> {
    by_namespace: BTreeMap<Box<str>, ByName<T>>,
    bytes: usize,
}

impl<T> Default for HeldObjects<T> {
    fn default() -> Self {
        Self {
            by_namespace: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<T: KeptForm> Default for KindObjects<T> {
    fn default() -> Self {
        Self::limited(MAX_BYTES)
    }
}

impl<T: KeptForm> KindObjects<T> {
    fn limited(max_bytes: usize) -> Self {
        Self {
            known: RwLock::new(KnownObjects {
                objects: HeldObjects::default(),
                incoming: HeldObjects::default(),
            }),
            max_bytes,
            changes: watch::Sender::new(0),
        }
    }

    /// Whether the objects have been listed completely.
    pub(crate) fn is_listed(&self) -> bool {
        *self.changes.borrow() > 0
    }

    /// The number of changes; it is 0 until the objects have been listed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The object of that name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<T> {
        let known = self.read();
        let of_namespace = known.objects.by_namespace.get(namespace)?;
        of_namespace.get(name).map(|(object, _)| object.clone())
    }

    /// All objects of a namespace, by name.
    pub(crate) fn all(&self, namespace: &str) -> Vec<T> {
        let known = self.read();
        let found = known.objects.by_namespace.get(namespace);
        let objects = found.into_iter().flat_map(BTreeMap::values);
        objects.map(|(object, _)| object.clone()).collect()
    }

    /// Applies an event of the kind with this `apiVersion` and kind, which the items of lists lack. Objects are freed
    /// without the lock: freeing many takes time, for which no reader should wait.
    ///
    /// # Errors
    ///
    /// When the objects take too much memory. None is kept then, and they do not count as listed.
    pub(crate) fn take(
        &self,
        api_version: &str,
        kind: &str,
        event: Event<WatchedObject<Whole>>,
    ) -> Result<(), TooManyObjects> {
        let held = |object: WatchedObject<Whole>| HeldObject::new(api_version, kind, object.object);
        match event {
            Event::Init => {
                let unfinished = std::mem::take(&mut self.write().incoming);
                drop(unfinished);
            }
            Event::InitApply(object) => {
                let object = held(object);
                self.write().incoming.insert(object);
            }
            Event::InitDone => {
                let mut known = self.write();
                let incoming = std::mem::take(&mut known.incoming);
                let before = std::mem::replace(&mut known.objects, incoming);
                let is_new = !self.is_listed() || !known.objects.is_same(&before);
                drop(known);
                drop(before);
                if is_new {
                    self.changed();
                }
            }
            Event::Apply(object) => {
                let object = held(object);
                let before = self.write().objects.insert(object);
                drop(before);
                self.changed();
            }
            Event::Delete(object) => {
                let HeldObject {
                    namespace, name, ..
                } = held(object);
                let before = self.write().objects.remove(&namespace, &name);
                drop(before);
                self.changed();
            }
        }
        self.check_size()
    }

    /// Drops everything, because the kind is not served. The objects do not count as listed any more.
    pub(crate) fn clear(&self) {
        self.drop_all();
        self.changes.send_replace(0);
    }

    /// Drops everything, because the kind was served and is not any more: there are no objects of it.
    pub(crate) fn vanish(&self) {
        self.drop_all();
        self.changed();
    }

    fn drop_all(&self) {
        let mut known = self.write();
        let before = (
            std::mem::take(&mut known.objects),
            std::mem::take(&mut known.incoming),
        );
        drop(known);
        drop(before);
    }

    fn check_size(&self) -> Result<(), TooManyObjects> {
        let known = self.read();
        let bytes = known.objects.bytes.max(known.incoming.bytes);
        drop(known);
        if bytes <= self.max_bytes {
            return Ok(());
        }
        self.clear();
        Err(TooManyObjects)
    }

    /// Counts a change of the objects, or that they are listed now.
    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn read(&self) -> RwLockReadGuard<'_, KnownObjects<T>> {
        // A panic leaves the tables as they were before or after a change.
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KnownObjects<T>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object with its key.
struct HeldObject<T> {
    namespace: Box<str>,
    name: Box<str>,
    object: T,
    bytes: usize,
}

impl<T: KeptForm> HeldObject<T> {
    fn new(api_version: &str, kind: &str, mut object: Value) -> Self {
        if let Value::Object(members) = &mut object {
            members.insert("apiVersion".to_owned(), api_version.into());
            members.insert("kind".to_owned(), kind.into());
        }
        let text = |field| object["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace").into(), text("name").into());
        let (object, bytes) = T::of(object);
        Self {
            namespace,
            name,
            object,
            bytes,
        }
    }
}

impl<T: KeptForm> HeldObjects<T> {
    /// Whether these certainly are the same versions of the same objects.
    fn is_same(&self, other: &Self) -> bool {
        let each = |held: &Self| held.by_namespace.values().map(BTreeMap::len).sum::<usize>();
        let mut all = self.by_namespace.iter();
        each(self) == each(other)
            && all.all(|(namespace, by_name)| {
                let others = other.by_namespace.get(namespace);
                by_name.iter().all(|(name, (object, _))| {
                    let other = others.and_then(|others| others.get(name));
                    other.is_some_and(|(other, _)| object.is_same(other))
                })
            })
    }
}

impl<T> HeldObjects<T> {
    fn insert(&mut self, new: HeldObject<T>) -> Option<(T, usize)> {
        self.bytes += new.bytes;
        let of_namespace = self.by_namespace.entry(new.namespace).or_default();
        let before = of_namespace.insert(new.name, (new.object, new.bytes));
        self.bytes -= before.as_ref().map_or(0, |(_, bytes)| *bytes);
        before
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<(T, usize)> {
        let of_namespace = self.by_namespace.get_mut(namespace)?;
        let before = of_namespace.remove(name);
        if of_namespace.is_empty() {
            self.by_namespace.remove(namespace);
        }
        self.bytes -= before.as_ref().map_or(0, |(_, bytes)| *bytes);
        before
    }
}

#[cfg(test)]
mod tests {
    use fairgate_base::stack::STACK_BYTES;
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, data: &str) -> WatchedObject<Whole> {
        let object = json!({
            "metadata": {"namespace": namespace, "name": name, "managedFields": [{}]}, "data": {"k": data},
        });
        serde_json::from_value(object).unwrap()
    }

    fn take(
        objects: &KindObjects<SharedObject>,
        event: Event<WatchedObject<Whole>>,
    ) -> Result<(), TooManyObjects> {
        objects.take("v1", "ConfigMap", event)
    }

    fn data(object: &CelJson<'_>) -> String {
        let CelJson::Object(members) = object else {
            panic!("{object:?}");
        };
        assert_eq!(
            members.get("kind"),
            Some(&CelJson::String("ConfigMap".into()))
        );
        format!("{:?}", members.get("data").unwrap())
    }

    #[test]
    fn objects_are_those_of_the_last_complete_list_and_the_events_after_it() {
        let objects = KindObjects::default();
        take(&objects, Event::Init).unwrap();
        take(&objects, Event::InitApply(object("a", "x", "1"))).unwrap();
        assert!(!objects.is_listed() && objects.get("a", "x").is_none());
        take(&objects, Event::InitDone).unwrap();
        assert!(objects.is_listed());
        let found = data(&objects.get("a", "x").unwrap());
        assert!(found.contains("\"1\""), "{found}");
        assert!(!found.contains("managedFields"));
        take(&objects, Event::Apply(object("a", "w", "2"))).unwrap();
        take(&objects, Event::Apply(object("b", "x", "3"))).unwrap();
        let all: Vec<_> = objects.all("a").iter().map(|one| data(one)).collect();
        assert_eq!(all.len(), 2);
        assert!(
            all[0].contains("\"2\"") && all[1].contains("\"1\""),
            "{all:?}"
        );
        // Another list begins: the objects stay until it is complete.
        take(&objects, Event::Init).unwrap();
        assert_eq!(objects.all("a").len(), 2);
        take(&objects, Event::InitApply(object("b", "y", "4"))).unwrap();
        take(&objects, Event::InitDone).unwrap();
        assert!(objects.all("a").is_empty() && objects.get("b", "x").is_none());
        take(&objects, Event::Delete(object("b", "y", "4"))).unwrap();
        assert!(objects.all("b").is_empty());
        assert_eq!(objects.read().objects.bytes, 0);
    }

    #[test]
    fn an_object_that_nests_as_deep_as_a_server_takes_it_is_kept_beside_the_others() {
        let test = || {
            let text = format!(
                r#"{{"metadata": {{"namespace": "a", "name": "deep"}}, "data": {}1{}}}"#,
                "[".repeat(9_999),
                "]".repeat(9_999)
            );
            let deep: WatchedObject<Whole> = serde_json::from_str(&text).unwrap();
            let objects = KindObjects::default();
            take(&objects, Event::Init).unwrap();
            take(&objects, Event::InitApply(deep.clone())).unwrap();
            take(&objects, Event::InitApply(object("a", "other", "1"))).unwrap();
            take(&objects, Event::InitDone).unwrap();
            let found = data(&objects.get("a", "deep").unwrap());
            assert_eq!(found.matches("Array").count(), 9_999);
            take(&objects, Event::Apply(deep)).unwrap();
            assert_eq!(objects.all("a").len(), 2);
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES / 2);
        thread.spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn too_many_objects_are_dropped_and_do_not_count_as_listed() {
        let objects = KindObjects::limited(4 << 10);
        take(&objects, Event::Init).unwrap();
        take(&objects, Event::InitDone).unwrap();
        let long = "x".repeat(3 << 10);
        assert_eq!(
            take(&objects, Event::Apply(object("a", "x", &long))),
            Ok(())
        );
        // Replacing an object frees the one before.
        assert_eq!(
            take(&objects, Event::Apply(object("a", "x", &long))),
            Ok(())
        );
        let second = Event::Apply(object("a", "y", &long));
        assert_eq!(take(&objects, second), Err(TooManyObjects));
        assert!(!objects.is_listed() && objects.all("a").is_empty());
    }
}
