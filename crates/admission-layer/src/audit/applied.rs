//! Server-side applies in audit mode: only the upstream knows their result.

use http::StatusCode;
use serde_json::Value;

use crate::{
    cluster::known_revisions::KnownRevision,
    evaluate::{Evaluation, Unevaluated},
    object::objects,
    upstream::upstream_objects::StoredObject,
};

/// By how many seconds the clock of the upstream may be behind.
const SKEW: u64 = 2;

/// What an audited apply has changed: the objects that it may be based on, where `None` is one that it created, and the one
/// that it has made.
pub(crate) type AppliedChange = (Vec<Option<StoredObject>>, StoredObject);

impl Evaluation {
    /// Finds out what a successful apply has changed, by the version in the upstream's answer. `early` is what was read meanwhile, before the
    /// answer had come if `is_unanswered`.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub(crate) async fn applied_change(
        &mut self,
        mut early: Result<Option<StoredObject>, Unevaluated>,
        is_unanswered: bool,
        status: StatusCode,
        version: Option<u64>,
        known: KnownRevision,
    ) -> Result<AppliedChange, Unevaluated> {
        if let Some(version) = version
            && let Some(made) = self.made(version).await?
        {
            if status == StatusCode::CREATED {
                return Ok((vec![None], made));
            }
            let mut none = None;
            let seen = early.as_mut().unwrap_or(&mut none);
            let was_read = seen.is_some();
            if let Ok(bases) = self.possible_bases(seen, version, known).await {
                return Ok((bases.into_iter().map(Some).collect(), made));
            }
            if was_read && seen.is_none() {
                // It was one of several bases, of which the others could not be read.
                let why = "the objects that it may be based on could not be read";
                return Err(Unevaluated::Failed(why.to_owned()));
            }
        }
        let (bases, made) = self.as_seen(early?, is_unanswered).await?;
        if version.is_some_and(|version| version != made.version()) {
            let why = "the object was changed again after it was applied";
            return Err(Unevaluated::Failed(why.to_owned()));
        }
        Ok((bases, made))
    }

    /// The object with the version that an apply has made.
    async fn made(&self, version: u64) -> Result<Option<StoredObject>, Unevaluated> {
        let now = self.stored(self.start_read()).await?;
        match now.filter(|now| now.version() == version) {
            Some(now) => Ok(Some(now)),
            None => Ok(self.object_at(version).await.ok().flatten()),
        }
    }

    /// What an apply has changed, by what was read before and is read after the answer, which does not say that itself.
    async fn as_seen(
        &mut self,
        old: Option<StoredObject>,
        is_unanswered: bool,
    ) -> Result<AppliedChange, Unevaluated> {
        let Some(new) = self.stored(self.start_read()).await? else {
            let why = "the object was deleted after it was applied";
            return Err(Unevaluated::Failed(why.to_owned()));
        };
        let version = |of: &StoredObject| of.value["metadata"]["resourceVersion"].clone();
        let is_same = old.as_ref().map(version) == Some(version(&new));
        // Either nothing was to be changed, or what was read as the object before is the one after.
        if is_same && (!is_unanswered || self.was_just_applied(&new.value)) {
            self.check_unanswered()?;
        }
        Ok((vec![old], new))
    }

    /// Whether this apply has changed an object that is stored, by the time at which its manager did so last.
    fn was_just_applied(&self, stored: &Value) -> bool {
        let clock = &self.evaluator.clock;
        let took = clock.now().since(self.started).as_secs();
        let began = clock.unix_seconds().saturating_sub(took + SKEW);
        let since = i64::try_from(began).unwrap_or(i64::MAX);
        objects::applied_at(stored, self.plan.query.field_manager()) >= Some(since)
    }
}
