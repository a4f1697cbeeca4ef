//! Stored objects as they were before an audited write, although it has been carried out already.
//!
//! A store keeps the revisions of its objects for minutes. A list of the one object at exactly one of them shows what a write was based on: one
//! that states a version was based on that, another one on what was stored one revision before the version that it made. The upstream's answer has
//! that version. If a write changed nothing, it has the version that was there before: so where it is not known whether it did, there
//! are two objects that the write may be based on.
//!
//! Source: Kubernetes `apiserver/pkg/storage/etcd3/store.go`: `GetList`, `GuaranteedUpdate`, `conditionalDelete`.

use fairgate_apihttp::content_type::{PatchType, patch_type};
use fairgate_base::tasks;
use fairgate_objects::codec::{BodyFormat, json, yaml};
use fairgate_upstream::path::push_segment;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cluster::known_revisions::KnownRevision,
    evaluate::{Evaluation, Unevaluated},
    limits::body_budget::ReadFailure,
    limits::workers::LARGE,
    object::body_object::LARGE_YAML,
    object::deletions,
    object::objects,
    request::facts::WriteFacts,
    request::json_patch_version::PatchedVersion,
    request::write_request::WriteVerb,
    upstream::upstream_objects::StoredObject,
};
use fairgate_admission::Fidelity;

/// Subresources whose stored object is the whole one, which its collection lists.
const WHOLE: [&str; 6] = [
    "",
    "status",
    "finalize",
    "approval",
    "resize",
    "ephemeralcontainers",
];

/// How many versions are taken for possible, if it is not known which of them was there when a request began.
const MAX_BASES: usize = 3;
/// By how many revisions at most what is now and what was before a deletion are apart, if nothing says when that was.
const MAX_REVISIONS: u64 = 64;

impl Evaluation {
    /// The version that the write states: it is carried out on the object with this version, or not at all.
    ///
    /// # Errors
    ///
    /// The options of a deletion are wrong, or no thread is free.
    pub(crate) async fn stated_version(&mut self) -> Result<Option<u64>, Unevaluated> {
        if self.plan.facts.verb == WriteVerb::Delete {
            self.set_delete_options().await?;
            let options = self.plan.facts.options.as_ref();
            let version = options.map(|options| &options["preconditions"]["resourceVersion"]);
            return Ok(version.and_then(Value::as_str).and_then(number));
        }
        let (facts, body) = (self.plan.facts.clone(), self.body.clone());
        let content_type = self.content_type.clone();
        let read = move || match facts.verb {
            WriteVerb::Update => in_object(&content_type, &body, &facts),
            WriteVerb::Patch => in_patch(&content_type, &body),
            _ => None,
        };
        let is_yaml = self.content_type.contains("yaml");
        let large = if is_yaml { LARGE_YAML } else { LARGE };
        let version = self.off_core_above(large, self.body.len(), read).await?;
        Ok(version.as_deref().and_then(number))
    }

    /// The object of the request as it was stored at a revision.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub(crate) async fn object_at(
        &self,
        revision: u64,
    ) -> Result<Option<StoredObject>, ReadFailure> {
        let (_, found) = self.listed_at(Some(revision)).await?;
        Ok(found)
    }

    /// Whether the object of the request is one that its collection lists.
    pub(crate) fn is_listed(&self) -> bool {
        WHOLE.contains(&&*self.plan.facts.subresource)
    }

    /// The same with the revision, or what is stored now.
    async fn listed_at(
        &self,
        revision: Option<u64>,
    ) -> Result<(u64, Option<StoredObject>), ReadFailure> {
        if !self.is_listed() {
            let why = "objects of this subresource are not listed";
            return Err(ReadFailure::Failed(why.to_owned()));
        }
        let collection = self.collection_path();
        let name = self.plan.facts.name.clone();
        let (upstream, share) = (self.evaluator.upstream.clone(), self.share.another());
        let reading = async move {
            upstream
                .object_at(&collection, &name, revision, share)
                .await
        };
        let task = tasks::spawn_until_dropped(&self.control, reading);
        let read = task.await;
        read.unwrap_or_else(|error| Err(error.to_string().into()))
    }

    /// What was stored directly before an object with this UID was deleted, where the answer does not say at which revision that was. `early`
    /// is what was read meanwhile, and is taken if it is that object.
    ///
    /// # Errors
    ///
    /// Why it could not be read, or that it was deleted too many revisions ago.
    pub(crate) async fn last_state(
        &self,
        early: &mut Option<StoredObject>,
        uid: &str,
        known: KnownRevision,
    ) -> Result<Vec<StoredObject>, ReadFailure> {
        let is_this = |found: &StoredObject| found.value["metadata"]["uid"] == uid;
        if let Some(early) = early.take_if(|early| is_this(early)) {
            return self.with_earlier(Some(early), known).await;
        }
        let (mut absent, _) = self.listed_at(None).await?;
        let mut step = 1;
        let (mut present, mut found) = loop {
            if step > MAX_REVISIONS || uid.is_empty() {
                return Err("it was deleted too many revisions ago".to_owned().into());
            }
            let at = absent.saturating_sub(step);
            match self.object_at(at).await?.filter(is_this) {
                Some(found) => break (at, found),
                None => absent = at,
            }
            step *= 2;
        };
        // It may have changed between that and its deletion.
        while absent > present + 1 {
            let middle = present + (absent - present) / 2;
            match self.object_at(middle).await?.filter(is_this) {
                Some(later) => (present, found) = (middle, later),
                None => absent = middle,
            }
        }
        self.with_earlier(Some(found), known).await
    }

    /// The path of the collection of the request's object. Not a part of the request's own path, which may escape its slashes.
    fn collection_path(&self) -> String {
        let facts = &self.plan.facts;
        let mut path = if facts.group.is_empty() {
            "/api".to_owned()
        } else {
            "/apis".to_owned()
        };
        let namespace = if facts.is_namespace() {
            ""
        } else {
            &facts.namespace
        };
        let namespaces = if namespace.is_empty() {
            ""
        } else {
            "namespaces"
        };
        let segments = [
            &facts.group,
            &facts.version,
            namespaces,
            namespace,
            &facts.resource,
        ];
        for segment in segments.into_iter().filter(|segment| !segment.is_empty()) {
            path.push('/');
            push_segment(&mut path, segment);
        }
        path
    }

    /// The objects that a successful write may be based on, by the version that its object has afterwards. `early` is what was
    /// read while it was carried out, and is taken if it is one of them; `known` is what was when it began.
    ///
    /// # Errors
    ///
    /// Why they could not be read.
    pub(crate) async fn possible_bases(
        &self,
        early: &mut Option<StoredObject>,
        version: u64,
        mut known: KnownRevision,
    ) -> Result<Vec<StoredObject>, ReadFailure> {
        let seen = early.as_ref().map(StoredObject::version);
        let seen = seen.filter(|seen| *seen <= version);
        if version <= known.latest && seen.is_some_and(|seen| seen < version) {
            // The object was read after a revision that it has not come to: revisions have gone back.
            let (group, resource) = (&self.plan.facts.group, &self.plan.facts.resource);
            self.evaluator.revisions.forget(group, resource);
            known = KnownRevision::default();
        }
        if version <= known.latest {
            // It has changed nothing.
            let same = match early.take_if(|_| seen == Some(version)) {
                None => self.object_at(version).await?,
                same => same,
            };
            return self.with_earlier(same, known).await;
        }
        let mut bases = self.stored_before(version, known.settled).await?;
        // What was read before it was carried out shows that it has changed something.
        if seen.is_none() {
            bases.extend(self.object_at(version).await?);
        }
        self.replace_marked(&mut bases, seen).await?;
        if bases.iter().all(|base| Some(base.version()) != seen) {
            // Another write has come in between; a server may have asked its policies before that.
            bases.extend(early.take().filter(|_| seen.is_some()));
        }
        Ok(bases)
    }

    /// A stored object, and what was stored before that if it may be new to a server.
    async fn with_earlier(
        &self,
        object: Option<StoredObject>,
        known: KnownRevision,
    ) -> Result<Vec<StoredObject>, ReadFailure> {
        let Some(object) = object else {
            return Ok(Vec::new());
        };
        let (version, settled) = (object.version(), known.settled);
        let mut bases = vec![object];
        if version > settled {
            let uid = bases[0].value["metadata"]["uid"].clone();
            let earlier = self.stored_before(version, settled).await?;
            let is_same = |one: &StoredObject| one.value["metadata"]["uid"] == uid;
            bases.extend(earlier.into_iter().filter(is_same));
        }
        Ok(bases)
    }

    /// What was stored directly before a revision; and if that is newer than the revision `settled`, what was stored before that: a server asks its
    /// policies again if the object in its cache was too old, and keeps what they said first.
    async fn stored_before(
        &self,
        revision: u64,
        settled: u64,
    ) -> Result<Vec<StoredObject>, ReadFailure> {
        let (mut found, mut after) = (Vec::new(), revision);
        while found.len() < MAX_BASES && after > settled.max(1) {
            let Some(before) = self.object_at(after - 1).await? else {
                break;
            };
            after = before.version();
            found.push(before);
        }
        Ok(found)
    }

    /// Adds what was stored before a pod was marked to be deleted immediately: a server asks its policies before it marks
    /// the pod, then deletes it in the same request. `seen` is the version that was there while that was carried out.
    async fn replace_marked(
        &self,
        bases: &mut Vec<StoredObject>,
        seen: Option<u64>,
    ) -> Result<(), ReadFailure> {
        let facts = &self.plan.facts;
        let is_marked = |base: &StoredObject| {
            facts.verb == WriteVerb::Delete && deletions::may_be_under_way(&base.value, facts)
        };
        let Some(at) = bases.iter().position(is_marked) else {
            return Ok(());
        };
        let marked = bases[at].version();
        let Some(before) = self.object_at(marked.saturating_sub(1)).await? else {
            return Ok(());
        };
        if seen.is_some_and(|seen| seen < marked) {
            // It was marked since.
            bases.remove(at);
        }
        let version = before.version();
        if bases.iter().all(|base| base.version() != version) {
            bases.push(before);
        }
        Ok(())
    }
}

/// A version that a server compares; none if it takes it for none.
fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|version| *version > 0)
}

/// A body, as far as its version goes.
#[derive(Deserialize)]
struct VersionedBody {
    metadata: Option<VersionedMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata {
    resource_version: Option<String>,
}

impl VersionedBody {
    fn version(self) -> Option<String> {
        self.metadata?.resource_version
    }
}

fn in_object(content_type: &str, body: &[u8], facts: &WriteFacts) -> Option<String> {
    let object = match objects::body_format(content_type).ok()? {
        BodyFormat::Json => {
            let read: VersionedBody = serde_json::from_slice(body).ok()?;
            return read.version();
        }
        BodyFormat::Yaml => yaml::parse(body).ok()?.value,
        BodyFormat::Protobuf => {
            objects::decode(BodyFormat::Protobuf, body, facts, Fidelity::AsSent).ok()?
        }
    };
    VersionedBody::deserialize(object).ok()?.version()
}

fn in_patch(content_type: &str, body: &[u8]) -> Option<String> {
    match patch_type(content_type).ok()? {
        PatchType::Merge | PatchType::Strategic => {
            let read: VersionedBody = serde_json::from_slice(body).ok()?;
            read.version()
        }
        PatchType::Apply => VersionedBody::deserialize(yaml::parse(body).ok()?.value)
            .ok()?
            .version(),
        PatchType::Json => match json::parse(body).ok()?.value {
            Value::Array(operations) => match PatchedVersion::after(&operations) {
                PatchedVersion::Set(version) => Some(version),
                _ => None,
            },
            _ => None,
        },
    }
}
