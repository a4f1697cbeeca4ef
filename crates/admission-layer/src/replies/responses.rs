//! The responses to requests that are not forwarded.

use fairgate_apihttp::{
    negotiate::Output,
    response::{ApiBody, ApiResponse},
    status_error::StatusError,
};
use fairgate_call::{Reply, ReplyBody, RequestContext, refusal_reply::REASON_HEADER};
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{RETRY_AFTER, WARNING},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{limits::body_budget::MAX_BODY, replies::dry_run::DryRunRefusal, request::warnings};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Why a request is not forwarded, in one word.
pub(crate) mod reasons {
    /// A policy denies it.
    pub(crate) use fairgate_apihttp::status_error::gateway_reasons::ADMISSION_DENIED as DENIED;
    /// The policies are not known yet.
    pub(crate) use fairgate_apihttp::status_error::gateway_reasons::ADMISSION_NOT_READY as NOT_READY;
    /// The policies have not been confirmed for too long.
    pub(crate) const STALE: &str = "admission-stale";
    /// The bodies that are being evaluated use up the memory for them.
    pub(crate) const NO_ROOM: &str = "admission-memory";
    /// Its body, its options or its path cannot be evaluated.
    pub(crate) const MALFORMED: &str = "admission-malformed";
    /// What is needed to evaluate it could not be read.
    pub(crate) const FAILED: &str = "admission-failed";
    /// The user is not allowed to make it.
    pub(crate) const FORBIDDEN: &str = "forbidden";
}

/// A response, and why the request is not forwarded; empty if the upstream made it.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) response: ApiResponse,
    pub(crate) reason: &'static str,
}

impl RefusedRequest {
    /// An error before there is a verdict.
    pub(crate) fn error(error: &StatusError, reason: &'static str, output: Output) -> Self {
        Self {
            response: ApiResponse::error(error, output),
            reason,
        }
    }

    /// What a server says before it asks its policies.
    pub(crate) fn earlier(response: ApiResponse) -> Self {
        Self {
            response,
            reason: reasons::MALFORMED,
        }
    }

    /// The body is too long.
    pub(crate) fn too_long(output: Output) -> Self {
        let error = StatusError::too_large(&format!("limit is {MAX_BODY}"));
        Self::error(&error, reasons::MALFORMED, output)
    }

    /// There is no memory for the body now.
    pub(crate) fn no_room(output: Output) -> Self {
        let error = StatusError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "fairgate: no memory is left for request bodies that admission policies must see",
        );
        let error = error.with_details(json!({"retryAfterSeconds": 1}));
        Self::error(&error, reasons::NO_ROOM, output)
    }

    /// What is needed to evaluate the request could not be read.
    pub(crate) fn failed(why: &str, output: Output) -> Self {
        let text = format!("fairgate: the admission policies cannot be evaluated: {why}");
        let code = StatusCode::INTERNAL_SERVER_ERROR;
        let error = StatusError::new(code, "InternalError", text);
        Self::error(&error, reasons::FAILED, output)
    }

    /// A verdict. The warnings are those of the upstream about the dry run of the request.
    pub(crate) fn denied(
        code: StatusCode,
        status: &Value,
        warnings: &[HeaderValue],
        output: Output,
    ) -> Self {
        let mut response = ApiResponse::status(code, status, output);
        for warning in warnings {
            response.headers.append(WARNING, warning.clone());
        }
        Self {
            response,
            reason: reasons::DENIED,
        }
    }

    /// An error response of the upstream to the dry run of the request.
    pub(crate) fn by_upstream(status: StatusCode, refusal: DryRunRefusal, output: Output) -> Self {
        let body = refusal.body;
        let value = serde_json::from_slice::<Value>(&body).ok();
        let mut response = match value.filter(|value| value["kind"] == "Status") {
            Some(value) => ApiResponse::status(status, &value, output),
            None => ApiResponse::text(status, body),
        };
        if let Some(seconds) = refusal.retry_after {
            response.headers.insert(RETRY_AFTER, seconds);
        }
        for warning in refusal.warnings {
            response.headers.append(WARNING, warning);
        }
        Self {
            response,
            reason: "",
        }
    }

    /// The policies are not known, although the request has waited for them.
    pub(crate) fn not_ready(group: &str, resource: &str, name: &str, output: Output) -> Self {
        let error = StatusError::not_ready(group, resource, name);
        Self::error(&error, reasons::NOT_READY, output)
    }

    /// The reply to a request, with the warnings of policies.
    pub(crate) fn reply(self, warnings: &[String], context: &RequestContext) -> Reply {
        context.is_refused.set(true);
        let body = match self.response.body {
            ApiBody::Full(bytes) => ReplyBody::full(bytes),
            ApiBody::Stream(_) => ReplyBody::empty(),
        };
        let mut reply = Response::new(body);
        *reply.status_mut() = self.response.status;
        *reply.headers_mut() = self.response.headers;
        let headers = reply.headers_mut();
        warnings::merge(headers, warnings);
        if !self.reason.is_empty() {
            headers.insert(REASON_HEADER, HeaderValue::from_static(self.reason));
            context.trace.reason.set(Some(self.reason));
        }
        if let Ok(id) = HeaderValue::from_str(&Uuid::from_u128(context.id).to_string()) {
            headers.insert(AUDIT_ID, id);
        }
        reply
    }
}
