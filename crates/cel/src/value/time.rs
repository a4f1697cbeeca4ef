//! Durations and timestamps, with the ranges and text formats of the original.

use std::cmp::Ordering;

use fairgate_gotext::{
    atoi, parse_nanoseconds,
    time::{self, CivilTime},
};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::CelError;

/// The first second of the year 1, in seconds since the epoch.
const FIRST_SECOND: i64 = time::ZERO;
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
        let parsed = time::parse(text).ok()?;
        let offset = parsed.offset;
        Some(Self::new(parsed.seconds, parsed.nanoseconds).map(|time| Self { offset, ..time }))
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
    let number = |text| atoi(text).map_err(|why| CelError::new(why.to_string()));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') {
        minutes.wrapping_neg()
    } else {
        minutes
    };
    let offset = hours.wrapping_mul(60).wrapping_add(minutes);
    Ok(offset.wrapping_mul(60 * NANOS) / NANOS)
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
    fn an_offset_may_have_sixty_minutes_as_in_go() {
        assert_eq!(
            time("2023-01-10T12:00:00+01:60").to_string(),
            "2023-01-10T12:00:00+02:00"
        );
        assert_eq!(CelTimestamp::parse("2023-01-10T12:00:00+01:61"), None);
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
    fn zones_are_names_or_offsets() {
        let at = time("2009-02-13T23:31:30Z");
        assert_eq!(at.in_zone("Australia/Sydney").unwrap().hour, 10);
        assert_eq!(at.in_zone("-08:00").unwrap().hour, 15);
        assert_eq!(at.in_zone("02:00").unwrap().hour, 1);
        assert!(at.in_zone("Nowhere/None").is_err());
    }
}
