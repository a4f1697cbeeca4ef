//! Numbers: conversions without loss.

/// The `int` with the same value, if there is one.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(crate) fn double_to_int(value: f64) -> Option<i64> {
    let limit = 9_223_372_036_854_775_808.0;
    (value.fract().abs() <= 0.0 && (-limit..limit).contains(&value)).then_some(value as i64)
}

/// The `uint` with the same value, if there is one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
pub(crate) fn double_to_uint(value: f64) -> Option<u64> {
    let limit = 18_446_744_073_709_551_616.0;
    (value.fract().abs() <= 0.0 && (0.0..limit).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_conversions_count() {
        assert_eq!(double_to_int(2.0), Some(2));
        assert_eq!(double_to_int(2.5), None);
        assert_eq!(double_to_int(9_223_372_036_854_775_808.0), None);
        assert_eq!(double_to_int(-9_223_372_036_854_775_808.0), Some(i64::MIN));
        assert_eq!(double_to_uint(-1.0), None);
        assert_eq!(double_to_uint(f64::NAN), None);
    }
}
