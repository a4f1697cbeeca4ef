//! The request document of a write: its body is decoded once, and replaced by the text that is evaluated and forwarded.
//!
//! From then on, the body that is evaluated, sent as a dry run, made conditional and forwarded is the same text. In audit mode
//! nothing is changed, so this is not used.
//!
//! Not here: what a document is ([`fairgate_objects::codec::request_document`]).

use std::borrow::Cow;

use bytes::Bytes;
use fairgate_admission::Fidelity;
use fairgate_apihttp::{
    content_type::{PatchType, patch_type},
    status_error::StatusError,
};
use fairgate_call::{Call, ClientBody};
use fairgate_objects::{
    codec::{
        self, BodyFormat, DecodedObject, EmptyValues, ExpectedType,
        request_document::{self, DocumentError, DocumentType},
    },
    field_error::ApiFieldError,
    schema::{Struct, built_in},
};
use http::{
    HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use tokio::time::Instant;

use crate::{
    evaluate::{Evaluation, Unevaluated},
    limits::body_budget::MAX_BODY,
    limits::lack::Lack,
    limits::workers::LARGE,
    object::body_object::{BodyStrictness, LARGE_YAML},
    object::objects,
    replies::responses::RefusedRequest,
    request::facts::WriteFacts,
    request::write_request::WriteVerb,
};

/// The media type of documents that are no patches.
const JSON: &str = "application/json";

/// How the body of a request is to be read.
struct BodyPlan {
    /// The media type of the document.
    media: &'static str,
    format: BodyFormat,
    patch: Option<PatchType>,
}

impl BodyPlan {
    /// # Errors
    ///
    /// 415.
    fn of(verb: WriteVerb, content_type: &str) -> Result<Self, StatusError> {
        if verb == WriteVerb::Patch {
            let patch = patch_type(content_type)?;
            return Ok(Self {
                media: patch.media_type(),
                format: BodyFormat::Json,
                patch: Some(patch),
            });
        }
        Ok(Self {
            media: JSON,
            format: objects::body_format(content_type)?,
            patch: None,
        })
    }

    fn is_yaml(&self) -> bool {
        self.format == BodyFormat::Yaml || self.patch == Some(PatchType::Apply)
    }
}

/// A document that was read of a body.
struct ReadDocument {
    text: Bytes,
    problems: Vec<String>,
    refusal: Option<DocumentError>,
    object: Option<DecodedObject>,
}

impl Evaluation {
    /// Replaces the body of the request by its document, and notes the duplicate fields that it no longer has.
    ///
    /// # Errors
    ///
    /// Why the request is refused.
    pub(crate) async fn replace_body(
        &mut self,
        call: &mut Call,
        until: Instant,
    ) -> Result<(), Unevaluated> {
        let verb = self.plan.facts.verb;
        if verb == WriteVerb::Connect || self.body.is_empty() {
            return Ok(());
        }
        let plan = BodyPlan::of(verb, &self.content_type).map_err(|error| self.bad(&error))?;
        if plan.format == BodyFormat::Protobuf {
            return self.check_protobuf();
        }
        let (facts, body) = (self.plan.facts.clone(), self.body.clone());
        let validation = self.plan.query.field_validation();
        let large = if plan.is_yaml() { LARGE_YAML } else { LARGE };
        let (format, patch) = (plan.format, plan.patch);
        let decodes = self.is_evaluated_at_once();
        let unread = self.plan.unread;
        let read = move || {
            let ty = document_type(&facts, patch);
            let mut document = request_document::read(&ty, format, &body, validation)?;
            let object = match ty {
                DocumentType::Object(expect) if decodes => document.take_object(&expect, unread),
                _ => None,
            };
            Ok(ReadDocument {
                text: match document.text {
                    Cow::Borrowed(part) => body.slice_ref(part),
                    Cow::Owned(text) => text.into(),
                },
                problems: document.problems,
                refusal: document.refusal,
                object,
            })
        };
        let reading = self.off_core_above(large, self.body.len(), read);
        let read = tokio::time::timeout_at(until, reading).await;
        let read = read.unwrap_or(Err(Unevaluated::Lacking(Lack::Time)))?;
        let document = read.map_err(|error| self.bad(&status_of(error)))?;
        self.forward_instead(call, Some(plan.media), document.text)?;
        self.decoded = document.object;
        self.duplicates = document.problems;
        self.are_yaml = plan.is_yaml();
        self.strict_refusal = document.refusal.map(status_of);
        Ok(())
    }

    /// Whether the object in the body is evaluated before anything is waited for: so it may be decoded while the body is read, and is not
    /// held decoded.
    fn is_evaluated_at_once(&self) -> bool {
        self.plan.facts.verb == WriteVerb::Create
            && self.plan.fidelity == Fidelity::Completed
            && self.body.len() <= LARGE
    }

    /// What happens to unknown and duplicate fields when the body is read.
    pub(crate) fn strictness(&self) -> BodyStrictness {
        let is_one = self.are_yaml && !self.duplicates.is_empty();
        BodyStrictness {
            validation: self.plan.query.field_validation(),
            duplicates: if is_one {
                vec![request_document::yaml_problems(&self.duplicates)]
            } else {
                self.duplicates.clone()
            },
        }
    }

    /// Refuses a request for its duplicate fields, if strict validation does. Where the body is read here, that is done then.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub(crate) fn check_duplicates(&self) -> Result<(), Unevaluated> {
        self.strict_refusal
            .as_ref()
            .map_or(Ok(()), |error| Err(self.bad(error)))
    }

    /// Makes `text` the body of the request; `media` is its type, if that changes.
    pub(crate) fn forward_instead(
        &mut self,
        call: &mut Call,
        media: Option<&'static str>,
        text: Bytes,
    ) -> Result<(), Unevaluated> {
        // JSON may be longer than the YAML that it was read from, and the server has the same limit for it.
        if text.len() > MAX_BODY {
            return Err(RefusedRequest::too_long(self.output).into());
        }
        // The text takes the place of the body, which is counted already.
        let more = text.len().saturating_sub(self.body.len());
        if !self.share.take(more) {
            return Err(RefusedRequest::no_room(self.output).into());
        }
        let headers = call.request.headers_mut();
        headers.insert(CONTENT_LENGTH, text.len().into());
        if let Some(media) = media {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            media.clone_into(&mut self.content_type);
        }
        *call.request.body_mut() = ClientBody::full(text.clone());
        self.body = text;
        self.decoded = None;
        Ok(())
    }

    /// Checks a body in protobuf, which is forwarded as it is. The response to a dry run does not show all of it: text that is
    /// not UTF-8 is another text in JSON.
    fn check_protobuf(&self) -> Result<(), Unevaluated> {
        let ty = document_type(&self.plan.facts, None);
        if matches!(ty, DocumentType::Unstructured { .. }) {
            return Err(self.bad(&objects::no_protobuf()));
        }
        let checked = request_document::check_protobuf(&ty, &self.body);
        checked.map_err(|error| self.bad(&status_of(error)))
    }
}

fn table_of(facts: &WriteFacts) -> Option<&'static Struct> {
    let kind = facts.group_version_kind();
    built_in(kind.group, kind.version, kind.kind)
}

/// The type of an object of a kind with a table.
pub(crate) fn expected_type(facts: &WriteFacts) -> Option<ExpectedType<'_>> {
    let kind = facts.group_version_kind();
    table_of(facts).map(|shape| ExpectedType {
        group: kind.group,
        version: kind.version,
        kind: kind.kind,
        shape,
        scheme: codec::built_in_types(),
        empty: EmptyValues::Kept,
    })
}

/// What the body of a request describes.
fn document_type(facts: &WriteFacts, patch: Option<PatchType>) -> DocumentType<'_> {
    let kind = facts.group_version_kind();
    match (patch, facts.verb, expected_type(facts)) {
        (Some(PatchType::Json), ..) => DocumentType::JsonPatch,
        (Some(PatchType::Merge), ..) => DocumentType::MergePatch,
        (Some(PatchType::Strategic), ..) => DocumentType::StrategicPatch,
        (Some(PatchType::Apply), ..) => DocumentType::Apply,
        (None, WriteVerb::Delete | WriteVerb::DeleteCollection, _) => DocumentType::DeleteOptions,
        (None, _, Some(expected)) => DocumentType::Object(expected),
        (None, _, None) => DocumentType::Unstructured {
            version: &facts.version,
            kind: kind.kind,
        },
    }
}

fn status_of(error: DocumentError) -> StatusError {
    match error {
        DocumentError::BadRequest(message) => StatusError::bad_request(message),
        DocumentError::InvalidPatch(message, patch) => {
            let error = ApiFieldError::patched(&patch, message);
            StatusError::invalid("", "", "", &[error])
        }
    }
}
