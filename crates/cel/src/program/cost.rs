//! The cost of operators and calls, as in the original's cost tracker.

use super::plan::{CallCost, OperatorCost};
use crate::value::CelValue;

/// The cost of a list literal.
pub(super) const LIST: u64 = 10;
/// The cost of a map literal.
pub(super) const MAP: u64 = 30;

/// The cost of an object literal.
pub(super) const OBJECT: u64 = 40;

/// A tenth of `size`, rounded up: the cost of reading text.
pub(crate) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The cost of an operator. An operand that is an error is given as `null`.
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

fn smaller(left: &CelValue<'_>, right: &CelValue<'_>) -> u64 {
    tenth(left.cost_size().min(right.cost_size()))
}

/// The cost of a call. Arguments and a result that are errors are given as `null`.
pub(super) fn of_call(cost: CallCost, args: &[CelValue<'_>], result: &CelValue<'_>) -> u64 {
    let asked = [cost.overload, cost.function];
    asked
        .into_iter()
        .flatten()
        .find_map(|cost| cost(args, result))
        .unwrap_or(1)
}
