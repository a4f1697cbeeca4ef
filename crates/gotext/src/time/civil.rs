//! Dates and times of day, and the seconds since the Unix epoch that they are.

use std::fmt;

/// A date and a time of day, by the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// The year; 0 is the one before the year 1.
    pub year: i64,
    /// 1 to 12
    pub month: i64,
    /// 1 to 31
    pub day: i64,
    /// 0 to 365
    pub day_of_year: i64,
    /// 0 (Sunday) to 6
    pub day_of_week: i64,
    /// 0 to 23
    pub hour: i64,
    /// 0 to 59
    pub minute: i64,
    /// 0 to 59
    pub second: i64,
}

/// The seconds of a day.
pub(super) const DAY: i64 = 86_400;

impl CivilTime {
    /// The date and time `seconds` after the Unix epoch.
    pub fn of(seconds: i64) -> Self {
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

impl CivilTime {
    /// The date and the time of day, with `between` between them: `2006-01-02T15:04:05`. Years have at least four digits.
    ///
    /// # Errors
    ///
    /// That of `to`.
    pub fn write(&self, to: &mut dyn fmt::Write, between: char) -> fmt::Result {
        write!(to, "{:04}-{:02}-{:02}", self.year, self.month, self.day)?;
        let (hour, minute, second) = (self.hour, self.minute, self.second);
        write!(to, "{between}{hour:02}:{minute:02}:{second:02}")
    }
}

/// The days from the epoch to a date.
pub(super) fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + from_march;
    era * 146_097 + day_of_era - 719_468
}

/// The number of days of a month; `month` is 1 to 12.
pub(super) fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    days_to(next_year, next_month, 1) - days_to(year, month, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
