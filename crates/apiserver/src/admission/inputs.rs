//! What judging a write to a hosted object asks for.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;

use super::{
    HostedWrite,
    answers::KnownAnswers,
    kind_in,
    policies::{self, PolicyParams},
    text_in,
};
use fairgate_admission::{
    AdmissionInputs, AdmissionObjects, EquivalentResource, GroupVersionKind, GroupVersionResource,
    InputFailure, ParamScope, PolicyParamKind,
};
use fairgate_cel::{CelJson, JsonObject, library::authorizer::CelAuthorizer};
use fairgate_objects::kind::{Kind, KindVersion};

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

/// What is known of a write.
pub(super) struct HostedInputs<'a> {
    requested: GroupVersionKind<'a>,
    objects: Vec<(GroupVersionKind<'a>, [Option<CelJson<'a>>; 2])>,
    equivalents: Vec<EquivalentResource<'a>>,
    namespace: CelJson<'a>,
    params: Vec<(&'a PolicyParamKind, Vec<CelJson<'a>>)>,
    kinds: &'a [&'static Kind],
    answers: Arc<KnownAnswers>,
}

impl<'a> HostedInputs<'a> {
    pub(super) fn new(
        write: &HostedWrite<'a>,
        documents: &'a WriteDocuments,
        params: &'a PolicyParams,
        kinds: &'a [&'static Kind],
        answers: Arc<KnownAnswers>,
    ) -> Result<Self, serde_json::Error> {
        let parsed =
            |text: &'a Option<Bytes>| text.as_deref().map(serde_json::from_slice).transpose();
        let mut objects = Vec::new();
        for (version, [object, old_object]) in &documents.0 {
            let both = [parsed(object)?, parsed(old_object)?];
            objects.push((kind_in(write.kind, version), both));
        }
        let mut known = Vec::new();
        for (kind, texts) in &params.0 {
            let texts = texts.iter().map(|text| serde_json::from_slice(text));
            known.push((kind, texts.collect::<Result<_, _>>()?));
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
            namespace: namespace(write.namespace),
            params: known,
            kinds,
            answers,
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

/// A namespace. There is no upstream that has it, and every one counts as existing, with the label that every namespace
/// has.
fn namespace(name: &str) -> CelJson<'_> {
    fn object<'a>(members: Vec<(&'a str, CelJson<'a>)>) -> CelJson<'a> {
        let members = members.into_iter();
        let members = members.map(|(name, value)| (Cow::Borrowed(name), value));
        CelJson::Object(JsonObject::new(members.collect()))
    }
    let text = |text| CelJson::String(Cow::Borrowed(text));
    let labels = object(vec![("kubernetes.io/metadata.name", text(name))]);
    object(vec![
        ("apiVersion", text("v1")),
        ("kind", text("Namespace")),
        (
            "metadata",
            object(vec![("name", text(name)), ("labels", labels)]),
        ),
        (
            "spec",
            object(vec![(
                "finalizers",
                CelJson::Array(vec![text("kubernetes")]),
            )]),
        ),
        ("status", object(vec![("phase", text("Active"))])),
    ])
}

impl AdmissionInputs for HostedInputs<'_> {
    fn objects(&self, kind: GroupVersionKind<'_>) -> Result<AdmissionObjects<'_>, String> {
        let found = self.of_kind(kind);
        found.ok_or_else(|| {
            format!(
                "{}/{} {} is not served",
                kind.group, kind.version, kind.kind
            )
        })
    }

    fn namespace(&self, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        Ok(&self.namespace)
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &self.equivalents
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        match policies::hosted(self.kinds, kind) {
            Some((kind, _)) if kind.namespaced => Ok(ParamScope::Namespaced),
            Some(_) => Ok(ParamScope::Cluster),
            None => Err(format!(
                "failed to find resource referenced by paramKind: '{}, Kind={}'",
                kind.api_version, kind.kind
            )),
        }
    }

    fn params_known(&self, _: &PolicyParamKind) -> bool {
        true
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<&CelJson<'_>> {
        let of_kind = self.params.iter().filter(|(of, _)| *of == kind);
        let all = of_kind.flat_map(|(_, params)| params);
        let found = all.filter(|param| param.text_at(&["metadata", "namespace"]) == namespace);
        // Shortens the lifetime of the documents.
        found.map(|param| -> &CelJson<'_> { param }).collect()
    }

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        Arc::clone(&self.answers) as Arc<dyn CelAuthorizer>
    }
}
