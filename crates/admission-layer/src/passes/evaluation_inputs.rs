//! What evaluating asks for: from what is known of the cluster, and from what was read for this request.
//!
//! Evaluating cannot wait. What is not known is noted, read between two passes, and found in the next one.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use fairgate_admission::{
    AdmissionInputs, AdmissionObjects, ClusterInputs, ClusterLookups, ConversionFailure,
    EquivalentResource, GroupVersionKind, GroupVersionResource, KnownAnswers, MissingLookup,
};
use fairgate_base::clock::Clock;
use fairgate_cel::{CelJson, library::authorizer::CelAuthorizer};
use fairgate_core::time::Time;

use crate::upstream::conversion::{ConvertedObjects, KindParts};

/// What a pass needs that is not known.
#[derive(Debug, Default)]
pub(crate) struct MissingInputs {
    pub(crate) lookups: Vec<MissingLookup>,
    /// The kinds to which the objects of the request are to be converted.
    pub(crate) converted: Vec<KindParts>,
}

impl MissingInputs {
    pub(crate) fn is_empty(&self) -> bool {
        self.lookups.is_empty() && self.converted.is_empty()
    }
}

/// The inputs of one pass.
pub(crate) struct EvaluationInputs<'a> {
    pub(crate) lookups: ClusterLookups<'a>,
    /// The objects of the request in other versions.
    pub(crate) conversions: &'a [ConvertedObjects],
    pub(crate) kind: GroupVersionKind<'a>,
    pub(crate) objects: [Option<CelJson<'a>>; 2],
    /// Those of [`conversions`](Self::conversions), in its order.
    pub(crate) converted: Vec<[Option<CelJson<'a>>; 2]>,
    pub(crate) equivalents: &'a [EquivalentResource<'a>],
    pub(crate) answers: Arc<KnownAnswers>,
    pub(crate) must_stop: &'a dyn Fn() -> bool,
    pub(crate) clock: &'a Clock,
    /// The kinds that the objects were asked for in, and are not converted to yet.
    pub(crate) unconverted: RefCell<Vec<KindParts>>,
    pub(crate) was_stopped: Cell<bool>,
}

impl EvaluationInputs<'_> {
    /// What was asked for and is not known, each once.
    pub(crate) fn take_missing(&self) -> MissingInputs {
        MissingInputs {
            lookups: self.lookups.take_missing(),
            converted: self.unconverted.take(),
        }
    }
}

impl AdmissionInputs for EvaluationInputs<'_> {
    fn objects(
        &self,
        kind: GroupVersionKind<'_>,
    ) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        if kind == self.kind {
            return Ok(as_admission_objects(&self.objects));
        }
        let wanted = [kind.group, kind.version, kind.kind];
        let is_wanted = |one: &ConvertedObjects| one.kind.each_ref().map(|part| &**part) == wanted;
        let Some(index) = self.conversions.iter().position(is_wanted) else {
            let (wanted, mut noted) = (wanted.map(str::to_owned), self.unconverted.borrow_mut());
            if !noted.contains(&wanted) {
                noted.push(wanted);
            }
            return Err(ConversionFailure::Unsupported(
                "not converted yet".to_owned(),
            ));
        };
        match &self.conversions[index].objects {
            Ok(_) => Ok(as_admission_objects(&self.converted[index])),
            Err(why) => {
                let [group, version, kind] = wanted;
                Err(ConversionFailure::Unsupported(format!(
                    "the gateway cannot convert objects to {group}/{version}, Kind={kind}: {why}"
                )))
            }
        }
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        self.equivalents
    }

    fn cluster(&self) -> &dyn ClusterInputs {
        &self.lookups
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
