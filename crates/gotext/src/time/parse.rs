//! RFC 3339 text as Go's `time.Parse` reads it.

use std::fmt;

use super::civil::{DAY, days_in, days_to};
use crate::quote::TimeQuoted;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// The layout of times in microseconds.
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A point in time, and the UTC offset that it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedTime {
    /// Seconds since the Unix epoch, rounded down.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1 000 000 000.
    pub nanoseconds: u32,
    /// The UTC offset in seconds, positive in the east.
    pub offset: i32,
}

/// Reads RFC 3339 text. As in Go, the hour may have a single digit, a comma may be before a fraction, and an offset may have 24 hours and
/// 60 minutes. With the offset, the time may be a day outside of the years 0 to 9999.
///
/// # Errors
///
/// [`TimeError`], if it is no such text.
pub fn parse(text: &str) -> Result<ParsedTime, TimeError> {
    Cursor::new(text, LAYOUT).time()
}

/// The same, with a fraction of exactly six digits.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_micro(text: &str) -> Result<ParsedTime, TimeError> {
    Cursor::new(text, MICRO_LAYOUT).time()
}

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

impl TimeError {
    /// The error of a time after the year 9999, which Go reads and prints, but reads no more then.
    pub(super) fn year(text: &str) -> Self {
        Cursor::new(text, LAYOUT).out_of_range("year")
    }
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

    fn time(mut self) -> Result<ParsedTime, TimeError> {
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
        let nanoseconds = if self.layout == MICRO_LAYOUT {
            self.micros()? * 1000
        } else {
            self.fraction()
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(self.error(TimeProblem::Extra(self.rest.to_owned())));
        }
        if !(1..=days_in(year, month)).contains(&day) {
            return Err(self.out_of_range("day"));
        }
        let in_day = hour * 3600 + minute * 60 + second;
        Ok(ParsedTime {
            seconds: days_to(year, month, day) * DAY + in_day - i64::from(offset),
            nanoseconds,
            offset,
        })
    }

    /// A point or comma and six digits.
    fn micros(&mut self) -> Result<u32, TimeError> {
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

    fn year(&mut self) -> Result<i64, TimeError> {
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
    fn number(&mut self, element: &'static str, fixed: bool) -> Result<i64, TimeError> {
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
        bound: i64,
        element: &'static str,
        fixed: bool,
        name: &'static str,
    ) -> Result<i64, TimeError> {
        let number = self.number(element, fixed)?;
        if number >= bound {
            return Err(self.out_of_range(name));
        }
        Ok(number)
    }

    /// The nanoseconds of a fraction of a second, if there is one. Digits after the ninth are ignored.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &rest[..rest.len() - after.len()];
        if digits.is_empty() {
            return 0;
        }
        self.rest = after;
        format!("{digits:0<9.9}").parse().unwrap_or(0)
    }

    /// Seconds that the text is ahead of UTC.
    fn zone(&mut self) -> Result<i32, TimeError> {
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
        let (Ok(hours), Ok(minutes)) = (hours.parse::<i32>(), minutes.parse::<i32>()) else {
            return Err(self.unlike(ELEMENT));
        };
        // As in Go, 24 and 60 are allowed.
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
        Ok(sign * (hours * 60 + minutes) * 60)
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
