//! Doubles from text, as Go's `strconv.ParseFloat` reads them: decimal or hexadecimal, with underscores between
//! digits.

/// Reads a number; `None` if it is none, or too large for a double.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    if let Some(named) = named(text) {
        return Some(named);
    }
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"));
    if !has_good_underscores(hex.unwrap_or(unsigned), hex.is_some()) {
        return None;
    }
    let plain = hex.unwrap_or(unsigned).replace('_', "");
    let value = if hex.is_some() {
        HexDouble::parse(&plain)?.rounded()?
    } else {
        // The standard library would take another sign, and names of what is no number.
        let begins = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let value: f64 = begins.then(|| plain.parse().ok())??;
        value.is_finite().then_some(value)?
    };
    Some(if is_negative { -value } else { value })
}

/// Infinities, which may have a sign, and NaN, which may not.
fn named(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is = |name: &str| unsigned.eq_ignore_ascii_case(name);
    if is("inf") || is("infinity") {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Some(f64::INFINITY * sign);
    }
    text.eq_ignore_ascii_case("nan").then_some(f64::NAN)
}

/// Whether each underscore is between two digits, or after the prefix of hexadecimal numbers and before a digit.
fn has_good_underscores(text: &str, hex: bool) -> bool {
    let bytes = text.as_bytes();
    let digit = |byte: u8| byte.is_ascii_digit() || (hex && byte.is_ascii_hexdigit());
    bytes.iter().enumerate().all(|(at, byte)| {
        let follows = match at.checked_sub(1) {
            Some(before) => digit(bytes[before]),
            None => hex,
        };
        *byte != b'_' || follows && bytes.get(at + 1).copied().is_some_and(digit)
    })
}

/// The number `mantissa · 2^exponent`, and whether digits were cut off that are not 0.
struct HexDouble {
    mantissa: u64,
    exponent: i64,
    is_cut: bool,
}

impl HexDouble {
    /// The most digits that fit into the mantissa.
    const MANTISSA_DIGITS: usize = 16;

    /// Reads `1.8p-2`, what is behind `0x`.
    fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once(['p', 'P'])?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut number = Self {
            mantissa: 0,
            exponent: parse_exponent(exponent)?,
            is_cut: false,
        };
        let mut digits = 0;
        let all = whole.bytes().chain(fraction.bytes());
        for (at, byte) in all.enumerate() {
            let digit = char::from(byte).to_digit(16)?;
            let mut place = 0;
            if digits < Self::MANTISSA_DIGITS {
                number.mantissa = number.mantissa << 4 | u64::from(digit);
                digits += usize::from(number.mantissa != 0);
            } else {
                number.is_cut |= digit != 0;
                place += 4;
            }
            if at >= whole.len() {
                place -= 4;
            }
            number.exponent += place;
        }
        (whole.len() + fraction.len() > 0).then_some(number)
    }

    /// The double that is nearest, the even one of two; `None` if it is too large.
    fn rounded(&self) -> Option<f64> {
        if self.mantissa == 0 {
            return Some(0.0);
        }
        let zeros = self.mantissa.leading_zeros();
        let mantissa = self.mantissa << zeros;
        // The number is `mantissa / 2^63 · 2^scale`.
        let scale = self.exponent + 63 - i64::from(zeros);
        if scale > 1_023 {
            return None;
        }
        // A double has 53 bits; below its smallest exponent, one less for each power.
        let missing = (-1_022 - scale).clamp(0, 64);
        let dropped = 11 + u32::try_from(missing).ok()?;
        if dropped > 64 {
            return Some(0.0);
        }
        let kept = mantissa.checked_shr(dropped).unwrap_or(0);
        let rest = mantissa << (64 - dropped);
        let half = 1 << 63;
        let up = rest > half || rest == half && (self.is_cut || kept % 2 == 1);
        let kept = kept + u64::from(up);
        // The highest of the 53 bits is not stored, and adds 1 to the exponent instead; so does what rounding carries.
        let biased = u64::try_from(scale + 1_022).unwrap_or(0);
        let value = f64::from_bits((biased << 52) + kept);
        value.is_finite().then_some(value)
    }
}

/// An exponent with or without sign. One that is too large for any number of digits is cut.
fn parse_exponent(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0;
    for byte in digits.bytes() {
        let digit = char::from(byte).to_digit(10)?;
        if value < 10_000 {
            value = value * 10 + i64::from(digit);
        }
    }
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_of_doubles_are_read_exactly() {
        let values = [
            1.0,
            0.1,
            1.5e300,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            f64::from_bits((1 << 52) - 1),
            f64::from_bits(0x123),
            4_294_967_297.25,
        ];
        for value in values {
            let bits = value.to_bits();
            let fraction = bits & ((1 << 52) - 1);
            let (whole, biased) = match bits >> 52 {
                0 => (0, 1),
                biased => (1, biased),
            };
            let exponent = i64::try_from(biased).unwrap() - 1_023;
            let text = format!("0x{whole}.{fraction:013x}p{exponent}");
            assert_eq!(parse_double(&text), Some(value), "{text}");
            assert_eq!(parse_double(&format!("-{text}")), Some(-value), "{text}");
        }
    }

    #[test]
    fn a_number_between_two_doubles_is_rounded_to_the_nearest() {
        let next = 1.0 + f64::EPSILON;
        for (text, value) in [
            ("0x1.00000000000007p0", 1.0),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.00000000000008000000000000000001p0", next),
            ("0x1.00000000000009p0", next),
            ("0x1.00000000000018p0", 1.0 + 2.0 * f64::EPSILON),
            ("0x1p-1075", 0.0),
            ("0x1.0000000000000000000001p-1075", f64::from_bits(1)),
            ("0x1.8p-1074", f64::from_bits(2)),
            ("0x0.fffffffffffff8p-1022", f64::MIN_POSITIVE),
            ("0x1.fffffffffffff7p1023", f64::MAX),
            ("0x0p99999999999", 0.0),
            ("0x0.0000000000000000000000001p100", 1.0),
            ("0x10000000000000000000000000p-100", 1.0),
        ] {
            assert_eq!(parse_double(text), Some(value), "{text}");
        }
        assert_eq!(parse_double("0x1.fffffffffffff8p1023"), None);
        assert_eq!(parse_double("0x1p1024"), None);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", "+", "++1", "+-1", "-+1", "--inf", "+nan", "0x1", "0xp1", "0x.p1", "0x1p",
            "0x+1p3", "0x1p+-3", "1_", "_1", "1__0", "1_.5", "1e_1", "0x1_p1", "0x1p_1", "0b1",
            "1e", ".", "e5", " 1",
        ] {
            assert_eq!(parse_double(text), None, "{text}");
        }
        for text in ["1_0", "0x_1_0p0", "+.5", "5.", "1e+1_0", "-Infinity"] {
            assert!(parse_double(text).is_some(), "{text}");
        }
    }
}
