//! Quantities as they are written: a number and a suffix.
//!
//! Go has a fast path, for amounts that fit into 64 bits by its estimate, and a slow one. Both give the same amount, but it is known of the
//! result which path it took: where it is compared with integers, and where a text is taken for canonical.

use std::borrow::Cow;

/// Digits that fit into 64 bits for sure.
const DIGITS: i64 = 18;

/// The smallest exponent of ten: more precise amounts are rounded up.
pub const NANO: i64 = -9;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `12e6`.
    Exponent,
    /// `12Mi`.
    Binary,
    /// `12M`.
    Decimal,
}

/// A quantity as it is written; all digits are ASCII.
#[derive(Clone, Copy, Debug)]
pub struct QuantityText<'t> {
    /// Whether it begins with a minus; zero may, too.
    pub negative: bool,
    /// Digits before the point, without leading zeros; at least one.
    pub whole: &'t str,
    /// Digits behind it.
    pub fraction: &'t str,
    /// The exponent that the suffix means, of two if it is [binary](Self::is_binary), from 10 to 60, and of ten else, of 32 bits.
    pub exponent: i64,
    pub(super) form: Form,
    pub(super) suffix: &'t str,
}

/// An amount that Go reads on its fast path: `digits · 10^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallQuantity {
    /// The digits with their sign.
    pub digits: i64,
    /// The exponent of ten, at least [`NANO`].
    pub exponent: i64,
    /// Whether Go takes the text for canonical.
    pub(super) is_canonical: bool,
}

impl<'t> QuantityText<'t> {
    /// Reads a quantity.
    ///
    /// # Errors
    ///
    /// [`QuantityError`], if `text` is none; never [`QuantityError::Exponent`].
    pub fn read(text: &'t str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
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
        let (exponent, form) = suffix(rest).ok_or(QuantityError::Suffix)?;
        let read = Self {
            negative,
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            exponent,
            form,
            suffix: rest,
        };
        if !is_number && read.small().is_none() {
            return Err(QuantityError::Number);
        }
        Ok(read)
    }

    /// Whether the suffix is one of a power of two, such as `Mi`.
    pub fn is_binary(&self) -> bool {
        self.form == Form::Binary
    }

    /// The amount, if Go takes its fast path: by its estimate it fits into 64 bits, and nothing has to be rounded.
    pub fn small(&self) -> Option<SmallQuantity> {
        let length = |digits: &str| i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let (whole, fraction) = (length(self.whole), length(self.fraction));
        let (precision, exponent) = match self.form {
            Form::Binary if fraction == 0 => (15 - whole - self.exponent * 3 / 10 - 1, 0),
            Form::Binary => return None,
            _ => (DIGITS - whole - fraction, self.exponent - fraction),
        };
        if precision < 0 || exponent < NANO {
            return None;
        }
        let written: Cow<'_, str> = if self.fraction.is_empty() {
            self.whole.into()
        } else {
            format!("{}{}", self.whole, self.fraction).into()
        };
        let value: i64 = written.parse().ok()?;
        let (digits, is_canonical) = if self.is_binary() {
            (value.checked_mul(1 << self.exponent)?, value & 7 != 0)
        } else {
            let is_long = written.ends_with("000") || written.starts_with('0');
            (value, exponent % 3 == 0 && !is_long)
        };
        Some(SmallQuantity {
            digits: if self.negative { -digits } else { digits },
            exponent,
            is_canonical,
        })
    }

    /// Whether a whole number with a binary suffix is written as it would be: it is no multiple of 1024, and has neither a sign nor zeros
    /// before it.
    pub(super) fn is_shortest(&self, text: &str) -> bool {
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
            // Go truncates it.
            #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
            (i64::from(exponent as i32), Form::Exponent)
        }
    })
}
