//! The histograms of one kind of request: durations and sizes.

use std::sync::OnceLock;

use super::{DryRun, FinishedRequest};
use fairgate_core::cells::{Histogram, HistogramTotal};

/// Upper bounds of the time until the end of a response without the waits, in seconds.
const SLI_DURATIONS: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];
/// Upper bounds of the time until the end of a response, in seconds.
const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Upper bounds of the length of a response, in bytes.
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// What one core measures of one kind of request.
#[derive(Debug)]
pub(super) struct Timings {
    sli: Histogram<21>,
    duration: Histogram<23>,
    /// Durations of dry runs, and of requests with an invalid `dryRun`. Allocated at the first: most kinds have none.
    dry_runs: OnceLock<Box<[Histogram<23>; 2]>>,
    sizes: Histogram<7>,
}

/// The measurements of all cores, added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimingTotals {
    /// Seconds until the end of the response, without the waits; not of dry runs.
    pub(crate) sli: HistogramTotal,
    /// Seconds until the end of the response, by the parameter `dryRun`.
    pub(crate) duration: [(DryRun, HistogramTotal); 3],
    /// Bytes of the responses; only of GET and LIST.
    pub(crate) sizes: HistogramTotal,
}

impl Timings {
    pub(super) fn new() -> Self {
        Self {
            sli: Histogram::new(&SLI_DURATIONS),
            duration: Histogram::new(&DURATIONS),
            dry_runs: OnceLock::new(),
            sizes: Histogram::new(&SIZES),
        }
    }

    pub(super) fn observe(&self, request: &FinishedRequest<'_>, is_read: bool) {
        let dry_runs = || {
            let empty = || Box::new([(); 2].map(|()| Histogram::new(&DURATIONS)));
            self.dry_runs.get_or_init(empty)
        };
        let duration = match request.dry_run {
            DryRun::No => {
                self.sli.observe_duration(request.took);
                &self.duration
            }
            DryRun::All => &dry_runs()[0],
            DryRun::Invalid => &dry_runs()[1],
        };
        duration.observe_duration(request.duration);
        if is_read {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            self.sizes.observe(request.bytes as f64);
        }
    }

    pub(super) fn add_to(&self, totals: &mut TimingTotals) {
        self.sli.add_to(&mut totals.sli);
        let [all, dry_run, invalid] = &mut totals.duration;
        self.duration.add_to(&mut all.1);
        if let Some(dry_runs) = self.dry_runs.get() {
            (dry_run.0, invalid.0) = (DryRun::All, DryRun::Invalid);
            dry_runs[0].add_to(&mut dry_run.1);
            dry_runs[1].add_to(&mut invalid.1);
        }
        self.sizes.add_to(&mut totals.sizes);
    }
}
