//! What the authorizer answers to the checks in expressions.
//!
//! Expressions cannot wait. A check that is not answered yet is noted; the authorizer is asked, and the write is evaluated
//! again.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::authorize::Authorizer;
use fairgate_admission::LookupLack;
use fairgate_cel::library::authorizer::{AuthorizationAnswer, AuthorizationCheck, CelAuthorizer};
use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};
use fairgate_upstream::access_review::{AccessReviewError, Attributes};

/// How many checks one request may cause.
const MAX_CHECKS: usize = 32;
/// How long all checks after one pass may take.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// The answers to the checks of one write.
#[derive(Default)]
pub struct KnownAnswers {
    known: Mutex<Vec<(AuthorizationCheck, AuthorizationAnswer)>>,
    missing: Mutex<Vec<AuthorizationCheck>>,
    /// How many checks there were so far.
    asked: AtomicUsize,
}

impl KnownAnswers {
    /// No answers yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The checks that were not answered, each once.
    pub fn take_missing(&self) -> Vec<AuthorizationCheck> {
        mem::take(&mut *lock(&self.missing))
    }

    /// Asks the authorizer about the checks of a pass, in a request of `user`. If the upstream is asked, a request may cause
    /// so many checks; further ones fail.
    ///
    /// # Errors
    ///
    /// They take too long, or too many are pending.
    pub async fn answer(
        &self,
        authorizer: &Authorizer,
        user: &User,
        checks: Vec<AuthorizationCheck>,
    ) -> Result<(), LookupLack> {
        let is_remote = matches!(authorizer, Authorizer::Upstream(_));
        let asking = async {
            for check in &checks {
                let asked = self.asked.fetch_add(1, Ordering::Relaxed);
                if is_remote && asked >= MAX_CHECKS {
                    let error =
                        format!("more than {MAX_CHECKS} authorization checks in one request");
                    self.fail(check.clone(), error);
                } else {
                    self.ask(authorizer, user, check.clone()).await?;
                }
            }
            Ok(())
        };
        let asked = tokio::time::timeout(CHECK_LIMIT, asking).await;
        asked.unwrap_or(Err(LookupLack::Time))
    }

    async fn ask(
        &self,
        authorizer: &Authorizer,
        user: &User,
        check: AuthorizationCheck,
    ) -> Result<(), LookupLack> {
        let service_account = check.service_account.as_ref();
        let service_account = service_account.map(|(namespace, name)| account(namespace, name));
        let user = service_account.as_ref().unwrap_or(user);
        let answer = match authorizer.decide(user, &attributes(&check)).await {
            Ok(decision) => AuthorizationAnswer {
                allowed: decision.allowed,
                reason: decision.reason.to_string(),
                error: None,
            },
            Err(AccessReviewError::TimedOut) => return Err(LookupLack::Time),
            Err(error @ AccessReviewError::Overloaded) => {
                return Err(LookupLack::Server(error.to_string()));
            }
            Err(error) => AuthorizationAnswer {
                error: Some(error.to_string()),
                ..AuthorizationAnswer::default()
            },
        };
        lock(&self.known).push((check, answer));
        Ok(())
    }

    /// Answers a check with an error.
    fn fail(&self, check: AuthorizationCheck, error: String) {
        let answer = AuthorizationAnswer {
            error: Some(error),
            ..AuthorizationAnswer::default()
        };
        lock(&self.known).push((check, answer));
    }
}

impl fmt::Debug for KnownAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownAnswers").finish_non_exhaustive()
    }
}

impl CelAuthorizer for KnownAnswers {
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer {
        let known = lock(&self.known);
        if let Some((_, answer)) = known.iter().find(|(of, _)| of == check) {
            return answer.clone();
        }
        let mut missing = lock(&self.missing);
        if !missing.contains(check) {
            missing.push(check.clone());
        }
        AuthorizationAnswer {
            error: Some("not answered yet".to_owned()),
            ..AuthorizationAnswer::default()
        }
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
