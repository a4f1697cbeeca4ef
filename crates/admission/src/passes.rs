//! An evaluation in as many passes as it needs, without I/O.
//!
//! Evaluating cannot wait. A pass evaluates with what is known, and notes what it misses: namespaces, params, and answers of the
//! authorizer. Between two passes whoever can wait supplies that. The verdict of the first pass that misses nothing counts.
//!
//! Not here: who reads and who asks ([`ClusterObjects`], [`AuthorizesChecks`]), and on which thread a pass runs.

use std::{
    fmt, mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fairgate_cel::library::authorizer::{AuthorizationAnswer, AuthorizationCheck, CelAuthorizer};
use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};

use crate::{
    cluster_objects::ClusterObjects,
    inputs::LookupLack,
    lookups::{KnownLookups, MissingLookup},
};

/// How many passes an evaluation has at most. Every one but the last finds something missing.
const MAX_PASSES: usize = 64;

/// What was supplied for one evaluation so far.
#[derive(Debug, Default)]
pub struct EvaluationPasses {
    lookups: KnownLookups,
    answers: Arc<KnownAnswers>,
    ended: usize,
}

/// What a pass misses.
#[derive(Debug)]
pub struct MissingSupplies {
    lookups: Vec<MissingLookup>,
    checks: Vec<AuthorizationCheck>,
}

/// Answers the checks of expressions.
pub trait AuthorizesChecks: Send + Sync {
    /// Asks about the checks of a pass, in a request of `user`, and [puts](KnownAnswers::put) each answer.
    ///
    /// The error is what is lacking to ask now.
    fn answer<'a>(
        &'a self,
        user: &'a User,
        checks: Vec<AuthorizationCheck>,
        answers: &'a KnownAnswers,
    ) -> AnswerFuture<'a>;
}

/// The future of [`AuthorizesChecks::answer`].
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<(), LookupLack>> + Send + 'a>>;

impl EvaluationPasses {
    /// What the next pass finds of the cluster.
    pub fn lookups(&self) -> &KnownLookups {
        &self.lookups
    }

    /// What the next pass finds of the authorizer.
    pub fn answers(&self) -> &Arc<KnownAnswers> {
        &self.answers
    }

    /// Ends a pass that missed these lookups, and perhaps what only its caller can supply (`misses_more`). `None`: it missed nothing
    /// that can be supplied here.
    ///
    /// # Errors
    ///
    /// [`LookupLack::Time`], if something is missing after the last pass that an evaluation may have.
    pub fn end_pass(
        &mut self,
        lookups: Vec<MissingLookup>,
        misses_more: bool,
    ) -> Result<Option<MissingSupplies>, LookupLack> {
        let checks = self.answers.take_missing();
        let misses = !lookups.is_empty() || !checks.is_empty();
        self.ended += 1;
        if (misses || misses_more) && self.ended >= MAX_PASSES {
            return Err(LookupLack::Time);
        }
        Ok(misses.then_some(MissingSupplies { lookups, checks }))
    }

    /// Supplies what a pass missed, in the turns of a user. What cannot be read is known as such in the next pass. `take_room` is
    /// that of [`KnownLookups::read`].
    ///
    /// # Errors
    ///
    /// What is lacking to read it, or to ask, now.
    pub async fn supply(
        &mut self,
        missing: MissingSupplies,
        user: &User,
        cluster: &dyn ClusterObjects,
        authorizer: &dyn AuthorizesChecks,
        take_room: &mut (dyn FnMut(usize) -> bool + Send),
    ) -> Result<(), LookupLack> {
        let MissingSupplies { lookups, checks } = missing;
        let read = self.lookups.read(cluster, &user.name, lookups, take_room);
        read.await?;
        authorizer.answer(user, checks, &self.answers).await
    }
}

/// What the authorizer said to the checks in the expressions of one evaluation.
#[derive(Default)]
pub struct KnownAnswers {
    known: Mutex<Vec<(AuthorizationCheck, AuthorizationAnswer)>>,
    missing: Mutex<Vec<AuthorizationCheck>>,
    /// How many checks there were so far.
    asked: AtomicUsize,
}

impl KnownAnswers {
    /// The checks that were not answered, each once.
    pub fn take_missing(&self) -> Vec<AuthorizationCheck> {
        mem::take(&mut *lock(&self.missing))
    }

    /// Counts one more check. Returns how many there were before it.
    pub fn count(&self) -> usize {
        self.asked.fetch_add(1, Ordering::Relaxed)
    }

    /// The answer to a check, for the passes to come.
    pub fn put(&self, check: AuthorizationCheck, answer: AuthorizationAnswer) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verb: &str) -> AuthorizationCheck {
        AuthorizationCheck {
            verb: verb.to_owned(),
            ..AuthorizationCheck::default()
        }
    }

    #[test]
    fn a_check_is_missed_once_and_answered_in_the_next_pass() {
        let mut passes = EvaluationPasses::default();
        let answers = Arc::clone(passes.answers());
        for verb in ["get", "get", "list"] {
            assert!(answers.authorize(&check(verb)).error.is_some());
        }
        let missing = passes.end_pass(Vec::new(), false).unwrap().unwrap();
        assert_eq!(missing.checks, ["get", "list"].map(check));
        for check in missing.checks {
            let allowed = check.verb == "get";
            let answer = AuthorizationAnswer {
                allowed,
                ..AuthorizationAnswer::default()
            };
            answers.put(check, answer);
        }
        let allowed = ["get", "list"].map(|verb| answers.authorize(&check(verb)).allowed);
        assert_eq!(allowed, [true, false]);
        assert!(passes.end_pass(Vec::new(), false).unwrap().is_none());
    }

    #[test]
    fn an_evaluation_that_always_misses_something_ends() {
        let misses = |at: usize| vec![MissingLookup::Namespace(at.to_string())];
        let mut passes = EvaluationPasses::default();
        for at in 1..MAX_PASSES {
            assert!(passes.end_pass(misses(at), false).unwrap().is_some());
        }
        let ended = passes.end_pass(misses(MAX_PASSES), false);
        assert_eq!(ended.unwrap_err(), LookupLack::Time);
        let mut passes = EvaluationPasses::default();
        for _ in 1..MAX_PASSES {
            assert!(passes.end_pass(Vec::new(), true).unwrap().is_none());
        }
        assert!(passes.end_pass(Vec::new(), true).is_err());
    }
}
