//! Both semantics beside the ideal, over many worlds of each kind.

use std::fmt;

use super::{Report, kinds::Kind, run};
use crate::apf::policy::Semantics;

/// What one world, or the median of many, came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Jain's index of what each flow got over its ideal.
    pub jain: f64,
    /// The worst flow's distance from its ideal, as a part of that.
    pub error: f64,
    /// The worst wait of a flow that asks for less than its share, over its fluid wait and the longest
    /// service that executed when it came.
    pub polite_wait: f64,
    /// The 99th percentile of the waits of the flow whose is greatest, in mean service times.
    pub p99: f64,
    /// The part of the seats that were idle while a request waited that would have fitted.
    pub idle: f64,
    /// The most seats in use over the limit.
    pub over: f64,
}

impl From<&Report> for Figures {
    fn from(report: &Report) -> Self {
        let waits = report.flows.iter().map(|flow| flow.p99_wait);
        Self {
            jain: report.jain(),
            error: report.worst_error(),
            polite_wait: report.worst_wait_ratio(),
            p99: waits.fold(0.0, f64::max) / report.mean_service,
            idle: report.idle,
            over: f64::from(report.over),
        }
    }
}

/// The worlds of one kind under both semantics.
#[derive(Clone, Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// What each world came to: under Compatible and under Improved.
    pub worlds: Vec<[Figures; 2]>,
}

impl Row {
    /// Plays the worlds `numbers` of `kind`. Takes about a tenth of a second each.
    pub fn play(kind: Kind, seed: u64, numbers: impl IntoIterator<Item = u64>) -> Self {
        let worlds = numbers.into_iter().map(|number| {
            let world = kind.draw(seed, number);
            [Semantics::Compatible, Semantics::Improved]
                .map(|semantics| Figures::from(&run(&world, semantics)))
        });
        Self {
            kind,
            worlds: worlds.collect(),
        }
    }

    /// The medians of all figures but `over`, of which the greatest counts.
    pub fn medians(&self) -> [Figures; 2] {
        [0, 1].map(|which| {
            let median = |of: fn(&Figures) -> f64| self.quantile(which, 0.5, of);
            Figures {
                jain: median(|f| f.jain),
                error: median(|f| f.error),
                polite_wait: median(|f| f.polite_wait),
                p99: median(|f| f.p99),
                idle: median(|f| f.idle),
                over: self.quantile(which, 1.0, |f| f.over),
            }
        })
    }

    /// The worlds' figure `of`, of which `part` are at most the returned one: 0.5 for the median.
    pub fn quantile(&self, which: usize, part: f64, of: fn(&Figures) -> f64) -> f64 {
        let mut all: Vec<f64> = self.worlds.iter().map(|world| of(&world[which])).collect();
        all.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index into the worlds"
        )]
        let place = (super::real(all.len().saturating_sub(1)) * part).round() as usize;
        all.get(place).copied().unwrap_or_default()
    }
}

/// The heading of the rows.
pub const HEADING: &str = "                       JAIN         SHARE ERROR  (9 IN 10)    POLITE WAIT  P99 WAIT       IDLE %       OVER
                       comp. impr.  comp. impr.  comp. impr.  comp. impr.  comp. impr.    comp. impr.  comp. impr.";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.medians();
        let [worse_a, worse_b] = [0, 1].map(|which| self.quantile(which, 0.9, |f| f.error));
        write!(
            f,
            "{:<22} {:>5.3} {:>5.3}",
            self.kind.name(),
            a.jain,
            b.jain
        )?;
        write!(f, "  {:>5.3} {:>5.3}", a.error, b.error)?;
        write!(f, "  {worse_a:>5.3} {worse_b:>5.3}")?;
        write!(f, "  {:>5.2} {:>5.2}", a.polite_wait, b.polite_wait)?;
        write!(f, "  {:>6.2} {:>6.2}", a.p99, b.p99)?;
        write!(f, "  {:>5.1} {:>5.1}", a.idle * 100.0, b.idle * 100.0)?;
        write!(f, "  {:>5} {:>5}", a.over, b.over)
    }
}
