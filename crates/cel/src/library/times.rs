//! Parts of timestamps and durations: `getFullYear`, `getHours` and so on.

use fairgate_gotext::time::CivilTime;

use crate::declarations::{CelDeclarations, CelFunction, CelFunctionDecl, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelResult, CelTimestamp, CelValue};

/// Computes a part of a date or a time of day.
type Part = fn(CivilTime, CelTimestamp) -> i64;

/// In nanoseconds.
const MILLISECOND: i64 = 1_000_000;

pub(super) fn declare(to: &mut CelDeclarations) {
    let parts: [(&str, &str, Part); 7] = [
        ("getFullYear", "year", |of, _| of.year),
        ("getMonth", "month", |of, _| of.month - 1),
        ("getDayOfYear", "day_of_year", |of, _| of.day_of_year),
        ("getDayOfMonth", "day_of_month", |of, _| of.day - 1),
        ("getDate", "day_of_month_1_based", |of, _| of.day),
        ("getDayOfWeek", "day_of_week", |of, _| of.day_of_week),
        ("getMilliseconds", "milliseconds", |_, at| {
            i64::from(at.nanoseconds() / 1_000_000)
        }),
    ];
    for (name, id, part) in parts {
        to.function(of_time(name, id, part));
    }
    to.function(of_time("getHours", "hours", |of, _| of.hour));
    to.function(of_time("getMinutes", "minutes", |of, _| of.minute));
    to.function(of_time("getSeconds", "seconds", |of, _| of.second));
    let spans = [
        ("getHours", "duration_to_hours", 3_600_000_000_000),
        ("getMinutes", "duration_to_minutes", 60_000_000_000),
        ("getSeconds", "duration_to_seconds", 1_000_000_000),
        ("getMilliseconds", "duration_to_milliseconds", MILLISECOND),
    ];
    for (name, id, unit) in spans {
        let overload = CelOverload::member(id, [CelType::Duration], CelType::Int, OfSpan(unit));
        to.function(CelFunctionDecl::new(name).overload(overload));
    }
}

fn of_time(name: &str, id: &str, part: Part) -> CelFunctionDecl {
    let utc = format!("timestamp_to_{id}");
    let in_zone = match id {
        "seconds" => "timestamp_to_seconds_tz".to_owned(),
        _ => format!("timestamp_to_{id}_with_tz"),
    };
    let (time, text, int) = (CelType::Timestamp, CelType::String, CelType::Int);
    CelFunctionDecl::new(name)
        .overload(CelOverload::member(
            &utc,
            [time.clone()],
            int.clone(),
            OfTime(part),
        ))
        .overload(CelOverload::member(
            &in_zone,
            [time, text],
            int,
            OfTime(part),
        ))
}

struct OfTime(Part);

impl CelFunction for OfTime {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        let CelValue::Timestamp(time) = &args[0] else {
            return Err(CelError::no_such_overload());
        };
        let zone = args.get(1).and_then(CelValue::as_str).unwrap_or("UTC");
        Ok(CelValue::Int((self.0)(time.in_zone(zone)?, *time)))
    }
}

/// A duration in units of so many nanoseconds.
struct OfSpan(i64);

impl OfSpan {
    /// The whole units. As in the original, units of a second or more are computed as a float64, which has no room for
    /// the last nanoseconds of many years: they round.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "as the original computes it"
    )]
    fn of(&self, nanoseconds: i64) -> i64 {
        let whole = nanoseconds / self.0;
        if self.0 <= MILLISECOND {
            return whole;
        }
        (whole as f64 + (nanoseconds % self.0) as f64 / self.0 as f64) as i64
    }
}

impl CelFunction for OfSpan {
    fn call<'a>(&self, args: &[CelValue<'a>]) -> CelResult<'a> {
        let CelValue::Duration(span) = &args[0] else {
            return Err(CelError::no_such_overload());
        };
        Ok(CelValue::Int(self.of(span.nanoseconds())))
    }
}
