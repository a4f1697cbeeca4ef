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
    /// The spread of `ratios`; `None` without any. What is no number, or not finite, has no ratio.
    fn of(ratios: impl Iterator<Item = f64>) -> Option<Self> {
        let mut ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len().checked_sub(1)?;
        // Linear between neighbours, as R and NumPy do.
        let quantile = |quarters: usize| {
            let (index, rest) = (last * quarters / 4, last * quarters % 4);
            let next = ratios[(index + 1).min(last)];
            ratios[index] + (next - ratios[index]) * real(rest as u64) / 4.0
        };
        Some(Self {
            median: quantile(2),
            lower_quartile: quantile(1),
            upper_quartile: quantile(3),
            pairs: ratios.len() as u64,
        })
    }

    /// For people: the median, and the quartiles.
    pub(super) fn written(self) -> String {
        format!(
            "{:.2} ({:.2} to {:.2})",
            self.median, self.lower_quartile, self.upper_quartile
        )
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
        let mut parts = Vec::new();
        if let Some(cpu) = self.cpu {
            parts.push(format!("CPU time {}", cpu.written()));
        }
        if let Some(more) = self.cpu_micros_more {
            parts.push(format!(
                "{:+.1} us ({:+.1} to {:+.1})",
                more.median, more.lower_quartile, more.upper_quartile
            ));
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
                .map(|(name, ratio)| format!("{name} {}", ratio.written()))
                .collect();
            if named.is_empty() {
                continue;
            }
            parts.push(format!("{}: {}", client.name, named.join(", ")));
        }
        let pairs = self.cpu.iter().chain(
            self.clients
                .iter()
                .filter_map(|client| client.rate.as_ref()),
        );
        let pairs = pairs.map(|ratio| ratio.pairs).max().unwrap_or(0);
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
            let value = move |client: &ClientFigures| client.value(measure);
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
    fn the_spread_is_that_of_the_ratios() {
        let spread =
            RatioSpread::of([4.0, 1.0, f64::NAN, 2.0, 3.0, 5.0, f64::INFINITY].into_iter());
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
