//! A request of the mix of a client as one user sends it.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::Full;

use crate::{
    scenario::{RequestSpec, body::LoadBody},
    transport::target::LoadTarget,
};
use fairgate_upstream::dial::HttpVersion;

/// A request that is ready to be sent, but for the number of one with an object.
#[derive(Debug)]
pub(super) struct LoadRequest {
    ready: Request<Full<Bytes>>,
    body: LoadBody,
}

impl LoadRequest {
    /// The request of the user with this number, from 1, and with these headers that say who it is.
    pub(super) fn new(
        spec: &RequestSpec,
        version: HttpVersion,
        number: u32,
        target: &LoadTarget,
        identity: &HeaderMap,
    ) -> Self {
        let body = LoadBody::of(spec, &spec.info_of(number));
        let scheme = if target.is_secure() { "https" } else { "http" };
        let path = spec.target_of(number);
        let uri = match version {
            HttpVersion::Http1 => path,
            HttpVersion::Http2 => format!("{scheme}://{}{path}", target.authority),
        };
        let mut ready = Request::new(Full::new(body.numbered(0)));
        *ready.method_mut() = spec.method.parse().unwrap_or_default();
        *ready.uri_mut() = uri.parse().unwrap_or_default();
        let headers = ready.headers_mut();
        if version == HttpVersion::Http1 {
            let host = HeaderValue::try_from(target.authority.as_str());
            headers.insert(
                header::HOST,
                host.unwrap_or(HeaderValue::from_static("localhost")),
            );
        }
        headers.extend(identity.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static("fairgate-loadtest"),
        );
        if let Some(media_type) = body.media_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        Self { ready, body }
    }

    /// The request with this number, which makes its object differ from that of others.
    pub(super) fn numbered(&self, number: u64) -> Cow<'_, Request<Full<Bytes>>> {
        if self.body.filling() == 0 {
            return Cow::Borrowed(&self.ready);
        }
        let mut request = self.ready.clone();
        *request.body_mut() = Full::new(self.body.numbered(number));
        Cow::Owned(request)
    }
}
