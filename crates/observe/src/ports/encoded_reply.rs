//! The response of an endpoint for operators, as it is sent: with its headers, and compressed for clients that
//! accept it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, VARY},
};

use super::endpoints::{EndpointResponse, TEXT};

/// The least size in bytes of a response that is compressed, for clients that accept that.
const MIN_COMPRESSED: usize = 1024;

/// A response that is ready to be sent.
pub(crate) type EncodedReply = Response<Bytes>;

/// Encodes a response; long ones as gzip, if the client accepts that. Compresses on the blocking pool.
pub(crate) async fn encode(found: EndpointResponse, accepts_gzip: bool) -> EncodedReply {
    if found.text.len() >= MIN_COMPRESSED && accepts_gzip {
        return compressed(found).await;
    }
    respond(found.status, found.content_type, found.text)
}

/// Whether the client accepts gzip. Prometheus does, which reduces a scrape to a twentieth of its size.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|coding| coding.replace(' ', ""));
    codings.any(|coding| match coding.split_once(';') {
        None => coding.eq_ignore_ascii_case("gzip"),
        Some((name, weight)) => {
            let weight = weight
                .strip_prefix("q=")
                .and_then(|q| q.parse::<f32>().ok());
            name.eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
        }
    })
}

/// The response as gzip.
async fn compressed(found: EndpointResponse) -> EncodedReply {
    let EndpointResponse {
        status,
        content_type,
        text,
    } = found;
    let compress = move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes())?;
        encoder.finish()
    };
    let Ok(Ok(bytes)) = tokio::task::spawn_blocking(compress).await else {
        return self::text(StatusCode::INTERNAL_SERVER_ERROR, "compressing failed\n");
    };
    let mut reply = respond(status, content_type, bytes);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    reply
}

/// The response where there is no endpoint.
pub(crate) fn not_found() -> EncodedReply {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A short text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> EncodedReply {
    respond(status, TEXT, text)
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> EncodedReply {
    let mut reply = Response::new(body.into());
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    reply
}
