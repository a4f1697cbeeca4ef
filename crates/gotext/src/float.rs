//! Floating-point numbers as Go prints them: with the fewest digits that identify them.
//!
//! Source: Go `strconv/ftoa.go` and `encoding/json/encode.go`.

use std::fmt::Write;

/// A number as Go's `%g` and `%v` print it: the shortest digits that read back as the same number. Below 1e-4 and from
/// 1e6 on they have an exponent of at least two digits.
pub fn shortest(value: f64) -> String {
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
    let _ = write!(text, "{value:e}");
    let at = text.rfind('e').unwrap_or(text.len());
    let exponent: i32 = text[at..].trim_start_matches('e').parse().unwrap_or(0);
    text.truncate(at);
    if (-4..6).contains(&exponent) {
        without_exponent(&mut text, exponent);
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(text, "e{sign}{:02}", exponent.abs());
    }
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

/// A finite number as Go's `encoding/json` writes it: without a fraction if it has none, and with an exponent if it is below 1e-6 or from
/// 1e21 on.
pub fn json(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
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
            assert_eq!(shortest(value), text);
        }
    }

    #[test]
    fn doubles_without_an_exponent_are_those_of_the_standard_library() {
        for (digits, power) in
            (1..2_000).flat_map(|digits| (-9..6).map(move |power| (digits, power)))
        {
            let value = -f64::from(digits * 97) * 10_f64.powi(power);
            if (1e-4..1e6).contains(&-value) {
                assert_eq!(shortest(value), value.to_string());
                assert_eq!(shortest(-value), (-value).to_string());
            }
        }
    }

    #[test]
    fn numbers_get_an_exponent_where_go_gives_them_one() {
        for (float, text) in [
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (1e6, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (123_456.5, "123456.5"),
            (100_000.0, "100000"),
            (0.25, "0.25"),
        ] {
            assert_eq!(shortest(float), text);
        }
    }

    #[test]
    fn numbers_in_json_have_other_exponents() {
        for (number, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (0.000_001, "0.000001"),
            (0.0, "0"),
        ] {
            assert_eq!(json(number), text);
        }
    }
}
