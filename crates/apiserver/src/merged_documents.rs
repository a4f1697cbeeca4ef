//! The documents of the server behind, with what is hosted here in them.
//!
//! Such a document can have two megabytes, and changes only when the server does. So each is made once
//! for as long as the server's stays the same, which its entity tag tells, or its hash where it has
//! none; and so is each form in which it is sent. All of this costs too much for a data core.
//!
//! Not here: how the server's documents are got (`merging`), what merging means
//! ([`discovery`](crate::discovery), [`openapi`](crate::openapi)).

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    compression, discovery, documents::Documents, merged_document_id::MergedDocumentId, openapi,
};
use fairgate_core::sync::{Mutex, lock};

/// The last document made of each subject.
#[derive(Default)]
pub(super) struct MergedDocuments([Slot; MergedDocumentId::COUNT]);

#[derive(Default)]
struct Slot {
    last: ArcSwapOption<MergedDocument>,
    /// Held while one is made, so that those who wait for it find it made.
    turn: Mutex<()>,
}

/// A document, and what it was made of.
pub(super) struct MergedDocument {
    source: Source,
    /// The entity tag.
    pub(super) etag: HeaderValue,
    json: Text,
    protobuf: OnceLock<Text>,
}

/// Which of the server's documents it was.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Tag(HeaderValue),
    Hash([u8; 32]),
}

/// A text, also compressed.
struct Text {
    bytes: Bytes,
    gzip: OnceLock<Option<Bytes>>,
}

impl MergedDocuments {
    /// The last document made of a subject. Never waits.
    pub(super) fn last(&self, subject: MergedDocumentId) -> Option<Arc<MergedDocument>> {
        self.0[subject.index()].last.load_full()
    }

    /// The document made of the server's, whose tag and text are given; `None` if the text is no
    /// JSON. Blocks for as long as it takes to make it.
    pub(super) fn make(
        &self,
        subject: MergedDocumentId,
        tag: Option<HeaderValue>,
        theirs: &[u8],
        documents: &Documents,
    ) -> Option<Arc<MergedDocument>> {
        let source = match tag {
            Some(tag) => Source::Tag(tag),
            None => Source::Hash(Sha256::digest(theirs).into()),
        };
        let slot = &self.0[subject.index()];
        let _turn = lock(&slot.turn);
        let last = slot.last.load_full();
        if let Some(last) = last.filter(|last| last.source == source) {
            return Some(last);
        }
        let theirs: Value = serde_json::from_slice(theirs).ok()?;
        let merged = subject.merge(theirs, documents.ours(subject)).to_string();
        let etag = HeaderValue::from_str(&discovery::etag(&merged)).ok()?;
        let merged = Arc::new(MergedDocument {
            source,
            etag,
            json: Text::new(merged.into_bytes()),
            protobuf: OnceLock::new(),
        });
        slot.last.store(Some(Arc::clone(&merged)));
        Some(merged)
    }
}

impl MergedDocument {
    /// The tag of the server's document, to ask whether that has changed.
    pub(super) fn tag_of_theirs(&self) -> Option<&HeaderValue> {
        match &self.source {
            Source::Tag(tag) => Some(tag),
            Source::Hash(_) => None,
        }
    }

    /// The document itself.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json.bytes).unwrap_or_default() // it was written here
    }

    /// The document as JSON; whether it is compressed.
    pub(super) fn json(&self, takes_gzip: bool) -> (Bytes, bool) {
        self.json.send(takes_gzip)
    }

    /// The document of OpenAPI v2 as protobuf; whether it is compressed.
    pub(super) fn protobuf(&self, takes_gzip: bool) -> (Bytes, bool) {
        let made = || Text::new(openapi::v2_proto::encode(&self.value()));
        self.protobuf.get_or_init(made).send(takes_gzip)
    }
}

impl Text {
    fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            gzip: OnceLock::new(),
        }
    }

    fn send(&self, takes_gzip: bool) -> (Bytes, bool) {
        if takes_gzip && self.bytes.len() > compression::COMPRESS_FROM {
            let compressed = self.gzip.get_or_init(|| compression::gzip(&self.bytes));
            if let Some(compressed) = compressed {
                return (compressed.clone(), true);
            }
        }
        (self.bytes.clone(), false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::discovery::AggregatedVersion;
    use fairgate_objects::kinds::KINDS;

    const OURS: &str = "flowcontrol.apiserver.k8s.io";

    fn documents() -> Documents {
        Documents::new(&KINDS, "v1.36.3", String::new())
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
                MergedDocumentId::Groups,
                tag,
                theirs.as_bytes(),
                &documents(),
            )
            .unwrap()
    }

    fn groups(names: &[&str]) -> Value {
        let groups: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    #[test]
    fn a_document_is_made_again_only_when_the_servers_changes() {
        let merging = MergedDocuments::default();
        let first = make(&merging, Some("\"1\""), &groups(&["apps"]));
        assert_eq!(first.value()["groups"][0]["name"], "apps");
        assert_eq!(first.value()["groups"][1]["name"], OURS);
        // The text is not even looked at.
        let again = make(&merging, Some("\"1\""), &groups(&["other"]));
        assert!(Arc::ptr_eq(&first, &again));
        let changed = make(&merging, Some("\"2\""), &groups(&["batch", "apps"]));
        assert_ne!(first.etag, changed.etag);
        let last = merging.last(MergedDocumentId::Groups).unwrap();
        assert!(Arc::ptr_eq(&last, &changed));
        assert!(merging.last(MergedDocumentId::OpenApiV2).is_none());
    }

    #[test]
    fn without_a_tag_the_text_tells_whether_it_changed() {
        let merging = MergedDocuments::default();
        let first = make(&merging, None, &groups(&["apps"]));
        assert!(Arc::ptr_eq(
            &first,
            &make(&merging, None, &groups(&["apps"]))
        ));
        assert!(!Arc::ptr_eq(&first, &make(&merging, None, &groups(&["b"]))));
        assert!(first.tag_of_theirs().is_none());
    }

    #[test]
    fn aggregated_documents_bear_the_version_that_was_asked_for() {
        let theirs =
            br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}"#;
        let subject = MergedDocumentId::Aggregated(AggregatedVersion::V2Beta1);
        let merged = MergedDocuments::default()
            .make(subject, None, theirs, &documents())
            .unwrap()
            .value();
        assert_eq!(merged["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        assert_eq!(merged["items"][0]["metadata"]["name"], OURS);
    }

    #[test]
    fn what_is_no_json_is_not_merged() {
        let merging = MergedDocuments::default();
        let made = merging.make(MergedDocumentId::OpenApiV2, None, b"<html>", &documents());
        assert!(made.is_none());
        assert!(merging.last(MergedDocumentId::OpenApiV2).is_none());
    }

    #[test]
    fn long_documents_are_compressed_for_whoever_takes_that() {
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
