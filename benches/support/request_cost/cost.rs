//! What one request of a case costs, as figures with names.

use super::callgrind::Counts;

/// How much a figure may differ from the baseline, in both directions: what became cheaper must be written down, or the next
/// change could use it up unnoticed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    /// A share of the baseline.
    Share(f64),
    /// So many a request as the case says.
    OfCase,
}

/// One figure of a cost that the gate compares.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) room: Room,
    pub(super) decimals: usize,
}

const fn counted(name: &'static str) -> Figure {
    Figure {
        name,
        room: Room::OfCase,
        decimals: 2,
    }
}

/// The figures of a [`Cost`], in its order.
///
/// Instructions are those of the program itself. Those of libc are printed, but no part of the gate: they differ by its
/// version and by the variants that it chooses for the processor, while the calls that cause them are counted below.
pub(super) const FIGURES: [Figure; 5] = [
    Figure {
        name: "instructions",
        room: Room::Share(0.03),
        decimals: 0,
    },
    counted("allocations"),
    counted("copies"),
    counted("system calls"),
    counted("clock reads"),
];

/// The figures of one request.
pub(super) type Cost = [f64; FIGURES.len()];

/// Divides what `requests` more requests cost by their number.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) fn per_request(once: Counts, twice: Counts, requests: u64) -> (Cost, f64) {
    let each = |of: fn(&Counts) -> u64| (of(&twice) as f64 - of(&once) as f64) / requests as f64;
    let cost = [
        each(|counts| counts.instructions),
        each(|counts| counts.allocations),
        each(|counts| counts.copies),
        each(|counts| counts.system_calls),
        each(|counts| counts.clock_reads),
    ];
    (cost, each(|counts| counts.in_libraries))
}

/// The figures in columns.
pub(super) fn row(name: &str, cost: &Cost) -> String {
    let columns = FIGURES
        .iter()
        .zip(cost)
        .map(|(figure, value)| format!(" {value:>12.0$}", figure.decimals));
    format!("{name:<32}{}", columns.collect::<String>())
}

/// The names of the columns of [`row`].
pub(super) fn head(first: &str) -> String {
    let names = FIGURES.map(|figure| format!(" {:>12}", figure.name));
    format!("{first:<32}{}", names.concat())
}
