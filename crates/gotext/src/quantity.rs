//! Amounts with a unit, such as `1500m` or `2Gi`: text as Go's `resource.ParseQuantity` reads it, and the
//! canonical text that its `Quantity` writes.
//!
//! Go has a fast path, for amounts that fit into 64 bits by its estimate, and a slow one. Both give the same result
//! with one exception: a text that the fast path takes for canonical is not changed.
//!
//! Costs time linear in the length of a text; no number is ever written out to its exponent.
//!
//! [`rounded_to_milli`] and [`Summand`] are what defaults need of amounts.
//!
//! Source: `k8s.io/apimachinery/pkg/api/resource`.

mod arithmetic;

pub use arithmetic::Summand;

use std::borrow::Cow;

/// The largest exponent, and the negative of the smallest one. Beyond it Go's arithmetic overflows.
const MAX_EXPONENT: i64 = 1 << 30;

/// Digits that fit into 64 bits for sure.
const DIGITS: i64 = 18;

/// The smallest exponent of ten: more precise amounts are rounded up.
const NANO: i64 = -9;

/// The exponent of ten that defaults round the resources of an object to.
const MILLI: i64 = -3;

/// Why a text is not an amount. The messages are Go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number and a suffix.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number is malformed.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The exponent is out of range.
    #[error("quantity's exponent is out of range")]
    Exponent,
}

/// How an amount is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `12e6`.
    Exponent,
    /// `12Mi`.
    Binary,
    /// `12M`.
    Decimal,
}

/// The canonical form of an amount.
///
/// # Errors
///
/// [`QuantityError`], if `text` is not an amount.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let parts = Parts::of(text)?;
    let (exponent, form) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
    if exponent.abs() > MAX_EXPONENT {
        return Err(QuantityError::Exponent);
    }
    match short(&parts, exponent, form) {
        Some(true) => return Ok(text.to_owned()),
        Some(false) if form == Form::Binary && parts.is_shortest(text) => {
            return Ok(text.to_owned());
        }
        None if !parts.is_number => return Err(QuantityError::Number),
        _ => {}
    }
    let mut amount = Amount::of(&parts);
    if form == Form::Binary {
        amount.double(exponent);
    } else {
        amount.exponent += exponent;
    }
    amount.round_up(NANO);
    let text = amount.text(form);
    Ok(if parts.negative && text != "0" {
        format!("-{text}")
    } else {
        text
    })
}

/// Whether a text is an amount of usual length; some that are longer are amounts, too.
pub fn is_short(text: &str) -> bool {
    let Ok(parts) = Parts::of(text) else {
        return false;
    };
    let found = suffix(parts.suffix).filter(|(exponent, _)| exponent.abs() <= MAX_EXPONENT);
    let is_short = found.and_then(|(exponent, form)| short(&parts, exponent, form));
    !text.is_empty() && is_short.is_some()
}

/// The text of an amount that is rounded to thousandths, away from zero; none if it has no smaller parts.
pub fn rounded_to_milli(text: &str) -> Option<String> {
    if has_no_small_part(text) {
        return None;
    }
    let (mut amount, form, negative) = exact(text)?;
    if amount.digits.is_empty() || amount.exponent >= MILLI {
        return None;
    }
    amount.round_up(MILLI);
    let sign = if negative { "-" } else { "" };
    Some(format!("{sign}{}", amount.text(form)))
}

/// Whether an amount is a whole number of thousandths because its suffix says so; it may be one all the same if not.
fn has_no_small_part(text: &str) -> bool {
    let Ok(parts) = Parts::of(text) else {
        return false;
    };
    let suffix = suffix(parts.suffix);
    parts.fraction.is_empty() && suffix.is_some_and(|(exponent, _)| exponent >= MILLI)
}

/// An amount without its sign, how it is written, and whether it is negative.
fn exact(text: &str) -> Option<(Amount, Form, bool)> {
    let parts = Parts::of(text).ok()?;
    let (exponent, form) = suffix(parts.suffix)?;
    if exponent.abs() > MAX_EXPONENT {
        return None;
    }
    let mut amount = Amount::of(&parts);
    if form == Form::Binary {
        amount.double(exponent);
    } else {
        amount.exponent += exponent;
    }
    Some((amount, form, parts.negative))
}

/// The parts of a text; all digits are ASCII.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; at least one.
    whole: &'a str,
    /// Digits behind it.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is any digit.
    is_number: bool,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let significant = unsigned.trim_start_matches('0');
        let (whole, rest) = digits(significant);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        // Only zeros, or nothing: Go reads even a lone sign as zero.
        let is_number = significant.is_empty()
            || unsigned.starts_with('0')
            || !whole.is_empty()
            || !fraction.is_empty();
        let letters = rest.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let signed = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !digits(signed).1.is_empty() {
            return Err(QuantityError::Format);
        }
        Ok(Self {
            negative,
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            suffix: rest,
            is_number,
        })
    }
}

impl Parts<'_> {
    /// Whether a whole number with a binary suffix is written as it would be: it is no multiple of 1024, and has neither a sign nor zeros
    /// before it.
    fn is_shortest(&self, text: &str) -> bool {
        let value: Option<u64> = self.whole.parse().ok();
        value.is_some_and(|value| value % 1024 != 0)
            && text.len() == self.whole.len() + self.suffix.len()
    }
}

/// The digits that a text begins with, and the rest.
fn digits(text: &str) -> (&str, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.split_at(text.len() - rest.len())
}

/// The exponent that a suffix means, of two if it is binary, else of ten.
fn suffix(suffix: &str) -> Option<(i64, Form)> {
    Some(match suffix {
        "n" => (-9, Form::Decimal),
        "u" => (-6, Form::Decimal),
        "m" => (-3, Form::Decimal),
        "" => (0, Form::Decimal),
        "k" => (3, Form::Decimal),
        "M" => (6, Form::Decimal),
        "G" => (9, Form::Decimal),
        "T" => (12, Form::Decimal),
        "P" => (15, Form::Decimal),
        "E" => (18, Form::Decimal),
        "Ki" => (10, Form::Binary),
        "Mi" => (20, Form::Binary),
        "Gi" => (30, Form::Binary),
        "Ti" => (40, Form::Binary),
        "Pi" => (50, Form::Binary),
        "Ei" => (60, Form::Binary),
        other => {
            let exponent: i64 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            (exponent, Form::Exponent)
        }
    })
}

/// The suffix for an exponent of ten, if there is one.
fn decimal_suffix(exponent: i64, form: Form) -> String {
    if form == Form::Exponent {
        return if exponent == 0 {
            String::new()
        } else {
            format!("e{exponent}")
        };
    }
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
    .to_owned()
}

/// Whether Go takes the fast path, and if so, whether it takes the text for canonical.
fn short(parts: &Parts<'_>, exponent: i64, form: Form) -> Option<bool> {
    let length = |digits: &str| i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let (whole, fraction) = (length(parts.whole), length(parts.fraction));
    let (precision, scale) = match form {
        Form::Binary if fraction == 0 => (15 - whole - exponent * 3 / 10 - 1, 0),
        Form::Binary => return None,
        _ => (DIGITS - whole - fraction, exponent - fraction),
    };
    if precision < 0 || scale < NANO {
        return None;
    }
    let digits: Cow<'_, str> = if parts.fraction.is_empty() {
        parts.whole.into()
    } else {
        format!("{}{}", parts.whole, parts.fraction).into()
    };
    let value: i64 = digits.parse().ok()?;
    Some(match form {
        Form::Binary => {
            value.checked_mul(1 << exponent)?;
            value & 7 != 0
        }
        _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
    })
}

/// An amount without its sign: `digits` times ten to the power of `exponent`.
struct Amount {
    /// Each from 0 to 9, the most significant first and not 0; none for zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl Amount {
    fn of(parts: &Parts<'_>) -> Self {
        let digits = parts.whole.bytes().chain(parts.fraction.bytes());
        let digits = digits
            .map(|digit| digit - b'0')
            .skip_while(|&digit| digit == 0);
        let mut amount = Self {
            digits: digits.collect(),
            exponent: -i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX),
        };
        amount.strip();
        amount
    }

    /// Moves all zeros at the end of the digits into the exponent.
    fn strip(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
    }

    /// Multiplies by two, `times` times; at most 60.
    fn double(&mut self, times: i64) {
        let mut carry = 0_u128;
        let mut digits = Vec::with_capacity(self.digits.len() + 20);
        let mut push = |value: u128| {
            digits.push((value % 10).to_le_bytes()[0]);
            value / 10
        };
        for &digit in self.digits.iter().rev() {
            carry = push((u128::from(digit) << times) + carry);
        }
        while carry > 0 {
            carry = push(carry);
        }
        digits.reverse();
        self.digits = digits;
        self.strip();
    }

    /// Rounds up to a multiple of ten to the power of `to`.
    fn round_up(&mut self, to: i64) {
        let excess = to.saturating_sub(self.exponent);
        if excess <= 0 || self.digits.is_empty() {
            return;
        }
        // The last digit is not zero, so there is always something to round.
        let kept = i64::try_from(self.digits.len()).unwrap_or(i64::MAX) - excess;
        self.digits.truncate(usize::try_from(kept).unwrap_or(0));
        self.exponent = to;
        self.increment();
        self.strip();
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            *digit = (*digit + 1) % 10;
            if *digit > 0 {
                return;
            }
        }
        self.digits.insert(0, 1);
    }

    /// The amount, if it is a whole number; the largest number of 64 bits for a larger one.
    fn whole(&self) -> Option<i64> {
        let exponent = u32::try_from(self.exponent).ok()?;
        let digits = self.digits.iter().try_fold(0_i64, |sum, &digit| {
            sum.checked_mul(10)?.checked_add(digit.into())
        });
        let power = 10_i64.checked_pow(exponent);
        let product = digits
            .zip(power)
            .and_then(|(digits, power)| digits.checked_mul(power));
        Some(product.unwrap_or(i64::MAX))
    }

    /// Whether it is larger than all whole numbers of 64 bits, fraction or not.
    fn is_beyond(&self) -> bool {
        let whole = Self {
            digits: self.digits[..self.point()].to_vec(),
            exponent: self.exponent.max(0),
        };
        whole.whole() == Some(i64::MAX)
    }

    /// How many of the digits are before the point.
    fn point(&self) -> usize {
        let length = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        usize::try_from(length + self.exponent.min(0)).unwrap_or(0)
    }

    fn text(mut self, form: Form) -> String {
        const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        if form == Form::Binary {
            let whole = if self.is_beyond() {
                Some(i64::MAX)
            } else {
                self.whole()
            };
            if let Some(mut whole) = whole.filter(|&whole| whole >= 1024) {
                let mut unit = 0;
                while whole % 1024 == 0 {
                    whole /= 1024;
                    unit += 1;
                }
                return format!("{whole}{}", UNITS[unit]);
            }
        }
        while self.exponent % 3 != 0 {
            self.digits.push(0);
            self.exponent -= 1;
        }
        let digits = self.digits.iter().map(|&digit| char::from(b'0' + digit));
        digits
            .chain(decimal_suffix(self.exponent, form).chars())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_go_writes_them() {
        for (text, amount) in [
            ("0", "0"),
            ("-0", "0"),
            ("+", "0"),
            (".", "0"),
            ("m", "0"),
            ("1", "1"),
            ("+5", "+5"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("-1000", "-1k"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1024", "1024"),
            ("8Ki", "8Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1e3", "1e3"),
            ("1e4", "10e3"),
            ("1E3", "1E3"),
            ("12.5e3", "12500"),
            ("1000E", "1"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("100000000000Gi", "9223372036854775807"),
            ("12345678901234567890", "12345678901234567890"),
            ("1Ei", "1Ei"),
            ("16Ei", "9223372036854775807"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(amount), "{text}");
        }
    }

    #[test]
    fn an_invalid_quantity_is_refused() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1Gi ", QuantityError::Format),
            ("true", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("0x", QuantityError::Format),
            ("1mm", QuantityError::Suffix),
            ("1i", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1M5", QuantityError::Suffix),
            ("Ei", QuantityError::Number),
            ("1e99999999999", QuantityError::Exponent),
        ] {
            assert_eq!(canonical(text), Err(error), "{text}");
        }
    }
}
