//! The documents about the API: discovery, OpenAPI, the version.
//!
//! They depend on the table of kinds only, and are generated when the gateway starts.
//!
//! Not here: merging them with those of the upstream (`merged_documents`).

pub(crate) mod encoded_document;
pub(crate) mod merged_document_id;
pub(crate) mod merged_documents;

use http::{
    HeaderValue, Method, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY},
};
use serde::Serialize;
use serde_json::{Value, json};

use self::{encoded_document::EncodedDocument, merged_document_id::MergedDocumentId};
use crate::{
    HostedResponse, compression,
    discovery::{self, AggregatedVersion},
    openapi,
    ownership::{OwnedResources, ServedSubresource},
    raw_json::{Raw, raw},
    route::Route,
};
use fairgate_apihttp::{
    negotiate::{self, LONGEST_ACCEPT, Output, Produces, is_pretty},
    query::Query,
    request::ApiRequest,
    status_error::StatusError,
};
use fairgate_objects::kind::Kind;

pub(super) const PROTO_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PROTO_V2_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub(super) const PROTO_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const PROTO_V3_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// `Expires` of documents that are requested by their hash, as in kube-apiserver.
pub(super) const NEVER_EXPIRES: &str = "Fri, 31 Dec 2100 23:59:59 GMT";

/// The documents.
pub(super) struct Documents {
    kinds: Vec<&'static Kind>,
    owned: OwnedResources,
    version: Value,
    address: String,
    v2: Document,
    v2_proto: Document,
    v3_index: Document,
    v3: Vec<V3>,
    apis: [Document; 2],
    api: [Document; 2],
}

/// An OpenAPI v3 document in all its formats.
struct V3 {
    key: String,
    hash: String,
    json: Document,
    proto: Document,
}

impl V3 {
    fn of(document: openapi::v3::OpenApiV3Document) -> Self {
        let value = serde_json::from_str(&document.json).unwrap_or_default(); // JSON that was generated above
        Self {
            proto: Document::tagged(openapi::v3_proto::encode(&value), &document.json),
            json: Document::tagged(document.json.clone().into_bytes(), &document.json),
            key: document.key,
            hash: document.hash,
        }
    }
}

/// A document and its entity tag.
struct Document {
    encoded: EncodedDocument,
    etag: HeaderValue,
}

impl Document {
    fn raw(&self) -> Raw {
        serde_json::from_slice(self.encoded.plain()).unwrap_or_default() // JSON that was generated here
    }

    fn of(value: &impl Serialize) -> Self {
        let text = String::from(Box::<str>::from(raw(value)));
        Self::tagged(text.clone().into_bytes(), &text)
    }

    fn tagged(bytes: Vec<u8>, text: &str) -> Self {
        let etag = discovery::etag(text);
        Self {
            encoded: EncodedDocument::new(bytes),
            etag: HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("\"\"")),
        }
    }
}

impl Documents {
    /// The documents about `kinds` and about subresources of other servers' resources.
    pub(super) fn new(
        kinds: &[&'static Kind],
        subresources: &[ServedSubresource],
        version: &str,
        address: String,
    ) -> Self {
        let claimed = format!("{version}+fairgate");
        let v2 = openapi::v2::document(kinds, &claimed);
        let v3 = openapi::v3::documents(kinds, &claimed);
        let both = [AggregatedVersion::V2, AggregatedVersion::V2Beta1];
        Self {
            version: version_document(version),
            v2_proto: Document::tagged(openapi::v2_proto::encode(&v2), &v2.to_string()),
            v2: Document::of(&v2),
            v3_index: Document::of(&openapi::v3::index(&v3)),
            v3: v3.into_iter().map(V3::of).collect(),
            apis: both.map(|form| Document::of(&discovery::aggregated::apis(kinds, form))),
            api: both.map(|form| Document::of(&discovery::aggregated::api(kinds, form))),
            kinds: kinds.to_vec(),
            owned: OwnedResources::new(kinds, subresources),
            address,
        }
    }

    /// Serves a document.
    pub(super) fn serve(
        &self,
        request: &ApiRequest,
        route: &Route,
        query: &Query,
    ) -> HostedResponse {
        // As in kube-apiserver: only these paths are routed by method.
        let get_only = matches!(route, Route::Api | Route::GroupVersion(..) | Route::Version);
        if get_only && request.method != Method::GET {
            return HostedResponse::error(&StatusError::method_not_allowed(), Output::JSON);
        }
        let accept = &request.header("accept");
        let form = AggregatedVersion::accepted(accept);
        let form = form.map(|form| (form, usize::from(form != AggregatedVersion::V2)));
        match route {
            Route::Version => pretty(&self.version),
            Route::Root => pretty(&discovery::plain::paths(
                &self.kinds,
                &["/healthz", "/livez", "/metrics", "/readyz", "/version"],
            )),
            Route::OpenApiV2 => self.v2(request),
            Route::OpenApiV3Index => conditional(request, &self.v3_index, "application/json", None),
            Route::OpenApiV3(key) => self.v3(request, key, query),
            Route::Groups if let Some((form, index)) = form => {
                aggregated(request, query, &self.apis[index], form)
            }
            Route::Api if let Some((form, index)) = form => {
                aggregated(request, query, &self.api[index], form)
            }
            route => self.plain(request, route, query),
        }
    }

    fn plain(&self, request: &ApiRequest, route: &Route, query: &Query) -> HostedResponse {
        let value = match route {
            Route::Api => Some(discovery::plain::api_versions(&self.kinds, &self.address)),
            Route::Groups => Some(discovery::plain::group_list(&self.kinds)),
            Route::Group(group) => discovery::plain::group(&self.kinds, group),
            Route::GroupVersion(group, version) => {
                discovery::plain::resource_list(&self.kinds, group, version)
            }
            _ => None,
        };
        let Some(value) = value else {
            return HostedResponse::not_found();
        };
        let agent = &request.header("user-agent");
        match negotiate::output(&request.header("accept"), Produces::Documents, query, agent) {
            Ok(output) => discovery::response(&discovery::plain::text(&value), output),
            Err(fault) => HostedResponse::error(&fault, Output::JSON),
        }
    }

    fn v2(&self, request: &ApiRequest) -> HostedResponse {
        let (document, content_type) = match v2_format(&request.header("accept")) {
            Some(OpenApiFormat::Json) => (&self.v2, "application/json"),
            Some(OpenApiFormat::Protobuf) => (&self.v2_proto, PROTO_V2),
            None => {
                let status = StatusCode::NOT_ACCEPTABLE;
                return HostedResponse::full(status, "text/plain; charset=utf-8", "");
            }
        };
        conditional(request, document, content_type, Some("Accept"))
    }

    /// The resources that are served here.
    pub(super) fn owned(&self) -> &OwnedResources {
        &self.owned
    }

    /// The gateway's part of a merged document.
    pub(super) fn own_part(&self, id: &MergedDocumentId) -> Raw {
        let kinds = &self.kinds;
        match id {
            MergedDocumentId::Groups => plain_raw(&discovery::plain::group_list(kinds)),
            MergedDocumentId::Group(group) => {
                plain_raw(&discovery::plain::group(kinds, group).unwrap_or_default())
            }
            MergedDocumentId::Resources(group, version) => {
                plain_raw(&self.own_resources(group, version))
            }
            MergedDocumentId::Aggregated(form) => raw(&discovery::aggregated::apis(kinds, *form)),
            MergedDocumentId::AggregatedCore(form) => {
                let subresources = self.owned.subresources("");
                raw(&discovery::aggregated::subresources(subresources, *form))
            }
            MergedDocumentId::OpenApiV2 => self.v2.raw(),
            MergedDocumentId::OpenApiV3Index => self.v3_index.raw(),
            MergedDocumentId::OpenApiV3(..) => {
                let document = self.v3_of(id);
                document.map_or_else(Raw::default, |document| document.json.raw())
            }
        }
    }

    /// Whether a merged document is served if the upstream has none.
    pub(super) fn is_served_alone(&self, id: &MergedDocumentId) -> bool {
        match id {
            MergedDocumentId::Group(group) => discovery::plain::group(&self.kinds, group).is_some(),
            MergedDocumentId::Resources(group, version) => {
                discovery::plain::resource_list(&self.kinds, group, version).is_some()
            }
            MergedDocumentId::OpenApiV3(..) => self.v3_of(id).is_some(),
            _ => false,
        }
    }

    /// The hash of the gateway's part of an OpenAPI v3 document; empty for any other.
    pub(super) fn own_hash(&self, id: &MergedDocumentId) -> &str {
        self.v3_of(id).map_or("", |document| &document.hash)
    }

    fn v3_of(&self, id: &MergedDocumentId) -> Option<&V3> {
        let MergedDocumentId::OpenApiV3(group, version) = id else {
            return None;
        };
        let key = format!("apis/{group}/{version}");
        self.v3.iter().find(|document| document.key == key)
    }

    fn own_resources(&self, group: &str, version: &str) -> Value {
        let list = discovery::plain::resource_list(&self.kinds, group, version);
        let empty = || json!({"kind": "APIResourceList", "resources": []});
        let mut list = list.unwrap_or_else(empty);
        if let Value::Array(entries) = &mut list["resources"] {
            let subresources = self.owned.subresources(group);
            let of_version = subresources.filter(|served| served.version == version);
            entries.extend(of_version.map(discovery::plain::subresource));
        }
        list
    }

    fn v3(&self, request: &ApiRequest, key: &str, query: &Query) -> HostedResponse {
        let Some(document) = self.v3.iter().find(|document| document.key == key) else {
            // As in kube-apiserver: no body and no content type.
            let mut response = HostedResponse::full(StatusCode::NOT_FOUND, "text/plain", "");
            response.headers.remove(CONTENT_TYPE);
            return response;
        };
        let accept = &request.header("accept");
        let (written, content_type) = match v3_format(accept) {
            Some(OpenApiFormat::Json) => (&document.json, "application/json"),
            Some(OpenApiFormat::Protobuf) => (&document.proto, PROTO_V3),
            None => {
                return HostedResponse::full(
                    StatusCode::NOT_ACCEPTABLE,
                    "text/plain; charset=utf-8",
                    "",
                );
            }
        };
        let asked = query.text("hash");
        if !asked.is_empty() && asked != document.hash {
            let mut response = HostedResponse::text(StatusCode::MOVED_PERMANENTLY, "");
            let url = format!("/openapi/v3/{key}?hash={}", document.hash);
            if let Ok(url) = HeaderValue::from_str(&url) {
                response.headers.insert(LOCATION, url);
            }
            return response;
        }
        let mut response = conditional(request, written, content_type, Some("Accept"));
        if !asked.is_empty() {
            let headers = &mut response.headers;
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            headers.insert(EXPIRES, HeaderValue::from_static(NEVER_EXPIRES));
        }
        response
    }
}

/// The format of an OpenAPI document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiFormat {
    Json,
    Protobuf,
}

/// The format of `/openapi/v2` that a client accepts; `None` if it accepts neither.
pub(super) fn v2_format(accept: &str) -> Option<OpenApiFormat> {
    openapi_format(accept, [PROTO_V2, PROTO_V2_OLD])
}

/// The format of an OpenAPI v3 document that a client accepts; `None` if it accepts neither.
pub(super) fn v3_format(accept: &str) -> Option<OpenApiFormat> {
    openapi_format(accept, [PROTO_V3, PROTO_V3_OLD])
}

/// The format that a client accepts. `protobuf` are the media types of the protobuf format.
fn openapi_format(accept: &str, protobuf: [&str; 2]) -> Option<OpenApiFormat> {
    if accept.is_empty() {
        return Some(OpenApiFormat::Json);
    }
    if accept.len() > LONGEST_ACCEPT {
        return None;
    }
    accept.split(',').find_map(
        |clause| match clause.split(';').next().unwrap_or_default().trim() {
            "application/json" | "application/*" | "*/*" => Some(OpenApiFormat::Json),
            name => protobuf.contains(&name).then_some(OpenApiFormat::Protobuf),
        },
    )
}

fn plain_raw(document: &Value) -> Raw {
    let text = discovery::plain::text(document);
    serde_json::from_slice(&text).unwrap_or_default() // JSON that was generated here
}

fn aggregated(
    request: &ApiRequest,
    query: &Query,
    document: &Document,
    form: AggregatedVersion,
) -> HostedResponse {
    let form = DocumentForm {
        content_type: form.content_type(),
        vary: Some("Accept"),
        is_indented: is_pretty(query, &request.header("user-agent")),
    };
    let mut response = form.of(request, document);
    response
        .headers
        .insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// A document, or 304 if the client has it already.
fn conditional(
    request: &ApiRequest,
    document: &Document,
    content_type: &'static str,
    vary: Option<&'static str>,
) -> HostedResponse {
    let form = DocumentForm {
        content_type,
        vary,
        is_indented: false,
    };
    form.of(request, document)
}

/// How a document is sent.
struct DocumentForm {
    content_type: &'static str,
    vary: Option<&'static str>,
    /// Whether it has a line for each member and entry.
    is_indented: bool,
}

impl DocumentForm {
    /// The response with a document, whose bytes all such responses share; or 304 if the client has it already.
    fn of(&self, request: &ApiRequest, document: &Document) -> HostedResponse {
        let mut tags = request.headers.get_all(IF_NONE_MATCH).iter();
        let is_known = tags.any(|tag| *tag == document.etag || tag == "*");
        // The length in the response to `HEAD` is that without compression.
        let compresses =
            request.method != Method::HEAD && compression::accepts_gzip(&request.headers);
        let (status, (body, is_gzip)) = match is_known {
            true => (StatusCode::NOT_MODIFIED, Default::default()),
            false if self.is_indented => (StatusCode::OK, (document.encoded.indented(), false)),
            false => (StatusCode::OK, document.encoded.bytes(compresses)),
        };
        let mut response = HostedResponse::full(status, self.content_type, body).shared();
        response.headers.insert(ETAG, document.etag.clone());
        if let Some(vary) = self.vary {
            let vary = HeaderValue::from_static(vary);
            response.headers.insert(VARY, vary);
        }
        if is_gzip {
            compression::mark(&mut response.headers);
        }
        response
    }
}

fn pretty(value: &Value) -> HostedResponse {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    HostedResponse::full(StatusCode::OK, "application/json", text)
}

/// The document `/version`: the version of Kubernetes that is claimed, and fairgate as its build.
fn version_document(version: &str) -> Value {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut part = || parts.next().unwrap_or("0").to_owned();
    let (major, minor) = (part(), part());
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": minor,
        "gitVersion": format!("{version}+fairgate"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
