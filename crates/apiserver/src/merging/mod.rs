//! Requests for a document that both the upstream and the gateway have: the request is forwarded, and the
//! gateway's part is merged into the response.
//!
//! The client's own request is forwarded, so the upstream authorizes it, and its errors reach the client
//! unchanged. `Accept` is narrowed to uncompressed JSON, and a condition says which version of the document
//! the gateway has. The response is read on the data core and merged on the control runtime.
//!
//! Not here: `HEAD`. Its response has no body to merge, and is passed on unchanged.

pub(crate) mod merged_metrics;
pub(crate) mod metrics_text;
pub(crate) mod upstream_body;

use std::{future::Future, rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
        CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
        IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, LOCATION, RANGE, USER_AGENT, VARY,
    },
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use self::upstream_body::{ReadBody, read};
use crate::{
    HostedBody, HostedResponse, compression,
    discovery::{self, AggregatedVersion},
    documents::{
        self, Documents, OpenApiFormat,
        merged_document_id::MergedDocumentId,
        merged_documents::{MadeDocument, MergedDocument},
        v2_format, v3_format,
    },
    hosted::Hosted,
    route::{Route, route},
};
use fairgate_apihttp::{
    negotiate::{self, Output, Produces, is_pretty},
    query::Query,
};
use fairgate_call::{Call, MemoryOf, Refusal, Reply, ReplyBody, RequestContext, RequestProgress};
use fairgate_core::digest::readable;

/// The maximum length of a document of the upstream in bytes.
const MAX_DOCUMENT: usize = 16 << 20;

/// Conditions of the client refer to the merged document and must not reach the upstream.
const CONDITIONS: [HeaderName; 6] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
];
/// Headers of the upstream that describe its own document, and not the merged one.
const REPLACED_HEADERS: [HeaderName; 8] = [
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
    id: MergedDocumentId,
    format: MergedFormat,
    /// The parameter `hash` of an OpenAPI v3 document; empty if absent.
    hash: String,
    accepts_gzip: bool,
    /// The entity tags that the client has.
    tags: Vec<HeaderValue>,
    /// The last merged document.
    held: Option<Arc<MergedDocument>>,
}

/// The format of the response.
#[derive(Clone, Copy)]
enum MergedFormat {
    /// Of the list of groups, which is negotiated as objects are.
    Negotiated(Output),
    /// JSON, with this content type.
    Json(&'static str),
    /// The same, with a line for each member and entry.
    PrettyJson(&'static str),
    Protobuf,
}

impl MergedFormat {
    fn openapi(format: OpenApiFormat) -> Self {
        match format {
            OpenApiFormat::Json => Self::Json("application/json"),
            OpenApiFormat::Protobuf => Self::Protobuf,
        }
    }
}

impl MergeRequest {
    /// The document that `call` requests; `None` if it is not merged, or if the format is not known, so that
    /// the upstream responds with its own error.
    pub(super) fn of(hosted: &Hosted, call: &Call) -> Option<Self> {
        if *call.request.method() != Method::GET {
            return None;
        }
        let headers = call.request.headers();
        let accept = text(headers, &ACCEPT);
        let path = readable(call.digest.info.path());
        let id = document(hosted, &path, accept)?;
        let query = Query::parse(call.request.uri().query().unwrap_or_default());
        let format = match &id {
            MergedDocumentId::Aggregated(form) | MergedDocumentId::AggregatedCore(form) => {
                if is_pretty(&query, text(headers, &USER_AGENT)) {
                    MergedFormat::PrettyJson(form.content_type())
                } else {
                    MergedFormat::Json(form.content_type())
                }
            }
            MergedDocumentId::OpenApiV2 => MergedFormat::openapi(v2_format(accept)?),
            MergedDocumentId::OpenApiV3(..) => MergedFormat::openapi(v3_format(accept)?),
            MergedDocumentId::OpenApiV3Index => MergedFormat::Json("application/json"),
            _ => MergedFormat::Negotiated(output(call)?),
        };
        Some(Self {
            hash: query.text("hash").to_owned(),
            accepts_gzip: compression::accepts_gzip(headers),
            tags: headers.get_all(IF_NONE_MATCH).iter().cloned().collect(),
            held: hosted.merged_documents.last(&id),
            id,
            format,
        })
    }

    /// Changes the client's request so that the response can be merged.
    pub(super) fn narrow<B>(&self, request: &mut http::Request<B>) {
        // The hash is that of the merged document, and the upstream would redirect to its own.
        if matches!(self.id, MergedDocumentId::OpenApiV3(..))
            && !self.hash.is_empty()
            && let Ok(uri) = self.id.path().parse()
        {
            *request.uri_mut() = uri;
        }
        let headers = request.headers_mut();
        for name in CONDITIONS {
            headers.remove(name);
        }
        let held = self.held.as_ref();
        if let Some(tag) = held.and_then(|held| held.upstream_tag()) {
            headers.insert(IF_NONE_MATCH, tag.clone());
        }
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let MergedDocumentId::Aggregated(form) | MergedDocumentId::AggregatedCore(form) = self.id
        {
            let other = match form {
                AggregatedVersion::V2 => AggregatedVersion::V2Beta1,
                AggregatedVersion::V2Beta1 => AggregatedVersion::V2,
            };
            // Old upstreams have `v2beta1` only, new ones `v2` only, very old ones neither.
            for form in [other.content_type(), form.content_type()] {
                let rest = text(headers, &ACCEPT);
                if let Ok(accept) = HeaderValue::from_str(&format!("{form},{rest}")) {
                    headers.insert(ACCEPT, accept);
                }
            }
        }
    }

    /// Falls back to the plain list of groups if the upstream does not know the aggregated form; `None` if
    /// there is nothing to merge.
    fn adapted(mut self, head: &HeaderMap) -> Option<Self> {
        let is_aggregated = text(head, &CONTENT_TYPE).contains("as=APIGroupDiscoveryList");
        match self.id {
            MergedDocumentId::Aggregated(_) if !is_aggregated => {
                self.id = MergedDocumentId::Groups;
                self.format = MergedFormat::Negotiated(Output::JSON);
            }
            MergedDocumentId::AggregatedCore(_) if !is_aggregated => return None,
            _ => {}
        }
        Some(self)
    }

    /// Whether the gateway has the document if the upstream has none.
    fn is_served_alone(&self, documents: &Documents) -> bool {
        documents.is_served_alone(&self.id)
    }

    /// Whether the client has this document already.
    fn client_has(&self, merged: &MergedDocument) -> bool {
        // Responses with the plain list have no entity tag.
        !matches!(self.format, MergedFormat::Negotiated(_))
            && self
                .tags
                .iter()
                .any(|tag| *tag == merged.etag || tag == "*")
    }

    fn protobuf_type(&self) -> &'static str {
        match self.id {
            MergedDocumentId::OpenApiV3(..) => documents::PROTO_V3,
            _ => documents::PROTO_V2,
        }
    }

    /// The headers by which a client keeps an OpenAPI v3 document forever, if it requested the present one
    /// by its hash; the redirect to that, if it requested another.
    fn addressed(&self, response: &mut HostedResponse) {
        if !matches!(self.id, MergedDocumentId::OpenApiV3(..)) || self.hash.is_empty() {
            return;
        }
        let tag = response.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        let hash = tag.unwrap_or_default().trim_matches('"');
        if self.hash != hash {
            let url = format!("{}?hash={hash}", self.id.path());
            *response = HostedResponse::text(StatusCode::MOVED_PERMANENTLY, "");
            if let Ok(url) = HeaderValue::from_str(&url) {
                response.headers.insert(LOCATION, url);
            }
            return;
        }
        let forever = HeaderValue::from_static("public, immutable");
        response.headers.insert(CACHE_CONTROL, forever);
        let expires = HeaderValue::from_static(documents::NEVER_EXPIRES);
        response.headers.insert(EXPIRES, expires);
    }

    /// The response. Blocks while the document is encoded, once per format.
    fn response(&self, merged: &MergedDocument) -> HostedResponse {
        let (content_type, (body, is_gzip)) = match self.format {
            MergedFormat::Negotiated(output) => {
                return discovery::response(merged.text(), output);
            }
            MergedFormat::Json(name) | MergedFormat::PrettyJson(name)
                if self.client_has(merged) =>
            {
                (name, (Bytes::new(), false))
            }
            MergedFormat::Protobuf if self.client_has(merged) => {
                (self.protobuf_type(), (Bytes::new(), false))
            }
            MergedFormat::Json(name) => (name, merged.json(self.accepts_gzip)),
            MergedFormat::PrettyJson(name) => (name, (merged.indented(), false)),
            MergedFormat::Protobuf => (self.protobuf_type(), merged.protobuf(self.accepts_gzip)),
        };
        let status = if self.client_has(merged) {
            StatusCode::NOT_MODIFIED
        } else {
            StatusCode::OK
        };
        let mut response = HostedResponse::full(status, content_type, body);
        response.headers.insert(ETAG, merged.etag.clone());
        if is_gzip {
            let gzip = HeaderValue::from_static("gzip");
            response.headers.insert(CONTENT_ENCODING, gzip);
        }
        response
    }
}

/// The document at a path; `None` if it is not merged, or if the client accepts no known format.
fn document(hosted: &Hosted, path: &str, accept: &str) -> Option<MergedDocumentId> {
    let owned = hosted.documents.owned();
    Some(match route(&hosted.state.kinds, path) {
        Route::Groups => match AggregatedVersion::accepted(accept) {
            Some(form) => MergedDocumentId::Aggregated(form),
            None => MergedDocumentId::Groups,
        },
        Route::Api => {
            owned.subresources("").next()?;
            MergedDocumentId::AggregatedCore(AggregatedVersion::accepted(accept)?)
        }
        Route::Group(group) => MergedDocumentId::Group(group),
        Route::GroupVersion(group, version) if group.is_empty() => {
            owned
                .subresources("")
                .find(|served| served.version == version)?;
            MergedDocumentId::Resources(group, version)
        }
        Route::GroupVersion(group, version) => MergedDocumentId::Resources(group, version),
        // A version that is not served here, of which the upstream may have resources.
        Route::Nothing => {
            let (group, version) = path.strip_prefix("/apis/")?.split_once('/')?;
            if !owned.has_group(group) || !is_version(version) {
                return None;
            }
            MergedDocumentId::Resources(group.to_owned(), version.to_owned())
        }
        Route::OpenApiV2 => MergedDocumentId::OpenApiV2,
        Route::OpenApiV3Index => MergedDocumentId::OpenApiV3Index,
        Route::OpenApiV3(key) => {
            let (group, version) = key.strip_prefix("apis/")?.split_once('/')?;
            if !owned.has_group(group) || !is_version(version) {
                return None;
            }
            MergedDocumentId::OpenApiV3(group.to_owned(), version.to_owned())
        }
        _ => return None,
    })
}

/// Whether a text may be a version of a group. The path of a document is made of it, and kept documents are distinguished by it.
fn is_version(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(is_plain)
        && text
            .bytes()
            .all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.'))
}

/// The negotiated format of a discovery document.
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

/// Merges the gateway's part into one response of the upstream, on the control runtime.
pub(super) struct Merger {
    pub(super) hosted: Arc<Hosted>,
    pub(super) control: Handle,
    /// The deadline of the request.
    pub(super) until: Option<Instant>,
    pub(super) context: Rc<RequestContext>,
}

impl Merger {
    /// Merges a document.
    pub(super) async fn merge(
        self,
        request: MergeRequest,
        upstream: impl Future<Output = Result<Reply, Refusal>>,
    ) -> Result<Reply, Refusal> {
        let (head, body) = upstream.await?.into_parts();
        let unchanged = request.held.clone();
        let unchanged = unchanged.filter(|_| head.status == StatusCode::NOT_MODIFIED);
        let is_absent =
            head.status == StatusCode::NOT_FOUND && request.is_served_alone(&self.hosted.documents);
        if head.status != StatusCode::OK && unchanged.is_none() && !is_absent {
            return Ok(Response::from_parts(head, body));
        }
        let mut request = request;
        if unchanged.is_none() && !is_absent {
            request = match request.adapted(&head.headers) {
                Some(request) => request,
                None => return Ok(Response::from_parts(head, body)),
            };
        }
        let reading = if unchanged.is_some() {
            None
        } else {
            let user = self.context.user.get().map(|user| &*user.name);
            let turn = self.hosted.merged_documents.read(user.unwrap_or_default());
            self.in_time(turn).await?
        };
        let mut upstream_document = self.read(body).await?;
        let mut tag = head.headers.get(ETAG).cloned();
        if is_absent {
            upstream_document = Bytes::from_static(b"null");
            tag = None;
        }
        let (hosted, text) = (Arc::clone(&self.hosted), upstream_document.clone());
        let merging = self.control.spawn_blocking(move || {
            let _reading = reading;
            let made = match unchanged {
                // It was kept when the request came.
                Some(document) => MadeDocument {
                    document,
                    is_kept: true,
                },
                None => {
                    (hosted.merged_documents).make(&request.id, tag, &text, &hosted.documents)?
                }
            };
            let mut response = request.response(&made.document);
            let is_copy = matches!(request.format, MergedFormat::Negotiated(_));
            if !is_copy && hosted.merged_documents.may_share(&made) {
                response = response.shared();
            }
            request.addressed(&mut response);
            Some(response)
        });
        let merged = merging.await;
        let merged = merged.map_err(|error| Refusal::Internal(error.to_string().into()))?;
        let Some(response) = merged else {
            tracing::warn!("a document of the upstream is not JSON; passing it on unchanged");
            let body = ReplyBody::made(upstream_document, MemoryOf::Seat);
            return Ok(Response::from_parts(head, body));
        };
        self.reply(head.headers, response)
    }

    /// The reply with a merged document; `headers` are those of the upstream's response.
    fn reply(
        &self,
        mut headers: HeaderMap,
        mut response: HostedResponse,
    ) -> Result<Reply, Refusal> {
        for name in REPLACED_HEADERS {
            headers.remove(name);
        }
        let vary = HeaderValue::from_static("Accept, Accept-Encoding");
        headers.insert(VARY, vary);
        // Otherwise `Cache-Control` stays that of the upstream.
        if response.headers.contains_key(EXPIRES)
            && let Some(value) = response.headers.get(CACHE_CONTROL)
        {
            headers.insert(CACHE_CONTROL, value.clone());
        }
        for name in [CONTENT_TYPE, CONTENT_ENCODING, ETAG, EXPIRES, LOCATION] {
            if let Some(value) = response.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        if let Some(user) = self.context.user.get() {
            // Without room it keeps its seat.
            let _ = response.charge(self.hosted.responses.share(user));
        }
        let HostedBody::Full(body) = response.body else {
            return Err(Refusal::Internal(
                "the response for a document is a watch".into(),
            ));
        };
        let mut reply = Response::new(ReplyBody::made(body, response.memory));
        *reply.status_mut() = response.status;
        *reply.headers_mut() = headers;
        Ok(reply)
    }

    /// Reads the whole body of the upstream's response.
    async fn read(&self, body: ReplyBody) -> Result<Bytes, Refusal> {
        let ReadBody::Whole(text) = self.in_time(read(body, MAX_DOCUMENT)).await?? else {
            tracing::warn!("a document of the upstream is longer than {MAX_DOCUMENT} bytes");
            return Err(Refusal::UpstreamFailed);
        };
        self.context.reached(RequestProgress::Done);
        Ok(text)
    }

    /// Waits for `work`, but not beyond the deadline of the request.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Refusal> {
        match self.until {
            None => Ok(work.await),
            Some(until) => {
                let done = timeout_at(until, work).await;
                done.map_err(|_elapsed| Refusal::UpstreamTimeout)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_no_other_path_and_no_query() {
        for version in ["v1", "v2beta1", "1-a.b"] {
            assert!(is_version(version), "{version}");
        }
        // As `%3F` and `%23` are decoded.
        for text in [
            "", "v1?x", "v1#x", "v1/x", "..", "v1%2F", "v1 ", "V1", "\u{e4}",
        ] {
            assert!(!is_version(text), "{text}");
        }
    }
}
