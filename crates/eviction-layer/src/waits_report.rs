//! What operators are told of evictions that wait: the dump of all, and an event on their budget when they begin to.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use fairgate_disruption::{
    budget::DisruptionBudget,
    controller::{
        ObjectKey,
        events::{DisruptionEvent, EventSubject},
    },
    procedure::refusal_by,
    waiting::BudgetName,
};
use fairgate_gotext::{GoDuration, Quoted};

use crate::{
    evictor::{Evictor, shown},
    waits::WaitingEviction,
};

/// The reason of the event.
const EVENT_REASON: &str = "EvictionsWaiting";
/// How many users it names, and how many bytes of each name.
const NAMED_USERS: usize = 3;
const NAME_BYTES: usize = 64;

impl Evictor {
    /// All evictions that wait now, by budget, in the order of their turns.
    pub fn waiting_evictions(&self) -> Vec<WaitingEviction> {
        self.waits.report(self.clock.now())
    }

    /// Tells operators that evictions wait for this budget, which was read and allows nothing now, if any have begun to and they
    /// were not told lately.
    pub(crate) fn announce(&self, name: &BudgetName, budget: &DisruptionBudget) {
        let now = self.clock.now();
        if let Some(users) = self.waits.to_announce(now, name)
            && self.announced.next_line(now).is_some()
        {
            let event = event(budget, self.wait.limit, &users);
            let key = ObjectKey::new(&name.namespace, &name.name);
            self.announcements.send((key, event));
        }
    }
}

/// The text stays the same while the budget and the users do, so that repetitions are counted and not listed.
fn event(budget: &DisruptionBudget, limit: Duration, users: &BTreeSet<String>) -> DisruptionEvent {
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
            "{cause}. Evictions of its pods wait until it allows them, for up to {limit} each{by}",
            by = requested_by(users),
        ),
    }
}

/// Who waits, as the end of a sentence; nothing if nobody does any more.
fn requested_by(users: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for (number, user) in users.iter().take(NAMED_USERS).enumerate() {
        let before = if number == 0 { "; requested by " } else { ", " };
        // A string takes everything.
        let _ = write!(text, "{before}{}", Quoted(shown(user, NAME_BYTES)));
    }
    match users.len().saturating_sub(NAMED_USERS) {
        0 => text,
        1 => text + " and 1 other user",
        more => format!("{text} and {more} other users"),
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
            let users = ["system:node".to_owned(), "al\"ice".to_owned()].into();
            event(&budget, Duration::from_secs(90), &users).message
        };
        let rest = ". Evictions of its pods wait until it allows them, for up to 1m30s each; \
                    requested by \"al\\\"ice\", \"system:node\"";
        let exhausted = "The disruption budget foo needs 2 healthy pods and has 2 currently";
        assert_eq!(message(1), format!("{exhausted}{rest}"));
        let processed = "The disruption budget foo is still being processed by the server.";
        assert_eq!(
            message(2),
            format!("{}{rest}", processed.trim_end_matches('.'))
        );
    }

    #[test]
    fn the_event_names_three_users_and_counts_the_others() {
        let text = |count: usize| {
            let users = (0..count).map(|number| format!("u{number}")).collect();
            requested_by(&users)
        };
        assert_eq!(text(0), "");
        assert_eq!(text(1), "; requested by \"u0\"");
        let three = "; requested by \"u0\", \"u1\", \"u2\"";
        assert_eq!(text(3), three);
        assert_eq!(text(4), format!("{three} and 1 other user"));
        assert_eq!(text(6), format!("{three} and 3 other users"));
        let long = requested_by(&["ä".repeat(100)].into());
        assert_eq!(long, format!("; requested by \"{}\"", "ä".repeat(32)));
    }
}
