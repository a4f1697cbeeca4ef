//! The requirements of a label selector, compiled: all that is required of a label is in one place.
//!
//! A selector may have thousands of requirements and values, and an object thousands of labels. Only labels that are in both can
//! decide, so whether an object is selected costs as many look-ups as the shorter of the two has labels, however many values there
//! are: most requirements that an object does not contradict hold because it has no such label.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_core::digest::LabelOperator;

use super::packed_list::{PackedList, PackedTexts, push};

/// The labels of an object.
pub trait LabelSet {
    /// How many there are, or an upper bound of it.
    fn count(&self) -> usize;

    /// The value of a label.
    fn value(&self, key: &str) -> Option<&str>;

    /// All labels with their values.
    fn labels(&self) -> impl Iterator<Item = (&str, &str)>;
}

/// What is required of the labels of an object, in few pieces of memory: it takes about as much as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// The keys of the labels, sorted.
    keys: PackedList,
    /// What is required of each: see [`LabelDemand`].
    demands: PackedList,
    /// Rules that cannot be packed as a [`LabelDemand`].
    others: Box<[Rule]>,
    /// How many labels an object must have.
    needed: usize,
    /// Of these, the one that may have the fewest values.
    fewest: Option<usize>,
    terms: usize,
}

/// Requirements, as they are read.
#[derive(Debug, Default)]
pub(super) struct RulesBuilder {
    by_key: BTreeMap<Box<str>, Rule<BTreeSet<String>>>,
    terms: usize,
}

/// What is required of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule<Values = PackedList> {
    is_needed: bool,
    is_excluded: bool,
    one_of: Option<Values>,
    none_of: Values,
    /// Whole numbers that the value has to be greater than, and less than.
    over: Option<i64>,
    under: Option<i64>,
}

/// What is required of one label, as it is packed: a byte, and what follows.
enum LabelDemand<'r> {
    /// The label exists.
    Exists,
    /// The label does not exist.
    Absent,
    /// It has one of a few values.
    In(PackedTexts<'r>),
    /// It has none of a few values, or does not exist.
    NotIn(PackedTexts<'r>),
    Rule(&'r Rule),
}

const EXISTS: u8 = 0;
const ABSENT: u8 = 1;
const IN: u8 = 2;
const NOT_IN: u8 = 3;
/// The place of the rule among the others follows, in four bytes.
const RULE: u8 = 4;

/// So many values are gone through one by one.
const FEW_VALUES: usize = 16;

impl RulesBuilder {
    /// Requires this, too. A comparison whose value is no number never holds.
    pub(super) fn add(&mut self, key: &str, operator: LabelOperator, values: BTreeSet<String>) {
        self.terms += 1 + values.len();
        let number = |values: &BTreeSet<String>| values.iter().find_map(|value| value.parse().ok());
        let rule = self.by_key.entry(key.into()).or_default();
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
                // What is no number never holds: no number is greater than the greatest.
                rule.over = rule.over.max(number(&values).or(Some(i64::MAX)));
            }
            LabelOperator::LessThan => {
                let limit = number(&values).unwrap_or(i64::MIN);
                rule.under = Some(rule.under.map_or(limit, |other| other.min(limit)));
            }
        }
    }

    /// Packs them; `None` if nothing is required.
    pub(super) fn build(self) -> Option<Box<Rules>> {
        if self.by_key.is_empty() {
            return None;
        }
        let values =
            |rule: &Rule<BTreeSet<String>>| rule.one_of.as_ref().map_or(usize::MAX, BTreeSet::len);
        let needed = self
            .by_key
            .values()
            .enumerate()
            .filter(|(_, rule)| rule.is_needed);
        let fewest = needed.clone().min_by_key(|(_, rule)| values(rule));
        let mut others = Vec::new();
        Some(Box::new(Rules {
            keys: self.by_key.keys().map(|key| key.as_bytes()).collect(),
            needed: needed.count(),
            fewest: fewest.map(|(at, _)| at),
            demands: self
                .by_key
                .values()
                .map(|rule| rule.packed(&mut others))
                .collect(),
            others: others.into(),
            terms: self.terms,
        }))
    }
}

impl Rules {
    /// How many requirements there are, and values in them.
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    /// How many labels are looked up for an object with so many labels.
    pub(super) fn look_ups(&self, labels: usize) -> usize {
        if self.needed > labels {
            return 0;
        }
        labels.min(self.keys.len())
    }

    /// Whether all requirements hold for the object whose labels `label` returns. It costs a look-up for each label that is in a
    /// requirement.
    pub(super) fn hold_by<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let mut all = self.keys.iter().zip(self.demands.iter());
        all.all(|(key, demand)| self.demand(demand).holds(label(text(key))))
    }

    /// Whether all requirements hold for these labels. It costs as many look-ups as [`look_ups`](Self::look_ups) says.
    pub(super) fn hold(&self, labels: &impl LabelSet) -> bool {
        let count = labels.count();
        if self.needed > count {
            return false;
        }
        // Whichever has fewer labels is gone through; each is looked up in the other.
        if self.keys.len() <= count {
            return self.hold_by(|key| labels.value(key));
        }
        let mut found = 0;
        for (key, value) in labels.labels() {
            if let Some(demand) = self.of_key(key) {
                found += usize::from(demand.is_needed());
                if !demand.holds(Some(value)) {
                    return false;
                }
            }
        }
        // Needed labels that the object does not have were not met in its labels.
        found == self.needed
    }

    /// A label that all objects have for which all requirements hold, and the values that it may have if they are known and at most
    /// so many: the label with the fewest.
    pub(super) fn needed_label(&self, most: usize) -> Option<(&str, Option<Vec<&str>>)> {
        let at = self.fewest?;
        let key = text(self.keys.get(at)?);
        let values = match self.demand(self.demands.get(at)?) {
            LabelDemand::In(values) => Some(values),
            LabelDemand::Rule(rule) => rule.one_of.as_ref().map(PackedList::iter),
            LabelDemand::Exists | LabelDemand::Absent | LabelDemand::NotIn(_) => None,
        };
        let few = values.filter(|values| values.clone().nth(most).is_none());
        Some((key, few.map(|values| values.map(text).collect())))
    }

    fn of_key(&self, key: &str) -> Option<LabelDemand<'_>> {
        let at = self.keys.position(key.as_bytes())?;
        Some(self.demand(self.demands.get(at)?))
    }

    fn demand<'r>(&'r self, packed: &'r [u8]) -> LabelDemand<'r> {
        match packed {
            [EXISTS] => LabelDemand::Exists,
            [IN, values @ ..] => LabelDemand::In(PackedTexts(values)),
            [NOT_IN, values @ ..] => LabelDemand::NotIn(PackedTexts(values)),
            [RULE, a, b, c, d] => {
                let at = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                self.others
                    .get(at)
                    .map_or(LabelDemand::Absent, LabelDemand::Rule)
            }
            _ => LabelDemand::Absent,
        }
    }
}

impl Rule<BTreeSet<String>> {
    /// The rule, packed as a [`LabelDemand`]. One that cannot be packed is put to the others.
    fn packed(&self, others: &mut Vec<Rule>) -> Vec<u8> {
        let is_compared = self.over.is_some() || self.under.is_some();
        let (needed, none_of) = (self.is_needed, self.none_of.len());
        match &self.one_of {
            _ if is_compared || self.is_excluded && (needed || none_of > 0) => {}
            None if self.is_excluded => return vec![ABSENT],
            None if needed && none_of == 0 => return vec![EXISTS],
            None if !needed && none_of <= FEW_VALUES => {
                return packed_values(NOT_IN, &self.none_of);
            }
            Some(values) if none_of == 0 && values.len() <= FEW_VALUES => {
                return packed_values(IN, values);
            }
            _ => {}
        }
        let at = u32::try_from(others.len()).expect("a selector has fewer than four billion rules");
        others.push(Rule {
            is_needed: self.is_needed,
            is_excluded: self.is_excluded,
            one_of: self.one_of.as_ref().map(|values| values.iter().collect()),
            none_of: self.none_of.iter().collect(),
            over: self.over,
            under: self.under,
        });
        let mut packed = vec![RULE];
        packed.extend(at.to_le_bytes());
        packed
    }
}

fn packed_values(code: u8, values: &BTreeSet<String>) -> Vec<u8> {
    // A value takes the byte of its length, too.
    let length: usize = values.iter().map(|value| 1 + value.len()).sum();
    let mut packed = Vec::with_capacity(1 + length);
    packed.push(code);
    for value in values {
        push(&mut packed, value.as_bytes());
    }
    packed
}

impl LabelDemand<'_> {
    /// Whether every object for which it holds has the label.
    fn is_needed(&self) -> bool {
        match self {
            Self::Exists | Self::In(_) => true,
            Self::Absent | Self::NotIn(_) => false,
            Self::Rule(rule) => rule.is_needed,
        }
    }

    /// Whether the label may have this value, or be absent.
    fn holds(self, label: Option<&str>) -> bool {
        let Some(value) = label else {
            return !self.is_needed();
        };
        let value_is_in =
            |mut values: PackedTexts<'_>| values.any(|other| other == value.as_bytes());
        match self {
            Self::Exists => true,
            Self::Absent => false,
            Self::In(values) => value_is_in(values),
            Self::NotIn(values) => !value_is_in(values),
            Self::Rule(rule) => rule.allows(value),
        }
    }
}

impl Rule {
    /// Whether the label may have this value.
    fn allows(&self, value: &str) -> bool {
        let number = || value.parse::<i64>().ok();
        let over = |limit| number().is_some_and(|value| value > limit);
        let under = |limit| number().is_some_and(|value| value < limit);
        let has = |values: &PackedList| values.position(value.as_bytes()).is_some();
        !self.is_excluded
            && self.one_of.as_ref().is_none_or(has)
            && !has(&self.none_of)
            && self.over.is_none_or(over)
            && self.under.is_none_or(under)
    }
}

/// A packed key or value, which was a text.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
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
            let mut rules = RulesBuilder::default();
            for (key, operator, values) in &requirements {
                rules.add(key, *operator, values.clone());
            }
            let rules = rules.build().unwrap_or_default();
            let expected = requirements.iter().all(|(key, operator, values)| {
                holds(*operator, values, labels.get(key).map(String::as_str))
            });
            let counted = Counted { labels, looked_up: Cell::new(0) };
            prop_assert_eq!(rules.hold(&counted), expected);
            prop_assert!(counted.looked_up.get() <= rules.look_ups(counted.count()));
            prop_assert_eq!(rules.hold_by(|key| counted.value(key)), expected);
            if expected && let Some((key, values)) = rules.needed_label(2) {
                let value = counted.labels.get(key);
                prop_assert!(value.is_some_and(|value| values.is_none_or(|all| all.contains(&value.as_str()))));
            }
        }
    }

    #[test]
    fn what_an_object_does_not_have_costs_nothing() {
        let mut rules = RulesBuilder::default();
        for number in 0..28_000 {
            let values = [number.to_string()].into();
            rules.add(&format!("key-{number}"), LabelOperator::NotIn, values);
        }
        let values = (0..15_000).map(|number| number.to_string()).collect();
        rules.add("app", LabelOperator::In, values);
        let rules = rules.build().unwrap();
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
