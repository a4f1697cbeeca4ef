//! The budgets of one namespace: which of them may select a pod, and which exceed the limit of the namespace.
//!
//! A selector may have thousands of requirements, and a namespace thousands of budgets. So a changed pod is compared only with
//! budgets that may select it: those that need one of its labels, with its value if they allow few, and those that need no label.
//! What the selectors of a namespace may have together is limited. The oldest budgets count first, so that nobody can exclude a
//! budget by a new one. Those beyond the limit, and those that exceed it alone, select nothing, and allow no disruption.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fairgate_objects::selector::{LabelSelector, LabelSet as _};
use jiff::Timestamp;

use crate::{budget::DisruptionBudget, labels::PodLabels};

/// What a budget counts, besides the terms of its selector.
const BUDGET_TERMS: u64 = 10;
/// A budget that needs a label with one of so many values is found by label and value; others by the label.
const FEW_VALUES: usize = 8;

/// The budgets of a namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceBudgets {
    /// When each was created.
    created: BTreeMap<Arc<str>, Timestamp>,
    /// Those within the limit, the oldest first, and what they count together.
    within: BTreeMap<Age, CountedSelector>,
    terms: u64,
    /// Younger ones, for which nothing is left.
    over: BTreeMap<Age, CountedSelector>,
    /// Those that exceed the limit alone.
    too_large: usize,
    /// Those within the limit.
    index: BudgetIndex,
}

/// When a budget was created, and its name.
type Age = (Timestamp, Arc<str>);

#[derive(Debug)]
struct CountedSelector {
    terms: u64,
    /// `None` if it is invalid.
    selector: Option<Arc<LabelSelector>>,
}

/// Budgets by a label that the pods need which they select.
#[derive(Debug, Default)]
struct BudgetIndex {
    by_label: BTreeMap<Box<str>, LabelIndex>,
    /// Those that need no label.
    others: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct LabelIndex {
    /// Values, each with a budget that needs it. One set, since one for each value would take 200 bytes.
    by_value: BTreeSet<(Arc<str>, Arc<str>)>,
    any_value: BTreeSet<Arc<str>>,
}

impl NamespaceBudgets {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.created.is_empty()
    }

    /// How many exceed the limit.
    pub(super) fn over(&self) -> usize {
        self.over.len() + self.too_large
    }

    /// Whether a budget exceeds the limit.
    pub(super) fn is_over(&self, name: &str) -> bool {
        let age = self.created.get_key_value(name);
        age.is_some_and(|(name, created)| !self.within.contains_key(&(*created, Arc::clone(name))))
    }

    /// Adds a budget, or changes one. Returns those that exceed the `limit` now and did not before, or the other way round.
    /// It costs `O(log n)` for each of these.
    pub(super) fn put(&mut self, budget: &DisruptionBudget, limit: u64) -> Vec<Arc<str>> {
        let selector = budget.spec.selector.as_ref().ok();
        let terms = u64::try_from(budget.selector_terms()).unwrap_or(u64::MAX);
        let terms = terms.saturating_add(BUDGET_TERMS);
        let age: Age = (budget.created, budget.name.as_str().into());
        let known = self.within.get(&age).or_else(|| self.over.get(&age));
        if known.is_some_and(|known| known.selector.as_ref() == selector) {
            return Vec::new();
        }
        let was_over = self.is_over(&budget.name);
        let mut changed = self.remove(&budget.name, limit);
        self.created.insert(Arc::clone(&age.1), age.0);
        let counted = CountedSelector {
            terms,
            selector: selector.cloned(),
        };
        if terms > limit {
            self.too_large += 1;
        } else if self
            .over
            .first_key_value()
            .is_some_and(|(first, _)| *first < age)
        {
            // An older one does not fit, so a younger one must not take what is left.
            self.over.insert(age.clone(), counted);
        } else {
            self.enter(age.clone(), counted);
            while self.terms > limit
                && let Some((youngest, counted)) = self.within.pop_last()
            {
                self.left(&youngest, &counted);
                match changed.iter().position(|other| *other == youngest.1) {
                    // It was only let in for a moment.
                    Some(entered) => drop(changed.swap_remove(entered)),
                    None => changed.push(Arc::clone(&youngest.1)),
                }
                self.over.insert(youngest, counted);
            }
        }
        changed.retain(|other| *other != age.1);
        if self.is_over(&age.1) != was_over {
            changed.push(age.1);
        }
        changed
    }

    /// Removes a budget. Returns those that do not exceed the limit any more.
    pub(super) fn remove(&mut self, name: &str, limit: u64) -> Vec<Arc<str>> {
        let Some((name, created)) = self.created.remove_entry(name) else {
            return Vec::new();
        };
        let age = (created, name);
        if let Some(counted) = self.within.remove(&age) {
            self.left(&age, &counted);
        } else if self.over.remove(&age).is_none() {
            self.too_large -= 1;
        }
        let mut entered = Vec::new();
        while let Some(next) = self.over.first_entry()
            && self.terms.saturating_add(next.get().terms) <= limit
        {
            let (age, counted) = next.remove_entry();
            entered.push(Arc::clone(&age.1));
            self.enter(age, counted);
        }
        entered
    }

    /// The names of the budgets that may select a pod with these labels, in order, and how many look-ups that took.
    pub(super) fn candidates(&self, labels: &PodLabels) -> (Vec<Arc<str>>, u64) {
        let index = &self.index;
        let mut found: Vec<Arc<str>> = index.others.iter().cloned().collect();
        let mut add = |of_label: &LabelIndex, value: &str| {
            let from: (Arc<str>, Arc<str>) = (value.into(), "".into());
            let with_value = of_label.by_value.range(from..);
            let with_value = with_value.take_while(|(other, _)| **other == *value);
            found.extend(with_value.map(|(_, name)| Arc::clone(name)));
            found.extend(of_label.any_value.iter().cloned());
        };
        let (labelled, labels_of_pod) = (index.by_label.len(), labels.count());
        if labels_of_pod <= labelled {
            for (key, value) in labels.labels() {
                if let Some(of_label) = index.by_label.get(key) {
                    add(of_label, value);
                }
            }
        } else {
            for (key, of_label) in &index.by_label {
                if let Some(value) = labels.get(key) {
                    add(of_label, value);
                }
            }
        }
        found.sort_unstable();
        let look_ups = labelled.min(labels_of_pod) + found.len();
        (found, u64::try_from(look_ups).unwrap_or(u64::MAX))
    }

    fn enter(&mut self, age: Age, counted: CountedSelector) {
        self.terms = self.terms.saturating_add(counted.terms);
        if let Some(selector) = &counted.selector {
            self.index.add(&age.1, selector);
        }
        self.within.insert(age, counted);
    }

    /// It is no longer among those within the limit.
    fn left(&mut self, age: &Age, counted: &CountedSelector) {
        self.terms -= counted.terms;
        if let Some(selector) = &counted.selector {
            self.index.remove(&age.1, selector);
        }
    }
}

impl BudgetIndex {
    fn add(&mut self, name: &Arc<str>, selector: &LabelSelector) {
        let name = || Arc::clone(name);
        match selector.needed_label(FEW_VALUES) {
            _ if selector.is_nothing() => {}
            None => {
                self.others.insert(name());
            }
            Some((key, values)) => {
                let of_label = self.by_label.entry(key.into()).or_default();
                match values {
                    Some(values) => {
                        let pairs = values.into_iter().map(|value| (value.into(), name()));
                        of_label.by_value.extend(pairs);
                    }
                    None => {
                        of_label.any_value.insert(name());
                    }
                }
            }
        }
    }

    fn remove(&mut self, name: &str, selector: &LabelSelector) {
        let Some((key, values)) = selector.needed_label(FEW_VALUES) else {
            self.others.remove(name);
            return;
        };
        let Some(of_label) = self.by_label.get_mut(key) else {
            return;
        };
        for value in values.into_iter().flatten() {
            of_label.by_value.remove(&(value.into(), name.into()));
        }
        of_label.any_value.remove(name);
        if of_label.by_value.is_empty() && of_label.any_value.is_empty() {
            self.by_label.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::Pod;

    const LIMIT: u64 = 60;

    fn budget(name: &str, age: u32, selector: &Value) -> DisruptionBudget {
        DisruptionBudget::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns",
                "creationTimestamp": format!("2024-01-01T00:00:{age:02}Z"),
            },
            "spec": {"selector": selector},
        }))
        .unwrap()
    }

    fn pod(labels: &Value) -> Pod {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": labels}});
        Pod::from_value(&pod).unwrap()
    }

    fn selector() -> impl Strategy<Value = Value> {
        let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
        let values = prop::collection::btree_set("[0-9]{1,2}", 1..30);
        let requirement = ("[a-c]", operator, values).prop_map(|(key, operator, values)| {
            let values = if operator.ends_with("In") {
                json!(values)
            } else {
                json!([])
            };
            json!({"key": key, "operator": operator, "values": values})
        });
        prop_oneof![
            Just(json!(null)),
            Just(json!({"matchExpressions": [{"key": "-", "operator": "Exists"}]})),
            prop::collection::vec(requirement, 0..3)
                .prop_map(|requirements| json!({"matchExpressions": requirements})),
        ]
    }

    /// Names of budgets over the limit, by the definition: in the order of age, the first that does not fit and all after it, apart
    /// from those that do not fit alone.
    fn over(budgets: &BTreeMap<String, DisruptionBudget>) -> BTreeSet<String> {
        let mut by_age: Vec<_> = budgets.values().collect();
        by_age.sort_by_key(|budget| (budget.created, budget.name.clone()));
        let (mut sum, mut is_full, mut over) = (0, false, BTreeSet::new());
        for budget in by_age {
            let terms = budget.selector_terms() as u64 + BUDGET_TERMS;
            if terms <= LIMIT && !is_full && sum + terms <= LIMIT {
                sum += terms;
                continue;
            }
            is_full |= terms <= LIMIT;
            over.insert(budget.name.clone());
        }
        over
    }

    proptest! {
        #[test]
        fn the_index_finds_all_that_select_a_pod_and_changes_are_told(
            steps in prop::collection::vec(("[p-v]", prop::option::of((0..9_u32, selector()))), 1..40),
            labels in prop::collection::btree_map("[a-d]", "[0-9]", 0..4),
        ) {
            let pod = pod(&json!(labels));
            let mut namespace = NamespaceBudgets::default();
            let mut budgets = BTreeMap::new();
            for (name, step) in steps {
                let before = over(&budgets);
                let changed = if let Some((age, selector)) = step {
                    let budget = budget(&name, age, &selector);
                    let changed = namespace.put(&budget, LIMIT);
                    budgets.insert(name.clone(), budget);
                    changed
                } else {
                    budgets.remove(&name);
                    namespace.remove(&name, LIMIT)
                };
                let now = over(&budgets);
                for other in budgets.keys().filter(|other| **other != name) {
                    let has_changed = before.contains(other) != now.contains(other);
                    prop_assert_eq!(changed.iter().any(|told| **told == **other), has_changed);
                }
                prop_assert_eq!(namespace.over(), now.len());
                let (candidates, _) = namespace.candidates(&pod.labels);
                prop_assert!(candidates.is_sorted());
                for budget in budgets.values() {
                    let is_over = now.contains(&budget.name);
                    prop_assert_eq!(namespace.is_over(&budget.name), is_over);
                    let is_candidate = candidates.iter().any(|name| **name == *budget.name);
                    prop_assert!(!is_over || !is_candidate);
                    prop_assert!(is_over || is_candidate || !budget.selects(&pod));
                }
            }
            for name in budgets.keys() {
                namespace.remove(name, LIMIT);
            }
            prop_assert!(namespace.is_empty() && namespace.terms == 0);
            prop_assert!(namespace.index.by_label.is_empty() && namespace.index.others.is_empty());
        }
    }

    #[test]
    fn a_pod_is_compared_only_with_budgets_that_need_its_labels() {
        let mut namespace = NamespaceBudgets::default();
        for number in 0..1000 {
            let selector = json!({"matchLabels": {"app": format!("a{number}")}});
            namespace.put(&budget(&format!("b{number:04}"), 0, &selector), 100_000);
        }
        let (candidates, look_ups) = namespace.candidates(&pod(&json!({"app": "a7"})).labels);
        assert_eq!(
            (candidates.as_slice(), look_ups),
            (&["b0007".into()][..], 2)
        );
    }
}
