//! Durations as Go prints them: `1h0m2.5s`, `1.5ms`, `0s`.

use std::{fmt, time::Duration};

/// A duration that prints as Go prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoDuration(pub Duration);

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
