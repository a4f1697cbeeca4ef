//! Requests for `/metrics` that are forwarded to an upstream: the gateway's flow control metrics are merged into the
//! response.
//!
//! The client's own request is forwarded, so the upstream authorizes it, and its errors reach the client unchanged.
//! `Accept` is narrowed to the uncompressed text format, which every server of metrics has and every client reads.
//! The response is read on the data core and merged on the control runtime. A response in another format, or one
//! that is too long, is passed on unchanged.
//!
//! The memory for such responses is bounded (`metrics_memory`), and each stays in it for a limited time.
//!
//! Not here: `HEAD`, which is passed on unchanged; what a scrape consists of (`metrics_text`).

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response,
    header::{
        ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
        ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RANGE, VARY,
    },
    response::Parts,
};
use http_body::{Body, Frame};

use super::{
    metrics_text,
    upstream_body::{ReadBody, read},
};
use crate::{compression, merging::Merger};
use fairgate_base::tasks;
use fairgate_call::{BodyError, Call, Refusal, Reply, ReplyBody, RequestContext, RequestProgress};

/// The path of the metrics.
const PATH: &[u8] = b"/metrics";
/// The most bytes of an upstream's response that are merged. Those of large clusters have a few MiB.
const MAX_BYTES: usize = 32 << 20;
/// How long a response may take to be sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes from which on a response is compressed.
const COMPRESS_FROM: usize = 1024;

/// A request for metrics.
pub(crate) struct MetricsRequest {
    accepts_gzip: bool,
}

impl MetricsRequest {
    /// `None` if `call` requests anything else.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        let is_read = *call.request.method() == Method::GET && call.digest.info.path() == PATH;
        is_read.then(|| Self {
            accepts_gzip: compression::accepts_gzip(call.request.headers()),
        })
    }
}

/// Changes the client's request so that the response can be merged.
pub(crate) fn narrow<B>(request: &mut http::Request<B>) {
    let headers = request.headers_mut();
    // Nothing can be merged into a 304 or into a part of the text.
    for name in [IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE] {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let text = HeaderValue::from_static("text/plain;version=0.0.4");
    headers.insert(ACCEPT, text);
}

/// Whether a response is in the text format, and not compressed.
fn is_text(headers: &HeaderMap) -> bool {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let mut parts = value(CONTENT_TYPE).unwrap_or_default().split(';');
    let mut media_type = parts.next().unwrap_or_default().trim().split('/');
    let is_plain = media_type
        .next()
        .is_some_and(|name| name.eq_ignore_ascii_case("text"))
        && media_type
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("plain"));
    let is_this_version = parts.all(|parameter| match parameter.trim().split_once('=') {
        Some((name, version)) if name.eq_ignore_ascii_case("version") => version == "0.0.4",
        _ => true,
    });
    let is_coded = value(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    is_plain && is_this_version && !is_coded && !headers.contains_key("content-range")
}

impl Merger {
    /// Merges metrics.
    pub(crate) async fn merge_metrics(
        self,
        request: MetricsRequest,
        upstream: impl Future<Output = Result<Reply, Refusal>>,
    ) -> Result<Reply, Refusal> {
        let (head, body) = upstream.await?.into_parts();
        if head.status != http::StatusCode::OK || !is_text(&head.headers) {
            return Ok(Response::from_parts(head, body));
        }
        let memory = &self.hosted.metrics_memory;
        // Before the body is read, so that no more than a few texts are in memory at once, however many clients ask.
        let _merging = self.in_time(memory.merge()).await?;
        let text = match self.in_time(read(body, MAX_BYTES)).await?? {
            ReadBody::Whole(text) => text,
            ReadBody::TooLong(begin, rest) => {
                tracing::warn!(
                    "the upstream's metrics have more than {MAX_BYTES} bytes; passing them on unchanged"
                );
                let permit = self.in_time(memory.keep(begin.len())).await?;
                let begin = ReplyBody::in_memory(begin, permit, SEND_TIMEOUT);
                let body = ReplyBody::boxed(ChainedBody {
                    begin: Some(begin),
                    rest,
                    context: self.context,
                });
                return Ok(Response::from_parts(head, body));
            }
        };
        // The upstream has done its part; what follows is the gateway's own work.
        self.context.reached(RequestProgress::Done);
        let merged = self
            .merged_metrics(text.clone(), request.accepts_gzip)
            .await?;
        let (head, bytes) = match merged {
            Some((bytes, is_gzip)) => (merged_head(head, &bytes, is_gzip), bytes),
            None => (head, text),
        };
        let permit = self.in_time(memory.keep(bytes.len())).await?;
        let body = ReplyBody::in_memory(bytes, permit, SEND_TIMEOUT);
        Ok(Response::from_parts(head, body))
    }

    /// The merged text, and whether it is compressed; `None` if the upstream's is not understood.
    async fn merged_metrics(
        &self,
        upstream: Bytes,
        accepts_gzip: bool,
    ) -> Result<Option<(Bytes, bool)>, Refusal> {
        let hosted = Arc::clone(&self.hosted);
        let own =
            tasks::spawn_with_result(&self.control, async move { hosted.own_metrics().await });
        let own = self.in_time(own).await?;
        let Some(own) = own.map_err(|error| Refusal::Internal(error.to_string().into()))? else {
            return Ok(None);
        };
        let merging = self.control.spawn_blocking(move || {
            let upstream = std::str::from_utf8(&upstream).ok();
            let merged = upstream.and_then(|upstream| metrics_text::merge(upstream, &own));
            let Some(merged) = merged.map(Bytes::from) else {
                tracing::warn!(
                    "the upstream's metrics are not in the text format; passing them on unchanged"
                );
                return None;
            };
            let is_long = accepts_gzip && merged.len() >= COMPRESS_FROM;
            let compressed = is_long.then(|| compression::gzip(&merged)).flatten();
            Some(compressed.map_or((merged, false), |bytes| (bytes, true)))
        });
        merging
            .await
            .map_err(|error| Refusal::Internal(error.to_string().into()))
    }
}

/// The head of the response with the merged text, which may be compressed.
fn merged_head(mut head: Parts, bytes: &Bytes, is_gzip: bool) -> Parts {
    let headers = &mut head.headers;
    // These describe the upstream's text.
    for name in [ACCEPT_RANGES, CONTENT_ENCODING, ETAG, LAST_MODIFIED] {
        headers.remove(name);
    }
    headers.insert(CONTENT_LENGTH, bytes.len().into());
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    head
}

/// A body of which the beginning was read already.
struct ChainedBody {
    begin: Option<ReplyBody>,
    rest: ReplyBody,
    context: Rc<RequestContext>,
}

impl Body for ChainedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(begin) = &mut self.begin {
            if let Some(frame) = ready!(Pin::new(begin).poll_frame(cx)) {
                return Poll::Ready(Some(frame));
            }
            self.begin = None;
        }
        let frame = ready!(Pin::new(&mut self.rest).poll_frame(cx));
        if frame.is_none() {
            self.context.reached(RequestProgress::Done);
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn only_the_plain_text_format_is_merged() {
        let is = |headers: &[(&'static str, &'static str)]| {
            let mut all = HeaderMap::new();
            for (name, value) in headers {
                all.insert(*name, HeaderValue::from_static(value));
            }
            is_text(&all)
        };
        let kube = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
        assert!(is(&[("content-type", kube)]));
        assert!(is(&[("content-type", "Text/Plain")]));
        assert!(is(&[
            ("content-type", kube),
            ("content-encoding", "identity")
        ]));
        assert!(!is(&[("content-type", kube), ("content-encoding", "gzip")]));
        assert!(!is(&[
            ("content-type", kube),
            ("content-range", "bytes 0-1/2")
        ]));
        assert!(!is(&[("content-type", "text/plain; version=1.0.0")]));
        assert!(!is(&[("content-type", "text/html")]));
        assert!(!is(&[(
            "content-type",
            "application/openmetrics-text; version=1.0.0"
        )]));
        assert!(!is(&[]));
    }

    #[tokio::test]
    async fn the_rest_of_a_long_body_follows_its_beginning() {
        let context = Rc::<RequestContext>::default();
        let body = ChainedBody {
            begin: Some(ReplyBody::full("ab")),
            rest: ReplyBody::full("cd"),
            context: Rc::clone(&context),
        };
        let whole = body.collect().await.unwrap().to_bytes();
        assert_eq!(whole, "abcd");
        assert_eq!(context.progress.get(), RequestProgress::Done);
    }
}
