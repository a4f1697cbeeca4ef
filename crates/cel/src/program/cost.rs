//! The cost of operators and calls, as in the original's cost tracker.

use super::plan::{CallCost, OperatorCost};
use crate::declarations::CostRule;
use crate::value::{CelError, CelValue, CelWork, code_points};

/// The cost of a list literal.
pub(super) const LIST: u64 = 10;
/// The cost of a map literal.
pub(super) const MAP: u64 = 30;

/// The cost of an object literal.
pub(super) const OBJECT: u64 = 40;

/// A tenth of `size`, rounded up: the cost of reading text.
#[inline]
pub(crate) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The cost of an operator. An operand that is an error is given as `null`.
#[inline]
pub(super) fn of_operator(cost: OperatorCost, left: &CelValue<'_>, right: &CelValue<'_>) -> u64 {
    match cost {
        OperatorCost::One => 1,
        OperatorCost::Sum => tenth(left.cost_size().saturating_add(right.cost_size())),
        OperatorCost::ListSize => right.cost_size(),
        OperatorCost::Equality => match left {
            CelValue::Opaque(value) => value
                .equality_cost()
                .unwrap_or_else(|| smaller(left, right)),
            _ => smaller(left, right),
        },
        OperatorCost::Smaller => smaller(left, right),
    }
}

#[inline]
fn smaller(left: &CelValue<'_>, right: &CelValue<'_>) -> u64 {
    match (left, right) {
        (CelValue::String(left), CelValue::String(right)) => of_texts(left, right),
        _ => tenth(left.cost_size().min(right.cost_size())),
    }
}

/// The cost of comparing texts.
#[inline]
pub(super) fn of_texts(left: &str, right: &str) -> u64 {
    tenth(fewer_code_points(left, right))
}

/// The code points of the text that has fewer. It costs `O(n)` in the shorter text: a long one is not read each time that
/// something short is compared with it.
#[inline]
fn fewer_code_points(one: &str, other: &str) -> u64 {
    /// Bytes of a code point.
    const MOST: usize = 4;
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let points = code_points(short);
    if (long.len() / MOST) as u64 >= points {
        points
    } else {
        points.min(code_points(long))
    }
}

/// The cost of a call. Arguments and a result that are errors are given as `null`.
///
/// # Errors
///
/// When walking over a value takes more than `work` allows.
#[inline]
pub(super) fn of_call(
    cost: CallCost,
    args: &[CelValue<'_>],
    result: &CelValue<'_>,
    work: &mut CelWork<'_>,
) -> Result<u64, CelError> {
    let mut by = |rule: Option<CostRule>| match rule {
        None => Ok(None),
        Some(CostRule::Function(cost)) => Ok(cost(args, result)),
        Some(CostRule::Signed(cost)) => Ok(Some(cost(args).cast_unsigned())),
        Some(CostRule::Traversal) => traversal(&args[0], work).map(Some),
    };
    if let Some(cost) = by(cost.overload)? {
        return Ok(cost);
    }
    Ok(by(cost.function)?.unwrap_or(1))
}

/// What a call takes back of the cost; `None` if it has a cost.
#[inline]
pub(super) fn refund_of_call(cost: CallCost, args: &[CelValue<'_>]) -> Option<u64> {
    let Some(CostRule::Signed(cost)) = cost.overload else {
        return None;
    };
    let cost = cost(args);
    (cost < 0).then(|| cost.unsigned_abs())
}

/// The cost of traversing a value and all that it contains: for strings and bytes a tenth of the length in bytes,
/// rounded down; for lists and maps the sum of their parts; 1 for all other values.
///
/// Empty lists and maps cost nothing, so that the walk is bounded by work. It recurses as deep as the value nests.
fn traversal(value: &CelValue<'_>, work: &mut CelWork<'_>) -> Result<u64, CelError> {
    work.burn(1)?;
    let tenth = |length: usize| length as u64 / 10;
    let mut sum = 0_u64;
    match value {
        CelValue::String(text) => sum = tenth(text.len()),
        CelValue::Bytes(bytes) => sum = tenth(bytes.len()),
        CelValue::List(list) => {
            let mut elements = list.iter();
            while let Some(cost) = elements.visit(|element| traversal(element, work)) {
                sum = sum.saturating_add(cost?);
            }
        }
        CelValue::Map(map) => {
            let mut at = 0;
            while let Some((key, value)) = map.entry_at(at) {
                sum = sum.saturating_add(traversal(&key, work)?);
                sum = sum.saturating_add(traversal(&value, work)?);
                at += 1;
            }
        }
        _ => sum = 1,
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_texts_cost_as_much_as_the_one_with_fewer_code_points() {
        let texts: Vec<String> = ["", "a", "ab", "ä", "🦀", "🦀🦀", "aaaa", "aaaaa", "ääää"]
            .into_iter()
            .flat_map(|text| [1, 3, 40].map(|times| text.repeat(times)))
            .collect();
        for one in &texts {
            for other in &texts {
                let expected = one.chars().count().min(other.chars().count());
                let found = fewer_code_points(one, other);
                assert_eq!(found, expected as u64, "{one:?} {other:?}");
            }
        }
    }
}
