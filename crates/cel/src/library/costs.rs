//! The run-time cost of functions of strings.

use crate::value::CelValue;

/// A tenth of the first argument's size, rounded up.
#[expect(clippy::unnecessary_wraps, reason = "the signature of cost functions")]
pub(super) fn text_cost(args: &[CelValue<'_>], _: &CelValue<'_>) -> Option<u64> {
    Some(args[0].cost_size().div_ceil(10))
}

/// The product of a tenth of the sizes of the first two arguments, each rounded up: the cost of a search.
#[expect(clippy::unnecessary_wraps, reason = "the signature of cost functions")]
pub(super) fn product_cost(args: &[CelValue<'_>], _: &CelValue<'_>) -> Option<u64> {
    let (text, part) = (args[0].cost_size(), args[1].cost_size());
    Some(text.div_ceil(10).saturating_mul(part.div_ceil(10)))
}
