//! Steps of the paths in which ownership is expressed.
//!
//! A [`PathElement`] leads from a value to one below it: by the name of a field, by the key of an item in a
//! list of type map, by the item itself in a list of type set. Steps are ordered as in kube-apiserver, because
//! the order is visible in conflicts: names, then keys, then items, then indices.
//!
//! Not here: sets of paths ([`super::path_set`]) and how they are stored ([`super::fields_v1`]).

use std::{cmp::Ordering, fmt};

use serde_json::{Number, Value};

use crate::go;
use fairgate_gotext::Quoted;

/// From a value to one below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    // `Ord` is derived: the order of the variants is that in which kube-apiserver sorts steps.
    /// A field of a struct or a key of a map.
    Name(String),
    /// The item of a list of type map with these values in its key fields, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// An item of a list of type set.
    Item(Scalar),
    /// An item of a list by its index; only in messages about lists that are owned as a whole.
    Index(i64),
}

impl PathElement {
    /// The step to a field.
    pub(super) fn name(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Item(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A JSON value with a total order, in which `1` and `1.0` are equal.
///
/// It is mostly a string or a number, but clients may store any value as a key.
#[derive(Clone, Debug)]
pub(super) struct Scalar(pub(super) Value);

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Null => f.write_str("null"),
            Value::String(text) => Quoted(text).fmt(f),
            other => go::Plain(other).fmt(f),
        }
    }
}

/// Whether two values mean the same: like `==`, but `1` and `1.0` are equal.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    compare(a, b).is_eq()
}

/// The total order of values: numbers, strings, booleans, lists, objects, null.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => lexical(a.iter(), b.iter(), compare),
        (Value::Object(a), Value::Object(b)) => lexical(a.iter(), b.iter(), |a, b| {
            a.0.cmp(b.0).then_with(|| compare(a.1, b.1))
        }),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn lexical<T>(
    mut a: impl Iterator<Item = T>,
    mut b: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match compare(a, b) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

/// A number, exact if it is an integer, so that the order of numbers is total.
enum Exact {
    Whole(i128),
    Broken(f64),
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (exact(a), exact(b)) {
        (Exact::Whole(a), Exact::Whole(b)) => a.cmp(&b),
        (Exact::Whole(a), Exact::Broken(b)) => rounded(a).total_cmp(&b),
        (Exact::Broken(a), Exact::Whole(b)) => a.total_cmp(&rounded(b)),
        (Exact::Broken(a), Exact::Broken(b)) => a.total_cmp(&b),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the float is whole and far inside of the range"
)]
fn exact(number: &Number) -> Exact {
    // As a float, a large integer would equal its neighbours, and the order would not be transitive.
    if let Some(whole) = number.as_i128() {
        return Exact::Whole(whole);
    }
    let float = number.as_f64().unwrap_or(f64::MAX);
    if float.fract() == 0.0 && float.abs() < 1e30 {
        Exact::Whole(float as i128)
    } else {
        Exact::Broken(float)
    }
}

/// An integer compared with a number that has a fraction: these differ by more than the rounding
/// error.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn rounded(whole: i128) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn item(value: Value) -> PathElement {
        PathElement::Item(Scalar(value))
    }

    #[test]
    fn steps_are_ordered_by_kind_and_then_by_value() {
        let key = |value: Value| PathElement::Key(vec![("type".to_owned(), Scalar(value))]);
        let ordered = [
            PathElement::name("a"),
            PathElement::name("a "),
            PathElement::name("b"),
            key(json!("A")),
            key(json!("A B")),
            item(json!(9)),
            item(json!(9.5)),
            item(json!(10)),
            item(json!("10")),
            item(json!("9")),
            item(json!(false)),
            item(json!(null)),
            PathElement::Index(2),
            PathElement::Index(10),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_whole_float_is_the_same_as_its_integer() {
        assert!(same(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!same(&json!(1), &json!(1.5)));
        assert!(!same(&json!(null), &json!({})));
    }

    #[test]
    fn paths_read_as_upstream_writes_them() {
        let path = [
            PathElement::name("spec"),
            PathElement::Key(vec![
                ("port".to_owned(), Scalar(json!(80))),
                ("protocol".to_owned(), Scalar(json!("TCP"))),
            ]),
            item(json!("Deny")),
            PathElement::Index(0),
        ];
        let text: String = path.iter().map(ToString::to_string).collect();
        assert_eq!(text, r#".spec[port=80,protocol="TCP"][="Deny"][0]"#);
    }

    fn number() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(|n| json!(n)),
            any::<u64>().prop_map(|n| json!(n)),
            any::<f64>().prop_map(|n| json!(n)),
            (-9i64..9).prop_map(|n| json!(n)),
            (-9i32..9).prop_map(|n| json!(f64::from(n) / 2.0)),
            Just(json!(9_007_199_254_740_993_i64)),
            Just(json!(9_007_199_254_740_992.0)),
        ]
    }

    proptest! {
        #[test]
        fn the_order_of_numbers_is_transitive(a in number(), b in number(), c in number()) {
            let mut three = [Scalar(a), Scalar(b), Scalar(c)];
            three.sort();
            prop_assert!(three[0] <= three[2]);
        }
    }
}
