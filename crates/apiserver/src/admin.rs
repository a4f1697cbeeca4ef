//! Metrics, health checks and debug dumps on the main port.
//!
//! An implementation of [`AdminEndpoints`] renders them; requests were authorized before.

use std::{future::Future, pin::Pin, sync::Arc};

use http::{Method, StatusCode};

use crate::HostedResponse;
use fairgate_apihttp::{negotiate::Output, request::ApiRequest, status_error::StatusError};
use fairgate_core::digest::User;

/// A rendered response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The media type.
    pub content_type: &'static str,
    /// The body.
    pub text: String,
}

/// The future of [`AdminEndpoints::ask`].
pub type AdminFuture<'a> = Pin<Box<dyn Future<Output = Option<AdminResponse>> + Send + 'a>>;

/// Renders metrics, health checks and dumps.
pub trait AdminEndpoints: Send + Sync {
    /// The response for a path; `None` if there is none. Without `reasons`, a failed health check is named,
    /// but not its cause.
    fn ask<'a>(&'a self, path: &'a str, query: &'a str, reasons: bool) -> AdminFuture<'a>;
}

/// Serves a request for metrics, health or a dump.
pub(super) async fn serve(
    endpoints: &Arc<dyn AdminEndpoints>,
    request: &ApiRequest,
) -> HostedResponse {
    if ![Method::GET, Method::HEAD].contains(&request.method) {
        return HostedResponse::error(&StatusError::method_not_allowed(), Output::JSON);
    }
    // Everybody may see the health checks.
    let reasons = request.user().in_group(User::MASTERS);
    match endpoints.ask(&request.path, &request.query, reasons).await {
        None => HostedResponse::not_found(),
        Some(found) => {
            let mut response = HostedResponse::text(found.status, found.text);
            let content_type = http::HeaderValue::from_static(found.content_type);
            let headers = &mut response.headers;
            headers.insert(http::header::CONTENT_TYPE, content_type);
            response
        }
    }
}
