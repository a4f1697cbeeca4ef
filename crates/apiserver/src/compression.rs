//! Compression of long responses, for clients that accept gzip.

use std::io::Write as _;

use bytes::Bytes;
use fairgate_call::MemoryOf;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_ENCODING, VARY},
};

use crate::{HostedBody, HostedResponse};
use fairgate_apihttp::request::ApiRequest;

/// Bodies longer than this are compressed, in bytes; kube-apiserver has the same threshold.
pub(super) const COMPRESS_FROM: usize = 128 << 10;

/// Compresses a long response, if the client accepts that. One that others share is in the form that the client gets already.
pub(super) fn compressed(request: &ApiRequest, mut response: HostedResponse) -> HostedResponse {
    let (HostedBody::Full(body), MemoryOf::Seat) = (&response.body, &response.memory) else {
        return response;
    };
    if body.len() <= COMPRESS_FROM || !accepts_gzip(&request.headers) {
        return response;
    }
    if let Some(compressed) = gzip(body) {
        response.body = HostedBody::Full(compressed);
        mark(&mut response.headers);
    }
    response
}

/// The headers of a response that is compressed.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses at the lowest level, which kube-apiserver uses, too: speed counts more than size.
pub(super) fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    compressed.ok().map(Bytes::from)
}

/// Whether a client accepts gzip.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(http::header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.split(';').next().unwrap_or_default().trim() == "gzip")
}
