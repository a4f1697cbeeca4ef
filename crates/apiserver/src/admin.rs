//! What operators ask for, on the port of the API: metrics, health, the debug dumps.
//!
//! Who makes them is not known here; whoever is to see them was authorised before.

use std::{future::Future, pin::Pin, sync::Arc};

use http::{Method, StatusCode};

use crate::{
    negotiate::Output, request::ApiRequest, response::ApiResponse, status_error::StatusError,
};
use fairgate_core::digest::User;

/// What operators get to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The media type.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

/// Something that operators may ask for.
pub type AdminFuture<'a> = Pin<Box<dyn Future<Output = Option<AdminResponse>> + Send + 'a>>;

/// Whoever knows what operators ask for.
pub trait AdminEndpoints: Send + Sync {
    /// What there is at a path; nothing where there is nothing. Without `reasons`, what is wrong is told,
    /// but not why.
    fn ask<'a>(&'a self, path: &'a str, query: &'a str, reasons: bool) -> AdminFuture<'a>;
}

/// Answers a call for operators.
pub(super) async fn serve(
    operators: &Arc<dyn AdminEndpoints>,
    request: &ApiRequest,
) -> ApiResponse {
    if ![Method::GET, Method::HEAD].contains(&request.method) {
        return ApiResponse::error(&StatusError::method_not_allowed(), Output::JSON);
    }
    // Anybody may ask whether the gateway lives.
    let reasons = request.user().in_group(User::MASTERS);
    match operators.ask(&request.path, &request.query, reasons).await {
        None => ApiResponse::not_found(),
        Some(report) => {
            let mut answer = ApiResponse::text(report.status, report.text);
            let content_type = http::HeaderValue::from_static(report.content_type);
            answer
                .headers
                .insert(http::header::CONTENT_TYPE, content_type);
            answer
        }
    }
}
