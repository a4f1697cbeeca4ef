//! Ratios of the first target to another one, from slices that were measured together.
//!
//! Machines drift. A ratio of two medians compares slices of different times; the median of ratios compares each slice with
//! its neighbour.

use serde::Serialize;

use super::cpu_per_response;
use crate::{
    figures::{ClientFigures, real},
    load::SliceResult,
    measure::Measurement,
    scenario::expectation::Measure,
};

/// The figures of the first target divided by those of another one.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetRatios {
    /// The first target.
    pub(crate) of: String,
    pub(crate) to: String,
    /// CPU time for each response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<RatioSpread>,
    /// How many microseconds of CPU time more a response takes than with the other target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_micros_more: Option<RatioSpread>,
    pub(crate) clients: Vec<ClientRatios>,
}

/// The ratios of one client.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientRatios {
    pub(crate) name: String,
    /// Successes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<RatioSpread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50: Option<RatioSpread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<RatioSpread>,
}

/// The ratios, or the differences, of several pairs of slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RatioSpread {
    pub(crate) median: f64,
    /// A quarter of the ratios are lower.
    pub(crate) lower_quartile: f64,
    /// A quarter of the ratios are higher.
    pub(crate) upper_quartile: f64,
    /// The pairs that have a ratio.
    pub(crate) pairs: u64,
}

impl RatioSpread {
    /// The spread of `ratios`; `None` without any. What is no number has no ratio. One that is infinite counts as greater than
    /// all others: in its round, only one of the two targets failed.
    fn of(ratios: impl Iterator<Item = f64>) -> Option<Self> {
        let mut ratios: Vec<f64> = ratios.filter(|ratio| !ratio.is_nan()).collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len().checked_sub(1)?;
        // Linear between neighbours, as R and NumPy do.
        let quantile = |quarters: usize| {
            let (index, rest) = (last * quarters / 4, last * quarters % 4);
            let (ratio, next) = (ratios[index], ratios[(index + 1).min(last)]);
            if rest == 0 || ratio.is_infinite() {
                return ratio;
            }
            ratio + (next - ratio) * real(rest as u64) / 4.0
        };
        Some(Self {
            median: quantile(2),
            lower_quartile: quantile(1),
            upper_quartile: quantile(3),
            pairs: ratios.len() as u64,
        })
    }

    /// For people: the median, and the quartiles; how many pairs there are if these are others than `pairs`.
    pub(super) fn written(self, pairs: u64) -> String {
        self.written_by(pairs, "", |ratio| format!("{ratio:.2}"))
    }

    /// As [`RatioSpread::written`], of differences in microseconds.
    fn written_as_micros(self, pairs: u64) -> String {
        self.written_by(pairs, " us", |more| format!("{more:+.1}"))
    }

    fn written_by(self, pairs: u64, unit: &str, finite: impl Fn(f64) -> String) -> String {
        let written = |value: f64| {
            if value.is_infinite() {
                "unbounded".to_owned()
            } else {
                finite(value)
            }
        };
        let [median, lower, upper] =
            [self.median, self.lower_quartile, self.upper_quartile].map(written);
        let own = match self.pairs {
            own if own == pairs => String::new(),
            1 => "; 1 pair".to_owned(),
            own => format!("; {own} pairs"),
        };
        format!("{median}{unit} ({lower} to {upper}{own})")
    }
}

impl TargetRatios {
    /// The ratios of the first measurement to each other one.
    pub(crate) fn of(measurements: &[Measurement]) -> Vec<Self> {
        let Some((first, others)) = measurements.split_first() else {
            return Vec::new();
        };
        let ratios = others.iter().map(|other| Self {
            of: first.name.clone(),
            to: other.name.clone(),
            cpu: spread(first, other, |of, to| of / to, cpu_per_response),
            cpu_micros_more: spread(first, other, |of, to| (of - to) * 1e6, cpu_per_response),
            clients: client_ratios(first, other),
        });
        ratios.collect()
    }

    /// For people.
    pub(super) fn written(&self) -> String {
        let rates = self.clients.iter().filter_map(|client| client.rate);
        let pairs = self.cpu.into_iter().chain(rates);
        let pairs = pairs.map(|ratio| ratio.pairs).max().unwrap_or(0);
        let mut parts = Vec::new();
        if let Some(cpu) = self.cpu {
            parts.push(format!("CPU time {}", cpu.written(pairs)));
        }
        if let Some(more) = self.cpu_micros_more {
            parts.push(more.written_as_micros(pairs));
        }
        for client in &self.clients {
            let named = [
                ("ok/s", client.rate),
                ("p50", client.p50),
                ("p99", client.p99),
            ];
            let named = named
                .into_iter()
                .filter_map(|(name, ratio)| Some((name, ratio?)));
            let named: Vec<String> = named
                .map(|(name, ratio)| format!("{name} {}", ratio.written(pairs)))
                .collect();
            if named.is_empty() {
                continue;
            }
            parts.push(format!("{}: {}", client.name, named.join(", ")));
        }
        format!(
            "{} / {}, median and quartiles of {pairs} pairs: {}.",
            self.of,
            self.to,
            parts.join("; ")
        )
    }
}

fn client_ratios(first: &Measurement, other: &Measurement) -> Vec<ClientRatios> {
    let clients = first.slices.first().map(|slice| slice.clients.as_slice());
    let clients = clients.unwrap_or_default().iter().enumerate();
    let ratios = clients.map(|(index, client)| {
        let of = |measure: Measure| {
            // As in medians over rounds, a latency that is not known is no short one.
            let value = move |client: &ClientFigures| {
                let unknown = measure.is_latency().then_some(f64::INFINITY);
                client.value(measure).or(unknown)
            };
            let of_client = |slice: &SliceResult| slice.clients.get(index).and_then(value);
            spread(first, other, |of, to| of / to, of_client)
        };
        ClientRatios {
            name: client.name.clone(),
            rate: of(Measure::Rate),
            p50: of(Measure::P50),
            p99: of(Measure::P99),
        }
    });
    ratios.collect()
}

/// The ratios or differences of a value of the slices that belong together.
fn spread(
    first: &Measurement,
    other: &Measurement,
    compared: impl Fn(f64, f64) -> f64,
    value: impl Fn(&SliceResult) -> Option<f64>,
) -> Option<RatioSpread> {
    let ratios = other.pairs.iter().filter_map(|(of, to)| {
        let (of, to) = (first.slices.get(*of)?, other.slices.get(*to)?);
        Some(compared(value(of)?, value(to)?))
    });
    RatioSpread::of(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        figures::LatencyFigures,
        process::{ProcessCost, ProcessMemory},
    };

    /// A slice with 100 responses at this rate, for so many seconds of CPU time.
    fn slice(cpu_seconds: f64, rate: f64) -> SliceResult {
        SliceResult {
            clients: vec![ClientFigures {
                name: "a".to_owned(),
                requests: 100,
                ok: 100,
                rate,
                latency: LatencyFigures {
                    p50: 1.0 / rate,
                    p99: f64::INFINITY,
                    ..LatencyFigures::default()
                },
                ..ClientFigures::default()
            }],
            series: Vec::new(),
            levels: Vec::new(),
            process: Some(ProcessCost {
                cpu_seconds,
                busy: cpu_seconds,
                memory: ProcessMemory::default(),
            }),
            idle: Vec::new(),
        }
    }

    fn measured(name: &str, slices: Vec<SliceResult>, pairs: Vec<(usize, usize)>) -> Measurement {
        Measurement {
            slices,
            pairs,
            ..Measurement::new(name, &[])
        }
    }

    #[test]
    fn a_machine_that_drifts_does_not_change_the_ratio_of_neighbours() {
        // The machine becomes ten times as slow. Each pair says 2; the medians of all slices say 20.
        let first = [(2.0, 50.0), (20.0, 5.0), (20.0, 5.0)];
        let other = [(1.0, 100.0), (1.0, 100.0), (10.0, 10.0)];
        let slices = |all: [(f64, f64); 3]| all.map(|(cpu, rate)| slice(cpu, rate)).to_vec();
        let measurements = [
            measured("ours", slices(first), Vec::new()),
            measured("theirs", slices(other), vec![(0, 0), (0, 1), (2, 2)]),
        ];
        let ratios = TargetRatios::of(&measurements);
        assert_eq!(ratios.len(), 1);
        assert_eq!(
            (ratios[0].of.as_str(), ratios[0].to.as_str()),
            ("ours", "theirs")
        );
        let always = |median| {
            Some(RatioSpread {
                median,
                lower_quartile: median,
                upper_quartile: median,
                pairs: 3,
            })
        };
        assert_eq!(ratios[0].cpu, always(2.0));
        let client = &ratios[0].clients[0];
        assert_eq!(
            (client.rate, client.p50, client.p99),
            (always(0.5), always(2.0), None)
        );
        assert_eq!(
            ratios[0].written(),
            "ours / theirs, median and quartiles of 3 pairs: CPU time 2.00 (2.00 to 2.00); \
             +10000.0 us (+10000.0 to +55000.0); a: ok/s 0.50 (0.50 to 0.50), \
             p50 2.00 (2.00 to 2.00)."
        );
    }

    #[test]
    fn rounds_in_which_the_first_target_fails_count() {
        let inf = f64::INFINITY;
        let of = |ratios: &[f64]| RatioSpread::of(ratios.iter().copied()).unwrap();
        let mostly = of(&[1.0, inf, inf]);
        assert_eq!(mostly.median.to_bits(), inf.to_bits());
        assert_eq!(mostly.written(3), "unbounded (unbounded to unbounded)");
        let once = of(&[1.0, 1.0, 1.0, inf, 1.0]);
        assert_eq!(once.written(5), "1.00 (1.00 to 1.00)");
        let partly = of(&[1.0, 1.0, 2.0, inf]);
        assert_eq!(partly.written(4), "1.50 (1.00 to unbounded)");
        // Both failed: there is no ratio.
        assert_eq!(RatioSpread::of([inf / inf].into_iter()), None);
    }

    #[test]
    fn a_figure_of_fewer_pairs_says_so() {
        let never = |slice: SliceResult| {
            let mut slice = slice;
            slice.clients[0].latency.p50 = f64::INFINITY;
            slice
        };
        // In one of two rounds neither target responds to half of the requests.
        let slices = || vec![slice(1.0, 50.0), never(slice(1.0, 50.0))];
        let measurements = [
            measured("ours", slices(), Vec::new()),
            measured("theirs", slices(), vec![(0, 0), (1, 1)]),
        ];
        let written = TargetRatios::of(&measurements)[0].written();
        assert!(written.contains("quartiles of 2 pairs"), "{written}");
        assert!(
            written.contains("ok/s 1.00 (1.00 to 1.00), p50 1.00 (1.00 to 1.00; 1 pair)."),
            "{written}"
        );
    }

    #[test]
    fn the_spread_is_that_of_the_ratios() {
        let spread = RatioSpread::of([4.0, 1.0, f64::NAN, 2.0, 3.0, 5.0].into_iter());
        let expected = RatioSpread {
            median: 3.0,
            lower_quartile: 2.0,
            upper_quartile: 4.0,
            pairs: 5,
        };
        assert_eq!(spread, Some(expected));
        let two = RatioSpread::of([1.0, 2.0].into_iter()).unwrap();
        assert_eq!(
            (two.lower_quartile, two.median, two.upper_quartile),
            (1.25, 1.5, 1.75)
        );
        assert_eq!(RatioSpread::of(std::iter::empty()), None);
    }
}
