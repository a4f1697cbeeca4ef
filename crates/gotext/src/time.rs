//! Points in time: RFC 3339 text as Go's `time.Parse` reads it, and whole seconds or microseconds as Go
//! writes them.

use std::fmt;

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};

use crate::quote::TimeQuoted;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// The layout of times in microseconds.
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Seconds from the Unix epoch to Go's zero time, the beginning of the year 1.
pub const ZERO: i64 = -62_135_596_800;

/// Why a text is not a valid time. The message is Go's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeError {
    text: String,
    layout: &'static str,
    kind: TimeProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TimeProblem {
    /// The rest of the text is not what the layout has next.
    Unlike { rest: String, element: &'static str },
    /// A number is too large or too small.
    OutOfRange(&'static str),
    /// Something follows the time.
    Extra(String),
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parsing time {}", TimeQuoted(self.text.as_bytes()))?;
        match &self.kind {
            TimeProblem::Unlike { rest, element } => write!(
                f,
                " as \"{}\": cannot parse {} as \"{element}\"",
                self.layout,
                TimeQuoted(rest.as_bytes())
            ),
            TimeProblem::OutOfRange(what) => write!(f, ": {what} out of range"),
            TimeProblem::Extra(rest) => write!(f, ": extra text: {}", TimeQuoted(rest.as_bytes())),
        }
    }
}

impl std::error::Error for TimeError {}

/// The time that `text` says, in UTC and whole seconds; none for the zero time of Go.
///
/// # Errors
///
/// [`TimeError`], if it is not RFC 3339. As in Go, the hour may have a single digit.
pub fn parse(text: &str) -> Result<Option<String>, TimeError> {
    let (time, _) = Cursor::new(text, LAYOUT).time()?;
    Ok(write(time))
}

/// The same in microseconds, of which the text must have six digits.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_micro(text: &str) -> Result<Option<String>, TimeError> {
    let (time, micros) = Cursor::new(text, MICRO_LAYOUT).time()?;
    Ok(write_micro(time, micros))
}

/// Seconds since the Unix epoch of a canonical time; `None` if the text is not a time.
pub fn seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Seconds since the Unix epoch of a canonical time, and the nanoseconds beyond; `None` if the text is not a time.
pub fn seconds_and_nanos(text: &str) -> Option<(i64, u32)> {
    let time: Timestamp = text.parse().ok()?;
    // Of a time before 1970 the two have a negative sign each.
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    let (seconds, nanos) = if nanos < 0 {
        (seconds - 1, nanos + 1_000_000_000)
    } else {
        (seconds, nanos)
    };
    Some((seconds, u32::try_from(nanos).ok()?))
}

/// The canonical time of these seconds since the Unix epoch, unless it is the zero time or out of
/// the years from 0 to 9999.
pub fn from_seconds(seconds: i64) -> Option<String> {
    write(civil(Timestamp::from_second(seconds).ok()?))
}

/// The same in microseconds: `micros` are added to the seconds.
pub fn from_micros(seconds: i64, micros: i32) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    let time = civil(
        time.checked_add(SignedDuration::from_micros(micros.into()))
            .ok()?,
    );
    write_micro(time, time.subsec_nanosecond() / 1000)
}

fn civil(time: Timestamp) -> DateTime {
    time.to_zoned(TimeZone::UTC).datetime()
}

/// A time in microseconds, of which `time` has the seconds.
fn write_micro(time: DateTime, micros: i32) -> Option<String> {
    let zero = DateTime::constant(1, 1, 1, 0, 0, 0, 0);
    let is_zero = time == zero && micros == 0;
    (!is_zero && time.year() >= 0)
        .then(|| format!("{}.{micros:06}Z", time.strftime("%Y-%m-%dT%H:%M:%S")))
}

fn write(time: DateTime) -> Option<String> {
    let zero = DateTime::constant(1, 1, 1, 0, 0, 0, 0);
    (time != zero && time.year() >= 0).then(|| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// What is left of a text.
struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str, layout: &'static str) -> Self {
        Self {
            text,
            rest: text,
            layout,
        }
    }

    /// The time in UTC, and the microseconds beyond it if the layout has them.
    fn time(mut self) -> Result<(DateTime, i32), TimeError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true)?;
        if !(1..=12).contains(&month) {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.number("02", true)?;
        self.literal("T")?;
        let hour = self.below(24, "15", false, "hour")?;
        self.literal(":")?;
        let minute = self.below(60, "04", true, "minute")?;
        self.literal(":")?;
        let second = self.below(60, "05", true, "second")?;
        let micros = if self.layout == MICRO_LAYOUT {
            self.micros()?
        } else {
            self.fraction();
            0
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(self.error(TimeProblem::Extra(self.rest.to_owned())));
        }
        let time = DateTime::new(year, month, day, hour, minute, second, 0)
            .map_err(|_| self.out_of_range("day"))?
            .checked_sub(SignedDuration::from_mins(offset))
            .map_err(|_| self.out_of_range("year"))?;
        Ok((time, micros))
    }

    /// A point or comma and six digits.
    fn micros(&mut self) -> Result<i32, TimeError> {
        const ELEMENT: &str = ".000000";
        let digits = self.rest.strip_prefix(['.', ',']);
        let digits = digits.and_then(|rest| rest.get(..6));
        let micros = digits
            .filter(|text| is_digits(text))
            .and_then(|text| text.parse().ok());
        let micros = micros.ok_or_else(|| self.unlike(ELEMENT))?;
        self.rest = &self.rest[ELEMENT.len()..];
        Ok(micros)
    }

    fn year(&mut self) -> Result<i16, TimeError> {
        let digits = self.rest.get(..4).filter(|text| is_digits(text));
        let year = digits.and_then(|digits| digits.parse().ok());
        let year = year.ok_or_else(|| self.unlike("2006"))?;
        self.rest = &self.rest[4..];
        Ok(year)
    }

    fn literal(&mut self, element: &'static str) -> Result<(), TimeError> {
        self.rest = self
            .rest
            .strip_prefix(element)
            .ok_or_else(|| self.unlike(element))?;
        Ok(())
    }

    /// Two digits; or one, unless they are `fixed`.
    fn number(&mut self, element: &'static str, fixed: bool) -> Result<i8, TimeError> {
        let lengths: &[usize] = if fixed { &[2] } else { &[2, 1] };
        for &length in lengths {
            if let Some(digits) = self.rest.get(..length).filter(|text| is_digits(text))
                && let Ok(number) = digits.parse()
            {
                self.rest = &self.rest[length..];
                return Ok(number);
            }
        }
        Err(self.unlike(element))
    }

    fn below(
        &mut self,
        bound: i8,
        element: &'static str,
        fixed: bool,
        name: &'static str,
    ) -> Result<i8, TimeError> {
        let number = self.number(element, fixed)?;
        if number >= bound {
            return Err(self.out_of_range(name));
        }
        Ok(number)
    }

    /// Skips a fraction of a second.
    fn fraction(&mut self) {
        if let Some(rest) = self.rest.strip_prefix(['.', ','])
            && rest.starts_with(|c: char| c.is_ascii_digit())
        {
            self.rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        }
    }

    /// Minutes that the text is ahead of UTC.
    fn zone(&mut self) -> Result<i64, TimeError> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let zone = self.rest.get(..6).ok_or_else(|| self.unlike(ELEMENT))?;
        let parts = zone.get(1..3).zip(zone.get(3..4)).zip(zone.get(4..6));
        let Some(((hours, ":"), minutes)) = parts else {
            return Err(self.unlike(ELEMENT));
        };
        if !is_digits(hours) || !is_digits(minutes) {
            return Err(self.unlike(ELEMENT));
        }
        let (Ok(hours), Ok(minutes)) = (hours.parse::<i64>(), minutes.parse::<i64>()) else {
            return Err(self.unlike(ELEMENT));
        };
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        let sign = match zone.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.unlike(ELEMENT)),
        };
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 60 + minutes))
    }

    fn unlike(&self, element: &'static str) -> TimeError {
        self.error(TimeProblem::Unlike {
            rest: self.rest.to_owned(),
            element,
        })
    }

    fn out_of_range(&self, what: &'static str) -> TimeError {
        self.error(TimeProblem::OutOfRange(what))
    }

    fn error(&self, kind: TimeProblem) -> TimeError {
        TimeError {
            text: self.text.to_owned(),
            layout: self.layout,
            kind,
        }
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
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
            assert_eq!(parse(text).unwrap().as_deref(), Some(time), "{text}");
        }
        assert_eq!(parse("0001-01-01T00:00:00Z").unwrap(), None);
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
    fn malformed_times_are_refused_without_a_panic() {
        for text in [
            "2020-01-01T00:00:00é23456",
            "éééé",
            "9999-12-31T23:59:59-24:00",
            "2020-é",
        ] {
            assert!(parse(text).is_err(), "{text}");
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
