//! How durations and times are printed: by `string()`, and in messages as Go prints them.

use std::fmt;
use std::time::Duration;

use fairgate_gotext::{GoDuration, time::CivilTime};

use super::time::{CelDuration, CelTimestamp, NANOS};

impl fmt::Display for CelDuration {
    #[expect(clippy::cast_precision_loss, reason = "as Go prints seconds")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds =
            (self.nanoseconds() / NANOS) as f64 + (self.nanoseconds() % NANOS) as f64 / 1e9;
        write!(f, "{seconds}s")
    }
}

impl CelDuration {
    /// Prints it in hours, minutes and seconds, or in a smaller unit if it is less than a second: `1h30m0s`, `1.5ms`.
    pub(super) fn print_units(self, to: &mut dyn fmt::Write) -> fmt::Result {
        if self.nanoseconds() < 0 {
            to.write_str("-")?;
        }
        let length = Duration::from_nanos(self.nanoseconds().unsigned_abs());
        write!(to, "{}", GoDuration(length))
    }
}

impl fmt::Display for CelTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, 'T')?;
        if self.offset() == 0 {
            return f.write_str("Z");
        }
        let (sign, hours, minutes) = self.zone();
        write!(f, "{sign}{hours:02}:{minutes:02}")
    }
}

impl CelTimestamp {
    /// Prints date and time, with `between` between them, but without the offset.
    fn print(self, to: &mut dyn fmt::Write, between: char) -> fmt::Result {
        let at = CivilTime::of(self.seconds() + i64::from(self.offset()));
        at.write(to, between)?;
        if self.nanoseconds() != 0 {
            let fraction = format!("{:09}", self.nanoseconds());
            write!(to, ".{}", fraction.trim_end_matches('0'))?;
        }
        Ok(())
    }

    /// The sign, hours and minutes of the offset.
    fn zone(self) -> (char, i32, i32) {
        let sign = if self.offset() < 0 { '-' } else { '+' };
        let minutes = self.offset().abs() / 60;
        (sign, minutes / 60, minutes % 60)
    }

    /// Prints it with the offset and the name of the zone, as in `2006-01-02 15:04:05 +0000 UTC`.
    pub(super) fn print_with_zone(self, to: &mut dyn fmt::Write) -> fmt::Result {
        self.print(to, ' ')?;
        if self.offset() == 0 {
            return to.write_str(" +0000 UTC");
        }
        let (sign, hours, minutes) = self.zone();
        write!(
            to,
            " {sign}{hours:02}{minutes:02} {sign}{hours:02}{minutes:02}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_durations_in_units() {
        let print = |nanoseconds| {
            let mut text = String::new();
            let printed = CelDuration::from_nanoseconds(nanoseconds).print_units(&mut text);
            printed.map(|()| text).unwrap()
        };
        assert_eq!(print(0), "0s");
        assert_eq!(print(1), "1ns");
        assert_eq!(print(-1_500), "-1.5µs");
        assert_eq!(print(20_030_000), "20.03ms");
        assert_eq!(print(NANOS), "1s");
        assert_eq!(print(60 * NANOS), "1m0s");
        assert_eq!(print(5_400 * NANOS), "1h30m0s");
        assert_eq!(print(i64::MIN), "-2562047h47m16.854775808s");
    }

    #[test]
    fn messages_have_times_with_their_zone() {
        let print = |text| {
            let time = CelTimestamp::parse(text).unwrap().unwrap();
            let mut text = String::new();
            time.print_with_zone(&mut text).map(|()| text).unwrap()
        };
        assert_eq!(
            print("2024-02-29T12:30:45.500Z"),
            "2024-02-29 12:30:45.5 +0000 UTC"
        );
        assert_eq!(
            print("2024-02-29T12:30:45-02:30"),
            "2024-02-29 12:30:45 -0230 -0230"
        );
    }
}
