//! What a plain scalar means to Go.

use serde_json::Value;

use crate::yaml::scalars::whole_or_float;

/// A plain scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Resolved {
    Null,
    Flag(bool),
    Integer(i64),
    /// A whole number that is no `i64`.
    Unsigned(u64),
    Float(f64),
    /// `<<`.
    Merge,
    /// What Go takes for a number in one place, and for text in another.
    Odd,
    /// The scalar itself.
    Text,
}

impl Resolved {
    /// The value of the scalar `text`, or what speaks against it.
    pub(super) fn value(self, text: &str) -> Result<Value, &'static str> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Flag(flag) => Value::Bool(flag),
            Self::Integer(number) => number.into(),
            Self::Unsigned(number) => number.into(),
            Self::Float(number) => {
                whole_or_float(number).ok_or("a number that JSON cannot express")?
            }
            Self::Odd => return Err("a number with underscores in an unusual place"),
            Self::Merge | Self::Text => text.into(),
        })
    }
}

/// Source: `resolve` of `go.yaml.in/yaml/v2`.
pub(super) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "<<" => return Resolved::Merge,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            return Resolved::Flag(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            return Resolved::Flag(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Resolved::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let found = match text.as_bytes()[0] {
        b'.' if is_float(text) => float(text),
        b'.' if text.contains('_') && text.contains(|c: char| c.is_ascii_digit()) => {
            return Resolved::Odd;
        }
        b'0'..=b'9' | b'+' | b'-' => number(&text.replace('_', "")),
        _ => None,
    };
    found.unwrap_or(Resolved::Text)
}

/// A number, without underscores.
fn number(text: &str) -> Option<Resolved> {
    if let Some(found) = integer(text) {
        return Some(found);
    }
    is_float(text).then(|| float(text)).flatten()
}

fn integer(text: &str) -> Option<Resolved> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("+", &text[1..]),
        _ => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some(_) if lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    if let Ok(number) = i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        return Some(Resolved::Integer(number));
    }
    if !sign.is_empty() {
        return None;
    }
    u64::from_str_radix(digits, radix)
        .ok()
        .map(Resolved::Unsigned)
}

/// Whether a text has the form of a number with a point or an exponent.
fn is_float(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && is_digits(mantissa),
    };
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    is_mantissa && is_exponent
}

/// A number beyond all others is no number to Go.
fn float(text: &str) -> Option<Resolved> {
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(Resolved::Float(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_they_mean_to_go() {
        use Resolved::{Flag, Float, Integer, Odd, Text, Unsigned};
        for (text, expected) in [
            ("yes", Flag(true)),
            ("Off", Flag(false)),
            ("yEs", Text),
            ("010", Integer(8)),
            ("-012", Integer(-10)),
            ("08", Float(8.0)),
            ("0o17", Integer(15)),
            ("-0x10", Integer(-16)),
            ("0b101", Integer(5)),
            ("1_000", Integer(1000)),
            ("0", Integer(0)),
            ("-0", Integer(0)),
            ("9223372036854775808", Unsigned(9_223_372_036_854_775_808)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            (".", Text),
            ("._5", Odd),
            (".5_0", Odd),
            ("._", Text),
            ("1e3", Float(1000.0)),
            ("1e", Text),
            ("1e400", Text),
            ("1:30", Text),
            ("2020-01-01", Text),
            ("10Mi", Text),
            ("-", Text),
            ("--1", Text),
            ("0x", Text),
            ("0xg", Text),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
    }
}
