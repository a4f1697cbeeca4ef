//! Sums of amounts, and which of two is larger.

use std::cmp::Ordering;

use super::{Amount, MAX_EXPONENT, NANO, QuantityText, text::Form};

const NANOS: i128 = 1_000_000_000;

/// The largest amount of binary form that Go reads; it takes this for larger ones.
const LARGEST_BINARY: i128 = i64::MAX as i128 * NANOS;

/// An amount that can be added. It is exact, but not every amount is one: those over 10²⁹ are not.
#[derive(Clone, Copy)]
pub struct Summand {
    nanos: i128,
    form: Form,
}

impl Summand {
    /// The amount of a text, if it is an amount that can be added.
    pub fn read(text: &str) -> Option<Self> {
        let read = QuantityText::read(text).ok()?;
        if read.exponent.abs() > MAX_EXPONENT {
            return None;
        }
        let mut amount = Amount::of(&read);
        amount.round_up(NANO);
        let exponent = u32::try_from(amount.exponent - NANO).ok()?;
        let digits = amount.digits.iter().try_fold(0_i128, |sum, &digit| {
            sum.checked_mul(10)?.checked_add(digit.into())
        })?;
        let mut nanos = match digits {
            0 => 0,
            _ => digits.checked_mul(10_i128.checked_pow(exponent)?)?,
        };
        if read.is_binary() {
            nanos = nanos.min(LARGEST_BINARY);
        }
        Some(Self {
            nanos: if read.negative { -nanos } else { nanos },
            form: read.form,
        })
    }

    /// The sum, written as `self` is unless that is zero.
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            nanos: self.nanos.checked_add(other.nanos)?,
            form: if self.nanos == 0 {
                other.form
            } else {
                self.form
            },
        })
    }

    /// Which of two is larger.
    pub fn compare(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// The canonical text.
    pub fn text(self) -> String {
        const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.unsigned_abs();
        let (mut whole, fraction) = (nanos / NANOS.unsigned_abs(), nanos % NANOS.unsigned_abs());
        if self.form == Form::Binary && fraction == 0 && whole >= 1024 {
            let mut unit = 0;
            while whole % 1024 == 0 && unit + 1 < UNITS.len() {
                whole /= 1024;
                unit += 1;
            }
            return format!("{sign}{whole}{}", UNITS[unit]);
        }
        let form = match self.form {
            Form::Binary => Form::Decimal,
            form => form,
        };
        let digits = nanos.to_string();
        let mut amount = Amount {
            digits: digits.bytes().map(|digit| digit - b'0').collect(),
            exponent: NANO,
        };
        amount.strip();
        format!("{sign}{}", amount.text(form))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        let sum = Summand::read(one)?.plus(Summand::read(other)?)?;
        Some(sum.text())
    }

    #[test]
    fn sums_are_exact_and_written_as_the_first_amount() {
        for (one, other, wanted) in [
            ("100m", "900m", "1"),
            ("1Gi", "1", "1073741825"),
            ("1Ki", "1Ki", "2Ki"),
            ("1Ki", "500m", "1024500m"),
            ("1", "1Ki", "1025"),
            ("0", "1Ki", "1Ki"),
            ("1e3", "1e3", "2e3"),
            ("5Ei", "5Ei", "10Ei"),
            ("-1", "1", "0"),
            ("-2", "1", "-1"),
            ("1n", "1", "1000000001n"),
        ] {
            assert_eq!(sum(one, other).as_deref(), Some(wanted), "{one} + {other}");
        }
        let doubled = |sum: Option<Summand>| sum.and_then(|sum| sum.plus(sum));
        let large = (0..20).fold(Summand::read("4Ei"), |sum, _| doubled(sum));
        assert_eq!(large.map(Summand::text).as_deref(), Some("4194304Ei"));
        assert_eq!(sum("1e30", "1"), None);
        assert_eq!(sum("1e1000000000", "1"), None);
    }
}
