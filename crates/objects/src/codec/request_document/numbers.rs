//! Numbers that 64 bits do not keep exactly.

use crate::codec::tape::JsonTape;

/// So many decimal digits a 64-bit float always keeps.
const EXACT_DIGITS: usize = 15;
/// The longest exponent, in digits, of numbers that floats keep.
const EXPONENT_DIGITS: usize = 2;

/// Whether a document has a number that neither a 64-bit integer nor a float holds exactly as it was written.
pub(super) fn has_long_number(document: &JsonTape<'_>) -> bool {
    document
        .numbers()
        .any(|text| text.parse::<i64>().is_err() && !is_short(text))
}

/// The first number of a document that is beyond all floats.
pub(super) fn infinite_number<'a>(document: &JsonTape<'a>) -> Option<&'a str> {
    let is_infinite = |text: &&str| text.parse::<f64>().is_ok_and(f64::is_infinite);
    document.numbers().find(is_infinite)
}

fn is_short(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, ""));
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let is_mantissa_short = digits.len() - leading <= EXACT_DIGITS;
    is_mantissa_short && exponent.trim_start_matches(['+', '-']).len() <= EXPONENT_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tape::JsonToken;

    #[test]
    fn numbers_that_are_kept_are_told_from_others() {
        let is_long = |text: &str| has_long_number(&JsonTape::new(vec![JsonToken::Number(text)]));
        for text in [
            "0",
            "-1",
            "9223372036854775807",
            "1.50",
            "0.000001",
            "123456789.012345",
            "1e21",
            "-5E-7",
        ] {
            assert!(!is_long(text), "{text}");
        }
        for text in [
            "9223372036854775808",
            "1.0000000000000001",
            "1e400",
            "0.1234567890123456",
        ] {
            assert!(is_long(text), "{text}");
        }
    }
}
