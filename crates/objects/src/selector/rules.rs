//! The requirements of a label selector, compiled: all that is required of a label is in one place.
//!
//! A selector may have thousands of requirements and values, and an object thousands of labels. Only labels that are in both can
//! decide, so whether an object is selected costs as many look-ups as the shorter of the two has labels, however many values there
//! are: most requirements that an object does not contradict hold because it has no such label.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_core::digest::LabelOperator;

/// The labels of an object.
pub trait LabelSet {
    /// How many there are, or an upper bound of it.
    fn count(&self) -> usize;

    /// The value of a label.
    fn value(&self, key: &str) -> Option<&str>;

    /// All labels with their values.
    fn labels(&self) -> impl Iterator<Item = (&str, &str)>;
}

/// What is required of the labels of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    by_key: BTreeMap<Box<str>, Rule>,
    /// How many labels an object must have.
    needed: usize,
    terms: usize,
}

/// What is required of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    is_needed: bool,
    is_excluded: bool,
    one_of: Option<BTreeSet<String>>,
    none_of: BTreeSet<String>,
    /// Whole numbers that the value has to be greater than, and less than.
    over: Option<i64>,
    under: Option<i64>,
}

impl Rules {
    /// Requires this, too. A comparison whose value is no number never holds.
    pub(super) fn add(&mut self, key: &str, operator: LabelOperator, values: BTreeSet<String>) {
        self.terms += 1 + values.len();
        let number = |values: &BTreeSet<String>| values.iter().find_map(|value| value.parse().ok());
        let rule = self.by_key.entry(key.into()).or_default();
        let was_needed = rule.is_needed;
        rule.is_needed |= !matches!(
            operator,
            LabelOperator::DoesNotExist | LabelOperator::NotIn | LabelOperator::NotEquals
        );
        match operator {
            LabelOperator::Exists => {}
            LabelOperator::DoesNotExist => rule.is_excluded = true,
            LabelOperator::In | LabelOperator::Equals => {
                if let Some(others) = &mut rule.one_of {
                    others.retain(|value| values.contains(value));
                } else {
                    rule.one_of = Some(values);
                }
            }
            LabelOperator::NotIn | LabelOperator::NotEquals => rule.none_of.extend(values),
            LabelOperator::GreaterThan => {
                rule.over = rule.over.max(number(&values).or(Some(i64::MAX)));
            }
            LabelOperator::LessThan => {
                let limit = number(&values).unwrap_or(i64::MIN);
                rule.under = Some(rule.under.map_or(limit, |other| other.min(limit)));
            }
        }
        self.needed += usize::from(rule.is_needed && !was_needed);
    }

    /// Whether nothing is required.
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// How many requirements there are, and values in them.
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    /// How many labels are looked up for an object with so many labels.
    pub(super) fn look_ups(&self, labels: usize) -> usize {
        if self.needed > labels {
            return 0;
        }
        labels.min(self.by_key.len())
    }

    /// Whether all requirements hold for the object whose labels `label` returns. It costs a look-up for each label that is in a
    /// requirement.
    pub(super) fn hold_by<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let mut all = self.by_key.iter();
        all.all(|(key, rule)| rule.holds(label(key)))
    }

    /// Whether all requirements hold for these labels. It costs as many look-ups as [`look_ups`](Self::look_ups) says.
    pub(super) fn hold(&self, labels: &impl LabelSet) -> bool {
        let count = labels.count();
        if self.needed > count {
            return false;
        }
        if self.by_key.len() <= count {
            return self.hold_by(|key| labels.value(key));
        }
        let mut found = 0;
        for (key, value) in labels.labels() {
            if let Some(rule) = self.by_key.get(key) {
                if !rule.holds(Some(value)) {
                    return false;
                }
                found += usize::from(rule.is_needed);
            }
        }
        found == self.needed
    }

    /// A label that all objects have for which all requirements hold, and the values that it may have if they are known: the one
    /// with the fewest.
    pub(super) fn needed_label(&self) -> Option<(&str, Option<&BTreeSet<String>>)> {
        let needed = self.by_key.iter().filter(|(_, rule)| rule.is_needed);
        let values = |rule: &Rule| rule.one_of.as_ref().map_or(usize::MAX, BTreeSet::len);
        let (key, rule) = needed.min_by_key(|(_, rule)| values(rule))?;
        Some((key, rule.one_of.as_ref()))
    }
}

impl Rule {
    /// Whether the label may have this value, or be absent.
    fn holds(&self, label: Option<&str>) -> bool {
        let Some(value) = label else {
            return !self.is_needed;
        };
        let number = || value.parse::<i64>().ok();
        let over = |limit| number().is_some_and(|value| value > limit);
        let under = |limit| number().is_some_and(|value| value < limit);
        !self.is_excluded
            && self
                .one_of
                .as_ref()
                .is_none_or(|values| values.contains(value))
            && !self.none_of.contains(value)
            && self.over.is_none_or(over)
            && self.under.is_none_or(under)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Labels that count how often one is looked up, and how many are gone through.
    struct Counted {
        labels: BTreeMap<String, String>,
        looked_up: Cell<usize>,
    }

    impl LabelSet for Counted {
        fn count(&self) -> usize {
            self.labels.len()
        }

        fn value(&self, key: &str) -> Option<&str> {
            self.looked_up.set(self.looked_up.get() + 1);
            self.labels.get(key).map(String::as_str)
        }

        fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
            self.labels.iter().map(|(key, value)| {
                self.looked_up.set(self.looked_up.get() + 1);
                (key.as_str(), value.as_str())
            })
        }
    }

    /// As the requirement is defined.
    fn holds(operator: LabelOperator, values: &BTreeSet<String>, label: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let limit = values.iter().find_map(|value| number(value));
        match operator {
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
            LabelOperator::In | LabelOperator::Equals => {
                label.is_some_and(|value| values.contains(value))
            }
            LabelOperator::NotIn | LabelOperator::NotEquals => {
                !label.is_some_and(|value| values.contains(value))
            }
            LabelOperator::GreaterThan => label
                .and_then(number)
                .is_some_and(|value| value > limit.unwrap_or(i64::MAX)),
            LabelOperator::LessThan => label
                .and_then(number)
                .is_some_and(|value| value < limit.unwrap_or(i64::MIN)),
        }
    }

    fn operator() -> impl Strategy<Value = LabelOperator> {
        prop::sample::select(vec![
            LabelOperator::Exists,
            LabelOperator::DoesNotExist,
            LabelOperator::In,
            LabelOperator::Equals,
            LabelOperator::NotIn,
            LabelOperator::NotEquals,
            LabelOperator::GreaterThan,
            LabelOperator::LessThan,
        ])
    }

    proptest! {
        #[test]
        fn compiled_requirements_mean_the_same_one_by_one(
            labels in prop::collection::btree_map("[a-e]", "[0-3x]", 0..5),
            requirements in prop::collection::vec(
                ("[a-e]", operator(), prop::collection::btree_set("[0-3x]", 1..4)), 0..5,
            ),
        ) {
            let mut rules = Rules::default();
            for (key, operator, values) in &requirements {
                rules.add(key, *operator, values.clone());
            }
            let expected = requirements.iter().all(|(key, operator, values)| {
                holds(*operator, values, labels.get(key).map(String::as_str))
            });
            let counted = Counted { labels, looked_up: Cell::new(0) };
            prop_assert_eq!(rules.hold(&counted), expected);
            prop_assert!(counted.looked_up.get() <= rules.look_ups(counted.count()));
            prop_assert_eq!(rules.hold_by(|key| counted.value(key)), expected);
            if expected && let Some((key, values)) = rules.needed_label() {
                let value = counted.labels.get(key);
                prop_assert!(value.is_some_and(|value| values.is_none_or(|all| all.contains(value))));
            }
        }
    }

    #[test]
    fn what_an_object_does_not_have_costs_nothing() {
        let mut rules = Rules::default();
        for number in 0..28_000 {
            let values = [number.to_string()].into();
            rules.add(&format!("key-{number}"), LabelOperator::NotIn, values);
        }
        let values = (0..15_000).map(|number| number.to_string()).collect();
        rules.add("app", LabelOperator::In, values);
        let counted = Counted {
            labels: [("app", "7"), ("key-5", "6"), ("z", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            looked_up: Cell::new(0),
        };
        assert!(rules.hold(&counted));
        assert_eq!(counted.looked_up.get(), 3);
        assert_eq!(rules.terms(), 2 * 28_000 + 15_001);
        assert!(!rules.hold(&Counted {
            labels: BTreeMap::new(),
            looked_up: Cell::new(0)
        }));
    }
}
