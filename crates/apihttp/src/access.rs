//! Authorization of API requests, with kube-apiserver's responses to those that are not allowed.

use http::StatusCode;

use crate::{
    authorize::{self, Authorizer},
    negotiate::Output,
    request::ApiRequest,
    response::ApiResponse,
};
use fairgate_upstream::access_review::Attributes;

/// Checks that the user of a request may do what `attributes` say.
///
/// # Errors
///
/// The response to send instead: 403 if the user is not allowed to, 500 if the authorizer failed.
pub async fn authorize<S>(
    authorizer: &Authorizer,
    request: &ApiRequest,
    attributes: &Attributes,
) -> Result<(), ApiResponse<S>> {
    let user = request.user();
    match authorizer.decide(user, attributes).await {
        // Only an explicit allow counts; that nobody could decide is an error, never an allow.
        Ok(decision) if decision.allowed => Ok(()),
        Ok(decision) => {
            let error = authorize::forbidden(attributes, user, &decision.reason);
            Err(ApiResponse::error(&error, Output::JSON))
        }
        Err(error) => {
            let target = match request.query.as_str() {
                "" => request.path.clone(),
                query => format!("{}?{query}", request.path),
            };
            let text = authorize::undecided(&target, &error);
            Err(ApiResponse::text(StatusCode::INTERNAL_SERVER_ERROR, text))
        }
    }
}
