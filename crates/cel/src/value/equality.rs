//! Equality: numbers by value across types, lists in order, maps by key.

use std::cmp::Ordering;

use super::{CelError, CelList, CelMap, CelValue, CelWork, LOOKUP, work_of_bytes};
use crate::short_texts::equal_bytes;

/// Whether `a == b`; `false` if `==` has no overload for them.
pub(super) fn equal(a: &CelValue<'_>, b: &CelValue<'_>) -> bool {
    let mut work = CelWork::new(u64::MAX, None);
    equal_within(a, b, &mut work).unwrap_or(false)
}

/// Whether `a == b`, visiting no more parts than `work` allows.
///
/// # Errors
///
/// If the work is used up; `no such overload` if `a` is opaque and cannot be compared with `b`.
pub(crate) fn equal_within(
    a: &CelValue<'_>,
    b: &CelValue<'_>,
    work: &mut CelWork<'_>,
) -> Result<bool, CelError> {
    work.burn(1)?;
    Ok(match (a, b) {
        (CelValue::Bool(a), CelValue::Bool(b)) => a == b,
        (
            CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_),
            CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_),
        ) => compare_numbers(a, b) == Some(Ordering::Equal),
        (CelValue::String(a), CelValue::String(b)) => {
            return same_bytes(a.as_bytes(), b.as_bytes(), work);
        }
        (CelValue::Bytes(a), CelValue::Bytes(b)) => return same_bytes(a, b, work),
        (CelValue::Duration(a), CelValue::Duration(b)) => a == b,
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => a.same_time(*b),
        (CelValue::Type(a), CelValue::Type(b)) => a.runtime_name() == b.runtime_name(),
        (CelValue::Opaque(_), CelValue::Null) => false,
        (CelValue::Opaque(a), CelValue::Opaque(b)) if a.type_name() == b.type_name() => {
            work.burn(a.work().saturating_add(b.work()))?;
            return a.equals(&**b).ok_or_else(CelError::no_such_overload);
        }
        // Opaque values can be compared only with values of the same type, and with null.
        (CelValue::Opaque(_), _) => return Err(CelError::no_such_overload()),
        (CelValue::List(a), CelValue::List(b)) => return equal_lists(a, b, work),
        (CelValue::Map(a), CelValue::Map(b)) => return equal_maps(a, b, work),
        (CelValue::Null, CelValue::Null) | (CelValue::Optional(None), CelValue::Optional(None)) => {
            true
        }
        (CelValue::Optional(Some(a)), CelValue::Optional(Some(b))) => {
            return equal_within(a.value(), b.value(), work);
        }
        _ => false,
    })
}

/// Whether `a == b`; values that cannot be compared differ. So it is for `!=`, `in` and the functions that look for a value.
///
/// # Errors
///
/// If the work is used up.
pub(crate) fn is_same_within(
    a: &CelValue<'_>,
    b: &CelValue<'_>,
    work: &mut CelWork<'_>,
) -> Result<bool, CelError> {
    match equal_within(a, b, work) {
        Err(error) if !error.is_final() => Ok(false),
        other => other,
    }
}

/// Whether the bytes of two values are equal.
///
/// # Errors
///
/// If the work is used up.
pub(crate) fn same_bytes(a: &[u8], b: &[u8], work: &mut CelWork<'_>) -> Result<bool, CelError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    work.burn(work_of_bytes(a.len()))?;
    Ok(equal_bytes(a, b))
}

fn equal_lists(a: &CelList<'_>, b: &CelList<'_>, work: &mut CelWork<'_>) -> Result<bool, CelError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (a.iter(), b.iter());
    // Both have as many elements.
    while let Some(equal) = left
        .visit(|a| right.visit(|b| equal_within(a, b, work)))
        .flatten()
    {
        if !or_incomparable(equal)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Elements of lists and values of maps that cannot be compared count as equal, as in the original.
fn or_incomparable(equal: Result<bool, CelError>) -> Result<bool, CelError> {
    match equal {
        Err(error) if !error.is_final() => Ok(true),
        other => other,
    }
}

fn equal_maps(a: &CelMap<'_>, b: &CelMap<'_>, work: &mut CelWork<'_>) -> Result<bool, CelError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    // Large documents are searched by halving.
    let lookup = LOOKUP + u64::from(a.len().max(16).ilog2() - 4);
    let mut at = 0;
    while let Some((key, value)) = a.entry_at(at) {
        work.burn(lookup + key.reading_work())?;
        let Some(other) = b.get(&key) else {
            return Ok(false);
        };
        if !or_incomparable(equal_within(&value, &other, work))? {
            return Ok(false);
        }
        at += 1;
    }
    Ok(true)
}

impl CelValue<'_> {
    /// Whether values of its type have an order: numbers, strings, bytes, booleans, durations and timestamps.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(
            self,
            Self::Bool(_)
                | Self::Int(_)
                | Self::Uint(_)
                | Self::Double(_)
                | Self::String(_)
                | Self::Bytes(_)
                | Self::Duration(_)
                | Self::Timestamp(_)
        )
    }

    /// The order of two values of the same ordered type, or of two numbers of any types.
    ///
    /// # Errors
    ///
    /// `no such overload` for other types; `NaN values cannot be ordered` if one of two numbers is `NaN`.
    pub fn compare(&self, other: &CelValue<'_>) -> Result<Ordering, CelError> {
        Ok(match (self, other) {
            (CelValue::Int(a), CelValue::Int(b)) => a.cmp(b),
            (CelValue::String(a), CelValue::String(b)) => (**a).cmp(b),
            (CelValue::Bool(a), CelValue::Bool(b)) => a.cmp(b),
            (CelValue::Bytes(a), CelValue::Bytes(b)) => (**a).cmp(b),
            (CelValue::Duration(a), CelValue::Duration(b)) => a.cmp(b),
            (CelValue::Timestamp(a), CelValue::Timestamp(b)) => a.compare(*b),
            (
                CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_),
                CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_),
            ) => {
                let order = compare_numbers(self, other);
                order.ok_or_else(|| CelError::new("NaN values cannot be ordered"))?
            }
            _ => return Err(CelError::no_such_overload()),
        })
    }
}

/// The order of two numbers by value; `None` if one is `NaN`.
fn compare_numbers(a: &CelValue<'_>, b: &CelValue<'_>) -> Option<Ordering> {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => Some(a.cmp(b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => Some(a.cmp(b)),
        (CelValue::Double(a), CelValue::Double(b)) => a.partial_cmp(b),
        (CelValue::Int(a), CelValue::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (CelValue::Uint(a), CelValue::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (CelValue::Double(a), CelValue::Int(b)) => compare_double_int(*a, *b),
        (CelValue::Int(a), CelValue::Double(b)) => {
            compare_double_int(*b, *a).map(Ordering::reverse)
        }
        (CelValue::Double(a), CelValue::Uint(b)) => compare_double_uint(*a, *b),
        (CelValue::Uint(a), CelValue::Double(b)) => {
            compare_double_uint(*b, *a).map(Ordering::reverse)
        }
        _ => None,
    }
}

/// Within the range of integers, both are compared as doubles, as in the original.
#[expect(clippy::cast_precision_loss, reason = "as the original compares")]
fn compare_double_int(a: f64, b: i64) -> Option<Ordering> {
    let limit = 9_223_372_036_854_775_808.0;
    if a < -limit {
        return Some(Ordering::Less);
    }
    if a > limit {
        return Some(Ordering::Greater);
    }
    a.partial_cmp(&(b as f64))
}

#[expect(clippy::cast_precision_loss, reason = "as the original compares")]
fn compare_double_uint(a: f64, b: u64) -> Option<Ordering> {
    if a < 0.0 {
        return Some(Ordering::Less);
    }
    if a > 18_446_744_073_709_551_616.0 {
        return Some(Ordering::Greater);
    }
    a.partial_cmp(&(b as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_types() {
        assert!(CelValue::Int(1).equals(&CelValue::Double(1.0)));
        assert!(CelValue::Uint(1).equals(&CelValue::Int(1)));
        assert!(!CelValue::Double(f64::NAN).equals(&CelValue::Double(f64::NAN)));
        let less = CelValue::Int(-1).compare(&CelValue::Uint(u64::MAX));
        assert_eq!(less, Ok(Ordering::Less));
        let nan = CelValue::Int(1).compare(&CelValue::Double(f64::NAN));
        assert_eq!(nan.unwrap_err().message(), "NaN values cannot be ordered");
        assert!(CelValue::Int(1).compare(&CelValue::from("a")).is_err());
    }

    #[test]
    fn comparing_stops_when_the_work_is_used_up() {
        let list = CelValue::list(vec![CelValue::Int(1); 100]).unwrap();
        let mut work = CelWork::new(50, None);
        assert!(equal_within(&list, &list, &mut work).is_err());
        let mut work = CelWork::new(101, None);
        assert_eq!(equal_within(&list, &list, &mut work), Ok(true));
    }
}
