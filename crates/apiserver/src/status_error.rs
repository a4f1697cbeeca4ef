//! Why a call to the hosted API fails, as the `Status` that says so.
//!
//! One constructor per reason of the API, so that code, reason, message and details always fit.

use std::fmt;

use http::StatusCode;
use serde_json::{Map, Value, json};

use fairgate_objects::{field_error::ApiFieldError, kind::Kind};

/// A failed call.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusError {
    /// The HTTP status.
    pub code: StatusCode,
    /// For programs; empty where the API has no word for it.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// For programs that want to know more.
    pub details: Option<Value>,
    /// A token with which the list can go on, if that is what failed.
    pub continue_token: Option<String>,
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StatusError {}

impl StatusError {
    /// A fault without details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    /// The same, with these details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same, about an object of a kind.
    #[must_use]
    fn about(self, kind: &Kind, name: &str) -> Self {
        self.with_details(details(name, kind.group, kind.plural))
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 404 for an object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.group_resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
    }

    /// Whether this is said before anybody knows what the call is about, by the real server's router:
    /// its details are there, and empty.
    pub fn is_unrouted(&self) -> bool {
        self.details == Some(json!({}))
    }

    /// 404 for a path below a served group version.
    pub fn no_route() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(json!({}))
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
            .with_details(json!({}))
    }

    /// 409 for a name that is taken.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.group_resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    /// 409 for a generated name that is taken.
    pub fn no_unique_name(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            kind.group_resource()
        );
        let mut details = details(name, kind.group, kind.plural);
        details["retryAfterSeconds"] = json!(1);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(details)
    }

    /// 409 for a state that is not what the writer thinks.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            kind.group_resource()
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// 409 for a precondition; it names the kind where others name the resource, as the server does.
    pub fn conflict_of_kind(kind: &str, group: &str, name: &str, why: &str) -> Self {
        let dotted = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let message = format!("Operation cannot be fulfilled on {dotted} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message)
            .with_details(details(name, group, kind))
    }

    /// 409 for a resource version that has passed.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with the mistakes of an object or of options; `group_kind` as messages name it.
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[ApiFieldError]) -> Self {
        let dotted = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let causes: Vec<Value> = errors.iter().map(ApiFieldError::cause).collect();
        let mut details = details(name, group, kind);
        if !causes.is_empty() {
            details["causes"] = Value::Array(causes);
        }
        let message = format!("{dotted} {name:?} is invalid: {}", aggregate(errors));
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(details)
    }

    /// 422 with the mistakes of options.
    pub fn invalid_options(kind: &str, errors: &[ApiFieldError]) -> Self {
        Self::invalid(kind, "meta.k8s.io", "", errors)
    }

    /// 422 without a word on what is wrong.
    pub fn unprocessable() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(json!({}))
    }

    /// 403.
    pub fn forbidden(message: impl Into<String>, details: Value) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(details)
    }

    /// 410: the state asked for is not known any more.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 504: the state asked for has not come yet.
    pub fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// 504: it took too long.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        )
        .with_details(json!({}))
    }

    /// 406: nothing that can be produced is accepted.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 415: a body in a language that is not understood.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// 413.
    pub fn too_large(message: &str) -> Self {
        let message = format!("Request entity too large: {message}");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// 500 with a bare text.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 503: the store cannot be reached, or is not there yet.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
        .with_details(json!({"retryAfterSeconds": 1}))
    }

    /// The same, without a word on when to ask again.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        if let Some(Value::Object(details)) = &mut self.details {
            details.remove("retryAfterSeconds");
        }
        self
    }

    /// Seconds until the client should ask again, if it should.
    pub fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "code": self.code.as_u16(),
        });
        if !self.message.is_empty() {
            status["message"] = json!(self.message);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// Details about an object; what is empty is left out.
pub(super) fn details(name: &str, group: &str, kind: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.into(), json!(value));
        }
    }
    Value::Object(details)
}

/// All mistakes in one text: one alone as it is, several in brackets, each text once.
fn aggregate(errors: &[ApiFieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => "<nil>".to_owned(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_mistakes_are_told_in_brackets_and_each_text_once() {
        let errors = [
            ApiFieldError::required("spec.a", ""),
            ApiFieldError::required("spec.a", ""),
            ApiFieldError::invalid("spec.b", &json!("x"), "bad"),
        ];
        let fault =
            StatusError::invalid("FlowSchema", "flowcontrol.apiserver.k8s.io", "n", &errors);
        assert_eq!(
            fault.message,
            "FlowSchema.flowcontrol.apiserver.k8s.io \"n\" is invalid: \
             [spec.a: Required value, spec.b: Invalid value: \"x\": bad]"
        );
        let status = fault.status();
        assert_eq!(
            status["details"]["causes"][2]["reason"],
            "FieldValueInvalid"
        );
        assert_eq!(status["code"], 422);
    }

    #[test]
    fn empty_parts_are_left_out() {
        let status = StatusError::internal("x").status();
        assert_eq!(status.get("reason"), None);
        assert_eq!(status.get("details"), None);
    }
}
