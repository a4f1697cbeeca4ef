//! What operators are told of evictions that wait: the dump of all, and an event on their budget when they begin to.

use std::time::Duration;

use fairgate_disruption::{
    budget::DisruptionBudget,
    controller::{
        ObjectKey,
        events::{DisruptionEvent, EventSubject},
    },
    procedure::refusal_by,
    waiting::BudgetName,
};
use fairgate_gotext::GoDuration;

use crate::{evictor::Evictor, waits::WaitingEviction};

/// The reason of the event.
const EVENT_REASON: &str = "EvictionsWaiting";

impl Evictor {
    /// All evictions that wait now, by budget, in the order of their turns.
    pub fn waiting_evictions(&self) -> Vec<WaitingEviction> {
        self.waits.report(self.clock.now())
    }

    /// Tells operators that evictions wait for this budget, which was read and allows nothing now, if any have begun to and they
    /// were not told lately.
    pub(crate) fn announce(&self, name: &BudgetName, budget: &DisruptionBudget) {
        let now = self.clock.now();
        if self.waits.is_to_announce(now, name) && self.announced.admit(now).is_some() {
            let event = event(budget, self.wait.limit);
            let key = ObjectKey::new(&name.namespace, &name.name);
            self.announcements.send((key, event));
        }
    }
}

/// The text stays the same while the budget does, so that repetitions are counted and not listed.
fn event(budget: &DisruptionBudget, limit: Duration) -> DisruptionEvent {
    let cause = refusal_by(budget).map(|refusal| refusal.cause());
    let cause = cause.filter(|cause| !cause.is_empty());
    let cause =
        cause.unwrap_or_else(|| format!("The disruption budget {} is exhausted", budget.name));
    let cause = cause.trim_end_matches('.');
    let limit = GoDuration(limit);
    DisruptionEvent {
        about: EventSubject::Budget {
            name: budget.name.clone(),
            uid: budget.uid.to_string(),
        },
        is_warning: false,
        reason: EVENT_REASON,
        message: format!(
            "{cause}. Evictions of its pods wait until it allows them, for up to {limit} each"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_event_says_what_the_budget_lacks() {
        let message = |generation: i64| {
            let budget = json!({
                "metadata": {"name": "foo", "namespace": "ns", "uid": "u", "generation": generation},
                "spec": {"maxUnavailable": 1},
                "status": {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 2},
            });
            let budget = DisruptionBudget::from_value(budget).unwrap();
            event(&budget, Duration::from_secs(90)).message
        };
        let rest = ". Evictions of its pods wait until it allows them, for up to 1m30s each";
        let exhausted = "The disruption budget foo needs 2 healthy pods and has 2 currently";
        assert_eq!(message(1), format!("{exhausted}{rest}"));
        let processed = "The disruption budget foo is still being processed by the server.";
        assert_eq!(
            message(2),
            format!("{}{rest}", processed.trim_end_matches('.'))
        );
    }
}
