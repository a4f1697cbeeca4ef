//! Errors of the hosted API, as `Status` objects.
//!
//! There is a constructor for each reason, so that code, reason, message and details are consistent.

use std::{
    collections::HashSet,
    fmt::{self, Write as _},
};

use http::StatusCode;
use serde_json::{Map, Value, json};

use fairgate_gotext::Quoted;
use fairgate_objects::{
    field_error::{ApiFieldError, MOST_ERROR_TEXT},
    kind::Kind,
};

/// Reasons of the gateway for a refusal, in one word.
pub mod gateway_reasons {
    /// A policy denies the request.
    pub const ADMISSION_DENIED: &str = "admission-denied";
    /// The policies are not known yet.
    pub const ADMISSION_NOT_READY: &str = "admission-not-ready";
    /// The write would exceed a quota of hosted objects.
    pub const EXCEEDED_QUOTA: &str = "exceeded-quota";
    /// The bodies of the user's requests for hosted objects take as much memory as they may.
    pub const BODY_MEMORY: &str = "body-memory";
    /// Responses to the user that were not read yet take as much memory as they may.
    pub const RESPONSE_MEMORY: &str = "response-memory";
}

/// An error that a client gets.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusError {
    /// The HTTP status.
    pub code: StatusCode,
    /// The reason, for programs; empty if the API defines none.
    pub reason: &'static str,
    /// The message, for people.
    pub message: String,
    /// The details, for programs.
    pub details: Option<Value>,
    /// A token with which a failed list can continue.
    pub continue_token: Option<String>,
    /// Why the gateway refuses what a server without policies would not, for its header; see [`gateway_reasons`].
    pub gateway_reason: Option<&'static str>,
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StatusError {}

impl StatusError {
    /// An error without details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            gateway_reason: None,
        }
    }

    /// The same, with these details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same, with the reason of the gateway.
    #[must_use]
    pub fn because(mut self, reason: &'static str) -> Self {
        self.gateway_reason = Some(reason);
        self
    }

    /// The same, with details about an object of a kind.
    #[must_use]
    fn about(self, kind: &Kind, name: &str) -> Self {
        self.with_details(details(name, kind.group, kind.plural))
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 404 for an object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} not found", kind.group_resource(), Quoted(name));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
    }

    /// Whether kube-apiserver's router responds with this error, before it knows the resource: the details
    /// are present and empty.
    pub fn is_unrouted(&self) -> bool {
        self.details == Some(json!({}))
    }

    /// 404 for a path below a served group version.
    pub fn no_route() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(json!({}))
    }

    /// 405: the resource does not support the method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
            .with_details(json!({}))
    }

    /// 409 for a name that is taken.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} already exists", kind.group_resource(), Quoted(name));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    /// 409 for a generated name that is taken.
    pub fn no_unique_name(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} {} already exists, the server was not able to generate a unique name for the object",
            kind.group_resource(),
            Quoted(name)
        );
        let mut details = details(name, kind.group, kind.plural);
        details["retryAfterSeconds"] = json!(1);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(details)
    }

    /// 409 for an object that is not in the expected state.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {}: {why}",
            kind.group_resource(),
            Quoted(name)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// 409 for a precondition. As in kube-apiserver, it names the kind, where others name the resource.
    pub fn conflict_of_kind(kind: &str, group: &str, name: &str, why: &str) -> Self {
        let dotted = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let message = format!(
            "Operation cannot be fulfilled on {dotted} {}: {why}",
            Quoted(name)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message)
            .with_details(details(name, group, kind))
    }

    /// 409 for an outdated resource version.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with the errors in an object or in options.
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[ApiFieldError]) -> Self {
        let dotted = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let shown = shown(errors);
        let causes: Vec<Value> = shown.iter().map(ApiFieldError::cause).collect();
        let mut details = details(name, group, kind);
        if !causes.is_empty() {
            details["causes"] = Value::Array(causes);
        }
        let mut message = format!("{dotted} {} is invalid: {}", Quoted(name), aggregate(shown));
        if shown.len() < errors.len() {
            let _ = write!(message, " and {} more", errors.len() - shown.len());
        }
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_details(details)
    }

    /// 422 with the errors in options.
    pub fn invalid_options(kind: &str, errors: &[ApiFieldError]) -> Self {
        Self::invalid(kind, "meta.k8s.io", "", errors)
    }

    /// 422 without a cause.
    pub fn unprocessable() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(json!({}))
    }

    /// 403: the request is understood, but not allowed.
    pub fn forbidden(message: impl Into<String>, details: Value) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(details)
    }

    /// 403: the admission policies are not known, although the request has waited for them.
    pub fn not_ready(group: &str, resource: &str, name: &str) -> Self {
        let qualified = match group {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        };
        // As `NewForbidden` of kube-apiserver's admission, which says this where a request names no object.
        let shown = if name.is_empty() { "Unknown" } else { name };
        let why = "not yet ready to handle request";
        let message = format!("{qualified} \"{shown}\" is forbidden: {why}");
        let error = Self::forbidden(message, details(shown, group, resource));
        error.because(gateway_reasons::ADMISSION_NOT_READY)
    }

    /// 410: the requested state is no longer available.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 504: the requested state does not exist yet.
    pub fn too_large_version(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// 504: the time limit of the request has passed.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        )
        .with_details(json!({}))
    }

    /// 406: the client accepts no available media type.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 415: a body of an unknown media type.
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

    /// 413: the body, or the object that results from it, is too large.
    pub fn too_large(message: &str) -> Self {
        let message = format!("Request entity too large: {message}");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// 500 without a reason.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 429: there is no room in memory for the body, because those of the user, or of all users, are being served.
    pub fn no_body_memory() -> Self {
        let message = "the gateway holds too many bytes of requests that are being served, please try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .with_details(json!({"retryAfterSeconds": 1}))
            .because(gateway_reasons::BODY_MEMORY)
    }

    /// 429: there is no room in memory for the response, because those to the user, or to all users, were not read yet.
    pub fn no_response_memory() -> Self {
        let message = "the gateway holds too many bytes of responses that were not read yet, please try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .with_details(json!({"retryAfterSeconds": 1}))
            .because(gateway_reasons::RESPONSE_MEMORY)
    }

    /// 503: the store is not available.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
        .with_details(json!({"retryAfterSeconds": 1}))
    }

    /// The same without `Retry-After`, for errors after which a request must not be repeated blindly.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        if let Some(Value::Object(details)) = &mut self.details {
            details.remove("retryAfterSeconds");
        }
        self
    }

    /// `Retry-After` in seconds, if the client should repeat the request.
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

    /// The error of kube-apiserver for an object in a namespace that does not exist.
    pub fn namespace_absent(namespace: &str) -> Self {
        let message = format!("namespaces {} not found", Quoted(namespace));
        let error = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        error.with_details(details(namespace, "", "namespaces"))
    }

    /// The error of kube-apiserver for an object in a namespace that is being deleted.
    pub fn namespace_terminating(
        (group, plural): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Self {
        let resource = match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        let message = format!(
            "{resource} {} is forbidden: unable to create new content in namespace {namespace} because it is being \
             terminated",
            Quoted(name)
        );
        let mut details = details(name, group, plural);
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Self::forbidden(message, details)
    }
}

/// Details about an object. Empty members are omitted.
pub fn details(name: &str, group: &str, kind: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.into(), json!(value));
        }
    }
    Value::Object(details)
}

/// As many errors as a response has room for, and at least one.
fn shown(errors: &[ApiFieldError]) -> &[ApiFieldError] {
    let mut text = 0;
    let fits = |error: &&ApiFieldError| {
        let is_shown = text < MOST_ERROR_TEXT;
        text += error.field.len() + error.value.len() + error.detail.len();
        is_shown
    };
    &errors[..errors.iter().take_while(fits).count()]
}

/// All errors in one text: a single one as it is, several in brackets, each text once.
fn aggregate(errors: &[ApiFieldError]) -> String {
    // As `Aggregate` of apimachinery, which leaves out texts that it has seen.
    let mut seen = HashSet::new();
    let texts = errors.iter().map(ToString::to_string);
    let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    match texts.as_slice() {
        // As Go prints an error that is nil.
        [] => "<nil>".to_owned(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_shows_only_so_many_errors() {
        let errors = (0..100_000).map(|at| ApiFieldError::required(&format!("spec.a[{at}]"), ""));
        let errors: Vec<_> = errors.collect();
        let error = StatusError::invalid("Thing", "", "n", &errors);
        let causes = error.status();
        let causes = causes["details"]["causes"].as_array().unwrap().len();
        assert!((1_000..50_000).contains(&causes), "{causes}");
        let end = format!("] and {} more", 100_000 - causes);
        assert!(error.message.ends_with(&end) && error.message.len() < 4 * MOST_ERROR_TEXT);
        let long = ApiFieldError::invalid("spec.a", &json!("x".repeat(1 << 20)), "bad");
        let error = StatusError::invalid("Thing", "", "n", &[long]);
        assert!(error.message.len() > 1 << 20, "the first one is shown");
    }

    #[test]
    fn several_errors_are_bracketed_and_deduplicated() {
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
