//! Amounts with a unit, such as `1500m` or `2Gi`: text as Go's `resource.ParseQuantity` reads it, and the
//! canonical text that its `Quantity` writes.
//!
//! The canonical text costs time linear in the length of a text; no number is ever written out to its exponent. [`QuantityText`] is for those
//! who compute with amounts of any size. [`rounded_to_milli`] and [`Summand`] are what defaults need of amounts.
//!
//! Source: `k8s.io/apimachinery/pkg/api/resource`.

mod arithmetic;
mod text;

pub use arithmetic::Summand;
pub use text::{NANO, QuantityError, QuantityText, SmallQuantity};

use text::Form;

/// The largest exponent, and the negative of the smallest one. Beyond it Go's arithmetic overflows.
const MAX_EXPONENT: i64 = 1 << 30;

/// The exponent of ten that defaults round the resources of an object to.
const MILLI: i64 = -3;

/// The canonical form of an amount.
///
/// # Errors
///
/// [`QuantityError`], if `text` is not an amount.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let read = QuantityText::read(text)?;
    if read.exponent.abs() > MAX_EXPONENT {
        return Err(QuantityError::Exponent);
    }
    if let Some(small) = read.small() {
        let is_shortest = || read.is_binary() && read.is_shortest(text);
        if small.is_canonical || is_shortest() {
            return Ok(text.to_owned());
        }
    }
    let mut amount = Amount::of(&read);
    amount.round_up(NANO);
    let text = amount.text(read.form);
    Ok(if read.negative && text != "0" {
        format!("-{text}")
    } else {
        text
    })
}

/// Whether a text is an amount of usual length; some that are longer are amounts, too.
pub fn is_short(text: &str) -> bool {
    let read = QuantityText::read(text);
    let read = read.ok().filter(|one| one.exponent.abs() <= MAX_EXPONENT);
    read.is_some_and(|one| one.small().is_some())
}

/// The text of an amount that is rounded to thousandths, away from zero; none if it has no smaller parts.
pub fn rounded_to_milli(text: &str) -> Option<String> {
    let read = QuantityText::read(text).ok()?;
    // A whole number of thousandths because the suffix says so.
    if read.fraction.is_empty() && read.exponent >= MILLI || read.exponent.abs() > MAX_EXPONENT {
        return None;
    }
    let mut amount = Amount::of(&read);
    if amount.digits.is_empty() || amount.exponent >= MILLI {
        return None;
    }
    amount.round_up(MILLI);
    let sign = if read.negative { "-" } else { "" };
    Some(format!("{sign}{}", amount.text(read.form)))
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

/// An amount without its sign: `digits` times ten to the power of `exponent`.
struct Amount {
    /// Each from 0 to 9, the most significant first and not 0; none for zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl Amount {
    fn of(read: &QuantityText<'_>) -> Self {
        let digits = read.whole.bytes().chain(read.fraction.bytes());
        let digits = digits
            .map(|digit| digit - b'0')
            .skip_while(|&digit| digit == 0);
        let mut amount = Self {
            digits: digits.collect(),
            exponent: -i64::try_from(read.fraction.len()).unwrap_or(i64::MAX),
        };
        amount.strip();
        if read.is_binary() {
            amount.double(read.exponent);
        } else {
            amount.exponent += read.exponent;
        }
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
            // Of an exponent there are 32 bits.
            ("1e4294967296", "1e4294967296"),
            ("1e4294967297", "10"),
            ("1.5e4294967296", "1500e-3"),
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
            ("1e2147483647", QuantityError::Exponent),
            ("1e9223372036854775808", QuantityError::Suffix),
        ] {
            assert_eq!(canonical(text), Err(error), "{text}");
        }
    }
}
