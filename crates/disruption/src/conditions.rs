//! The condition `DisruptionAllowed` of a budget's status.
//!
//! Conditions are kept as JSON, so that those of other types are preserved exactly.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::read::whole_seconds;

const TYPE: &str = "DisruptionAllowed";

/// Status and reason of the condition `DisruptionAllowed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DisruptionAllowed {
    /// `True`: at least one pod may be evicted.
    SufficientPods,
    /// `False`: no pod may be evicted.
    InsufficientPods,
    /// `False`: the last sync failed, with this error.
    SyncFailed(String),
}

impl DisruptionAllowed {
    /// The condition for this number of allowed disruptions.
    pub(crate) fn for_budget(disruptions_allowed: i32) -> Self {
        if disruptions_allowed > 0 {
            Self::SufficientPods
        } else {
            Self::InsufficientPods
        }
    }

    fn status(&self) -> &'static str {
        match self {
            Self::SufficientPods => "True",
            Self::InsufficientPods | Self::SyncFailed(_) => "False",
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::SufficientPods => "SufficientPods",
            Self::InsufficientPods => "InsufficientPods",
            Self::SyncFailed(_) => "SyncFailed",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::SyncFailed(message) => message,
            Self::SufficientPods | Self::InsufficientPods => "",
        }
    }

    /// Whether `conditions` already have this condition with this status and reason.
    pub(crate) fn is_in(&self, conditions: &[Value]) -> bool {
        find(conditions).is_some_and(|condition| {
            condition["status"] == self.status() && condition["reason"] == self.reason()
        })
    }

    /// Sets the condition. `lastTransitionTime` moves only if the condition's status changes.
    pub(crate) fn set(
        &self,
        conditions: &mut Vec<Value>,
        observed_generation: i64,
        now: Timestamp,
    ) {
        let mut condition = json!({
            "type": TYPE,
            "status": self.status(),
            "lastTransitionTime": whole_seconds(now).to_string(),
            "reason": self.reason(),
            "message": self.message(),
        });
        if observed_generation != 0 {
            condition["observedGeneration"] = json!(observed_generation);
        }
        let Some(old) = conditions.iter_mut().find(|other| is_ours(other)) else {
            conditions.push(condition);
            return;
        };
        if old["status"] == condition["status"] && old["lastTransitionTime"].is_string() {
            condition["lastTransitionTime"] = old["lastTransitionTime"].take();
        }
        *old = condition;
    }
}

fn is_ours(condition: &Value) -> bool {
    condition["type"] == TYPE
}

/// The condition `DisruptionAllowed`, if `conditions` have it.
fn find(conditions: &[Value]) -> Option<&Value> {
    conditions.iter().find(|condition| is_ours(condition))
}

/// Reason and message of the condition, if its status is `False`.
pub(crate) fn why_false(conditions: &[Value]) -> Option<(&str, &str)> {
    let condition = find(conditions).filter(|condition| condition["status"] == "False")?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    Some((text("reason"), text("message")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut conditions = vec![json!({"type": "Other", "status": "True"})];
        let time = |conditions: &[Value]| conditions[1]["lastTransitionTime"].clone();

        DisruptionAllowed::InsufficientPods.set(&mut conditions, 1, at(10));
        assert_eq!(time(&conditions), "1970-01-01T00:00:10Z");
        DisruptionAllowed::SyncFailed("no".into()).set(&mut conditions, 2, at(20));
        assert_eq!(time(&conditions), "1970-01-01T00:00:10Z");
        assert_eq!(why_false(&conditions), Some(("SyncFailed", "no")));
        DisruptionAllowed::SufficientPods.set(&mut conditions, 0, at(30));
        assert_eq!(time(&conditions), "1970-01-01T00:00:30Z");
        assert_eq!(why_false(&conditions), None);
        assert_eq!(conditions[0]["type"], "Other");
        assert_eq!(conditions[1].get("observedGeneration"), None);
    }
}
