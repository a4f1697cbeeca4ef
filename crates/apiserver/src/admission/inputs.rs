//! What evaluating a write to a hosted object asks for.

use std::sync::Arc;

use bytes::Bytes;

use super::writes::{HostedWrite, kind_in, text_in};
use fairgate_admission::{
    AdmissionInputs, AdmissionObjects, ClusterInputs, ClusterLookups, ConversionFailure,
    EquivalentResource, GroupVersionKind, GroupVersionResource, KnownAnswers,
};
use fairgate_base::clock::Clock;
use fairgate_cel::{CelJson, library::authorizer::CelAuthorizer};
use fairgate_core::time::Time;
use fairgate_objects::kind::KindVersion;

/// The objects of a write in all versions of their kind, as JSON.
#[derive(Default)]
pub(super) struct WriteDocuments(Vec<(&'static KindVersion, [Option<Bytes>; 2])>);

impl WriteDocuments {
    pub(super) fn of(write: &HostedWrite<'_>) -> Self {
        let kind = write.kind;
        let all = kind.versions.iter().map(|version| {
            let text = |stored| text_in(kind, version, stored);
            (
                version,
                [write.object.map(text), write.old_object.map(text)],
            )
        });
        Self(all.collect())
    }
}

/// The inputs of one pass.
pub(super) struct HostedInputs<'a> {
    requested: GroupVersionKind<'a>,
    objects: Vec<(GroupVersionKind<'a>, [Option<CelJson<'a>>; 2])>,
    equivalents: Vec<EquivalentResource<'a>>,
    pub(super) lookups: ClusterLookups<'a>,
    answers: Arc<KnownAnswers>,
    clock: &'a Clock,
}

impl<'a> HostedInputs<'a> {
    pub(super) fn new(
        write: &HostedWrite<'a>,
        documents: &'a WriteDocuments,
        lookups: ClusterLookups<'a>,
        answers: Arc<KnownAnswers>,
        clock: &'a Clock,
    ) -> Result<Self, serde_json::Error> {
        let parsed =
            |text: &'a Option<Bytes>| text.as_deref().map(serde_json::from_slice).transpose();
        let mut objects = Vec::new();
        for (version, [object, old_object]) in &documents.0 {
            let both = [parsed(object)?, parsed(old_object)?];
            objects.push((kind_in(write.kind, version), both));
        }
        let versions = write.kind.versions.iter();
        let equivalents = versions.map(|version| EquivalentResource {
            resource: GroupVersionResource {
                group: write.kind.group,
                version: version.name,
                resource: write.kind.plural,
            },
            kind: Some(kind_in(write.kind, version)),
        });
        Ok(Self {
            requested: kind_in(write.kind, write.version),
            objects,
            equivalents: equivalents.collect(),
            lookups,
            answers,
            clock,
        })
    }

    /// The objects in the version that the client asked for.
    pub(super) fn requested(&self) -> AdmissionObjects<'_> {
        self.of_kind(self.requested).unwrap_or_default()
    }

    fn of_kind(&self, kind: GroupVersionKind<'_>) -> Option<AdmissionObjects<'_>> {
        let (_, [object, old_object]) = self.objects.iter().find(|(of, _)| *of == kind)?;
        Some(AdmissionObjects {
            object: object.as_ref(),
            old_object: old_object.as_ref(),
        })
    }
}

impl AdmissionInputs for HostedInputs<'_> {
    fn objects(
        &self,
        kind: GroupVersionKind<'_>,
    ) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        let found = self.of_kind(kind);
        found.ok_or_else(|| {
            ConversionFailure::Failed(format!(
                "{}/{} {} is not served",
                kind.group, kind.version, kind.kind
            ))
        })
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &self.equivalents
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
}
