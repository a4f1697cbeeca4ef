//! Responses of the hosted API, encoded in the negotiated format.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER, WARNING},
};
use serde_json::Value;

use crate::{
    discovery,
    negotiate::{Media, Output, Representation},
    object_writer::ObjectWriter,
    status_error::StatusError,
    watch_stream::WatchStream,
};
use fairgate_admission::warning_headers;
use fairgate_call::{MemoryOf, ResponseShare, refusal_reply::REASON_HEADER};
use fairgate_objects::{
    codec,
    object::Object,
    schema::{
        Struct,
        meta_v1::{PARTIAL_OBJECT_METADATA, STATUS},
    },
    table::partial,
};

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// Responses of up to this many bytes are not charged: connections keep as much of any response.
const SHORT: usize = 16 << 10;

/// A response.
#[derive(Debug)]
pub struct ApiResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers, without the length.
    pub headers: HeaderMap,
    /// The body.
    pub body: ApiBody,
    /// Whose memory the body is.
    pub memory: MemoryOf,
}

/// The body of a response.
#[derive(Debug)]
pub enum ApiBody {
    /// Complete.
    Full(Bytes),
    /// A watch: changes, as they happen.
    Watch(Box<WatchStream>),
}

impl ApiResponse {
    /// A response with a complete body.
    pub fn full(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        Self {
            status,
            headers,
            body: ApiBody::Full(body.into()),
            memory: MemoryOf::Seat,
        }
    }

    /// The same, with a body that other responses share.
    #[must_use]
    pub(crate) fn shared(mut self) -> Self {
        self.memory = MemoryOf::All;
        self
    }

    /// Charges the body to a user, unless it is short or shared.
    ///
    /// # Errors
    ///
    /// The bytes for which there is no room.
    pub(crate) fn charge(&mut self, mut share: ResponseShare) -> Result<(), usize> {
        let (ApiBody::Full(body), MemoryOf::Seat) = (&self.body, &self.memory) else {
            return Ok(());
        };
        if body.len() > SHORT {
            if !share.resize(body.len()) {
                return Err(body.len());
            }
            self.memory = MemoryOf::User(share);
        }
        Ok(())
    }

    /// The response to `HEAD`: with the length of the body, but without the body. On HTTP/2 no other layer
    /// removes it.
    #[must_use]
    pub fn without_body(mut self) -> Self {
        if let ApiBody::Full(body) = &mut self.body {
            let length = std::mem::take(body).len();
            self.headers.insert(CONTENT_LENGTH, length.into());
        }
        self
    }

    /// Plain text.
    pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        let mut response = Self::full(status, "text/plain; charset=utf-8", text);
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers.insert(NOSNIFF, nosniff);
        response
    }

    /// The response for an unknown path.
    pub fn not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// A document without a table of fields, such as those of discovery.
    pub fn document(status: StatusCode, value: &Value, output: Output) -> Self {
        let written = match output.media {
            Media::Yaml => Some(codec::yaml::encode(value).into_bytes()),
            Media::Protobuf => discovery::protobuf::encode(value),
            Media::Json => None,
        };
        match written {
            Some(body) => Self::full(status, output.media.name(), body),
            None => Self::full(
                status,
                Media::Json.name(),
                codec::json::encode_plain(value, output.pretty),
            ),
        }
    }

    /// A document of discovery. `json` is its text, without white space.
    pub(crate) fn document_text(json: &[u8], output: Output) -> Self {
        let written = match output.media {
            Media::Json if output.pretty => codec::json::indent(json),
            Media::Json => json.to_vec(),
            Media::Yaml | Media::Protobuf => {
                let value = serde_json::from_slice(json).unwrap_or_default(); // JSON that was written here
                return Self::document(StatusCode::OK, &value, output);
            }
        };
        Self::full(StatusCode::OK, Media::Json.name(), written)
    }

    /// A `Status`.
    pub fn status(status: StatusCode, value: &Value, output: Output) -> Self {
        let output = Output {
            form: None,
            ..output
        };
        write(status, &STATUS, "v1", "Status", value, output)
    }

    /// The response for an error.
    pub fn error(error: &StatusError, mut output: Output) -> Self {
        // A `Status` cannot be converted to a table, so a clause that requests one does not apply.
        if output.form.is_some() {
            output.media = Media::Json;
        }
        let mut response = Self::status(error.code, &error.status(), output);
        if let Some(seconds) = error.retry_after().filter(|seconds| *seconds > 0) {
            let seconds = HeaderValue::from(seconds);
            response.headers.insert(RETRY_AFTER, seconds);
        }
        if let Some(reason) = error.gateway_reason {
            let reason = HeaderValue::from_static(reason);
            response.headers.insert(REASON_HEADER, reason);
        }
        response
    }

    /// Adds `Warning` headers, each text once, and not more than kube-apiserver does.
    #[must_use]
    pub fn warn(mut self, warnings: &[String]) -> Self {
        for text in warning_headers(warnings.iter().map(String::as_str)) {
            if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
                self.headers.append(WARNING, value);
            }
        }
        self
    }
}

/// Encodes an object that has a table of fields.
fn write(
    status: StatusCode,
    shape: &'static Struct,
    api_version: &str,
    kind: &str,
    value: &Value,
    output: Output,
) -> ApiResponse {
    match output.media {
        Media::Json => ApiResponse::full(
            status,
            Media::Json.name(),
            codec::json::encode(shape, value, output.pretty),
        ),
        Media::Yaml => ApiResponse::full(status, Media::Yaml.name(), codec::yaml::encode(value)),
        Media::Protobuf => ApiResponse::full(
            status,
            Media::Protobuf.name(),
            codec::envelope::seal(api_version, kind, &codec::protobuf::encode(shape, value)),
        ),
    }
}

impl ObjectWriter {
    /// One object, in the version of the writer, with its stored form for tables.
    ///
    /// # Errors
    ///
    /// 406, when a list was requested.
    pub fn object(&self, status: StatusCode, object: &Object) -> Result<ApiResponse, StatusError> {
        let value = object.value(self.version);
        Ok(match self.output.form {
            None if self.output.media == Media::Json && !self.output.pretty => {
                let mut json = object.json(self.version).to_vec();
                json.push(b'\n');
                ApiResponse::full(status, Media::Json.name(), json)
            }
            None => write(
                status,
                self.version.shape,
                &self.kind.api_version(self.version.name),
                self.kind.kind,
                value,
                self.output,
            ),
            Some(Representation::Table(_)) => {
                let table = self.layout.single(object.stored(), value, true);
                ApiResponse::document(status, &table, self.output)
            }
            Some(Representation::Partial(meta)) => write(
                status,
                &PARTIAL_OBJECT_METADATA,
                &format!("meta.k8s.io/{meta}"),
                "PartialObjectMetadata",
                &partial(object.stored(), meta),
                self.output,
            ),
            Some(Representation::PartialList(_)) => {
                return Err(StatusError::not_acceptable(format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list \
                     (*{})",
                    self.go_type(self.kind.kind)
                )));
            }
        })
    }

    /// The Go type of a kind, which some messages show.
    pub(super) fn go_type(&self, kind: &str) -> String {
        let package = self.kind.group.split('.').next().unwrap_or_default();
        format!("{package}.{kind}")
    }
}
