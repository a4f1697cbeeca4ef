//! Numbers as text.

use serde_json::Number;

use fairgate_gotext::float;

/// Whole numbers below this have a fraction shown, so that nobody takes them for integers.
const SHOWN_WITH_FRACTION: f64 = 1e15;

/// A number as it may have been written: an integer has neither point nor exponent, another has one
/// or is beyond all integers.
pub(super) fn text(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) if float.fract() == 0.0 && float.abs() < SHOWN_WITH_FRACTION => {
            format!("{float:.1}")
        }
        Some(float) if float.fract() == 0.0 && float.abs() < 1e19 => format!("{float:e}"),
        Some(real) => float::json(real),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_float_passes_for_an_integer() {
        for float in [1.0, -3.0, 1e3, 1e15, 9e18, 1e19, 1e30, 0.0] {
            let text = text(&Number::from_f64(float).unwrap());
            assert!(text.parse::<i64>().is_err(), "{text}");
        }
        assert_eq!(text(&Number::from(7)), "7");
    }
}
