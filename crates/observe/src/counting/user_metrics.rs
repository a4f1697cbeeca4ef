//! What is counted of users ([`super::user_counts`]), as metrics and as dumps.

use std::collections::BTreeSet;

use super::user_counts::{UserCount, UserRefusal, UserRegistry};
use crate::{
    aligned_table::AlignedTable,
    metrics::{catalogue, exposition::Exposition},
};

/// Seat-microseconds of a seat-second.
const MICROS: f64 = 1e6;

/// Writes the refusals of the `most` users of each of these levels with most refusals lately.
pub(crate) fn write_refusals(
    text: &mut Exposition,
    refused: &UserRegistry,
    most: usize,
    levels: &BTreeSet<&str>,
) {
    let counts = refused.heaviest(most, levels);
    for family in [
        &catalogue::USER_REFUSALS,
        &catalogue::USER_UNENFORCED_REFUSALS,
    ] {
        text.family(family);
        let is_enforced = family.labels.contains(&"code");
        for (count, refusal) in refusals(&counts) {
            if refusal.is_enforced() != is_enforced {
                continue;
            }
            let code = refusal.code.to_string();
            let labels = [
                ("code", &*code),
                ("priority_level", &count.labels.level),
                ("reason", refusal.reason),
                ("user", &count.labels.user),
            ];
            let labels = &labels[usize::from(!is_enforced)..];
            text.sample(family, labels, count.total);
        }
    }
}

/// Writes the seat-seconds of the `most` users of each of these levels with most of them lately.
pub(crate) fn write_seat_seconds(
    text: &mut Exposition,
    seats: &UserRegistry,
    most: usize,
    levels: &BTreeSet<&str>,
) {
    let family = &catalogue::USER_SEAT_SECONDS;
    text.family(family);
    for count in seats.heaviest(most, levels) {
        let labels = [
            ("priority_level", &*count.labels.level),
            ("user", &count.labels.user),
        ];
        text.sample(family, &labels, seat_seconds(count.total));
    }
}

/// Writes the failed evictions of the `most` users with most of them lately.
pub(crate) fn write_failed_evictions(text: &mut Exposition, failed: &UserRegistry, most: usize) {
    let family = &catalogue::USER_FAILED_EVICTIONS;
    text.family(family);
    let counts = failed.heaviest(most, &BTreeSet::new());
    for (count, failure) in refusals(&counts) {
        let code = failure.code.to_string();
        let labels = [
            ("code", &*code),
            ("reason", failure.reason),
            ("user", &count.labels.user),
        ];
        text.sample(family, &labels, count.total);
    }
}

/// The dump of refusals: who is refused where and why, those with most in the last minute first.
pub(crate) fn refusal_table(refused: &UserRegistry) -> String {
    let mut table = AlignedTable::new(&[
        "UserName",
        "PriorityLevelName",
        "Code",
        "Reason",
        "Enforced",
        "Refusals",
        "LastMinute",
    ]);
    let counts = refused.counts();
    for (count, refusal) in refusals(&counts) {
        let code = match refusal.code {
            0 => String::new(),
            code => code.to_string(),
        };
        table.row([
            count.labels.user.to_string(),
            count.labels.level.to_string(),
            code,
            refusal.reason.to_owned(),
            refusal.is_enforced().to_string(),
            count.total.to_string(),
            format!("{:.0}", count.recent),
        ]);
    }
    table.to_text()
}

/// The dump of seat-seconds by user, those with most in the last minute first.
pub(crate) fn seat_table(seats: &UserRegistry) -> String {
    let mut table =
        AlignedTable::new(&["UserName", "PriorityLevelName", "SeatSeconds", "LastMinute"]);
    for count in seats.counts() {
        table.row([
            count.labels.user.to_string(),
            count.labels.level.to_string(),
            format!("{:.3}", seat_seconds(count.total)),
            format!("{:.3}", count.recent / MICROS),
        ]);
    }
    table.to_text()
}

/// The counts that are of refusals.
fn refusals(counts: &[UserCount]) -> impl Iterator<Item = (&UserCount, UserRefusal)> {
    counts
        .iter()
        .filter_map(|count| Some((count, count.labels.refusal?)))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact for 285 years of one seat"
)]
fn seat_seconds(micros: u64) -> f64 {
    micros as f64 / MICROS
}
