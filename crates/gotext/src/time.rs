//! Points in time: RFC 3339 text as Go's `time.Parse` reads it, and whole seconds or microseconds as API objects have them, in UTC.
//!
//! Source: Go `time/format.go`; `k8s.io/apimachinery/pkg/apis/meta/v1/{time,micro_time}.go`.

mod civil;
mod parse;

use std::fmt::Write;

pub use civil::CivilTime;
pub use parse::{ParsedTime, TimeError, parse, parse_micro};

/// Seconds from the Unix epoch to Go's zero time, the beginning of the year 1.
pub const ZERO: i64 = -62_135_596_800;
/// The first and the last second that RFC 3339 can express: the years 0 to 9999.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

/// The time that `text` says, in UTC and whole seconds; none for the zero time of Go, and for one before the year 0.
///
/// # Errors
///
/// [`TimeError`], if it is not RFC 3339, or after the year 9999.
pub fn canonical(text: &str) -> Result<Option<String>, TimeError> {
    let time = parse(text)?;
    if time.seconds > LAST {
        return Err(TimeError::year(text));
    }
    Ok(from_seconds(time.seconds))
}

/// The same in microseconds, of which the text must have six digits.
///
/// # Errors
///
/// As [`canonical`].
pub fn canonical_micro(text: &str) -> Result<Option<String>, TimeError> {
    let time = parse_micro(text)?;
    if time.seconds > LAST {
        return Err(TimeError::year(text));
    }
    Ok(written(time.seconds, Some(time.nanoseconds / 1000)))
}

/// Seconds since the Unix epoch of a canonical time; `None` if the text is not a time.
pub fn seconds(text: &str) -> Option<i64> {
    parse(text).ok().map(|time| time.seconds)
}

/// Seconds since the Unix epoch of a canonical time, and the nanoseconds beyond; `None` if the text is not a time.
pub fn seconds_and_nanos(text: &str) -> Option<(i64, u32)> {
    let time = parse(text).ok()?;
    Some((time.seconds, time.nanoseconds))
}

/// The canonical time of these seconds since the Unix epoch, unless it is the zero time or out of
/// the years from 0 to 9999.
pub fn from_seconds(seconds: i64) -> Option<String> {
    written(seconds, None)
}

/// The same in microseconds: `micros` are added to the seconds.
pub fn from_micros(seconds: i64, micros: i32) -> Option<String> {
    const MILLION: i32 = 1_000_000;
    let seconds = seconds.checked_add(micros.div_euclid(MILLION).into())?;
    let micros = u32::try_from(micros.rem_euclid(MILLION)).ok()?;
    written(seconds, Some(micros))
}

/// A time in whole seconds or with microseconds; `None` for the zero time and what cannot be written.
fn written(seconds: i64, micros: Option<u32>) -> Option<String> {
    let is_zero = seconds == ZERO && micros.unwrap_or(0) == 0;
    if is_zero || !(FIRST..=LAST).contains(&seconds) {
        return None;
    }
    let mut text = String::with_capacity("2006-01-02T15:04:05.000000Z".len());
    CivilTime::of(seconds).write(&mut text, 'T').ok()?;
    if let Some(micros) = micros {
        write!(text, ".{micros:06}").ok()?;
    }
    text.push('Z');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_and_whole_seconds() {
        for (text, time) in [
            ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
            ("2020-01-01T00:00:00.9+01:00", "2019-12-31T23:00:00Z"),
            ("2020-01-01T0:00:00Z", "2020-01-01T00:00:00Z"),
            ("2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00Z"),
            ("2020-02-29T12:34:56-23:59", "2020-03-01T12:33:56Z"),
        ] {
            assert_eq!(canonical(text).unwrap().as_deref(), Some(time), "{text}");
        }
        assert_eq!(canonical("0001-01-01T00:00:00Z").unwrap(), None);
    }

    #[test]
    fn an_invalid_time_is_refused_with_the_message_of_go() {
        for (text, message) in [
            (
                "x",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
            (
                "",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
            ),
            (
                "2020-01-01",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            ("2020-13-01T00:00:00Z", ": month out of range"),
            ("2020-02-30T00:00:00Z", ": day out of range"),
            ("2020-01-00T00:00:00Z", ": day out of range"),
            ("2020-01-01T24:00:00Z", ": hour out of range"),
            ("2020-01-01T00:60:00Z", ": minute out of range"),
            ("2020-01-01T00:00:60Z", ": second out of range"),
            (
                "2020-01-01T00:00:00+01",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "+01" as "Z07:00""#,
            ),
            ("2020-01-01T00:00:00Zx", r#": extra text: "x""#),
            (
                "2020-01-01t00:00:00z",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "t00:00:00z" as "T""#,
            ),
            (
                "2020-01-01T00:00:00+25:00",
                ": time zone offset hour out of range",
            ),
            (
                "2020-01-01T00:00:00-01:61",
                ": time zone offset minute out of range",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("parsing time \"{text}\"{message}"));
        }
        assert_eq!(
            parse("2\"é").unwrap_err().to_string(),
            r#"parsing time "2\"\xc3\xa9" as "2006-01-02T15:04:05Z07:00": cannot parse "2\"\xc3\xa9" as "2006""#
        );
    }

    #[test]
    fn an_offset_may_have_sixty_minutes() {
        for (text, time) in [
            ("2023-01-10T12:00:00+01:60", "2023-01-10T10:00:00Z"),
            ("2023-01-10T12:00:00-00:60", "2023-01-10T13:00:00Z"),
            ("2023-01-10T12:00:00+24:60", "2023-01-09T11:00:00Z"),
        ] {
            assert_eq!(canonical(text).unwrap().as_deref(), Some(time), "{text}");
        }
    }

    #[test]
    fn the_last_day_that_can_be_written_is_that_of_the_year_9999() {
        let last = "9999-12-31T23:59:59Z";
        assert_eq!(canonical(last).unwrap().as_deref(), Some(last));
        assert_eq!(seconds(last), Some(253_402_300_799));
        assert_eq!(from_seconds(253_402_300_799).as_deref(), Some(last));
        assert_eq!(from_seconds(253_402_300_800), None);
        let micros = "9999-12-31T23:59:59.999999Z";
        assert_eq!(
            from_micros(253_402_300_799, 999_999).as_deref(),
            Some(micros)
        );
        assert_eq!(from_micros(253_402_300_799, 1_000_000), None);
    }

    #[test]
    fn times_before_1970_are_rounded_down() {
        let time = "1969-12-31T23:59:58.250000Z";
        assert_eq!(seconds_and_nanos(time), Some((-2, 250_000_000)));
        assert_eq!(from_micros(-2, 250_000).as_deref(), Some(time));
        assert_eq!(from_micros(-1, -750_000).as_deref(), Some(time));
        assert_eq!(canonical_micro(time).unwrap().as_deref(), Some(time));
    }

    #[test]
    fn malformed_times_are_refused_without_a_panic() {
        for text in [
            "2020-01-01T00:00:00é23456",
            "éééé",
            "9999-12-31T23:59:59-24:00",
            "2020-é",
        ] {
            assert!(canonical(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_round_trip() {
        let time = "2020-01-01T00:00:01Z";
        assert_eq!(seconds(time), Some(1_577_836_801));
        assert_eq!(from_seconds(1_577_836_801).as_deref(), Some(time));
        assert_eq!(from_seconds(ZERO), None);
        assert_eq!(from_seconds(i64::MAX), None);
        assert_eq!(seconds("x"), None);
    }
}
