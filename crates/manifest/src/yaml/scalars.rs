//! Scalars that YAML 1.1 and the library read differently.

use serde_json::{Number, Value};

/// The value that a plain scalar has in YAML 1.1, if the library takes it for text.
pub(super) fn resolve(scalar: &str) -> Option<Value> {
    match scalar {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(Value::Bool(false)),
        _ if scalar.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-') => {
            integer(&scalar.replace('_', ""))
        }
        _ => None,
    }
}

/// A number with a leading zero for octal, or one that had underscores.
fn integer(digits: &str) -> Option<Value> {
    let unsigned = digits.trim_start_matches(['+', '-']);
    if digits.len() > unsigned.len() + 1 || !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let lower = unsigned.to_ascii_lowercase();
    let (radix, rest) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some(_) if lower.starts_with('0') && !lower.contains(['.', 'e']) => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let negative = digits.starts_with('-');
    // A second sign is none of a number: `0-23` is text.
    let whole = (!rest.starts_with(['+', '-'])).then(|| i128::from_str_radix(rest, radix));
    match whole {
        Some(Ok(number)) => {
            let number = if negative { -number } else { number };
            i64::try_from(number)
                .map(Value::from)
                .or_else(|_| u64::try_from(number).map(Value::from))
                .ok()
        }
        // Such as 08, which is no octal number, or 1_000.5.
        Some(Err(_)) | None => digits.parse::<f64>().ok().and_then(whole_or_float),
    }
}

/// A floating-point number as Go converts it to JSON: an integer if it has no fraction, of the fewest digits that identify it.
pub(super) fn whole_or_float(float: f64) -> Option<Value> {
    let whole = || float.to_string().parse::<i64>().ok();
    if let Some(whole) = (float.fract() == 0.0).then(whole).flatten() {
        return Some(Value::from(whole));
    }
    Number::from_f64(float).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_floats_are_integers_of_the_digits_that_go_writes() {
        for (float, value) in [
            (5.0, json!(5)),
            (-0.0, json!(0)),
            (1.5, json!(1.5)),
            (9_007_199_254_740_992.0, json!(9_007_199_254_740_992_i64)),
            (92_233_720_364_775_807.0, json!(92_233_720_364_775_800_i64)),
            (9.2e18, json!(9_200_000_000_000_000_000_i64)),
            (1e19, json!(1e19)),
        ] {
            assert_eq!(whole_or_float(float), Some(value), "{float}");
        }
    }
}
