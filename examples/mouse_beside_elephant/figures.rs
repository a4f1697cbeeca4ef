//! The measurements as a table of medians over the rounds.

use std::{fmt, time::Duration};

use crate::{clients::Target, upstream::Seen};

/// The measurements of one slice.
pub(crate) struct Slice {
    /// The mouse's latencies.
    pub(crate) mouse: Vec<Duration>,
    /// The number of responses to the elephant.
    pub(crate) elephant: u64,
    /// The duration of the slice.
    pub(crate) time: Duration,
    /// CPU time of the proxy.
    pub(crate) cpu: Duration,
    /// What the upstream saw.
    pub(crate) seen: Seen,
}

/// All rounds. The elephants of other targets are compared with that of the first.
pub(crate) struct Table {
    targets: Vec<(String, Vec<(Slice, Slice)>)>,
    gaps: bool,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(targets: &[Target], gaps: bool) -> Self {
        let empty = |target: &Target| (target.name.clone(), Vec::new());
        Self {
            targets: targets.iter().map(empty).collect(),
            gaps,
        }
    }

    /// Adds a round of a target: the mouse alone, and beside the elephant.
    pub(crate) fn add(&mut self, target: usize, mut alone: Slice, mut beside: Slice) {
        alone.mouse.sort_unstable();
        beside.mouse.sort_unstable();
        self.targets[target].1.push((alone, beside));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8} {:>6} {:>8} {:>7} {:>4}",
            "target",
            "p50 alone",
            "p50 bes.",
            "p99 alone",
            "p99 bes.",
            "p50 x",
            "p99 x",
            "eleph./s",
            "of 1st",
            "CPU us/r",
            "execut.",
            "max"
        )?;
        for (name, rounds) in &self.targets {
            self.write_target(f, name, rounds)?;
        }
        if self.gaps {
            self.write_gaps(f)?;
        }
        Ok(())
    }
}

impl Table {
    fn write_target(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        rounds: &[(Slice, Slice)],
    ) -> fmt::Result {
        let of =
            |figure: &dyn Fn(&(Slice, Slice)) -> f64| median(rounds.iter().map(figure).collect());
        let shares = rounds
            .iter()
            .zip(&self.targets[0].1)
            .map(|(own, first)| rate(&own.1) / rate(&first.1));
        writeln!(
            f,
            "{name:<14} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>6.3} {:>6.3} {:>8.1} {:>6.3} {:>8.1} {:>7.2} {:>4}",
            of(&|round| at(&round.0.mouse, 0.5)),
            of(&|round| at(&round.1.mouse, 0.5)),
            of(&|round| at(&round.0.mouse, 0.99)),
            of(&|round| at(&round.1.mouse, 0.99)),
            of(&|round| at(&round.1.mouse, 0.5) / at(&round.0.mouse, 0.5)),
            of(&|round| at(&round.1.mouse, 0.99) / at(&round.0.mouse, 0.99)),
            of(&|round| rate(&round.1)),
            median(shares.collect()),
            of(&|round| cpu_micros(&round.1)),
            of(&|round| round.1.seen.mean),
            rounds
                .iter()
                .map(|round| round.1.seen.most)
                .max()
                .unwrap_or(0),
        )
    }

    fn write_gaps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\ngaps between ends at the upstream beside the elephant, ms"
        )?;
        for (name, rounds) in &self.targets {
            write!(f, "{name:<14}")?;
            for quantile in [0.1, 0.5, 0.9, 0.99, 1.0] {
                let figure = rounds.iter().map(|round| at(&round.1.seen.gaps, quantile));
                write!(
                    f,
                    " p{:<3.0} {:>7.3}",
                    quantile * 100.0,
                    median(figure.collect())
                )?;
            }
            let wait = median(
                rounds
                    .iter()
                    .map(|round| wait(&round.1.seen.gaps))
                    .collect(),
            );
            writeln!(f, "  wait for the next end: mean {wait:.3}")?;
        }
        Ok(())
    }
}

/// The mean time from a random moment to the next end of a request, in milliseconds.
fn wait(gaps: &[Duration]) -> f64 {
    let sum: f64 = gaps.iter().map(|gap| millis(*gap)).sum();
    let squares: f64 = gaps.iter().map(|gap| millis(*gap).powi(2)).sum();
    squares / (2.0 * sum)
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
fn rate(slice: &Slice) -> f64 {
    slice.elephant as f64 / slice.time.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
fn cpu_micros(slice: &Slice) -> f64 {
    slice.cpu.as_secs_f64() * 1e6 / (slice.elephant + slice.mouse.len() as u64) as f64
}

/// A quantile of ascending times, in milliseconds.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index"
)]
fn at(times: &[Duration], quantile: f64) -> f64 {
    let index = (times.len() as f64 * quantile).ceil() as usize;
    let time = times.get(index.clamp(1, times.len().max(1)) - 1);
    time.map_or(f64::NAN, |time| millis(*time))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
