//! A call for a document that both have: the server behind is asked, and ours is put into its answer.
//!
//! The client's own call goes on, so the server authorizes it as any other, and what it refuses or
//! cannot do reaches the client unchanged. It is asked for JSON, whole and plain, and, if it was asked
//! before, whether that has changed since. The text is read on the data core and made use of on the
//! control runtime.
//!
//! Not here: `HEAD`, which gets the server's own answer, since its body is not there to be merged.

use std::{future::Future, rc::Rc, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
        CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, USER_AGENT, VARY,
    },
};
use http_body_util::BodyExt as _;
use tokio::{runtime::Handle, time::Instant};

use crate::{
    compression,
    discovery::{AggregatedVersion, wanted},
    documents::{self, v2_language},
    hosted::Hosted,
    merged_document_id::MergedDocumentId,
    merged_documents::MergedDocument,
    negotiate::{self, Output, Produces},
    query::Query,
    response::{ApiBody, ApiResponse},
    route::{Route, route},
};
use fairgate_call::{BodyError, Call, Progress, Refusal, Reply, ReplyBody, RequestContext};
use fairgate_core::digest::readable;

/// The most bytes of a document that are read: 16 MiB.
const MAX_DOCUMENT: usize = 16 << 20;

/// Conditions on the server's document: they would be about another one.
const CONDITIONS: [HeaderName; 6] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
];
/// What the server says of its own document alone.
const OF_THEIRS: [HeaderName; 8] = [
    ACCEPT_RANGES,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    ETAG,
    LAST_MODIFIED,
    VARY,
];

/// A request for a document of which the upstream has one part and the gateway the other.
pub(super) struct MergeRequest {
    subject: MergedDocumentId,
    language: Language,
    takes_gzip: bool,
    /// What the client has already.
    tags: Vec<HeaderValue>,
    /// What was made before.
    held: Option<Arc<MergedDocument>>,
}

/// What it is to be written in.
#[derive(Clone, Copy)]
enum Language {
    Plain(Output),
    Json(&'static str),
    Protobuf,
}

impl MergeRequest {
    /// What `call` wants; `None` if it is none of the documents, or wants one in a language that is
    /// not known, which is then for the server to say.
    pub(super) fn of(hosted: &Hosted, call: &Call) -> Option<Self> {
        if *call.request.method() != Method::GET {
            return None;
        }
        let headers = call.request.headers();
        let accept = text(headers, &ACCEPT);
        let (subject, language) =
            match route(&hosted.state.kinds, &readable(call.digest.info.path())) {
                Route::Groups => match wanted(accept) {
                    Some(form) => (
                        MergedDocumentId::Aggregated(form),
                        Language::Json(form.content_type()),
                    ),
                    None => (MergedDocumentId::Groups, Language::Plain(output(call)?)),
                },
                Route::OpenApiV2 => match v2_language(accept)? {
                    documents::Language::Json => (
                        MergedDocumentId::OpenApiV2,
                        Language::Json("application/json"),
                    ),
                    documents::Language::Protobuf => {
                        (MergedDocumentId::OpenApiV2, Language::Protobuf)
                    }
                },
                Route::OpenApiV3Index => (
                    MergedDocumentId::OpenApiV3Index,
                    Language::Json("application/json"),
                ),
                _ => return None,
            };
        Some(Self {
            subject,
            language,
            takes_gzip: compression::takes_gzip(headers),
            tags: headers.get_all(IF_NONE_MATCH).iter().cloned().collect(),
            held: hosted.merged_documents.last(subject),
        })
    }

    /// Makes the client's headers ask for what can be merged.
    pub(super) fn narrow(&self, headers: &mut HeaderMap) {
        for name in CONDITIONS {
            headers.remove(name);
        }
        let held = self.held.as_ref();
        if let Some(tag) = held.and_then(|held| held.tag_of_theirs()) {
            headers.insert(IF_NONE_MATCH, tag.clone());
        }
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let MergedDocumentId::Aggregated(form) = self.subject {
            let other = match form {
                AggregatedVersion::V2 => AggregatedVersion::V2Beta1,
                AggregatedVersion::V2Beta1 => AggregatedVersion::V2,
            };
            // Servers have one form or the other, or neither.
            for form in [other.content_type(), form.content_type()] {
                let rest = text(headers, &ACCEPT);
                if let Ok(accept) = HeaderValue::from_str(&format!("{form},{rest}")) {
                    headers.insert(ACCEPT, accept);
                }
            }
        }
    }

    /// The same, where the server knows no aggregated form and has answered with the plain one.
    fn settled(mut self, head: &HeaderMap) -> Self {
        let is_aggregated = text(head, &CONTENT_TYPE).contains("as=APIGroupDiscoveryList");
        if matches!(self.subject, MergedDocumentId::Aggregated(_)) && !is_aggregated {
            self.subject = MergedDocumentId::Groups;
            self.language = Language::Plain(Output::JSON);
        }
        self
    }

    /// Whether the client has this already.
    fn knows(&self, merged: &MergedDocument) -> bool {
        // Without a tag in its answer the plain list cannot be known.
        !matches!(self.language, Language::Plain(_))
            && self
                .tags
                .iter()
                .any(|tag| *tag == merged.etag || tag == "*")
    }

    /// The answer. Blocks for as long as it takes to write it in a language for the first time.
    fn answer(&self, merged: &MergedDocument) -> ApiResponse {
        let (content_type, (body, is_gzip)) = match self.language {
            Language::Plain(output) => {
                return ApiResponse::document(StatusCode::OK, &merged.value(), output);
            }
            Language::Json(name) if self.knows(merged) => (name, (Bytes::new(), false)),
            Language::Protobuf if self.knows(merged) => {
                (documents::PROTO_V2, (Bytes::new(), false))
            }
            Language::Json(name) => (name, merged.json(self.takes_gzip)),
            Language::Protobuf => (documents::PROTO_V2, merged.protobuf(self.takes_gzip)),
        };
        let status = if self.knows(merged) {
            StatusCode::NOT_MODIFIED
        } else {
            StatusCode::OK
        };
        let mut answer = ApiResponse::full(status, content_type, body);
        answer.headers.insert(ETAG, merged.etag.clone());
        if is_gzip {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers.insert(CONTENT_ENCODING, gzip);
        }
        answer
    }
}

/// What the list of groups is to be written in.
fn output(call: &Call) -> Option<Output> {
    let headers = call.request.headers();
    let query = Query::parse(call.request.uri().query().unwrap_or_default());
    let (accept, agent) = (text(headers, &ACCEPT), text(headers, &USER_AGENT));
    negotiate::output(accept, Produces::Documents, &query, agent).ok()
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Merges one document, off the thread that answers.
pub(super) struct Merger {
    pub(super) hosted: Arc<Hosted>,
    pub(super) control: Handle,
    /// When the client no longer waits.
    pub(super) until: Option<Instant>,
    pub(super) context: Rc<RequestContext>,
}

impl Merger {
    /// Merges our part into what `upstream` answers.
    pub(super) async fn merge(
        self,
        request: MergeRequest,
        upstream: impl Future<Output = Result<Reply, Refusal>>,
    ) -> Result<Reply, Refusal> {
        let (head, body) = upstream.await?.into_parts();
        let unchanged = request.held.clone();
        let unchanged = unchanged.filter(|_| head.status == StatusCode::NOT_MODIFIED);
        if head.status != StatusCode::OK && unchanged.is_none() {
            return Ok(Response::from_parts(head, body));
        }
        let theirs = self.read(body).await?;
        let request = match unchanged {
            Some(_) => request,
            None => request.settled(&head.headers),
        };
        let tag = head.headers.get(ETAG).cloned();
        let (hosted, text) = (Arc::clone(&self.hosted), theirs.clone());
        let made = self.control.spawn_blocking(move || {
            let merged = unchanged.or_else(|| {
                (hosted.merged_documents).make(request.subject, tag, &text, &hosted.documents)
            })?;
            Some(request.answer(&merged))
        });
        let made = made.await;
        let made = made.map_err(|error| Refusal::Internal(error.to_string().into()))?;
        let Some(answer) = made else {
            tracing::warn!("a document of the upstream is not JSON; passing it on unchanged");
            return Ok(Response::from_parts(head, ReplyBody::full(theirs)));
        };
        let mut headers = head.headers;
        for name in OF_THEIRS {
            headers.remove(name);
        }
        let vary = HeaderValue::from_static("Accept, Accept-Encoding");
        headers.insert(VARY, vary);
        // Whether it may be kept is for the server to say.
        for name in [CONTENT_TYPE, CONTENT_ENCODING, ETAG] {
            if let Some(value) = answer.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let ApiBody::Full(body) = answer.body else {
            return Err(Refusal::Internal("a document is no watch".into()));
        };
        let mut reply = Response::new(ReplyBody::full(body));
        *reply.status_mut() = answer.status;
        *reply.headers_mut() = headers;
        Ok(reply)
    }

    /// All of the server's answer.
    async fn read(&self, body: ReplyBody) -> Result<Bytes, Refusal> {
        let reading = whole(body);
        let read = match self.until {
            None => reading.await,
            Some(until) => match tokio::time::timeout_at(until, reading).await {
                Ok(read) => read,
                Err(_) => return Err(Refusal::UpstreamTimeout),
            },
        }?;
        self.context.reached(Progress::Done);
        Ok(read)
    }
}

async fn whole(mut body: ReplyBody) -> Result<Bytes, Refusal> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            BodyError::Idle => Refusal::UpstreamTimeout,
            _ => Refusal::UpstreamFailed,
        })?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > MAX_DOCUMENT {
                tracing::warn!("a document of the upstream's is longer than {MAX_DOCUMENT} bytes");
                return Err(Refusal::UpstreamFailed);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}
