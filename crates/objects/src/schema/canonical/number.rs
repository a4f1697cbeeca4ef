//! Numbers as text.

use serde_json::Number;

/// Whole numbers below this have a fraction shown, so that nobody takes them for integers.
const SHOWN_WITH_FRACTION: f64 = 1e15;

/// A floating-point number as Go's encoder writes it: in as few digits as tell it from others,
/// without a fraction if it has none, and with an exponent if it is very small or large.
pub(crate) fn go_float(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

/// A number as it may have been written: an integer has neither point nor exponent, another has one
/// or is beyond all integers.
pub(super) fn text(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) if float.fract() == 0.0 && float.abs() < SHOWN_WITH_FRACTION => {
            format!("{float:.1}")
        }
        Some(float) if float.fract() == 0.0 && float.abs() < 1e19 => format!("{float:e}"),
        Some(float) => go_float(float),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (float, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (0.000_001, "0.000001"),
            (0.0, "0"),
        ] {
            assert_eq!(go_float(float), text);
        }
    }

    #[test]
    fn no_float_passes_for_an_integer() {
        for float in [1.0, -3.0, 1e3, 1e15, 9e18, 1e19, 1e30, 0.0] {
            let text = text(&Number::from_f64(float).unwrap());
            assert!(text.parse::<i64>().is_err(), "{text}");
        }
        assert_eq!(text(&Number::from(7)), "7");
    }
}
