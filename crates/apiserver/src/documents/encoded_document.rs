//! A document in its encodings, each made once and shared by all responses.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::compression;
use fairgate_objects::codec::json::indent;

/// An encoded document, its compressed form, and its indented one.
pub(crate) struct EncodedDocument {
    bytes: Bytes,
    gzip: OnceLock<Option<Bytes>>,
    indented: OnceLock<Bytes>,
}

impl EncodedDocument {
    pub(crate) fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            gzip: OnceLock::new(),
            indented: OnceLock::new(),
        }
    }

    /// The document without compression.
    pub(crate) fn plain(&self) -> &Bytes {
        &self.bytes
    }

    /// The document, and whether it is compressed: long ones are, if the client accepts that.
    pub(crate) fn bytes(&self, accepts_gzip: bool) -> (Bytes, bool) {
        if accepts_gzip && self.bytes.len() > compression::COMPRESS_FROM {
            let compressed = self.gzip.get_or_init(|| compression::gzip(&self.bytes));
            if let Some(compressed) = compressed {
                return (compressed.clone(), true);
            }
        }
        (self.bytes.clone(), false)
    }

    /// The bytes of all forms, and whether any of them is part of a response.
    pub(crate) fn usage(&self) -> (usize, bool) {
        let forms = [
            Some(&self.bytes),
            self.gzip.get().and_then(Option::as_ref),
            self.indented.get(),
        ];
        let forms = forms.into_iter().flatten();
        forms.fold((0, false), |(bytes, is_read), form| {
            (bytes + form.len(), is_read || !form.is_unique())
        })
    }

    /// A document of JSON, with a line for each member and entry.
    pub(crate) fn indented(&self) -> Bytes {
        let make = || Bytes::from(indent(&self.bytes));
        self.indented.get_or_init(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_responses_share_each_form() {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(compression::COMPRESS_FROM));
        let document = EncodedDocument::new(text.into_bytes());
        let at = |bytes: &Bytes| bytes.as_ptr();
        assert_eq!(at(&document.bytes(false).0), at(document.plain()));
        let (compressed, is_gzip) = document.bytes(true);
        assert!(is_gzip && compressed.len() < 10_000);
        assert_eq!(at(&document.bytes(true).0), at(&compressed));
        assert_eq!(at(&document.indented()), at(&document.indented()));
        assert!(!EncodedDocument::new("{}").bytes(true).1, "it is short");
    }
}
