//! Responses, encoded in the negotiated format.

use std::convert::Infallible;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER, WARNING},
};
use serde_json::Value;

use crate::{
    negotiate::{Media, Output},
    status_error::StatusError,
};
pub use fairgate_admission::warning_headers;
use fairgate_call::{MemoryOf, ResponseShare, refusal_reply::REASON_HEADER};
use fairgate_objects::{
    codec,
    schema::{Struct, meta_v1::STATUS},
};

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// Responses of up to this many bytes are not charged: connections keep as much of any response.
const SHORT: usize = 16 << 10;

/// A response. Its body can be a stream of type `S`, if whoever makes it has any.
#[derive(Debug)]
pub struct ApiResponse<S = Infallible> {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers, without the length.
    pub headers: HeaderMap,
    /// The body.
    pub body: ApiBody<S>,
    /// Whose memory the body is.
    pub memory: MemoryOf,
}

/// The body of a response.
#[derive(Debug)]
pub enum ApiBody<S = Infallible> {
    /// Complete.
    Full(Bytes),
    /// Comes piece by piece, such as the changes of a watch.
    Stream(S),
}

impl<S> ApiResponse<S> {
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
    pub fn shared(mut self) -> Self {
        self.memory = MemoryOf::All;
        self
    }

    /// Charges the body to a user, unless it is short or shared.
    ///
    /// # Errors
    ///
    /// The bytes for which there is no room.
    pub fn charge(&mut self, mut share: ResponseShare) -> Result<(), usize> {
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

    /// A document without a table of fields, which has no form in protobuf.
    pub fn document(status: StatusCode, value: &Value, output: Output) -> Self {
        match output.media {
            Media::Yaml => {
                let body = codec::yaml::encode(value).into_bytes();
                Self::full(status, output.media.name(), body)
            }
            Media::Json | Media::Protobuf => Self::full(
                status,
                Media::Json.name(),
                codec::json::encode_plain(value, output.pretty),
            ),
        }
    }

    /// A `Status`.
    pub fn status(status: StatusCode, value: &Value, output: Output) -> Self {
        let output = Output {
            form: None,
            ..output
        };
        Self::encoded(status, &STATUS, "v1", "Status", value, output)
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

    /// An object that has a table of fields.
    pub fn encoded(
        status: StatusCode,
        shape: &'static Struct,
        api_version: &str,
        kind: &str,
        value: &Value,
        output: Output,
    ) -> Self {
        match output.media {
            Media::Json => Self::full(
                status,
                Media::Json.name(),
                codec::json::encode(shape, value, output.pretty),
            ),
            Media::Yaml => Self::full(status, Media::Yaml.name(), codec::yaml::encode(value)),
            Media::Protobuf => Self::full(
                status,
                Media::Protobuf.name(),
                codec::envelope::seal(api_version, kind, &codec::protobuf::encode(shape, value)),
            ),
        }
    }
}
