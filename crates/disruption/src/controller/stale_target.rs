//! Stale `DisruptionTarget` conditions of pods that were to be evicted but still exist.
//!
//! An eviction sets the condition just before it deletes the pod. If the deletion never happens, only this controller
//! resets the condition.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    pod::{Pod, PodPhase},
    read::whole_seconds,
};

/// How long the condition may be true before it is set to false.
pub(super) const STALE_TARGET_TIMEOUT: Duration = Duration::from_secs(120);

/// What to do about the condition `DisruptionTarget` of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StaleTarget {
    /// Nothing.
    None,
    /// Check again at this time.
    LookAt(Timestamp),
    /// Set it to false: PATCH the pod's `/status` with this strategic merge patch. A 409 says that the
    /// pod has changed; check it again.
    Clear(Value),
}

/// Checks the condition of a pod.
pub(super) fn stale_target(pod: &Pod, now: Timestamp) -> StaleTarget {
    let has_ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let Some(target) = &pod.disruption_target else {
        return StaleTarget::None;
    };
    if pod.terminating || has_ended || !target.is_true || target.by_kubelet {
        return StaleTarget::None;
    }
    // A condition without a time counts as stale.
    let since = target.since.unwrap_or(Timestamp::MIN);
    let stale_at = since.saturating_add(STALE_TARGET_TIMEOUT).unwrap_or(since);
    if now < stale_at {
        return StaleTarget::LookAt(stale_at);
    }
    StaleTarget::Clear(json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
        "status": {"conditions": [{
            "type": "DisruptionTarget",
            "status": "False",
            "reason": null,
            "message": null,
            "lastTransitionTime": whole_seconds(now).to_string(),
        }]},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(condition: &Value, deleted: bool) -> Pod {
        let mut object = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "9"},
            "status": {"phase": "Running", "conditions": [condition]},
        });
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        }
        Pod::from_value(&object).unwrap()
    }

    fn target(status: &str, reason: &str) -> Value {
        json!({
            "type": "DisruptionTarget", "status": status, "reason": reason,
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        })
    }

    #[test]
    fn c21_a_stale_disruption_target_is_set_to_false() {
        let since: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        let after = |seconds: u64| since + Duration::from_secs(seconds);
        let evicted = pod(&target("True", "EvictionByEvictionAPI"), false);

        let StaleTarget::Clear(patch) = stale_target(&evicted, after(121)) else {
            panic!("it is stale");
        };
        assert_eq!(
            patch["metadata"],
            json!({"uid": "u", "resourceVersion": "9"})
        );
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["lastTransitionTime"], "2024-01-01T00:02:01Z");
        assert!(matches!(
            stale_target(&evicted, after(120)),
            StaleTarget::Clear(_)
        ));

        let fresh = stale_target(&evicted, after(119));
        assert_eq!(fresh, StaleTarget::LookAt(after(120)));
        for pod in [
            pod(&target("True", "EvictionByEvictionAPI"), true),
            pod(&json!({"type": "Ready", "status": "True"}), false),
            pod(&target("False", ""), false),
            pod(&target("True", "TerminationByKubelet"), false),
        ] {
            assert_eq!(
                stale_target(&pod, after(1000)),
                StaleTarget::None,
                "{pod:?}"
            );
        }
    }
}
