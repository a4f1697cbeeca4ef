//! Server-side applies in audit mode: only the upstream knows their result.

use fairgate_admission::Fidelity;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    evaluate::{Evaluated, Evaluation, OldRead, Unjudged},
    objects,
};

/// By how many seconds the clock of the upstream may be behind.
const SKEW: u64 = 2;

impl Evaluation {
    /// Judges a server-side apply that the upstream carries out meanwhile, by the object that is stored afterwards.
    pub(crate) async fn after_apply(
        &mut self,
        old: OldRead,
        carried_out: oneshot::Receiver<bool>,
    ) -> Result<Evaluated, Unjudged> {
        if self.plan.facts.dry_run {
            let why = "a dry run of server-side apply cannot be judged in audit mode";
            return Err(Unjudged::Failed(why.to_owned()));
        }
        let old = self.stored(old).await?;
        let is_unanswered = !self.is_answered.get();
        let old = self.as_old(old);
        if !carried_out.await.unwrap_or(false) {
            return Err(Unjudged::Absent);
        }
        let Some(new) = self.stored(self.start_read()).await? else {
            let why = "the object was deleted after it was applied";
            return Err(Unjudged::Failed(why.to_owned()));
        };
        let version = |of: &Value| of["metadata"]["resourceVersion"].clone();
        let is_same = old.as_ref().map(version) == Some(version(&new.value));
        // Either nothing was to be changed, or what was read as the object before is the one after.
        if is_same && (!is_unanswered || self.was_just_applied(&new.value)) {
            self.check_unanswered()?;
        }
        self.share.join(new.share);
        self.plan.facts.set_kind_by(&new.value);
        self.plan.fidelity = Fidelity::Completed;
        self.judge(Some(new.value), old).await
    }

    /// Whether this apply has changed an object that is stored, by the time at which its manager did so last.
    fn was_just_applied(&self, stored: &Value) -> bool {
        let clock = &self.admitter.clock;
        let took = clock.now().since(self.started).as_secs();
        let began = clock.unix_seconds().saturating_sub(took + SKEW);
        let since = i64::try_from(began).unwrap_or(i64::MAX);
        objects::applied_at(stored, self.plan.query.field_manager()) >= Some(since)
    }
}
