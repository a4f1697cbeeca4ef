//! Asks the authorizer about the checks in expressions of policies.
//!
//! Expressions cannot wait: `fairgate_admission` notes the checks, and evaluates again once they are answered.

use std::time::Duration;

use crate::authorize::Authorizer;
use fairgate_admission::{AnswerFuture, AuthorizesChecks, KnownAnswers, LookupLack};
use fairgate_cel::library::authorizer::{AuthorizationAnswer, AuthorizationCheck};
use fairgate_core::digest::User;
use fairgate_upstream::access_review::{AccessReviewError, Attributes};

/// How many checks one request may cause, if the upstream is asked; further ones fail.
const MAX_CHECKS: usize = 32;
/// How long all checks after one pass may take.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

impl AuthorizesChecks for Authorizer {
    fn answer<'a>(
        &'a self,
        user: &'a User,
        checks: Vec<AuthorizationCheck>,
        answers: &'a KnownAnswers,
    ) -> AnswerFuture<'a> {
        let is_remote = matches!(self, Self::Upstream(_));
        let asking = async move {
            for check in checks {
                let answer = if is_remote && answers.count() >= MAX_CHECKS {
                    failed(format!(
                        "more than {MAX_CHECKS} authorization checks in one request"
                    ))
                } else {
                    ask(self, user, &check).await?
                };
                answers.put(check, answer);
            }
            Ok(())
        };
        Box::pin(async move {
            let asked = tokio::time::timeout(CHECK_LIMIT, asking).await;
            asked.unwrap_or(Err(LookupLack::Time))
        })
    }
}

/// Asks about one check.
///
/// # Errors
///
/// The authorizer takes too long, or too many checks are pending.
async fn ask(
    authorizer: &Authorizer,
    user: &User,
    check: &AuthorizationCheck,
) -> Result<AuthorizationAnswer, LookupLack> {
    let service_account = check.service_account.as_ref();
    let service_account = service_account.map(|(namespace, name)| account(namespace, name));
    let user = service_account.as_ref().unwrap_or(user);
    match authorizer.decide(user, &attributes(check)).await {
        Ok(decision) => Ok(AuthorizationAnswer {
            allowed: decision.allowed,
            reason: decision.reason.to_string(),
            error: None,
        }),
        Err(AccessReviewError::TimedOut) => Err(LookupLack::Time),
        Err(error @ AccessReviewError::Overloaded) => Err(LookupLack::Server(error.to_string())),
        Err(error) => Ok(failed(error.to_string())),
    }
}

fn failed(error: String) -> AuthorizationAnswer {
    AuthorizationAnswer {
        error: Some(error),
        ..AuthorizationAnswer::default()
    }
}

/// The user of a service account, as kube-apiserver makes it up for a check.
fn account(namespace: &str, name: &str) -> User {
    let group = format!("system:serviceaccounts:{namespace}");
    let groups = ["system:serviceaccounts", group.as_str()];
    User::new(format!("system:serviceaccount:{namespace}:{name}"), groups)
}

fn attributes(check: &AuthorizationCheck) -> Attributes {
    let is_resource = check.path.is_none();
    Attributes {
        verb: check.verb.clone(),
        is_resource,
        group: check.group.clone(),
        version: if is_resource { "*" } else { "" }.to_owned(),
        resource: check.resource.clone(),
        subresource: check.subresource.clone(),
        namespace: check.namespace.clone(),
        name: check.name.clone(),
        path: check.path.clone().unwrap_or_default(),
        field_selector: check.field_selector.clone(),
        label_selector: check.label_selector.clone(),
    }
}
