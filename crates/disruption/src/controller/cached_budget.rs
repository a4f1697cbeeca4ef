//! A budget as the controller keeps it between syncs.
//!
//! There may be many small ones, and parsed such a budget takes four times its JSON. So only its JSON is kept, and what is asked of
//! it without a sync; a sync reads it again. A large one takes long to read, and parsed at most twice its JSON: it stays parsed.

use std::sync::Arc;

use fairgate_objects::selector::LabelSelector;

use crate::{budget::DisruptionBudget, pod::Pod};

/// Budgets with longer JSON, in bytes, stay parsed. To read a shorter one takes some 10 µs.
const SMALL: usize = 4 << 10;

/// A budget between syncs.
#[derive(Debug)]
pub(super) enum CachedBudget {
    Small {
        json: Box<str>,
        /// `None` if it is invalid.
        selector: Option<Arc<LabelSelector>>,
        is_exhausted: bool,
    },
    Large(Arc<DisruptionBudget>),
}

impl CachedBudget {
    pub(super) fn new(budget: DisruptionBudget) -> Self {
        if budget.json().len() > SMALL {
            return Self::Large(Arc::new(budget));
        }
        Self::Small {
            json: budget.json().into(),
            is_exhausted: is_exhausted(&budget),
            selector: budget.spec.selector.ok(),
        }
    }

    /// The whole budget. Costs the time to read it if it is small. `None` if it cannot be read a second time, which no budget of a
    /// server is.
    pub(super) fn budget(&self) -> Option<Arc<DisruptionBudget>> {
        match self {
            Self::Small { json, .. } => DisruptionBudget::from_json(json).map(Arc::new),
            Self::Large(budget) => Some(Arc::clone(budget)),
        }
    }

    /// The selector; `None` if it is invalid.
    pub(super) fn selector(&self) -> Option<&Arc<LabelSelector>> {
        match self {
            Self::Small { selector, .. } => selector.as_ref(),
            Self::Large(budget) => budget.spec.selector.as_ref().ok(),
        }
    }

    /// Whether its selector selects a pod of its namespace.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        let selector = self.selector();
        selector.is_some_and(|selector| selector.matches(&pod.labels))
    }

    /// Whether it allows no disruption.
    pub(super) fn is_exhausted(&self) -> bool {
        match self {
            Self::Small { is_exhausted, .. } => *is_exhausted,
            Self::Large(budget) => is_exhausted(budget),
        }
    }
}

fn is_exhausted(budget: &DisruptionBudget) -> bool {
    budget.status.disruptions_allowed <= 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn budget(note: &str) -> DisruptionBudget {
        DisruptionBudget::from_value(json!({
            "metadata": {"name": "b", "namespace": "ns", "annotations": {"note": note}, "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"maxUnavailable": "30%", "selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 1, "later": [1], "conditions": [{"type": "Other"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_budget_is_the_same_however_it_is_kept() {
        for (length, is_small) in [(0, true), (SMALL, false)] {
            let budget = budget(&"x".repeat(length));
            let cached = CachedBudget::new(budget.clone());
            assert_eq!(matches!(cached, CachedBudget::Small { .. }), is_small);
            assert_eq!(cached.selector(), budget.spec.selector.as_ref().ok());
            assert_eq!(*cached.budget().unwrap(), budget);
            assert!(!cached.is_exhausted());
        }
    }

    #[test]
    fn an_invalid_selector_stays_invalid_and_selects_nothing() {
        let odd = json!({"metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": {"matchExpressions": [{"operator": "?"}]}}});
        let budget = DisruptionBudget::from_value(odd).unwrap();
        let cached = CachedBudget::new(budget.clone());
        assert!(cached.selector().is_none() && cached.is_exhausted());
        assert_eq!(*cached.budget().unwrap(), budget);
        let pod = json!({"metadata": {"name": "p", "namespace": "ns"}});
        assert!(!cached.selects(&Pod::from_value(&pod).unwrap()));
    }
}
