//! The reply to a request that is not served.
//!
//! One exhaustive `match` decides status, body and headers for every [`Refusal`]. It follows two rules.
//! Clients repeat any request that gets a `Retry-After`, whatever its verb, so a request that may have been
//! carried out never gets one. And a watch that cannot be accepted gets 429, because on anything else its
//! client lists everything again. Replies of the gateway itself carry `X-Fairgate-Reason`.

pub mod handle_refusal;
mod status;

use std::borrow::Cow;

use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER},
};

use uuid::{Uuid, fmt::Hyphenated};

use self::status::Status;
use crate::{Refusal, Reply, ReplyBody, RequestContext, RequestKind};

/// Marks replies of the gateway itself; its value is the reason of the refusal.
pub const REASON_HEADER: HeaderName = HeaderName::from_static("x-fairgate-reason");
/// The id by which the log and the upstream's audit log name the request.
const AUDIT_ID_HEADER: HeaderName = HeaderName::from_static("audit-id");
/// UID of the FlowSchema that matched the request.
const SCHEMA_UID_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
/// UID of the request's priority level.
const LEVEL_UID_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// So many headers has a reply at most: those of this file, the date and the length, and whether the connection is closed.
const MOST_HEADERS: usize = 11;

/// A reply before it is rendered.
struct RefusalReply<'a> {
    code: StatusCode,
    /// The `reason` of the `Status`; empty if the API server has none for it.
    reason: &'static str,
    message: Cow<'a, str>,
    /// Seconds; 0 for none.
    retry_after: u32,
    /// Plain text instead of a `Status`, where the API server sends plain text.
    text: bool,
}

fn status(
    code: StatusCode,
    reason: &'static str,
    message: &(impl ToString + ?Sized),
) -> RefusalReply<'static> {
    RefusalReply {
        code,
        reason,
        message: Cow::Owned(message.to_string()),
        retry_after: 0,
        text: false,
    }
}

fn text(code: StatusCode, message: &(impl ToString + ?Sized)) -> RefusalReply<'static> {
    RefusalReply {
        text: true,
        ..status(code, "", message)
    }
}

impl RefusalReply<'_> {
    fn retry_after(self, seconds: u32) -> Self {
        Self {
            retry_after: seconds,
            ..self
        }
    }
}

/// The reply to a request of this `kind` that was refused with `refusal`.
fn reply_to(
    refusal: &Refusal,
    kind: RequestKind,
    context: &RequestContext,
) -> RefusalReply<'static> {
    use Refusal as R;
    use StatusCode as S;
    let prefixed = || format!("fairgate: {refusal}");
    match refusal {
        R::Malformed(_) => status(S::BAD_REQUEST, "BadRequest", &prefixed()),
        R::BadTimeout(_) => status(S::BAD_REQUEST, "BadRequest", refusal),
        R::MethodNotAllowed => status(S::METHOD_NOT_ALLOWED, "MethodNotAllowed", refusal),
        R::ExpectationFailed => text(S::EXPECTATION_FAILED, &prefixed()),
        R::Unclassifiable => text(S::INTERNAL_SERVER_ERROR, &unclassifiable(refusal, context)),
        R::Misdirected => text(S::MISDIRECTED_REQUEST, &prefixed()),
        R::Unauthorized => status(S::UNAUTHORIZED, "Unauthorized", refusal),
        R::Forbidden(_) => status(S::FORBIDDEN, "Forbidden", refusal),
        R::IdentityNotRepresentable(_) => status(S::FORBIDDEN, "Forbidden", &prefixed()),
        R::TooManyRequests(rejection) => {
            text(S::TOO_MANY_REQUESTS, refusal).retry_after(rejection.retry_after)
        }
        R::TooManyLongRunning { retry_after }
        | R::TooManyWatches { retry_after }
        | R::TooManyLongHeads { retry_after }
        | R::TooManyResets { retry_after } => {
            status(S::TOO_MANY_REQUESTS, "TooManyRequests", &prefixed()).retry_after(*retry_after)
        }
        R::TooManyTokenReviews => {
            status(S::TOO_MANY_REQUESTS, "TooManyRequests", &prefixed()).retry_after(1)
        }
        R::ClientGone
        | R::CredentialCheckUnavailable
        | R::Draining
        | R::UpstreamFull
        | R::UpstreamUnreachable => unavailable(kind, &prefixed()).retry_after(1),
        R::UpstreamFailed if kind.may_repeat() => unavailable(kind, &prefixed()).retry_after(1),
        R::UpstreamFailed => status(S::BAD_GATEWAY, "InternalError", &prefixed()),
        R::BodyTooSlow => status(S::REQUEST_TIMEOUT, "Timeout", &prefixed()),
        R::UpstreamTimeout => status(S::GATEWAY_TIMEOUT, "Timeout", refusal),
        R::HeadersTooLarge => text(S::REQUEST_HEADER_FIELDS_TOO_LARGE, &prefixed()),
        R::Internal(_) => status(
            S::INTERNAL_SERVER_ERROR,
            "InternalError",
            "Internal error occurred: fairgate failed to handle the request",
        ),
    }
}

/// "Try again later": 429 to a watch, whose client then waits and watches again; 503 to all others.
fn unavailable(kind: RequestKind, message: &str) -> RefusalReply<'static> {
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

/// The API server's own message, with its HTML escaping.
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

/// Turns `refusal` into the reply to the request of `context`.
pub fn reply(refusal: &Refusal, context: &RequestContext) -> Reply {
    let rendered = reply_to(refusal, context.kind.get(), context);
    context.trace.reason.set(Some(refusal.reason()));
    let mut reply = render(rendered, refusal.reason());
    let mut id = [0; Hyphenated::LENGTH];
    let id = Hyphenated::from_uuid(Uuid::from_u128(context.id)).encode_lower(&mut id);
    if let Ok(id) = HeaderValue::from_str(id) {
        reply.headers_mut().insert(AUDIT_ID_HEADER, id);
    }
    if context.method == Method::HEAD {
        without_body(reply)
    } else {
        reply
    }
}

fn render(rendered: RefusalReply<'_>, reason: &'static str) -> Reply {
    let (body, content_type) = if rendered.text {
        let mut body = rendered.message.into_owned();
        body.push('\n');
        (body, "text/plain; charset=utf-8")
    } else {
        let status = Status {
            message: &rendered.message,
            reason: rendered.reason,
            retry_after: rendered.retry_after,
            code: rendered.code.as_u16(),
        };
        (status.to_json(), "application/json")
    };
    let mut reply = Response::new(ReplyBody::full(body));
    *reply.status_mut() = rendered.code;
    let headers = reply.headers_mut();
    // Once for all, since growing the map costs as much as several insertions.
    headers.reserve(MOST_HEADERS);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(REASON_HEADER, HeaderValue::from_static(reason));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if rendered.code != StatusCode::UNAUTHORIZED {
        headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    }
    if rendered.retry_after > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(rendered.retry_after));
    }
    reply
}

/// The reply to a `HEAD`: the length of the body without the body.
fn without_body(reply: Reply) -> Reply {
    let (mut parts, body) = reply.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts
            .headers
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, ReplyBody::empty())
}

/// Adds which FlowSchema and priority level classified the request here. It replaces both headers of
/// the upstream, since clients use them as a pair.
pub(super) fn add_flow_uids(headers: &mut http::HeaderMap, context: &RequestContext) {
    if let Some(uids) = context.flow_uids.get() {
        headers.insert(SCHEMA_UID_HEADER, uids.schema.clone());
        headers.insert(LEVEL_UID_HEADER, uids.level.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowUids, refusal::FlowRejection};
    use fairgate_core::rejection::RejectReason;

    fn status_and_retry_after(refusal: &Refusal, kind: RequestKind) -> (u16, Option<String>) {
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
    fn a_refusal_has_the_id_by_which_the_log_names_the_request() {
        for refusal in [Refusal::Unauthorized, Refusal::UpstreamUnreachable] {
            let context = RequestContext::new(Method::GET, None, 0x1234);
            let reply = reply(&refusal, &context);
            let id = "00000000-0000-0000-0000-000000001234";
            assert_eq!(reply.headers()["audit-id"], id, "{refusal}");
        }
    }

    #[test]
    fn a_request_that_may_have_run_never_gets_retry_after() {
        for refusal in [Refusal::UpstreamFailed, Refusal::UpstreamTimeout] {
            for kind in [RequestKind::Mutating, RequestKind::LongRunning] {
                assert_eq!(
                    status_and_retry_after(&refusal, kind).1,
                    None,
                    "{refusal} {kind:?}"
                );
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
            Refusal::TooManyTokenReviews,
        ] {
            assert_eq!(
                status_and_retry_after(&refusal, RequestKind::Watch),
                (429, Some("1".to_owned())),
                "{refusal}"
            );
        }
        assert_eq!(
            status_and_retry_after(&Refusal::UpstreamUnreachable, RequestKind::Mutating),
            (503, Some("1".to_owned()))
        );
    }

    #[test]
    fn a_rejection_by_flow_control_is_plain_text_with_both_uids() {
        let refusal = Refusal::TooManyRequests(Box::new(FlowRejection {
            reason: RejectReason::QueueFull,
            retry_after: 4,
        }));
        let context = RequestContext::new(Method::GET, None, 0);
        let uids = FlowUids {
            schema: HeaderValue::from_static("s"),
            level: HeaderValue::from_static("l"),
        };
        assert!(context.flow_uids.set(uids.into()).is_ok());
        let mut reply = reply(&refusal, &context);
        add_flow_uids(reply.headers_mut(), &context);
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
}
