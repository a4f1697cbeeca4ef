//! What all calls share: the store, the clock, the kinds.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::Value;

use crate::{
    admission::PolicyEnforcer, limits::quota::HostedQuota, namespaces::Namespaces,
    objects::initial_objects::AllInitialObjects, param_rights::ParamRights,
};
use fairgate_apihttp::negotiate::Media;
use fairgate_base::clock::Clock;
use fairgate_gotext::time;
use fairgate_objects::{
    codec,
    kind::{Kind, KindVersion},
};
use fairgate_store::Store;

/// What all calls share.
pub(crate) struct ApiState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) kinds: Vec<&'static Kind>,
    /// The namespaces of the upstream, if there is one.
    pub(crate) namespaces: Option<Arc<dyn Namespaces>>,
    /// Evaluates writes by admission policies; `None`: there are none.
    pub(crate) policies: Option<Arc<PolicyEnforcer>>,
    /// Checks whether the authors of policies may read their params.
    pub(crate) param_rights: ParamRights,
    /// Objects that were sent at the beginning of watches, by the position of their kind in `kinds`.
    pub(crate) initial_events: Box<[Arc<AtomicU64>]>,
    /// Objects that are still to be sent at the beginning of watches.
    pub(crate) initial_objects: Arc<AllInitialObjects>,
    /// The quotas of objects.
    pub(crate) quotas: HostedQuota,
    /// Writes that a quota refused, by the position of their kind in `kinds`.
    pub(crate) quota_refusals: Box<[AtomicU64]>,
}

impl ApiState {
    /// What counts the objects that watches of a kind begin with.
    pub(crate) fn initial_events_of(&self, kind: &Kind) -> Arc<AtomicU64> {
        let mut kinds = self.kinds.iter().zip(&self.initial_events);
        let of_kind = kinds.find(|(other, _)| other.is_same_resource(kind));
        of_kind
            .map(|(_, count)| Arc::clone(count))
            .unwrap_or_default()
    }

    /// Counts a write that a quota refused.
    pub(crate) fn count_refusal(&self, kind: &Kind) {
        let kinds = self.kinds.iter().zip(&self.quota_refusals);
        for (_, count) in kinds.filter(|(other, _)| other.is_same_resource(kind)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Decodes a body as an object of a kind in one version. Returns its canonical form, and the unknown
    /// and duplicate fields.
    pub(crate) fn read_body(
        &self,
        media: Media,
        body: &[u8],
        kind: &'static Kind,
        version: &'static KindVersion,
        strict: bool,
    ) -> Result<(Value, Vec<String>), codec::DecodeError> {
        let format = match media {
            Media::Json => codec::BodyFormat::Json,
            Media::Yaml => codec::BodyFormat::Yaml,
            Media::Protobuf => codec::BodyFormat::Protobuf,
        };
        let scheme = self.scheme();
        let expect = codec::ExpectedType {
            group: kind.group,
            version: version.name,
            kind: kind.kind,
            shape: version.shape,
            scheme: &scheme,
            empty: codec::EmptyValues::Null,
        };
        codec::decode_body(format, body, &expect, strict).map(|body| (body.value, body.problems))
    }

    /// All kinds in all versions, and in those that Kubernetes no longer serves but still knows. Errors about a body of
    /// another kind depend on which kinds are known.
    fn scheme(&self) -> Vec<codec::RegisteredType<'static>> {
        let lists = self.kinds.iter().flat_map(|kind| {
            kind.versions.iter().map(|version| codec::RegisteredType {
                group: kind.group,
                version: version.name,
                kind: kind.list_kind,
                shape: None,
            })
        });
        let versions = |kind: &&'static Kind| {
            let kind = *kind;
            kind.versions
                .iter()
                .map(move |version| codec::RegisteredType {
                    group: kind.group,
                    version: version.name,
                    kind: kind.kind,
                    shape: Some(version.shape),
                })
        };
        let mut scheme: Vec<_> = self.kinds.iter().flat_map(versions).chain(lists).collect();
        let is_hosted = |of: &&codec::RegisteredType<'_>| {
            let mut kinds = self.kinds.iter();
            kinds.any(|kind| kind.group == of.group && kind.kind == of.kind)
        };
        scheme.extend(codec::built_in_types().iter().filter(is_hosted).copied());
        scheme
    }

    /// Now, RFC 3339 in whole seconds.
    pub(crate) fn now_text(&self) -> String {
        const UNIX_EPOCH: &str = "1970-01-01T00:00:00Z";
        time::from_seconds(self.now_seconds()).unwrap_or_else(|| UNIX_EPOCH.to_owned())
    }

    /// Now, in seconds since 1970.
    pub(crate) fn now_seconds(&self) -> i64 {
        i64::try_from(self.clock.unix_seconds()).unwrap_or(i64::MAX)
    }
}
