//! What the authorizer answers to the checks in expressions.
//!
//! Expressions cannot wait. A check that is not answered yet is noted; the authorizer is asked, and the write is judged
//! again.

use std::{fmt, mem, sync::Arc};

use crate::authorize::Authorizer;
use fairgate_cel::library::authorizer::{AuthorizationAnswer, AuthorizationCheck, CelAuthorizer};
use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};
use fairgate_upstream::access_review::Attributes;

/// The answers to the checks of one write.
#[derive(Default)]
pub struct KnownAnswers {
    known: Mutex<Vec<(AuthorizationCheck, AuthorizationAnswer)>>,
    missing: Mutex<Vec<AuthorizationCheck>>,
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

    /// Asks the authorizer about a check of a request of `user`.
    pub async fn ask(&self, authorizer: &Authorizer, user: &User, check: AuthorizationCheck) {
        let service_account = check.service_account.as_ref();
        let service_account = service_account.map(|(namespace, name)| account(namespace, name));
        let user = service_account.as_ref().unwrap_or(user);
        let answer = match authorizer.decide(user, &attributes(&check)).await {
            Ok(decision) => AuthorizationAnswer {
                allowed: decision.allowed,
                reason: decision.reason.to_string(),
                error: None,
            },
            Err(error) => AuthorizationAnswer {
                error: Some(error.to_string()),
                ..AuthorizationAnswer::default()
            },
        };
        lock(&self.known).push((check, answer));
    }

    /// Answers a check with an error, without asking anybody.
    pub fn fail(&self, check: AuthorizationCheck, error: String) {
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
