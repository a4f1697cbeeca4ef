//! Durations and timestamps, with the ranges and text formats of the original.

use std::cmp::Ordering;
use std::num::{IntErrorKind, ParseIntError};

use fairgate_gotext::{Quoted, parse_nanoseconds};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::CelError;

/// The first second of the year 1, in seconds since the epoch.
const FIRST_SECOND: i64 = -62_135_596_800;
/// The last second of the year 9999, in seconds since the epoch.
const LAST_SECOND: i64 = 253_402_300_799;
pub(super) const NANOS: i64 = 1_000_000_000;

/// A span of time in nanoseconds, of up to about 292 years in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CelDuration(i64);

impl CelDuration {
    /// A span of `nanoseconds`.
    pub fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The length in nanoseconds; may be negative.
    pub fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Parses a duration as Go does: `1h30m`, `-1.5s`, `300ms`, `0`; units are `ns`, `us`, `µs`, `ms`, `s`, `m`, `h`.
    /// `None` if the text is invalid or the duration is out of range.
    pub fn parse(text: &str) -> Option<Self> {
        parse_nanoseconds(text.as_bytes()).ok().map(Self)
    }

    /// The sum; an error if it is out of range.
    pub(crate) fn plus(self, other: Self) -> Result<Self, CelError> {
        let sum = self.0.checked_add(other.0);
        sum.map(Self).ok_or_else(duration_overflow)
    }

    /// The difference; an error if it is out of range.
    pub(crate) fn minus(self, other: Self) -> Result<Self, CelError> {
        let difference = self.0.checked_sub(other.0);
        difference.map(Self).ok_or_else(duration_overflow)
    }

    /// The same span with the opposite sign; an error if it is out of range.
    pub(crate) fn negated(self) -> Result<Self, CelError> {
        self.0.checked_neg().map(Self).ok_or_else(duration_overflow)
    }
}

/// A point in time in the years 1 to 9999, with the UTC offset that it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CelTimestamp {
    /// Seconds since the epoch, rounded down.
    seconds: i64,
    nanoseconds: u32,
    /// The UTC offset in seconds, positive in the east. It is used only for printing.
    offset: i32,
}

impl CelTimestamp {
    /// The point `seconds` and `nanoseconds` after the epoch.
    ///
    /// # Errors
    ///
    /// `timestamp overflow` outside of the years 1 to 9999.
    pub fn new(seconds: i64, nanoseconds: u32) -> Result<Self, CelError> {
        if !(FIRST_SECOND..=LAST_SECOND).contains(&seconds) || nanoseconds >= 1_000_000_000 {
            return Err(timestamp_overflow());
        }
        Ok(Self {
            seconds,
            nanoseconds,
            offset: 0,
        })
    }

    /// Parses an RFC 3339 time. `None` if the text is invalid; an error if the time is outside of the years 1 to 9999.
    pub fn parse(text: &str) -> Option<Result<Self, CelError>> {
        let (seconds, rest) = parse_date_time(text)?;
        let (nanoseconds, rest) = parse_fraction(rest)?;
        let offset = parse_offset(rest)?;
        let seconds = seconds - i64::from(offset);
        Some(Self::new(seconds, nanoseconds).map(|time| Self { offset, ..time }))
    }

    /// Seconds since the epoch, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second, below 1 000 000 000.
    pub fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Whether this is Go's zero time, the start of the year 1.
    /// The UTC offset in seconds, positive in the east.
    pub(super) fn offset(self) -> i32 {
        self.offset
    }

    pub(crate) fn is_zero(self) -> bool {
        self.seconds == FIRST_SECOND && self.nanoseconds == 0
    }

    pub(crate) fn same_time(self, other: Self) -> bool {
        self.compare(other) == Ordering::Equal
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }

    /// This point moved forward by `by`; an error if the result is outside of the years 1 to 9999.
    pub(crate) fn plus(self, by: CelDuration) -> Result<Self, CelError> {
        self.moved(i128::from(by.0))
    }

    /// This point moved backward by `by`; an error if the result is outside of the years 1 to 9999.
    pub(crate) fn minus(self, by: CelDuration) -> Result<Self, CelError> {
        self.moved(-i128::from(by.0))
    }

    fn moved(self, by: i128) -> Result<Self, CelError> {
        let sum = self.since_epoch() + by;
        let nanos = i128::from(NANOS);
        let seconds = i64::try_from(sum.div_euclid(nanos)).map_err(|_| timestamp_overflow())?;
        let nanoseconds =
            u32::try_from(sum.rem_euclid(nanos)).expect("the remainder is less than a second");
        let offset = self.offset;
        Self::new(seconds, nanoseconds).map(|time| Self { offset, ..time })
    }

    /// The span from `other` to this point; an error if it is out of range.
    pub(crate) fn since(self, other: Self) -> Result<CelDuration, CelError> {
        let span = self.since_epoch() - other.since_epoch();
        i64::try_from(span)
            .map(CelDuration)
            .map_err(|_| duration_overflow())
    }

    /// Nanoseconds since the epoch.
    fn since_epoch(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanoseconds)
    }

    /// The date and time of day in the time zone `zone`: a name of the IANA database or `±hh:mm`.
    ///
    /// # Errors
    ///
    /// If there is no such zone, or the offset is malformed.
    pub(crate) fn in_zone(self, zone: &str) -> Result<CivilTime, CelError> {
        let offset = match zone {
            // The local time zone of the machine is not used.
            "" | "UTC" | "Local" => 0,
            _ if zone.contains(':') => fixed_offset(zone)?,
            _ => {
                let zone = named_zone(zone)?;
                // jiff's range ends before the year 9999 does: beyond it, its last offset is used.
                let last = Timestamp::MAX.as_second();
                let at = Timestamp::from_second(self.seconds.min(last)).unwrap_or(Timestamp::MAX);
                i64::from(zone.to_offset(at).seconds())
            }
        };
        Ok(CivilTime::of(self.seconds + offset))
    }
}

/// A date and a time of day, by the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CivilTime {
    pub(crate) year: i64,
    /// 1 to 12
    pub(crate) month: i64,
    /// 1 to 31
    pub(crate) day: i64,
    /// 0 to 365
    pub(crate) day_of_year: i64,
    /// 0 (Sunday) to 6
    pub(crate) day_of_week: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

/// The seconds of a day.
const DAY: i64 = 86_400;

impl CivilTime {
    /// The date and time `seconds` after the epoch.
    pub(super) fn of(seconds: i64) -> Self {
        let days = seconds.div_euclid(DAY);
        let in_day = seconds.rem_euclid(DAY);
        // Years begin in March here, so that the leap day is their last; eras have 400 years.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * from_march + 2) / 153;
        let day = from_march - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self {
            year,
            month,
            day,
            day_of_year: days - days_to(year, 1, 1),
            day_of_week: (days + 4).rem_euclid(7),
            hour: in_day / 3_600,
            minute: in_day / 60 % 60,
            second: in_day % 60,
        }
    }
}

/// The days from the epoch to a date.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + from_march;
    era * 146_097 + day_of_era - 719_468
}

/// The number of days of a month; `month` is 1 to 12.
fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    days_to(next_year, next_month, 1) - days_to(year, month, 1)
}

/// Parses a date and time such as `2006-01-02T15:04:05` at the start of `text`. Returns the seconds since the epoch,
/// and the text after it. As in Go, the hour may have one digit.
fn parse_date_time(text: &str) -> Option<(i64, &str)> {
    let hour_end = text.get(11..)?.find(':')? + 11;
    let form = if hour_end == 12 {
        "dddd-dd-ddTd:dd:dd"
    } else {
        "dddd-dd-ddTdd:dd:dd"
    };
    let fits = text.len() >= form.len()
        && text
            .bytes()
            .zip(form.bytes())
            .all(|(byte, form)| match form {
                b'd' => byte.is_ascii_digit(),
                _ => byte == form,
            });
    if !fits {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let hour = number(11, hour_end)?;
    let (minute, second) = (
        number(hour_end + 1, hour_end + 3)?,
        number(hour_end + 4, hour_end + 6)?,
    );
    let valid = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !valid {
        return None;
    }
    let seconds = days_to(year, month, day) * DAY + hour * 3_600 + minute * 60 + second;
    Some((seconds, &text[form.len()..]))
}

/// Parses a fraction such as `.123`, if there is one. Returns the nanoseconds, and the text after it. Digits after the
/// ninth are ignored.
fn parse_fraction(text: &str) -> Option<(u32, &str)> {
    let Some(after) = text.strip_prefix(['.', ',']) else {
        return Some((0, text));
    };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let (digits, rest) = after.split_at(digits);
    let nanoseconds = format!("{digits:0<9.9}");
    Some((nanoseconds.parse().ok()?, rest))
}

/// The UTC offset in seconds that `Z` or `±hh:mm` stands for.
fn parse_offset(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let bytes = text.as_bytes();
    if bytes.len() != 6 || bytes[3] != b':' {
        return None;
    }
    let sign = match bytes[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = |from: usize| {
        let text = &bytes[from..from + 2];
        let both = text.iter().all(u8::is_ascii_digit);
        both.then(|| i32::from(text[0] - b'0') * 10 + i32::from(text[1] - b'0'))
    };
    let (hours, minutes) = (digits(1)?, digits(4)?);
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
}

/// The time zone with this name in the IANA database; the case of letters matters.
fn named_zone(name: &str) -> Result<TimeZone, CelError> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(CelError::new("time: invalid location name"));
    }
    let zone = TimeZone::get(name).ok();
    let zone = zone.filter(|zone| zone.iana_name() == Some(name));
    zone.ok_or_else(|| CelError::new(format!("unknown time zone {name}")))
}

/// The seconds of the offset that `±hh:mm` names in a call such as `getHours('-08:00')`.
///
/// Numbers that are too large for Go's `time.Duration` wrap around, as they do there.
fn fixed_offset(zone: &str) -> Result<i64, CelError> {
    let (hours, minutes) = zone.split_once(':').unwrap_or((zone, "0"));
    let (hours, minutes) = (go_atoi(hours)?, go_atoi(minutes)?);
    let minutes = if zone.starts_with('-') {
        minutes.wrapping_neg()
    } else {
        minutes
    };
    let offset = hours.wrapping_mul(60).wrapping_add(minutes);
    Ok(offset.wrapping_mul(60 * NANOS) / NANOS)
}

/// Reads a number as Go's `strconv.Atoi` does.
fn go_atoi(text: &str) -> Result<i64, CelError> {
    text.parse().map_err(|error: ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        CelError::new(format!("strconv.Atoi: parsing {}: {why}", Quoted(text)))
    })
}

fn duration_overflow() -> CelError {
    CelError::new("integer overflow")
}

pub(super) fn timestamp_overflow() -> CelError {
    CelError::new("timestamp overflow")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> CelTimestamp {
        CelTimestamp::parse(text).unwrap().unwrap()
    }

    #[test]
    fn durations_are_parsed_and_printed_as_in_go() {
        let cases = [
            ("1h30m", "5400s"),
            ("-1.5s", "-1.5s"),
            ("300ms", "0.3s"),
            ("0", "0s"),
            ("1us", "0.000001s"),
            (".5s", "0.5s"),
            ("+3s", "3s"),
            ("9223372036854775807ns", "9223372036.854776s"),
            ("-9223372036854775808ns", "-9223372036.854776s"),
        ];
        for (text, written) in cases {
            let span = CelDuration::parse(text).expect(text);
            assert_eq!(span.to_string(), written);
        }
        for text in [
            "",
            "1",
            "s",
            "1d",
            "1h x",
            "9223372036854775808ns",
            "-",
            ".",
        ] {
            assert_eq!(CelDuration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_keep_the_offset_that_they_were_written_with() {
        for text in [
            "2023-01-10T12:00:00Z",
            "2023-01-10T12:00:00.5+02:00",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
        ] {
            assert_eq!(time(text).to_string(), text);
        }
        let later = time("2023-01-10T12:00:00-01:00");
        assert_eq!(
            later.compare(time("2023-01-10T12:00:00Z")),
            Ordering::Greater
        );
    }

    #[test]
    fn text_that_is_not_a_time_is_refused() {
        for text in [
            "2023-01-10",
            "2023-02-30T00:00:00Z",
            "2023-01-10T12:00:00",
            "2023-01-10T24:00:00Z",
            "2023-01-10T12:00:60Z",
            "2023-01-10T12:00:00.Z",
            "2023-01-10t12:00:00z",
        ] {
            assert_eq!(CelTimestamp::parse(text), None, "{text}");
        }
        let early = CelTimestamp::parse("0001-01-01T00:00:00+01:00");
        assert_eq!(early.unwrap().unwrap_err().message(), "timestamp overflow");
    }

    #[test]
    fn arithmetic_stays_in_the_range() {
        let last = time("9999-12-31T23:59:59.999999999Z");
        assert!(last.plus(CelDuration(1)).is_err());
        let first = time("0001-01-01T00:00:00Z");
        assert!(first.minus(CelDuration(1)).is_err());
        assert!(last.since(first).is_err());
        let hour = CelDuration::parse("1h").unwrap();
        let moved = time("2023-01-10T12:00:00Z").minus(hour).unwrap();
        assert_eq!(moved.to_string(), "2023-01-10T11:00:00Z");
    }

    #[test]
    fn dates_and_seconds_agree() {
        for days in (-719_162..2_932_896).step_by(97) {
            let at = CivilTime::of(days * DAY + 3_661);
            assert_eq!(days_to(at.year, at.month, at.day), days);
            assert_eq!((at.hour, at.minute, at.second), (1, 1, 1));
            assert!(at.day <= days_in(at.year, at.month));
        }
        let at = CivilTime::of(0);
        assert_eq!((at.year, at.month, at.day), (1970, 1, 1));
        assert_eq!((at.day_of_year, at.day_of_week), (0, 4));
    }

    #[test]
    fn zones_are_names_or_offsets() {
        let at = time("2009-02-13T23:31:30Z");
        assert_eq!(at.in_zone("Australia/Sydney").unwrap().hour, 10);
        assert_eq!(at.in_zone("-08:00").unwrap().hour, 15);
        assert_eq!(at.in_zone("02:00").unwrap().hour, 1);
        assert!(at.in_zone("Nowhere/None").is_err());
    }
}
