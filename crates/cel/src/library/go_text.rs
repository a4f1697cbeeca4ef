//! Helpers of the libraries: common cost formulas, and access to arguments.

use crate::declarations::CelFunction;
use crate::value::{CelError, CelResult, CelValue};

/// `⌈size / 10⌉`: the cost of traversing a string.
pub(super) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// `⌈2 · size / 10⌉`: the cost of traversing a string and building one of the same size.
pub(super) fn fifth(size: u64) -> u64 {
    size.saturating_mul(2).div_ceil(10)
}

/// The cost of matching a text of `text` characters with a pattern of `pattern` characters.
pub(super) fn matching(text: u64, pattern: u64) -> u64 {
    tenth(text.saturating_add(1)).saturating_mul(pattern.div_ceil(4))
}

/// The maximum length, in bytes, of a string that one call builds.
pub(super) const MOST_BYTES: usize = 20_000_000;

/// The string that a call builds is longer than [`MOST_BYTES`], which the original allows where its cost does not count that.
pub(super) fn too_long() -> CelError {
    CelError::own_limit("string is too long")
}

/// A function whose results borrow nothing.
pub(super) struct FixedFunction<F>(F);

/// Makes a function of a closure whose results borrow nothing.
pub(super) fn fixed<F>(function: F) -> FixedFunction<F>
where
    F: Fn(&[CelValue<'_>]) -> Result<CelValue<'static>, CelError>,
{
    FixedFunction(function)
}

impl<F> CelFunction for FixedFunction<F>
where
    F: Fn(&[CelValue<'_>]) -> Result<CelValue<'static>, CelError> + Send + Sync,
{
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        (self.0)(args)
    }
}

/// The argument number `at`, from 0, if it is a string; otherwise `no such overload`.
pub(super) fn text<'v>(args: &'v [CelValue<'_>], at: usize) -> Result<&'v str, CelError> {
    let value = args.get(at).and_then(CelValue::as_str);
    value.ok_or_else(CelError::no_such_overload)
}

/// The argument number `at`, from 0, if it is an `int`; otherwise `no such overload`.
pub(super) fn int(args: &[CelValue<'_>], at: usize) -> Result<i64, CelError> {
    let value = args.get(at).and_then(CelValue::as_int);
    value.ok_or_else(CelError::no_such_overload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_rounded_up() {
        assert_eq!([0, 1, 10, 11, 30].map(tenth), [0, 1, 1, 2, 3]);
        assert_eq!([0, 5, 15, 22].map(fifth), [0, 1, 3, 5]);
        assert_eq!(matching(15, 3), 2);
    }
}
