//! What operators ask for, on the port of the API: metrics, health, the debug dumps.
//!
//! Who makes them is not known here; whoever is to see them was authorised before.

use std::{future::Future, pin::Pin, sync::Arc};

use http::{Method, StatusCode};

use super::{answer::Answer, fault::Fault, negotiate::Output, request::Request};
use fairgate_core::digest::User;

/// What operators get to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The HTTP status.
    pub status: StatusCode,
    /// The media type.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

/// Something that operators may ask for.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Option<Report>> + Send + 'a>>;

/// Whoever knows what operators ask for.
pub trait Operators: Send + Sync {
    /// What there is at a path; nothing where there is nothing. Without `reasons`, what is wrong is told,
    /// but not why.
    fn ask<'a>(&'a self, path: &'a str, query: &'a str, reasons: bool) -> Asked<'a>;
}

/// Answers a call for operators.
pub(super) async fn serve(operators: &Arc<dyn Operators>, request: &Request) -> Answer {
    if ![Method::GET, Method::HEAD].contains(&request.method) {
        return Answer::fault(&Fault::method_not_allowed(), Output::JSON);
    }
    // Anybody may ask whether the gateway lives.
    let reasons = request.user().in_group(User::MASTERS);
    match operators.ask(&request.path, &request.query, reasons).await {
        None => Answer::not_found(),
        Some(report) => {
            let mut answer = Answer::text(report.status, report.text);
            let content_type = http::HeaderValue::from_static(report.content_type);
            answer
                .headers
                .insert(http::header::CONTENT_TYPE, content_type);
            answer
        }
    }
}
