//! Budgets that never allow a disruption, so that waiting for one is useless.

use std::fmt;

use crate::{
    budget::{BudgetSpec, DisruptionBudget},
    conditions,
    int_or_percent::IntOrPercent,
};

/// Why a budget never allows a disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverAllows {
    /// `maxUnavailable` is none, as a number or a percentage.
    NoneUnavailable(IntOrPercent),
    /// `minAvailable` is all pods.
    AllAvailable(IntOrPercent),
    /// Neither is set.
    NoBound,
    /// `minAvailable` is a number, or a percentage that is rounded up, and comes to as many pods as there are or more.
    TooFewPods {
        /// The number of pods that must be healthy.
        desired: i32,
        /// The number of pods that the budget counts.
        expected: i32,
    },
}

impl NeverAllows {
    /// Whether a spec never allows a disruption, however many pods there are.
    pub fn by_spec(spec: &BudgetSpec) -> Option<Self> {
        match (&spec.max_unavailable, &spec.min_available) {
            (Ok(Some(none @ (IntOrPercent::Int(..=0) | IntOrPercent::Percent(..=0)))), _) => {
                Some(Self::NoneUnavailable(*none))
            }
            (Ok(None), Ok(Some(all @ IntOrPercent::Percent(100..)))) => {
                Some(Self::AllAvailable(*all))
            }
            (Ok(None), Ok(None)) => Some(Self::NoBound),
            _ => None,
        }
    }

    /// Whether a budget never allows a disruption, unless it or the number of its pods is changed.
    ///
    /// The number counts only while no granted eviction is unconfirmed: then pods are about to be replaced. It may still be too
    /// low for a moment, when a pod is gone and the next one is not there yet.
    pub fn of(budget: &DisruptionBudget) -> Option<Self> {
        let (spec, status) = (&budget.spec, &budget.status);
        let by_spec = Self::by_spec(spec);
        if by_spec.is_some() || !matches!(spec.max_unavailable, Ok(None)) {
            return by_spec;
        }
        let (desired, expected) = (status.desired_healthy, status.expected_pods);
        let is_settled = status.observed_generation >= budget.generation
            && status.disrupted_pods.is_empty()
            && conditions::why_false(&status.conditions)
                .is_none_or(|(reason, _)| reason != "SyncFailed");
        // Without pods nothing is known of their number.
        let is_too_few = expected > 0 && desired >= expected;
        (is_settled && is_too_few).then_some(Self::TooFewPods { desired, expected })
    }

    /// Whether the number of pods does not matter.
    pub fn is_by_spec(self) -> bool {
        !matches!(self, Self::TooFewPods { .. })
    }
}

/// What is wrong, and what would change it, in one line.
impl fmt::Display for NeverAllows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneUnavailable(bound) => write!(f, "spec.maxUnavailable is {bound}; raise it"),
            Self::AllAvailable(bound) => write!(f, "spec.minAvailable is {bound}; lower it"),
            Self::NoBound => {
                f.write_str("neither spec.minAvailable nor spec.maxUnavailable is set; set one")
            }
            Self::TooFewPods { desired, expected } => write!(
                f,
                "spec.minAvailable requires {desired} healthy pods and there are {expected} in all; lower it or add replicas"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: &Value, status: &Value) -> Option<NeverAllows> {
        let mut object = json!({"metadata": {"name": "foo", "generation": 2}, "spec": spec,
            "status": {"observedGeneration": 2}});
        for (name, value) in status.as_object().unwrap() {
            object["status"][name] = value.clone();
        }
        NeverAllows::of(&DisruptionBudget::from_value(object).unwrap())
    }

    #[test]
    fn a_spec_may_forbid_all_disruptions() {
        for (spec, text) in [
            (
                json!({"maxUnavailable": 0}),
                "spec.maxUnavailable is 0; raise it",
            ),
            (
                json!({"maxUnavailable": "0%"}),
                "spec.maxUnavailable is 0%; raise it",
            ),
            (
                json!({"minAvailable": "100%"}),
                "spec.minAvailable is 100%; lower it",
            ),
            (
                json!({}),
                "neither spec.minAvailable nor spec.maxUnavailable is set; set one",
            ),
        ] {
            // The status does not matter, not even one that is out of date.
            let status = json!({"observedGeneration": 1, "expectedPods": 9, "desiredHealthy": 1});
            let never = of(&spec, &status).unwrap();
            assert!(never.is_by_spec());
            assert_eq!(never.to_string(), text);
        }
        for spec in [
            json!({"maxUnavailable": 1}),
            json!({"maxUnavailable": "1%"}),
            json!({"maxUnavailable": "x"}),
            json!({"minAvailable": 0}),
            json!({"minAvailable": "99%"}),
            json!({"minAvailable": "x"}),
        ] {
            let status = json!({"expectedPods": 9, "desiredHealthy": 8});
            assert_eq!(of(&spec, &status), None, "{spec}");
        }
    }

    #[test]
    fn a_number_may_come_to_all_pods() {
        let status = |desired: i32, expected: i32| json!({"desiredHealthy": desired, "expectedPods": expected, "currentHealthy": expected});
        for (spec, desired, expected) in [
            (json!({"minAvailable": 3}), 3, 3),
            (json!({"minAvailable": 3}), 3, 1),
            (json!({"minAvailable": "50%"}), 1, 1),
        ] {
            let never = of(&spec, &status(desired, expected)).unwrap();
            assert_eq!(never, NeverAllows::TooFewPods { desired, expected });
            assert!(!never.is_by_spec());
        }
        let three = json!({"minAvailable": 3});
        assert_eq!(of(&three, &status(3, 4)), None);
        assert_eq!(
            of(&three, &status(3, 0)),
            None,
            "the pods are not counted yet"
        );
        // Pods are about to be replaced.
        let mut disrupted = status(3, 3);
        disrupted["disruptedPods"] = json!({"p": "2024-01-01T00:00:00Z"});
        assert_eq!(of(&three, &disrupted), None);
        let mut old = status(3, 3);
        old["observedGeneration"] = json!(1);
        assert_eq!(of(&three, &old), None);
        let mut failed = status(3, 3);
        failed["conditions"] = json!([{"type": "DisruptionAllowed", "status": "False",
            "reason": "SyncFailed", "message": "found no controller ref"}]);
        assert_eq!(of(&three, &failed), None);
        // As many pods may be missing as the spec says, whatever is desired.
        assert_eq!(of(&json!({"maxUnavailable": 1}), &status(3, 3)), None);
    }
}
