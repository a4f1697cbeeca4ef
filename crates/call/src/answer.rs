//! What a client hears when its request is not served.
//!
//! One exhaustive `match` says it all. The rules behind it: clients repeat any request that gets a
//! `Retry-After`, whatever its verb, so a request that may have been carried out never gets one; and
//! a watch that cannot be accepted gets 429, because on anything else its client lists everything
//! again. Answers of our own bear `X-Fairgate-Reason`.
//!
//! [`Answer`] is the layer that applies it, and that turns a panic into an answer.

use std::{
    any::Any,
    borrow::Cow,
    convert::Infallible,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER},
};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::{Inbound, Refusal, Reply, ReplyBody, RequestContext, RequestKind, status::Status};

/// Tells our own answers from the upstream's, and why they were given.
pub const REASON_HEADER: HeaderName = HeaderName::from_static("x-fairgate-reason");
/// UID of the FlowSchema a request was matched by.
pub const SCHEMA_UID_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
/// UID of the priority level a request was placed in.
pub const LEVEL_UID_HEADER: HeaderName =
    HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// What is said, before it is bytes.
struct Spoken<'a> {
    code: StatusCode,
    /// For programs; empty when the API server has no word for it.
    reason: &'static str,
    message: Cow<'a, str>,
    /// Seconds; 0 for none.
    retry_after: u32,
    /// Whether it is plain text instead of a `Status`.
    text: bool,
}

fn status(
    code: StatusCode,
    reason: &'static str,
    message: &(impl ToString + ?Sized),
) -> Spoken<'static> {
    Spoken {
        code,
        reason,
        message: Cow::Owned(message.to_string()),
        retry_after: 0,
        text: false,
    }
}

fn text(code: StatusCode, message: &(impl ToString + ?Sized)) -> Spoken<'static> {
    Spoken {
        text: true,
        ..status(code, "", message)
    }
}

impl Spoken<'_> {
    fn retry_after(self, seconds: u32) -> Self {
        Self {
            retry_after: seconds,
            ..self
        }
    }
}

/// Says `refusal` to a client that made a request of this `kind`.
fn speak(refusal: &Refusal, kind: RequestKind, context: &RequestContext) -> Spoken<'static> {
    use Refusal as R;
    use StatusCode as S;
    let ours = || format!("fairgate: {refusal}");
    match refusal {
        R::Malformed(_) => status(S::BAD_REQUEST, "BadRequest", &ours()),
        R::BadTimeout(_) => status(S::BAD_REQUEST, "BadRequest", refusal),
        R::MethodNotAllowed => status(S::METHOD_NOT_ALLOWED, "MethodNotAllowed", refusal),
        R::ExpectationFailed => text(S::EXPECTATION_FAILED, &ours()),
        R::Unclassifiable => text(S::INTERNAL_SERVER_ERROR, &unclassifiable(refusal, context)),
        R::Misdirected => text(S::MISDIRECTED_REQUEST, &ours()),
        R::Unauthorized => status(S::UNAUTHORIZED, "Unauthorized", refusal),
        R::Forbidden(_) => status(S::FORBIDDEN, "Forbidden", refusal),
        R::IdentityNotRepresentable(_) => status(S::FORBIDDEN, "Forbidden", &ours()),
        R::TooManyRequests(rejection) => {
            text(S::TOO_MANY_REQUESTS, refusal).retry_after(rejection.retry_after)
        }
        R::TooManyLongRunning { retry_after }
        | R::TooManyWatches { retry_after }
        | R::TooManyResets { retry_after } => {
            status(S::TOO_MANY_REQUESTS, "TooManyRequests", &ours()).retry_after(*retry_after)
        }
        R::ClientGone
        | R::CredentialCheckUnavailable
        | R::Draining
        | R::UpstreamFull
        | R::UpstreamUnreachable => unavailable(kind, &ours()).retry_after(1),
        R::UpstreamFailed if kind.may_repeat() => unavailable(kind, &ours()).retry_after(1),
        R::UpstreamFailed => status(S::BAD_GATEWAY, "InternalError", &ours()),
        R::UpstreamTimeout => status(S::GATEWAY_TIMEOUT, "Timeout", refusal),
        R::HeadersTooLarge => text(S::REQUEST_HEADER_FIELDS_TOO_LARGE, &ours()),
        R::Internal(_) => status(
            S::INTERNAL_SERVER_ERROR,
            "InternalError",
            "Internal error occurred: fairgate failed to handle the request",
        ),
    }
}

/// Not now: 429 to a watch, which then waits and watches again; 503 to the rest.
fn unavailable(kind: RequestKind, message: &str) -> Spoken<'static> {
    if kind == RequestKind::Watch {
        status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    } else {
        status(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
    }
}

/// The API server's own words, its escaping included.
fn unclassifiable(refusal: &Refusal, context: &RequestContext) -> String {
    let target = context
        .target
        .as_ref()
        .map_or("", http::uri::PathAndQuery::as_str);
    format!("Internal Server Error: {target:?}: {refusal}, {target}")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Turns `refusal` into the reply to the request that `trace` is of.
pub fn reply(refusal: &Refusal, context: &RequestContext) -> Reply {
    let spoken = speak(refusal, context.kind.get(), context);
    context.trace.reason.set(Some(refusal.reason()));
    let reply = render(&spoken, refusal.reason());
    if context.method == Method::HEAD {
        without_body(reply)
    } else {
        reply
    }
}

fn render(spoken: &Spoken<'_>, reason: &'static str) -> Reply {
    let (body, content_type) = if spoken.text {
        (format!("{}\n", spoken.message), "text/plain; charset=utf-8")
    } else {
        let status = Status {
            message: &spoken.message,
            reason: spoken.reason,
            retry_after: spoken.retry_after,
            code: spoken.code.as_u16(),
        };
        (status.to_json(), "application/json")
    };
    let mut reply = Response::new(ReplyBody::full(body));
    *reply.status_mut() = spoken.code;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(REASON_HEADER, HeaderValue::from_static(reason));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if spoken.code != StatusCode::UNAUTHORIZED {
        headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    }
    if spoken.retry_after > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(spoken.retry_after));
    }
    reply
}

/// The answer to a `HEAD`: the length of the body, not the body.
fn without_body(reply: Reply) -> Reply {
    let (mut parts, body) = reply.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts
            .headers
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, ReplyBody::empty())
}

/// The layer that answers refusals and panics.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerLayer;

impl<S> Layer<S> for AnswerLayer {
    type Service = Answer<S>;

    fn layer(&self, inner: S) -> Answer<S> {
        Answer { inner }
    }
}

/// See [`AnswerLayer`].
#[derive(Clone, Debug)]
pub struct Answer<S> {
    inner: S,
}

impl<S> Service<Inbound> for Answer<S>
where
    S: Service<Inbound, Response = Reply, Error = Refusal>,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        let context = inbound.context.clone();
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(inbound)));
        let (future, panicked) = match called {
            Ok(future) => (Some(future), None),
            Err(panic) => (None, Some(panicked(&*panic))),
        };
        Answering {
            future,
            panicked,
            context,
        }
    }
}

pin_project! {
    /// The future of [`Answer`].
    pub struct Answering<F> {
        #[pin]
        future: Option<F>,
        panicked: Option<Refusal>,
        context: Rc<RequestContext>,
    }
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let polled = match this.future.as_mut().as_pin_mut() {
            None => Err(this.panicked.take().unwrap_or_else(polled_again)),
            Some(future) => match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(done)) => done,
                Err(panic) => Err(panicked(&*panic)),
            },
        };
        let context = &**this.context;
        // What the request holds goes before the answer does; a panic in there changes nothing more.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            this.future.set(None);
            // It knows its trace, and must not keep it alive.
            drop(context.timed_out.take());
        }));
        let mut reply = polled.unwrap_or_else(|refusal| {
            if let Refusal::Internal(detail) = &refusal {
                tracing::error!(%detail, "the gateway failed to handle a request");
            }
            reply(&refusal, context)
        });
        tell_flow(reply.headers_mut(), context);
        context.trace.status.set(reply.status().as_u16());
        Poll::Ready(Ok(reply))
    }
}

/// Tells by which flow schema and in which priority level the request was judged here. What the
/// upstream says of itself is replaced: clients take the pair as a whole.
fn tell_flow(headers: &mut http::HeaderMap, context: &RequestContext) {
    if let Some(uids) = context.flow_uids.get() {
        headers.insert(SCHEMA_UID_HEADER, uids.schema.clone());
        headers.insert(LEVEL_UID_HEADER, uids.level.clone());
    }
}

fn polled_again() -> Refusal {
    Refusal::Internal("a finished request was polled again".into())
}

fn panicked(panic: &(dyn Any + Send)) -> Refusal {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Refusal::Internal(format!("panic: {message}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowUids, refusal::Rejection};
    use fairgate_core::rejection::RejectReason;

    fn said(refusal: &Refusal, kind: RequestKind) -> (u16, Option<String>) {
        let context = RequestContext::new(Method::GET, None, 0);
        context.kind.set(kind);
        let reply = reply(refusal, &context);
        let retry = reply
            .headers()
            .get(RETRY_AFTER)
            .map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(reply.headers()[REASON_HEADER], refusal.reason());
        (reply.status().as_u16(), retry)
    }

    #[test]
    fn a_request_that_may_have_run_is_never_invited_to_come_again() {
        for refusal in [Refusal::UpstreamFailed, Refusal::UpstreamTimeout] {
            for kind in [RequestKind::Mutating, RequestKind::LongRunning] {
                assert_eq!(said(&refusal, kind).1, None, "{refusal} {kind:?}");
            }
        }
    }

    #[test]
    fn a_watch_that_cannot_be_accepted_gets_429() {
        for refusal in [
            Refusal::UpstreamUnreachable,
            Refusal::Draining,
            Refusal::UpstreamFailed,
            Refusal::CredentialCheckUnavailable,
        ] {
            assert_eq!(
                said(&refusal, RequestKind::Watch),
                (429, Some("1".to_owned())),
                "{refusal}"
            );
        }
        assert_eq!(
            said(&Refusal::UpstreamUnreachable, RequestKind::Mutating),
            (503, Some("1".to_owned()))
        );
    }

    #[test]
    fn flow_control_answers_in_plain_text_with_both_uids() {
        let refusal = Refusal::TooManyRequests(Box::new(Rejection {
            reason: RejectReason::QueueFull,
            retry_after: 4,
        }));
        let context = RequestContext::new(Method::GET, None, 0);
        let uids = FlowUids {
            schema: HeaderValue::from_static("s"),
            level: HeaderValue::from_static("l"),
        };
        assert!(context.flow_uids.set(uids).is_ok());
        let mut reply = reply(&refusal, &context);
        tell_flow(reply.headers_mut(), &context);
        let headers = reply.headers();
        assert_eq!(headers[RETRY_AFTER], "4");
        assert_eq!(headers[CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(headers[SCHEMA_UID_HEADER], "s");
        assert_eq!(headers[LEVEL_UID_HEADER], "l");
        assert_eq!(
            http_body::Body::size_hint(reply.body()).exact(),
            Some("Too many requests, please try again later.\n".len() as u64)
        );
    }

    #[test]
    fn a_head_request_gets_the_length_without_the_body() {
        let reply = reply(
            &Refusal::Unauthorized,
            &RequestContext::new(Method::HEAD, None, 0),
        );
        assert_ne!(reply.headers()[CONTENT_LENGTH], "0");
        assert!(http_body::Body::is_end_stream(reply.body()));
    }

    #[tokio::test]
    async fn a_panic_becomes_an_internal_error() {
        use crate::{ClientBody, Peer};

        struct Panics;
        impl Service<Inbound> for Panics {
            type Response = Reply;
            type Error = Refusal;
            type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;
            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, _: Inbound) -> Self::Future {
                Box::pin(async { panic!("on purpose") })
            }
        }

        let inbound = Inbound {
            request: http::Request::new(ClientBody::empty()),
            peer: Rc::new(Peer::local()),
            received: fairgate_core::time::Time::ZERO,
            context: Rc::new(RequestContext::default()),
        };
        let reply = AnswerLayer.layer(Panics).call(inbound).await.unwrap();
        assert_eq!(reply.status(), 500);
    }
}
