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
    match i128::from_str_radix(rest, radix) {
        Ok(number) => {
            let number = if negative { -number } else { number };
            i64::try_from(number)
                .map(Value::from)
                .or_else(|_| u64::try_from(number).map(Value::from))
                .ok()
        }
        // Such as 08, which is no octal number, or 1_000.5.
        Err(_) => digits.parse::<f64>().ok().and_then(whole_or_float),
    }
}

/// A floating-point number as Go converts it to JSON: an integer if it has no fraction.
pub(super) fn whole_or_float(float: f64) -> Option<Value> {
    const EXACT: f64 = 9e18;
    if float.fract() == 0.0 && float.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within range")]
        return Some(Value::from(float as i64));
    }
    Number::from_f64(float).map(Value::Number)
}
