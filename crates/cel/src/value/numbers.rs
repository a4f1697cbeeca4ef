//! Numbers: conversions without loss, and doubles as Go prints them.

use std::fmt::Write;

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

/// A double as Go's `%g` and `%v` print it: the shortest digits that read back as the same number. Below 1e-4 and from
/// 1e6 on they have an exponent of at least two digits.
pub(crate) fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    // `{:e}` prints the shortest digits, as d.ddde-7.
    let mut text = String::with_capacity(24);
    write!(text, "{value:e}").expect("writing to a string does not fail");
    let at = text.rfind('e').unwrap_or(text.len());
    let exponent: i32 = text[at..].trim_start_matches('e').parse().unwrap_or(0);
    text.truncate(at);
    let printed = if (-4..6).contains(&exponent) {
        without_exponent(&mut text, exponent);
        Ok(())
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(text, "e{sign}{:02}", exponent.abs())
    };
    printed.expect("writing to a string does not fail");
    text
}

/// Moves the point of a mantissa `-d.ddd` by `exponent`, from -4 to 5: the number `mantissa · 10^exponent`.
fn without_exponent(mantissa: &mut String, exponent: i32) {
    let places = exponent.unsigned_abs() as usize;
    let first = usize::from(mantissa.starts_with('-'));
    let point = mantissa.find('.');
    if let Some(point) = point {
        mantissa.remove(point);
    }
    if exponent < 0 {
        mantissa.insert_str(first, &"0.000"[..=places]);
        return;
    }
    let digits = mantissa.len() - first;
    match digits.checked_sub(places + 1) {
        None => mantissa.push_str(&"00000"[..places + 1 - digits]),
        Some(0) => {}
        Some(_) => mantissa.insert(first + places + 1, '.'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_as_in_go() {
        let cases = [
            (1e100, "1e+100"),
            (0.5, "0.5"),
            (3.0, "3"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (-2.5, "-2.5"),
            (123_456.0, "123456"),
            (1_000_000.0, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
            (-0.0, "-0"),
        ];
        for (value, text) in cases {
            assert_eq!(go_float(value), text);
        }
    }

    #[test]
    fn doubles_without_an_exponent_are_those_of_the_standard_library() {
        for (digits, power) in
            (1..2_000).flat_map(|digits| (-9..6).map(move |power| (digits, power)))
        {
            let value = -f64::from(digits * 97) * 10_f64.powi(power);
            if (1e-4..1e6).contains(&-value) {
                assert_eq!(go_float(value), value.to_string());
                assert_eq!(go_float(-value), (-value).to_string());
            }
        }
    }

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
