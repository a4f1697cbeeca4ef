//! A cache of merged documents: those of the upstream with the gateway's part.
//!
//! Such a document can have two megabytes and rarely changes. So each is merged once per version of the
//! upstream's document, which is known by its entity tag, or by its hash if it has none. Each format is
//! encoded once. This is too expensive for a data core.
//!
//! Not here: fetching the upstream's documents (`merging`), and how documents are merged
//! ([`crate::discovery`], [`crate::openapi`]).

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use super::{encoded_document::EncodedDocument, merged_document_id::MergedDocumentId};
use crate::{discovery, documents::Documents, openapi};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fairgate_base::account::{HeavyTurn, HeavyTurns};
use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::codec;
use http::HeaderValue;
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};

/// The maximum number of cached documents. The upstream has as many as hosted groups have versions.
const MAX_DOCUMENTS: usize = 256;

/// How many documents of the upstream are read and merged at a time: each may have 16 MiB.
const READ_AT_ONCE: usize = 4;

/// The bytes of replaced versions beyond which nobody gets another response that is charged to nobody.
const MAX_REPLACED_BYTES: usize = 32 << 20;
/// What a replaced version counts besides its text.
const VERSION_BYTES: usize = 1 << 10;

/// The last version of each merged document.
pub(crate) struct MergedDocuments {
    documents: Mutex<BTreeMap<MergedDocumentId, Arc<CachedDocument>>>,
    /// Versions that are no longer the last, while responses with them are not read. They are charged to nobody.
    replaced: Mutex<Vec<Arc<MergedDocument>>>,
    reads: HeavyTurns,
}

impl Default for MergedDocuments {
    fn default() -> Self {
        Self {
            documents: Mutex::default(),
            replaced: Mutex::default(),
            reads: HeavyTurns::new(READ_AT_ONCE),
        }
    }
}

#[derive(Default)]
struct CachedDocument {
    last: ArcSwapOption<MergedDocument>,
    /// Held while a version is merged, so that concurrent requests merge it once.
    merging: Mutex<()>,
}

impl CachedDocument {
    /// Whether there is a version, or one may be merged now.
    fn is_of_use(self: &Arc<Self>) -> bool {
        self.last.load().is_some() || Arc::strong_count(self) > 1
    }
}

/// The result of merging.
pub(crate) struct MadeDocument {
    pub(crate) document: Arc<MergedDocument>,
    /// Whether it is kept for other requests, which do not need a copy of their own then.
    pub(crate) is_kept: bool,
}

/// A merged document, and the version of the upstream's document that it was made from.
pub(crate) struct MergedDocument {
    version: DocumentVersion,
    /// The entity tag.
    pub(crate) etag: HeaderValue,
    json: EncodedDocument,
    protobuf: OnceLock<EncodedDocument>,
    encode_protobuf: fn(&Value) -> Vec<u8>,
}

/// A version of the upstream's document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DocumentVersion {
    Tag(HeaderValue),
    Hash([u8; 32]),
}

impl MergedDocuments {
    /// Waits for a user's turn to read a document of the upstream and to merge it.
    pub(crate) async fn read(&self, user: &str) -> Option<HeavyTurn> {
        self.reads.of(user, 1).await
    }

    /// Whether a response with this document may share it with all others, and be charged to nobody.
    pub(crate) fn may_share(&self, made: &MadeDocument) -> bool {
        made.is_kept && self.has_few_replaced()
    }

    /// Whether responses may share the last versions of documents. Not while clients have
    /// left many versions unread that were replaced since: whoever reads slowly is then charged for what becomes old. So replaced
    /// versions have at most as many bytes as the limit and what was the last version of each document.
    fn has_few_replaced(&self) -> bool {
        let mut replaced = lock(&self.replaced);
        replaced.retain(MergedDocument::is_used);
        let bytes = replaced.iter().map(|version| version.usage().0);
        bytes.sum::<usize>() <= MAX_REPLACED_BYTES
    }

    /// The last version of a document. Does not block.
    pub(crate) fn last(&self, id: &MergedDocumentId) -> Option<Arc<MergedDocument>> {
        lock(&self.documents).get(id)?.last.load_full()
    }

    /// Where the versions of a document are kept, and whether they are: not if there are too many documents.
    fn cached(&self, id: &MergedDocumentId) -> (Arc<CachedDocument>, bool) {
        let mut all = lock(&self.documents);
        if !all.contains_key(id) && all.len() >= MAX_DOCUMENTS {
            // Clients invent names of versions, for which the upstream has no document.
            all.retain(|_, cached| cached.is_of_use());
            if all.len() >= MAX_DOCUMENTS {
                return (Arc::default(), false);
            }
        }
        (Arc::clone(all.entry(id.clone()).or_default()), true)
    }

    /// Merges the gateway's part into the upstream's document, unless that was done before; `None` if the
    /// document is not JSON. Blocks.
    pub(crate) fn make(
        &self,
        id: &MergedDocumentId,
        tag: Option<HeaderValue>,
        upstream: &[u8],
        documents: &Documents,
    ) -> Option<MadeDocument> {
        let version = match tag {
            Some(tag) => DocumentVersion::Tag(tag),
            None => DocumentVersion::Hash(Sha256::digest(upstream).into()),
        };
        let (cached, is_kept) = self.cached(id);
        let _merging = lock(&cached.merging);
        let last = cached.last.load_full();
        if let Some(last) = last.filter(|last| last.version == version) {
            return Some(MadeDocument {
                document: last,
                is_kept,
            });
        }
        let sent: &RawValue = serde_json::from_slice(upstream).ok()?;
        // It may be indented for the client that comes first.
        let compact = codec::json::compact(sent.get().as_bytes());
        let upstream_text: &RawValue = serde_json::from_slice(&compact).ok()?;
        let is_absent = upstream_text.get() == "null";
        let merged = id.merge(upstream_text, &documents.own_part(id), documents.owned());
        let mut merged = String::from(Box::<str>::from(merged));
        if id.ends_with_newline() {
            merged.push('\n');
        }
        let etag = match (id, &version) {
            // The index has to know the tag of this one without its text.
            (MergedDocumentId::OpenApiV3(..), _) if is_absent => {
                format!("\"{}\"", documents.own_hash(id))
            }
            (MergedDocumentId::OpenApiV3(..), version) => {
                let upstream_hash = match version {
                    DocumentVersion::Tag(tag) => tag.to_str().ok()?.trim_matches('"').to_owned(),
                    DocumentVersion::Hash(_) => {
                        discovery::hash(std::str::from_utf8(upstream).ok()?)
                    }
                };
                let hash = openapi::merged_hash(&upstream_hash, documents.own_hash(id));
                format!("\"{hash}\"")
            }
            _ => discovery::etag(&merged),
        };
        let etag = HeaderValue::from_str(&etag).ok()?;
        let merged = Arc::new(MergedDocument {
            version,
            etag,
            json: EncodedDocument::new(merged.into_bytes()),
            protobuf: OnceLock::new(),
            encode_protobuf: match id {
                MergedDocumentId::OpenApiV3(..) => openapi::v3_proto::encode,
                _ => openapi::v2_proto::encode,
            },
        });
        let replaced = cached.last.swap(Some(Arc::clone(&merged)));
        lock(&self.replaced).extend(replaced);
        Some(MadeDocument {
            document: merged,
            is_kept,
        })
    }
}

impl MergedDocument {
    /// The entity tag of the upstream's document, for a conditional request.
    pub(crate) fn upstream_tag(&self) -> Option<&HeaderValue> {
        match &self.version {
            DocumentVersion::Tag(tag) => Some(tag),
            DocumentVersion::Hash(_) => None,
        }
    }

    /// The bytes of all forms, and whether any of them is part of a response.
    fn usage(&self) -> (usize, bool) {
        let (json, is_json_read) = self.json.usage();
        let protobuf = self.protobuf.get().map(EncodedDocument::usage);
        let (protobuf, is_protobuf_read) = protobuf.unwrap_or_default();
        let bytes = VERSION_BYTES + json + protobuf;
        (bytes, is_json_read || is_protobuf_read)
    }

    /// Whether a replaced version is used by a request or is part of a response.
    fn is_used(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) > 1 || this.usage().1
    }

    fn value(&self) -> Value {
        serde_json::from_slice(self.json.plain()).unwrap_or_default() // JSON that was encoded here
    }

    /// The document as uncompressed JSON without white space.
    pub(crate) fn text(&self) -> &[u8] {
        self.json.plain()
    }

    /// The document as JSON with a line for each member and entry.
    pub(crate) fn indented(&self) -> Bytes {
        self.json.indented()
    }

    /// The document as JSON, and whether it is compressed.
    pub(crate) fn json(&self, accepts_gzip: bool) -> (Bytes, bool) {
        self.json.bytes(accepts_gzip)
    }

    /// The OpenAPI document as protobuf, and whether it is compressed.
    pub(crate) fn protobuf(&self, accepts_gzip: bool) -> (Bytes, bool) {
        let encode = || EncodedDocument::new((self.encode_protobuf)(&self.value()));
        self.protobuf.get_or_init(encode).bytes(accepts_gzip)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::discovery::AggregatedVersion;
    use fairgate_objects::kinds::FLOW_CONTROL as KINDS;

    const OURS: &str = "flowcontrol.apiserver.k8s.io";

    fn documents() -> Documents {
        Documents::new(&KINDS, &[], "v1.36.3", String::new())
    }

    fn make(
        merging: &MergedDocuments,
        tag: Option<&'static str>,
        theirs: &Value,
    ) -> Arc<MergedDocument> {
        let tag = tag.map(HeaderValue::from_static);
        let theirs = theirs.to_string();
        merging
            .make(
                &MergedDocumentId::Groups,
                tag,
                theirs.as_bytes(),
                &documents(),
            )
            .unwrap()
            .document
    }

    fn groups(names: &[&str]) -> Value {
        let groups: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    #[test]
    fn replaced_versions_that_nobody_reads_are_forgotten_and_many_are_not_shared() {
        let merging = MergedDocuments::default();
        let long = |number: usize| groups(&[&format!("{number}-{}", "x".repeat(5 << 20))]);
        let mut unread = Vec::new();
        for (number, tag) in ["1", "2", "3", "4", "5", "6", "7", "8"]
            .into_iter()
            .enumerate()
        {
            unread.push(make(&merging, Some(tag), &long(number)).json(false).0);
            // The last version is not among the replaced ones.
            let replaced = number * (5 << 20);
            let may_share = replaced < MAX_REPLACED_BYTES;
            assert_eq!(merging.has_few_replaced(), may_share, "{number}");
        }
        drop(unread.pop());
        assert!(!merging.has_few_replaced(), "the last version");
        unread.truncate(2);
        assert!(merging.has_few_replaced());
        assert_eq!(lock(&merging.replaced).len(), 2);
        let part = unread[0].slice(..1);
        unread.clear();
        assert!(merging.has_few_replaced());
        assert_eq!(lock(&merging.replaced).len(), 1, "a part is not read");
        drop(part);
        assert!(merging.has_few_replaced() && lock(&merging.replaced).is_empty());
    }

    #[tokio::test]
    async fn a_user_who_reads_many_documents_waits_for_them_alone() {
        let merging = MergedDocuments::default();
        let mut held = Vec::new();
        for _ in 0..READ_AT_ONCE {
            held.push(merging.read("greedy").await);
        }
        let mut waiting: Vec<_> = ["greedy", "greedy", "other"]
            .into_iter()
            .map(|user| Box::pin(merging.read(user)))
            .collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut are_ready = || -> Vec<bool> {
            let polled = waiting
                .iter_mut()
                .map(|one| one.as_mut().poll(&mut context));
            let turns: Vec<_> = polled.collect();
            turns.iter().map(std::task::Poll::is_ready).collect()
        };
        assert_eq!(are_ready(), [false; 3]);
        held.truncate(2);
        assert_eq!(are_ready(), [true, false, true]);
    }

    #[test]
    fn a_document_is_merged_again_only_when_the_upstreams_changes() {
        let merging = MergedDocuments::default();
        let first = make(&merging, Some("\"1\""), &groups(&["apps"]));
        assert_eq!(first.value()["groups"][0]["name"], "apps");
        assert_eq!(first.value()["groups"][1]["name"], OURS);
        // The text is ignored.
        let again = make(&merging, Some("\"1\""), &groups(&["other"]));
        assert!(Arc::ptr_eq(&first, &again));
        let changed = make(&merging, Some("\"2\""), &groups(&["batch", "apps"]));
        assert_ne!(first.etag, changed.etag);
        let last = merging.last(&MergedDocumentId::Groups).unwrap();
        assert!(Arc::ptr_eq(&last, &changed));
        assert!(merging.last(&MergedDocumentId::OpenApiV2).is_none());
    }

    #[test]
    fn a_document_that_was_indented_for_one_client_is_compact_for_others() {
        let theirs = groups(&["apps"]);
        let indented = serde_json::to_vec_pretty(&theirs).unwrap();
        let id = MergedDocumentId::Groups;
        let made = MergedDocuments::default().make(&id, None, &indented, &documents());
        let compact = make(&MergedDocuments::default(), None, &theirs);
        assert_eq!(made.unwrap().document.text(), compact.text());
        assert!(compact.text().ends_with(b"}\n"));
    }

    #[test]
    fn without_a_tag_the_text_is_compared() {
        let merging = MergedDocuments::default();
        let first = make(&merging, None, &groups(&["apps"]));
        assert!(Arc::ptr_eq(
            &first,
            &make(&merging, None, &groups(&["apps"]))
        ));
        assert!(!Arc::ptr_eq(&first, &make(&merging, None, &groups(&["b"]))));
        assert!(first.upstream_tag().is_none());
    }

    #[test]
    fn aggregated_documents_have_the_requested_version() {
        let theirs =
            br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}"#;
        let subject = MergedDocumentId::Aggregated(AggregatedVersion::V2Beta1);
        let merged = MergedDocuments::default()
            .make(&subject, None, theirs, &documents())
            .unwrap()
            .document
            .value();
        assert_eq!(merged["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        assert_eq!(merged["items"][0]["metadata"]["name"], OURS);
    }

    #[test]
    fn a_document_that_is_not_json_is_not_merged() {
        let merging = MergedDocuments::default();
        for text in [&b"<html>"[..], b"[1 2]", b"{\"a\":1", b""] {
            let made = merging.make(&MergedDocumentId::OpenApiV2, None, text, &documents());
            assert!(made.is_none());
        }
        assert!(merging.last(&MergedDocumentId::OpenApiV2).is_none());
    }

    #[test]
    fn names_without_a_document_take_no_place_and_what_has_none_is_not_shared() {
        let merging = MergedDocuments::default();
        let documents = documents();
        let make = |number: usize, text: &[u8]| {
            let id = MergedDocumentId::OpenApiV3(OURS.to_owned(), format!("v{number}"));
            let made = merging.make(&id, None, text, &documents);
            let is_last = merging.last(&id).is_some();
            made.map(|made| {
                assert_eq!(merging.may_share(&made), is_last);
                is_last
            })
        };
        for number in 0..300 {
            assert_eq!(make(number, b""), None);
        }
        let real = br#"{"openapi":"3.0.0","paths":{}}"#;
        for number in 1000..1000 + MAX_DOCUMENTS {
            assert_eq!(make(number, real), Some(true), "{number}");
        }
        assert_eq!(make(2000, real), Some(false), "there are too many");
        assert_eq!(make(1000, real), Some(true));
    }

    #[test]
    fn long_documents_are_compressed_for_clients_that_accept_gzip() {
        let many: Vec<String> = (0..10_000).map(|n| format!("group-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let merged = make(&MergedDocuments::default(), None, &groups(&many));
        let (plain, is_gzip) = merged.json(false);
        assert!(!is_gzip);
        let (compressed, is_gzip) = merged.json(true);
        assert!(is_gzip && compressed.len() < plain.len() / 4);
        let few = make(&MergedDocuments::default(), None, &groups(&["apps"]));
        assert!(!few.json(true).1);
    }
}
