//! Bounds of a budget: a number of pods, or a percentage of the pods that are expected.
//!
//! Percentages are rounded up, for `minAvailable` and for `maxUnavailable` alike. For `maxUnavailable` this allows more
//! disruptions: 1 % of three pods is one pod.

use std::fmt;

use serde_json::Value;

/// A number of pods, or a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number of pods.
    Int(i64),
    /// A percentage of the expected pods.
    Percent(i64),
}

/// The error of a bound that is neither a number nor a percentage. Servers that validate budgets do not store such
/// bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundError {
    /// A string without `%` at its end, or a value of another type.
    #[error("invalid value for IntOrString: invalid type: string is not a percentage")]
    NotAPercentage,
    /// The text before `%` is not an integer.
    #[error("invalid value for IntOrString: invalid value {0:?}")]
    NotANumber(String),
}

/// As in the spec: `5`, `5%`.
impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl IntOrPercent {
    /// Reads a bound; `None` if it is absent or null.
    ///
    /// # Errors
    ///
    /// [`BoundError`], if it is neither an integer nor an integer followed by `%`.
    pub fn from_value(value: &Value) -> Result<Option<Self>, BoundError> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Self::parse_percent(text).map(Some),
            value => match value.as_i64() {
                Some(count) => Ok(Some(Self::Int(count))),
                None => Err(BoundError::NotAPercentage),
            },
        }
    }

    fn parse_percent(text: &str) -> Result<Self, BoundError> {
        let Some(number) = text.strip_suffix('%') else {
            return Err(BoundError::NotAPercentage);
        };
        match number.parse() {
            Ok(percent) => Ok(Self::Percent(percent)),
            Err(_) => Err(BoundError::NotANumber(text.to_owned())),
        }
    }

    /// The number of pods, given `total` pods: percentages are rounded up, and the result is clamped to `i32`.
    pub fn of(self, total: i32) -> i32 {
        let count = match self {
            Self::Int(count) => i128::from(count),
            Self::Percent(percent) => {
                let hundredths = i128::from(percent) * i128::from(total);
                -(-hundredths).div_euclid(100)
            }
        };
        saturate(count)
    }
}

/// The nearest `i32`.
pub(crate) fn saturate(count: i128) -> i32 {
    let clamped = count.clamp(i128::from(i32::MIN), i128::from(i32::MAX));
    i32::try_from(clamped).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_integers_or_percentages() {
        let read = |value: Value| IntOrPercent::from_value(&value);
        assert_eq!(read(json!(null)), Ok(None));
        assert_eq!(read(json!(3)), Ok(Some(IntOrPercent::Int(3))));
        assert_eq!(read(json!("28%")), Ok(Some(IntOrPercent::Percent(28))));
        assert_eq!(read(json!("28")), Err(BoundError::NotAPercentage));
        assert_eq!(read(json!(1.5)), Err(BoundError::NotAPercentage));
        assert!(matches!(read(json!("x%")), Err(BoundError::NotANumber(_))));
    }

    #[test]
    fn percentages_are_rounded_up() {
        let cases = [
            (30, 7, 3),
            (1, 3, 1),
            (28, 22, 7),
            (34, 3, 2),
            (0, 9, 0),
            (100, 9, 9),
            (50, 0, 0),
        ];
        for (percent, total, expected) in cases {
            let count = IntOrPercent::Percent(percent).of(total);
            assert_eq!(count, expected, "{percent} % of {total}");
        }
        assert_eq!(IntOrPercent::Percent(i64::MAX).of(i32::MAX), i32::MAX);
        assert_eq!(IntOrPercent::Int(i64::MIN).of(1), i32::MIN);
    }

    proptest! {
        #[test]
        fn percentages_are_monotone(a in 0..=200_i64, b in 0..=200_i64, s in 0..=i32::MAX, t in 0..=i32::MAX) {
            let (a, b, s, t) = (a.min(b), a.max(b), s.min(t), s.max(t));
            let of = |percent, total| IntOrPercent::Percent(percent).of(total);
            prop_assert!(of(a, s) <= of(b, s));
            prop_assert!(of(a, s) <= of(a, t));
        }

        #[test]
        fn a_percentage_and_its_complement_cover_everything(p in 0..=100_i64, total in 0..=i32::MAX) {
            let of = |percent| i64::from(IntOrPercent::Percent(percent).of(total));
            let sum = of(p) + of(100 - p);
            prop_assert!((i64::from(total)..=i64::from(total) + 1).contains(&sum));
        }
    }
}
