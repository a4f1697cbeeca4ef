//! The responses to evictions.

use http::{HeaderName, HeaderValue, Response, StatusCode, header::RETRY_AFTER};
use serde_json::Value;
use uuid::Uuid;

use crate::{body::BodyRefusal, events::EvictionOutcome, upstream_response::UpstreamResponse};
use fairgate_apihttp::{
    negotiate::Output,
    response::{ApiBody, ApiResponse},
    status_error::StatusError,
};
use fairgate_call::{Reply, ReplyBody, RequestContext, refusal_reply::REASON_HEADER};
use fairgate_disruption::{
    NeverAllows,
    procedure::{
        machine::EvictionResult,
        refusal::{EvictionRefusal, EvictionStatus},
    },
    waiting::BudgetName,
};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// How an eviction ended, and the response.
#[derive(Debug)]
pub(crate) struct EvictionEnd {
    pub(crate) outcome: EvictionOutcome,
    /// The reason in one word, for the log; empty if the pod is evicted.
    pub(crate) reason: &'static str,
    pub(crate) response: ApiResponse,
    /// The budget that has refused the eviction, which may be tried again, and what it lacks.
    pub(crate) refused_by: Option<(BudgetName, String)>,
    /// Whether only the attempt has failed, and the eviction continues to wait.
    pub(crate) waits_on: bool,
}

impl EvictionEnd {
    /// The end of a procedure. `has_changed` is whether it may have changed anything: a client must not repeat it
    /// without noticing, so its response has no `Retry-After`.
    pub(crate) fn of(
        result: &EvictionResult<UpstreamResponse>,
        has_changed: bool,
        output: Output,
    ) -> Self {
        let (outcome, reason) = match result {
            EvictionResult::Evicted => (EvictionOutcome::Granted, ""),
            EvictionResult::Refused(refusal) => return Self::refused(refusal, output),
            EvictionResult::Upstream { code, response } => {
                return Self {
                    // A 429 of the upstream's flow control is about the gateway, not about a budget.
                    outcome: match EvictionOutcome::of_status(*code) {
                        EvictionOutcome::Rejected => EvictionOutcome::Rejected,
                        _ => EvictionOutcome::Failed,
                    },
                    reason: "upstream",
                    response: passed_on(response, has_changed, output),
                    refused_by: None,
                    waits_on: false,
                };
            }
            EvictionResult::Unavailable { .. } => (EvictionOutcome::Failed, "upstream-unavailable"),
        };
        let response = match result.status() {
            Some(status) => written(&status, reason, output),
            None => ApiResponse::error(&StatusError::internal("no result"), output),
        };
        Self {
            outcome,
            reason,
            response,
            refused_by: None,
            waits_on: false,
        }
    }

    /// A refusal.
    pub(crate) fn refused(refusal: &EvictionRefusal, output: Output) -> Self {
        let status = refusal.status();
        let reason = refusal.reason();
        Self {
            outcome: match EvictionOutcome::of_status(status.code) {
                EvictionOutcome::Refused if !refusal.may_pass_later() => EvictionOutcome::Rejected,
                outcome => outcome,
            },
            reason,
            response: written(&status, reason, output),
            refused_by: None,
            waits_on: false,
        }
    }

    /// A refusal of an eviction that does not wait, although it may, since it would wait in vain. The body stays that of the API
    /// server, so a header says why.
    pub(crate) fn waits_in_vain(mut self, never: NeverAllows) -> Self {
        let text = format!(
            "waiting is useless: this pod's disruption budget never allows its eviction: {never}"
        );
        self.response = self.response.warn(&[text]);
        self
    }

    /// The refusal of a body.
    pub(crate) fn bad_body(refusal: &BodyRefusal, output: Output) -> Self {
        match refusal {
            BodyRefusal::Undecodable(error) => Self::failed(error, "malformed", output),
            BodyRefusal::Eviction(refusal) => Self::refused(refusal, output),
        }
    }

    /// An error before the eviction procedure.
    pub(crate) fn failed(error: &StatusError, reason: &'static str, output: Output) -> Self {
        Self {
            outcome: EvictionOutcome::of_status(error.code.as_u16()),
            reason,
            response: marked(ApiResponse::error(error, output), reason),
            refused_by: None,
            waits_on: false,
        }
    }

    /// A response that another part of the gateway has made.
    pub(crate) fn answered(response: ApiResponse, reason: &'static str) -> Self {
        Self {
            outcome: EvictionOutcome::of_status(response.status.as_u16()),
            reason,
            response: marked(response, reason),
            refused_by: None,
            waits_on: false,
        }
    }
}

fn written(status: &EvictionStatus, reason: &'static str, output: Output) -> ApiResponse {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let value = serde_json::to_value(status).unwrap_or_default();
    let mut response = ApiResponse::status(code, &value, output);
    if let Some(seconds) = status.retry_after() {
        let seconds = HeaderValue::from(seconds);
        response.headers.insert(RETRY_AFTER, seconds);
    }
    marked(response, reason)
}

fn marked(mut response: ApiResponse, reason: &'static str) -> ApiResponse {
    if !reason.is_empty() {
        let reason = HeaderValue::from_static(reason);
        response.headers.insert(REASON_HEADER, reason);
    }
    response
}

/// An error response of the upstream, encoded as the client accepts it if it is a `Status`.
fn passed_on(response: &UpstreamResponse, has_changed: bool, output: Output) -> ApiResponse {
    let status = response.status;
    if !status.is_client_error() && !status.is_server_error() {
        let text = format!("the upstream answered an eviction's call with {status}");
        return ApiResponse::error(&StatusError::internal(text), output);
    }
    let value = serde_json::from_slice::<Value>(&response.body).ok();
    let mut passed = match value.filter(|value| value["kind"] == "Status") {
        Some(value) => ApiResponse::status(status, &value, output),
        None => ApiResponse::text(status, response.body.clone()),
    };
    if let Some(seconds) = &response.retry_after
        && !has_changed
    {
        passed.headers.insert(RETRY_AFTER, seconds.clone());
    }
    passed
}

/// The reply to the request with this ID.
pub(crate) fn reply(response: ApiResponse, id: u128) -> Reply {
    let body = match response.body {
        ApiBody::Full(bytes) => ReplyBody::full(bytes),
        ApiBody::Stream(_) => ReplyBody::empty(),
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = response.status;
    *reply.headers_mut() = response.headers;
    if let Ok(id) = HeaderValue::from_str(&Uuid::from_u128(id).to_string()) {
        reply.headers_mut().insert(AUDIT_ID, id);
    }
    reply
}

/// The reply to an eviction that has changed nothing: flow control learns nothing from it, and gives it no final seats.
pub(crate) fn reply_unchanged(response: ApiResponse, context: &RequestContext) -> Reply {
    context.is_refused.set(true);
    reply(response, context.id)
}

#[cfg(test)]
mod tests {
    use fairgate_disruption::int_or_percent::IntOrPercent;
    use http::header::WARNING;

    use super::*;

    fn text(response: &ApiResponse) -> String {
        let ApiBody::Full(body) = &response.body else {
            panic!("the response to an eviction is not a watch");
        };
        String::from_utf8(body.to_vec()).unwrap()
    }

    fn upstream(code: u16, body: &'static str) -> EvictionResult<UpstreamResponse> {
        EvictionResult::Upstream {
            code,
            response: UpstreamResponse {
                status: StatusCode::from_u16(code).unwrap(),
                retry_after: Some(HeaderValue::from_static("1")),
                body: body.into(),
            },
        }
    }

    #[test]
    fn a_granted_eviction_is_answered_as_by_the_api_server() {
        let end = EvictionEnd::of(&EvictionResult::Evicted, true, Output::JSON);
        assert_eq!(end.outcome, EvictionOutcome::Granted);
        assert_eq!(end.response.status, StatusCode::CREATED);
        assert_eq!(
            text(&end.response),
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\"code\":201}\n"
        );
        assert!(!end.response.headers.contains_key(REASON_HEADER));
    }

    #[test]
    fn only_a_budget_that_is_being_processed_says_when_to_retry() {
        let of = |refusal: &EvictionRefusal| {
            let end = EvictionEnd::refused(refusal, Output::JSON);
            assert_eq!(end.outcome, EvictionOutcome::Refused);
            assert_eq!(end.response.headers[REASON_HEADER], refusal.reason());
            assert!(text(&end.response).contains("\"reason\":\"DisruptionBudget\""));
            end.response.headers.get(RETRY_AFTER).cloned()
        };
        let cause = "The disruption budget foo needs 2 healthy pods and has 2 currently".to_owned();
        let never = None;
        assert_eq!(of(&EvictionRefusal::BudgetExhausted { cause, never }), None);
        let budget = "foo".to_owned();
        let processed = EvictionRefusal::BudgetNotProcessed { budget };
        assert_eq!(of(&processed), Some(HeaderValue::from_static("10")));
    }

    #[test]
    fn a_header_says_that_waiting_for_a_budget_is_useless() {
        let cause = "The disruption budget foo needs 2 healthy pods and has 2 currently".to_owned();
        let of = |never| {
            let cause = cause.clone();
            EvictionEnd::refused(
                &EvictionRefusal::BudgetExhausted { cause, never },
                Output::JSON,
            )
        };
        let none = NeverAllows::NoneUnavailable(IntOrPercent::Percent(0));
        let (usual, never) = (of(None), of(Some(none)));
        assert!(!usual.response.headers.contains_key(WARNING));
        assert!(
            !never.response.headers.contains_key(WARNING),
            "it may not wait"
        );
        let never = never.waits_in_vain(none);
        assert_eq!(
            never.response.headers[WARNING],
            "299 - \"waiting is useless: this pod's disruption budget never allows its eviction: spec.maxUnavailable is 0%; raise it\""
        );
        assert_eq!(text(&never.response), text(&usual.response));
        assert_eq!(never.outcome, usual.outcome);
    }

    #[test]
    fn a_rejection_by_the_upstreams_flow_control_does_not_look_like_one_by_a_budget() {
        let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"x","code":429}"#;
        for (changed, retries) in [(false, true), (true, false)] {
            let end = EvictionEnd::of(&upstream(429, body), changed, Output::JSON);
            assert_eq!(end.outcome, EvictionOutcome::Failed);
            assert_eq!(end.response.headers.contains_key(RETRY_AFTER), retries);
            assert!(!text(&end.response).contains("DisruptionBudget"));
        }
        let end = EvictionEnd::of(&upstream(429, "Too many requests\n"), false, Output::JSON);
        assert_eq!(text(&end.response), "Too many requests\n");
        assert_eq!(end.response.status, StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn a_redirect_of_the_upstream_is_an_error() {
        let end = EvictionEnd::of(&upstream(302, ""), false, Output::JSON);
        assert_eq!(end.outcome, EvictionOutcome::Failed);
        assert_eq!(end.response.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
