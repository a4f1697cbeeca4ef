//! Durations as Go reads and prints them: `1h30m`, `1.5s`, `250ms`.
//!
//! A client's `timeout` parameter is parsed by Go's rules and refused with Go's messages, as in
//! kube-apiserver. Not here: the maximum that a server puts on a timeout.
//!
//! Source: Go `time/format.go` (`ParseDuration`) and `time/time.go` (`Duration.String`).

use std::{fmt, time::Duration};

use crate::quote::TimeQuoted;

/// The largest magnitude in nanoseconds: that of the least signed 64-bit number.
const LIMIT: u64 = 1 << 63;

/// Reads a Go duration; a negative one gives zero, because to a server both mean that there is no limit.
///
/// # Errors
///
/// Go's message for the same text, such as `time: missing unit in duration "30"`.
pub fn parse_duration(text: &[u8]) -> Result<Duration, Box<str>> {
    let nanoseconds = parse_nanoseconds(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_nanos(nanoseconds.try_into().unwrap_or(0)))
}

/// Reads a Go duration: its nanoseconds, of up to about 292 years in either direction.
///
/// # Errors
///
/// [`DurationError`], if it is malformed or out of range.
pub fn parse_nanoseconds(text: &[u8]) -> Result<i64, DurationError<'_>> {
    signed(text).map_err(|problem| DurationError { text, problem })
}

/// Why a text is not a duration. The message is Go's.
#[derive(Clone, Copy, Debug)]
pub struct DurationError<'t> {
    text: &'t [u8],
    problem: Problem<'t>,
}

impl fmt::Display for DurationError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = TimeQuoted(self.text);
        match self.problem {
            Problem::Invalid => write!(f, "time: invalid duration {text}"),
            Problem::MissingUnit => write!(f, "time: missing unit in duration {text}"),
            Problem::UnknownUnit(unit) => {
                let unit = TimeQuoted(unit);
                write!(f, "time: unknown unit {unit} in duration {text}")
            }
        }
    }
}

impl std::error::Error for DurationError<'_> {}

/// What is wrong with a duration.
#[derive(Clone, Copy, Debug)]
enum Problem<'a> {
    /// Neither number nor sign, or out of range.
    Invalid,
    /// A number without a unit.
    MissingUnit,
    /// An unknown unit.
    UnknownUnit(&'a [u8]),
}

fn signed(text: &[u8]) -> Result<i64, Problem<'_>> {
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if rest == b"0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(Problem::Invalid);
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (nanos, after) = term(rest)?;
        // Both are at most 2^63, so the sum fits but for one case.
        total = total
            .checked_add(nanos)
            .filter(|&t| t <= LIMIT)
            .ok_or(Problem::Invalid)?;
        rest = after;
    }
    let value = if negative {
        0_i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    };
    value.ok_or(Problem::Invalid)
}

/// Reads one number with its unit: the nanoseconds, at most [`LIMIT`], and what follows.
fn term(text: &[u8]) -> Result<(u64, &[u8]), Problem<'_>> {
    let (whole_digits, rest) = digits(text);
    let (fraction_digits, rest) = match rest {
        [b'.', rest @ ..] => digits(rest),
        _ => (&[][..], rest),
    };
    // Go checks the range of the whole part before it parses the unit.
    let whole = whole(whole_digits).ok_or(Problem::Invalid)?;
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return Err(Problem::Invalid);
    }
    let end = rest
        .iter()
        .position(|&b| b == b'.' || b.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if name.is_empty() {
        return Err(Problem::MissingUnit);
    }
    let unit = unit_nanos(name).ok_or(Problem::UnknownUnit(name))?;
    let nanos = whole
        .checked_mul(unit)
        .filter(|&n| n <= LIMIT)
        .ok_or(Problem::Invalid)?;
    let nanos = nanos
        .checked_add(fraction(fraction_digits, unit))
        .filter(|&n| n <= LIMIT);
    Ok((nanos.ok_or(Problem::Invalid)?, rest))
}

/// Splits off the leading digits.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// The number that `digits` write, if it is at most [`LIMIT`].
fn whole(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, digit| {
        let value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        (value <= LIMIT).then_some(value)
    })
}

/// The nanoseconds of the fraction `.digits` of `unit`; digits beyond 63 bits are ignored.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go computes the fraction in floating point too; it is below one hour"
)]
fn fraction(digits: &[u8], unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1_f64);
    for digit in digits {
        if value > (LIMIT - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn unit_nanos(name: &[u8]) -> Option<u64> {
    // Microseconds are written with the micro sign as well as with the Greek letter.
    const MICRO: &[u8] = "\u{b5}s".as_bytes();
    const MU: &[u8] = "\u{3bc}s".as_bytes();
    Some(match name {
        b"ns" => 1,
        b"us" | MICRO | MU => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" => 60_000_000_000,
        b"h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A duration that prints as Go prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 {
            return match nanos {
                0 => f.write_str("0s"),
                1..1_000 => write!(f, "{nanos}ns"),
                1_000..1_000_000 => {
                    write_decimal(f, u64::from(nanos / 1_000), nanos % 1_000, 3, "µs")
                }
                _ => write_decimal(f, u64::from(nanos / 1_000_000), nanos % 1_000_000, 6, "ms"),
            };
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        write_decimal(f, seconds % 60, nanos, 9, "s")
    }
}

/// Writes `whole` and a fraction of so many `digits`, without zeros at its end.
fn write_decimal(
    f: &mut fmt::Formatter<'_>,
    whole: u64,
    mut fraction: u32,
    mut digits: usize,
    unit: &str,
) -> fmt::Result {
    write!(f, "{whole}")?;
    if fraction > 0 {
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            digits -= 1;
        }
        write!(f, ".{fraction:0digits$}")?;
    }
    f.write_str(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Result<u128, String> {
        parse_duration(text.as_bytes())
            .map(|d| d.as_nanos())
            .map_err(String::from)
    }

    #[test]
    fn durations_read_as_go_reads_them() {
        const S: u128 = 1_000_000_000;
        let cases = [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("5s", 5 * S),
            ("+5s", 5 * S),
            ("30s", 30 * S),
            ("1478s", 1478 * S),
            ("5.0s", 5 * S),
            ("5.6s", 5 * S + 600_000_000),
            ("5.s", 5 * S),
            (".5s", S / 2),
            ("1.0040s", S + 4_000_000),
            ("100.00100s", 100 * S + 1_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("14s", 14 * S),
            ("15m", 900 * S),
            ("16h", 57_600 * S),
            ("3h30m", 12_600 * S),
            ("10.5s4m", 250 * S + S / 2),
            ("1h2m3s4ms5us6ns", 3723 * S + 4_005_006),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 1200 * S),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
            ("9223372036854775.807us", 9_223_372_036_854_775_807),
            ("0.100000000000000000000h", 360 * S),
            ("0.830103483285477580700h", 2_988_372_539_827),
        ];
        for (text, expected) in cases {
            assert_eq!(nanos(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_negative_duration_is_read_as_zero() {
        for text in ["-5s", "-.5s", "-2m3.4s", "-9223372036854775808ns", "-1ns"] {
            assert_eq!(nanos(text), Ok(0), "{text}");
        }
    }

    #[test]
    fn the_sign_of_a_duration_is_kept() {
        let parse = |text: &str| parse_nanoseconds(text.as_bytes()).ok();
        assert_eq!(parse("-1.5s"), Some(-1_500_000_000));
        assert_eq!(parse("-9223372036854775808ns"), Some(i64::MIN));
        assert_eq!(parse("9223372036854775808ns"), None);
        // The digits after the point have 2^63 as their largest number.
        assert_eq!(parse("-0.9223372036854775808h"), Some(-3_320_413_933_267));
    }

    #[test]
    fn a_malformed_duration_is_refused_with_the_message_of_go() {
        let cases = [
            ("", r#"time: invalid duration """#),
            ("30", r#"time: missing unit in duration "30""#),
            ("00", r#"time: missing unit in duration "00""#),
            ("3.5", r#"time: missing unit in duration "3.5""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("-", r#"time: invalid duration "-""#),
            ("s", r#"time: invalid duration "s""#),
            (".", r#"time: invalid duration ".""#),
            (".s", r#"time: invalid duration ".s""#),
            ("--5s", r#"time: invalid duration "--5s""#),
            (" 5s", r#"time: invalid duration " 5s""#),
            ("5 s", r#"time: unknown unit " s" in duration "5 s""#),
            ("5d", r#"time: unknown unit "d" in duration "5d""#),
            ("5S", r#"time: unknown unit "S" in duration "5S""#),
            ("1h-5m", r#"time: unknown unit "h-" in duration "1h-5m""#),
            ("3e9ns", r#"time: unknown unit "e" in duration "3e9ns""#),
            ("\"1\\s", r#"time: invalid duration "\"1\\s""#),
            (
                "1\u{e4}\n",
                r#"time: unknown unit "\xc3\xa4\x0a" in duration "1\xc3\xa4\x0a""#,
            ),
            (
                "9223372036854775808ns",
                r#"time: invalid duration "9223372036854775808ns""#,
            ),
            (
                "9223372036854775.808us",
                r#"time: invalid duration "9223372036854775.808us""#,
            ),
            (
                "-9223372036854775809ns",
                r#"time: invalid duration "-9223372036854775809ns""#,
            ),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            (
                "99999999999999999999",
                r#"time: invalid duration "99999999999999999999""#,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(nanos(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_000_001, "3.000001ms"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (18_367_001_000_000, "5h6m7.001s"),
        ] {
            let printed = GoDuration(Duration::from_nanos(nanos)).to_string();
            assert_eq!(printed, text);
        }
    }
}
