//! How evaluating comes to namespaces and params although it cannot wait: what is not in memory is noted, read between two
//! passes, and found in the next one.

use std::cell::{OnceCell, RefCell};

use fairgate_cel::CelJson;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::{
    cluster_objects::{ClusterObjects, SharedObject, object_bytes},
    inputs::{ClusterInputs, InputFailure, LookupLack, ParamScope, PolicyParamKind},
};

/// What a pass needs that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingLookup {
    /// A namespace.
    Namespace(String),
    /// A param by kind, namespace and name.
    Param(PolicyParamKind, String, String),
    /// All params of a kind.
    Params(PolicyParamKind),
    /// All params of a kind in a namespace, as they are now.
    ParamList(PolicyParamKind, String),
}

/// What was read for one request.
#[derive(Debug, Default)]
pub struct KnownLookups {
    namespaces: Vec<(String, Result<SharedObject, InputFailure>)>,
    params: Vec<ReadParam>,
    /// Kinds whose params have been waited for.
    awaited: Vec<PolicyParamKind>,
    listed: Vec<ListedParams>,
    reads: usize,
}

/// How many lookups one request may need that are not answered from memory.
const MAX_READS: usize = 1024;

/// How many of them are read at a time.
const READS_AT_ONCE: usize = 8;

/// The params of a kind in a namespace.
#[derive(Debug)]
struct ListedParams {
    key: (PolicyParamKind, String),
    params: Vec<SharedObject>,
}

/// A param that was read by kind, namespace and name.
#[derive(Debug)]
struct ReadParam {
    key: (PolicyParamKind, String, String),
    found: Result<SharedObject, InputFailure>,
}

/// What was looked up.
enum FoundLookup {
    Namespace(String, Result<SharedObject, InputFailure>),
    Param(ReadParam),
    Params(PolicyParamKind),
    ParamList(ListedParams),
}

impl KnownLookups {
    /// Reads what a pass misses, in the turns of a user, some of it at a time. What cannot be read is known as such afterwards.
    ///
    /// `take_room` takes room for so many bytes of memory, or returns `false` if there is none. It is asked as soon as something
    /// has been read, so only what is read at the same time is held without room.
    ///
    /// # Errors
    ///
    /// What is lacking to read it now.
    pub async fn read(
        &mut self,
        cluster: &dyn ClusterObjects,
        user: &str,
        missing: Vec<MissingLookup>,
        take_room: &mut (dyn FnMut(usize) -> bool + Send),
    ) -> Result<(), LookupLack> {
        self.reads = self.reads.saturating_add(missing.len());
        if self.reads > MAX_READS {
            let why = format!("the policies need more than {MAX_READS} namespaces and params");
            return Err(LookupLack::Server(why));
        }
        let mut missing = missing.into_iter();
        let mut reading = FuturesUnordered::new();
        loop {
            while reading.len() < READS_AT_ONCE
                && let Some(lookup) = missing.next()
            {
                reading.push(looked_up(cluster, user, lookup));
            }
            let Some(found) = reading.next().await else {
                return Ok(());
            };
            let found = found?;
            if !take_room(found.bytes()) {
                return Err(LookupLack::Room);
            }
            self.keep(found);
        }
    }

    /// A namespace that was read for the request, or why it could not be; `None` if it was not read.
    pub fn namespace(&self, name: &str) -> Option<Result<&CelJson<'static>, &InputFailure>> {
        let mut read = self.namespaces.iter();
        let (_, found) = read.find(|(known, _)| known == name)?;
        Some(found.as_ref().map(|object| &**object))
    }

    fn keep(&mut self, found: FoundLookup) {
        match found {
            FoundLookup::Namespace(name, found) => self.namespaces.push((name, found)),
            FoundLookup::Param(read) => self.params.push(read),
            FoundLookup::Params(kind) => self.awaited.push(kind),
            FoundLookup::ParamList(listed) => self.listed.push(listed),
        }
    }
}

impl FoundLookup {
    /// How many bytes it takes in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Namespace(_, found) | Self::Param(ReadParam { found, .. }) => {
                found.as_deref().map_or(0, object_bytes)
            }
            Self::Params(_) => 0,
            Self::ParamList(listed) => (listed.params.iter())
                .map(|param| object_bytes(param))
                .sum(),
        }
    }
}

async fn looked_up(
    cluster: &dyn ClusterObjects,
    user: &str,
    lookup: MissingLookup,
) -> Result<FoundLookup, LookupLack> {
    Ok(match lookup {
        MissingLookup::ParamList(kind, namespace) => {
            let params = cluster.list_params(user, &kind, &namespace).await?;
            let key = (kind, namespace);
            FoundLookup::ParamList(ListedParams { key, params })
        }
        MissingLookup::Namespace(name) => {
            let found = unless_lacking(cluster.read_namespace(user, &name).await)?;
            FoundLookup::Namespace(name, found)
        }
        MissingLookup::Param(kind, namespace, name) => {
            let found = cluster.read_param(user, &kind, &namespace, &name).await;
            let found = unless_lacking(found)?;
            let key = (kind, namespace, name);
            FoundLookup::Param(ReadParam { key, found })
        }
        MissingLookup::Params(kind) => {
            cluster.params_known(&kind).await?;
            FoundLookup::Params(kind)
        }
    })
}

fn unless_lacking<T>(
    found: Result<T, InputFailure>,
) -> Result<Result<T, InputFailure>, LookupLack> {
    match found {
        Err(InputFailure::Lacking(lack)) => Err(lack),
        found => Ok(found),
    }
}

/// The namespaces and params of one pass: of the cluster, and what was read for this request.
#[derive(Debug)]
pub struct ClusterLookups<'a> {
    cluster: &'a dyn ClusterObjects,
    known: &'a KnownLookups,
    kept: KeptObjects,
    missing: RefCell<Vec<MissingLookup>>,
}

impl<'a> ClusterLookups<'a> {
    /// Looks up in `known`, and then in `cluster`.
    pub fn new(cluster: &'a dyn ClusterObjects, known: &'a KnownLookups) -> Self {
        Self {
            cluster,
            known,
            kept: KeptObjects::default(),
            missing: RefCell::default(),
        }
    }

    /// What was asked for and is not known, each once.
    pub fn take_missing(&self) -> Vec<MissingLookup> {
        self.missing.take()
    }

    fn note(&self, missing: MissingLookup) -> InputFailure {
        let mut noted = self.missing.borrow_mut();
        if !noted.contains(&missing) {
            noted.push(missing);
        }
        InputFailure::Failed("not read yet".to_owned())
    }
}

impl ClusterInputs for ClusterLookups<'_> {
    fn namespace(&self, name: &str) -> Result<&CelJson<'_>, InputFailure> {
        let mut read = self.known.namespaces.iter();
        if let Some((_, found)) = read.find(|(of, _)| of == name) {
            return found.as_deref().map_err(Clone::clone);
        }
        let found = self.kept.get(KeptKey::Namespace(name), || {
            self.cluster.namespace(name).into_iter().collect()
        });
        let found = found.first().map(|found| &**found);
        found.ok_or_else(|| self.note(MissingLookup::Namespace(name.to_owned())))
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        self.cluster.param_scope(kind)
    }

    fn params_known(&self, kind: &PolicyParamKind) -> bool {
        let is_known = self.cluster.are_params_known(kind);
        if !is_known && !self.known.awaited.contains(kind) {
            self.note(MissingLookup::Params(kind.clone()));
        }
        is_known
    }

    fn param(
        &self,
        kind: &PolicyParamKind,
        namespace: &str,
        name: &str,
    ) -> Result<&CelJson<'_>, InputFailure> {
        let mut read = self.known.params.iter();
        let is_this = |(of, in_namespace, named): &(PolicyParamKind, String, String)| {
            of == kind && in_namespace == namespace && named == name
        };
        if let Some(read) = read.find(|read| is_this(&read.key)) {
            return read.found.as_deref().map_err(Clone::clone);
        }
        let found = self.kept.get(KeptKey::Param(kind, namespace, name), || {
            let found = self.cluster.param(kind, namespace, name);
            found.into_iter().collect()
        });
        let found = found.first().map(|found| &**found);
        found.ok_or_else(|| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            self.note(MissingLookup::Param(kind.clone(), namespace, name))
        })
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<&CelJson<'_>> {
        if self.cluster.lists_params(kind) {
            let mut listed = self.known.listed.iter();
            let Some(found) = listed.find(|one| one.key.0 == *kind && one.key.1 == namespace)
            else {
                self.note(MissingLookup::ParamList(kind.clone(), namespace.to_owned()));
                return Vec::new();
            };
            return found
                .params
                .iter()
                .map(|param| -> &CelJson<'_> { param })
                .collect();
        }
        let found = self.kept.get(KeptKey::Params(kind, namespace), || {
            self.cluster.params(kind, namespace)
        });
        // Shortens the lifetime of the objects.
        found
            .iter()
            .map(|param| -> &CelJson<'_> { param })
            .collect()
    }
}

/// What was looked up.
#[derive(Clone, Copy)]
enum KeptKey<'k> {
    Namespace(&'k str),
    Param(&'k PolicyParamKind, &'k str, &'k str),
    Params(&'k PolicyParamKind, &'k str),
}

/// The same, owned.
#[derive(Debug)]
enum OwnedKey {
    Namespace(String),
    Param(PolicyParamKind, String, String),
    Params(PolicyParamKind, String),
}

impl KeptKey<'_> {
    fn is(&self, owned: &OwnedKey) -> bool {
        match (self, owned) {
            (Self::Namespace(name), OwnedKey::Namespace(of)) => of == name,
            (Self::Param(kind, namespace, name), OwnedKey::Param(of, in_namespace, named)) => {
                of == *kind && in_namespace == namespace && named == name
            }
            (Self::Params(kind, namespace), OwnedKey::Params(of, in_namespace)) => {
                of == *kind && in_namespace == namespace
            }
            _ => false,
        }
    }

    fn owned(&self) -> OwnedKey {
        match *self {
            Self::Namespace(name) => OwnedKey::Namespace(name.to_owned()),
            Self::Param(kind, namespace, name) => {
                OwnedKey::Param(kind.clone(), namespace.to_owned(), name.to_owned())
            }
            Self::Params(kind, namespace) => OwnedKey::Params(kind.clone(), namespace.to_owned()),
        }
    }
}

/// Objects that were looked up, kept so that references to them can be handed out. It is a list, because a list can grow
/// while its elements are borrowed; requests need few of them.
#[derive(Debug, Default)]
struct KeptObjects(OnceCell<Box<KeptNode>>);

#[derive(Debug)]
struct KeptNode {
    key: OwnedKey,
    objects: Vec<SharedObject>,
    next: KeptObjects,
}

impl KeptObjects {
    fn get(
        &self,
        key: KeptKey<'_>,
        look_up: impl FnOnce() -> Vec<SharedObject>,
    ) -> &[SharedObject] {
        let mut at = self;
        while let Some(node) = at.0.get() {
            if key.is(&node.key) {
                return &node.objects;
            }
            at = &node.next;
        }
        let node = at.0.get_or_init(|| {
            Box::new(KeptNode {
                key: key.owned(),
                objects: look_up(),
                next: Self::default(),
            })
        });
        &node.objects
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc, Mutex, PoisonError,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::cluster_objects::LookupFuture;

    /// The length of a large namespace.
    const LARGE: usize = 1 << 20;

    /// Namespaces each of which is found when it has been asked for twice.
    #[derive(Debug, Default)]
    struct SlowNamespaces {
        reading: AtomicUsize,
        most: AtomicUsize,
        users: Mutex<Vec<String>>,
    }

    impl ClusterObjects for SlowNamespaces {
        fn namespace(&self, _: &str) -> Option<SharedObject> {
            None
        }

        fn read_namespace<'a>(&'a self, user: &'a str, name: &'a str) -> LookupFuture<'a> {
            let reading = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(reading, Ordering::SeqCst);
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.push(user.to_owned());
            let mut is_asked = false;
            Box::pin(std::future::poll_fn(move |cx| {
                if !std::mem::replace(&mut is_asked, true) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.reading.fetch_sub(1, Ordering::SeqCst);
                Poll::Ready(match name {
                    "lacking" => Err(InputFailure::Lacking(LookupLack::Time)),
                    name if name.starts_with("large") => {
                        Ok(Arc::new(CelJson::String("a".repeat(LARGE).into())))
                    }
                    _ => Err(InputFailure::NotFound),
                })
            }))
        }

        fn param_scope(&self, _: &PolicyParamKind) -> Result<ParamScope, String> {
            Ok(ParamScope::Namespaced)
        }
    }

    fn read(
        known: &mut KnownLookups,
        cluster: &SlowNamespaces,
        names: &[String],
        take_room: &mut (dyn FnMut(usize) -> bool + Send),
    ) -> Result<(), LookupLack> {
        let missing = names.iter().cloned().map(MissingLookup::Namespace);
        let mut reading = pin!(known.read(cluster, "u", missing.collect(), take_room));
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(read) = reading.as_mut().poll(&mut context) {
                return read;
            }
        }
    }

    #[test]
    fn what_is_missing_is_read_some_at_a_time_and_each_once() {
        let cluster = SlowNamespaces::default();
        let mut known = KnownLookups::default();
        let mut names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(read(&mut known, &cluster, &names, &mut |_| true), Ok(()));
        assert_eq!(cluster.most.load(Ordering::SeqCst), READS_AT_ONCE);
        assert_eq!(*cluster.users.lock().unwrap(), vec!["u"; 100]);
        let lookups = ClusterLookups::new(&cluster, &known);
        for name in &names {
            assert_eq!(lookups.namespace(name), Err(InputFailure::NotFound));
        }
        assert_eq!(lookups.take_missing(), []);
        names[50] = "lacking".to_owned();
        assert_eq!(
            read(&mut known, &cluster, &names, &mut |_| true),
            Err(LookupLack::Time)
        );
        let many: Vec<_> = (0..MAX_READS).map(|number| number.to_string()).collect();
        let before = cluster.users.lock().unwrap().len();
        let refused = read(&mut known, &cluster, &many, &mut |_| true);
        assert!(matches!(refused, Err(LookupLack::Server(_))));
        assert_eq!(
            cluster.users.lock().unwrap().len(),
            before,
            "none is read in vain"
        );
    }

    #[test]
    fn what_is_read_is_kept_within_the_room_for_it() {
        let cluster = SlowNamespaces::default();
        let mut known = KnownLookups::default();
        let names: Vec<_> = (0..100).map(|number| format!("large-{number}")).collect();
        let room = 20 * (LARGE + size_of::<CelJson<'_>>());
        let mut held = 0;
        let mut take_room = |bytes| {
            let has_room = held + bytes <= room;
            held += if has_room { bytes } else { 0 };
            has_room
        };
        let refused = read(&mut known, &cluster, &names, &mut take_room);
        assert_eq!((refused, held), (Err(LookupLack::Room), room));
        assert_eq!(known.namespaces.len(), 20);
        let asked = cluster.users.lock().unwrap().len();
        assert!(
            asked <= 20 + READS_AT_ONCE,
            "{asked}: the others are not read"
        );
    }
}
