//! What judging asks for: from what is known of the cluster, and from what was read for this request.
//!
//! Judging cannot wait. What is not known is noted, read between two passes, and found in the next one.

use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::Arc,
};

use fairgate_admission::{
    AdmissionInputs, AdmissionObjects, EquivalentResource, GroupVersionKind, GroupVersionResource,
    InputFailure, ParamScope, PolicyParamKind,
};
use fairgate_apiserver::KnownAnswers;
use fairgate_base::clock::Clock;
use fairgate_cel::{CelJson, library::authorizer::CelAuthorizer};
use fairgate_core::time::Time;

use crate::{
    cluster_state::{ClusterState, SharedObject},
    conversion::{ConvertedObjects, KindParts},
};

/// What a pass needs that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingInput {
    /// A namespace.
    Namespace(String),
    /// A param by kind, namespace and name.
    Param(PolicyParamKind, String, String),
    /// All params of a kind.
    Params(PolicyParamKind),
    /// The objects of the request in another version.
    Converted(KindParts),
}

/// What was read for one request.
#[derive(Debug, Default)]
pub(crate) struct ReadInputs {
    pub(crate) namespaces: Vec<(String, Result<SharedObject, InputFailure>)>,
    pub(crate) params: Vec<ReadParam>,
    /// Kinds whose params have been waited for.
    pub(crate) awaited: Vec<PolicyParamKind>,
    /// The objects of the request in other versions.
    pub(crate) converted: Vec<ConvertedObjects>,
}

/// A param that was read by kind, namespace and name.
#[derive(Debug)]
pub(crate) struct ReadParam {
    pub(crate) key: (PolicyParamKind, String, String),
    pub(crate) found: Result<SharedObject, InputFailure>,
}

/// The inputs of one pass.
pub(crate) struct JudgeInputs<'a> {
    pub(crate) cluster: &'a dyn ClusterState,
    pub(crate) read: &'a ReadInputs,
    pub(crate) kind: GroupVersionKind<'a>,
    pub(crate) objects: [Option<CelJson<'a>>; 2],
    /// Those of [`ReadInputs::converted`], in its order.
    pub(crate) converted: Vec<[Option<CelJson<'a>>; 2]>,
    pub(crate) equivalents: &'a [EquivalentResource<'a>],
    pub(crate) answers: Arc<KnownAnswers>,
    pub(crate) must_stop: &'a dyn Fn() -> bool,
    pub(crate) clock: &'a Clock,
    pub(crate) kept: KeptObjects,
    pub(crate) missing: RefCell<Vec<MissingInput>>,
    pub(crate) was_stopped: Cell<bool>,
}

impl JudgeInputs<'_> {
    fn note(&self, missing: MissingInput) -> InputFailure {
        let mut noted = self.missing.borrow_mut();
        if !noted.contains(&missing) {
            noted.push(missing);
        }
        InputFailure::Failed("not read yet".to_owned())
    }
}

impl AdmissionInputs for JudgeInputs<'_> {
    fn objects(&self, kind: GroupVersionKind<'_>) -> Result<AdmissionObjects<'_>, String> {
        if kind == self.kind {
            return Ok(as_admission_objects(&self.objects));
        }
        let wanted = [kind.group, kind.version, kind.kind];
        let is_wanted = |one: &ConvertedObjects| one.kind.each_ref().map(|part| &**part) == wanted;
        let Some(index) = self.read.converted.iter().position(is_wanted) else {
            self.note(MissingInput::Converted(wanted.map(str::to_owned)));
            return Err("not converted yet".to_owned());
        };
        match &self.read.converted[index].objects {
            Ok(_) => Ok(as_admission_objects(&self.converted[index])),
            Err(why) => {
                let [group, version, kind] = wanted;
                Err(format!(
                    "the gateway cannot convert objects to {group}/{version}, Kind={kind}: {why}"
                ))
            }
        }
    }

    fn namespace(&self, name: &str) -> Result<&CelJson<'_>, InputFailure> {
        let mut read = self.read.namespaces.iter();
        if let Some((_, found)) = read.find(|(of, _)| of == name) {
            return found.as_deref().map_err(Clone::clone);
        }
        let found = self.kept.get(KeptKey::Namespace(name), || {
            self.cluster.namespace(name).into_iter().collect()
        });
        let found = found.first().map(|found| &**found);
        found.ok_or_else(|| self.note(MissingInput::Namespace(name.to_owned())))
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        self.equivalents
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        self.cluster.param_scope(kind)
    }

    fn params_known(&self, kind: &PolicyParamKind) -> bool {
        let is_known = self.cluster.are_params_known(kind);
        if !is_known && !self.read.awaited.contains(kind) {
            self.note(MissingInput::Params(kind.clone()));
        }
        is_known
    }

    fn param(
        &self,
        kind: &PolicyParamKind,
        namespace: &str,
        name: &str,
    ) -> Result<&CelJson<'_>, InputFailure> {
        let mut read = self.read.params.iter();
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
            self.note(MissingInput::Param(kind.clone(), namespace, name))
        })
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<&CelJson<'_>> {
        let found = self.kept.get(KeptKey::Params(kind, namespace), || {
            self.cluster.params(kind, namespace)
        });
        // Shortens the lifetime of the objects.
        found
            .iter()
            .map(|param| -> &CelJson<'_> { param })
            .collect()
    }

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        Arc::clone(&self.answers) as Arc<dyn CelAuthorizer>
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn is_interrupted(&self) -> bool {
        let stop = (self.must_stop)();
        self.was_stopped.set(self.was_stopped.get() || stop);
        stop
    }
}

fn as_admission_objects<'o>(objects: &'o [Option<CelJson<'_>>; 2]) -> AdmissionObjects<'o> {
    let [object, old_object] = objects;
    AdmissionObjects {
        object: object.as_ref(),
        old_object: old_object.as_ref(),
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
pub(crate) struct KeptObjects(OnceCell<Box<KeptNode>>);

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
