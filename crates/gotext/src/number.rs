//! Whole numbers as Go's `strconv` reads them.
//!
//! Source: Go `strconv/atoi.go`.

use std::fmt;

use crate::quote::Quoted;

/// Why a text is not a number. The message is Go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberError<'t> {
    function: &'static str,
    text: &'t str,
    problem: &'static str,
}

impl fmt::Display for NumberError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function, problem, ..
        } = self;
        let text = Quoted(self.text);
        write!(f, "strconv.{function}: parsing {text}: {problem}")
    }
}

impl std::error::Error for NumberError<'_> {}

const SYNTAX: &str = "invalid syntax";
const RANGE: &str = "value out of range";

/// Reads a number of 64 bits with a sign, as `ParseInt` does for the base 10.
///
/// # Errors
///
/// [`NumberError`], if it has other characters than digits after its sign, no digit, or is out of range.
pub fn parse_int(text: &str) -> Result<i64, NumberError<'_>> {
    signed(text).map_err(|problem| NumberError {
        function: "ParseInt",
        text,
        problem,
    })
}

/// The same, as `Atoi` does, which differs only in its messages.
///
/// # Errors
///
/// As [`parse_int`].
pub fn atoi(text: &str) -> Result<i64, NumberError<'_>> {
    let function = "Atoi";
    parse_int(text).map_err(|error| NumberError { function, ..error })
}

/// Reads a number of 64 bits without a sign, as `ParseUint` does for the base 10.
///
/// # Errors
///
/// [`NumberError`], if it has other characters than digits, no digit, or is out of range.
pub fn parse_uint(text: &str) -> Result<u64, NumberError<'_>> {
    unsigned(text).map_err(|problem| NumberError {
        function: "ParseUint",
        text,
        problem,
    })
}

fn signed(text: &str) -> Result<i64, &'static str> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let value = unsigned(digits)?;
    let value = if text.starts_with('-') {
        0_i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    };
    value.ok_or(RANGE)
}

/// What is behind the digit that makes a number of 64 bits too large is not looked at.
fn unsigned(digits: &str) -> Result<u64, &'static str> {
    if digits.is_empty() {
        return Err(SYNTAX);
    }
    digits.bytes().try_fold(0_u64, |value, byte| {
        if !byte.is_ascii_digit() {
            return Err(SYNTAX);
        }
        let value = value.checked_mul(10);
        let value = value.and_then(|value| value.checked_add(u64::from(byte - b'0')));
        value.ok_or(RANGE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        assert_eq!(parse_int("+007"), Ok(7));
        assert_eq!(parse_int("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_int("9223372036854775807"), Ok(i64::MAX));
        assert_eq!(parse_uint("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn the_error_says_which_function_read_what() {
        let int = |text: &str| parse_int(text).unwrap_err().to_string();
        let syntax = |text: &str| format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
        let range =
            |text: &str| format!("strconv.ParseInt: parsing \"{text}\": value out of range");
        for text in ["", "-", "+-1", "1_0", " 1", "0x1", "9223372036854775808x"] {
            assert_eq!(int(text), syntax(text));
        }
        for text in [
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "99999999999999999999x",
        ] {
            assert_eq!(int(text), range(text));
        }
        assert_eq!(
            parse_uint("+1").unwrap_err().to_string(),
            "strconv.ParseUint: parsing \"+1\": invalid syntax"
        );
        assert_eq!(
            atoi("é\u{1}").unwrap_err().to_string(),
            r#"strconv.Atoi: parsing "é\x01": invalid syntax"#
        );
    }
}
