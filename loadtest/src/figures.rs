//! Figures of clients: what is measured, medians over rounds, and arithmetic.

use serde::Serialize;

use crate::scenario::expectation::Measure;
use fairgate_core::fairness::jain_index;

/// The results of one client in one slice, or the medians over several slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientFigures {
    pub(crate) name: String,
    /// Requests that were to be sent in the measured time.
    pub(crate) requests: u64,
    /// Of these, those that succeeded.
    pub(crate) ok: u64,
    /// Those that ended with a 429.
    pub(crate) refused: u64,
    /// Those with any other outcome.
    pub(crate) errors: u64,
    /// Of the errors, requests that had no response when the run ended.
    pub(crate) unanswered: u64,
    /// Responses with 429 after which the request was repeated.
    pub(crate) retried: u64,
    /// Events of watches that arrived in the measured time, whenever the watches began.
    pub(crate) events: u64,
    /// Successes a second.
    pub(crate) rate: f64,
    /// Seconds from the intended time of sending to the end of the response.
    pub(crate) latency: LatencyFigures,
    /// The mean number of seats that it used, by estimated widths and by service times without overload.
    pub(crate) share: f64,
    /// What max-min fair sharing gives.
    pub(crate) ideal_share: f64,
    /// Jain's index over the rates of its users.
    pub(crate) jain: f64,
    /// What the last error was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
}

/// Percentiles of the latencies of all requests, in seconds; 0 where nothing was measured.
///
/// A request without success counts as infinitely long (`null` in JSON). If only successes counted, a server that
/// serves one of fifty requests at once, and the others never, would seem fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LatencyFigures {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl LatencyFigures {
    /// The percentiles of `requests` requests of which `ok` succeeded. `nth` gives the latency in seconds of a success by
    /// its rank, from 1 for the shortest to `ok`.
    pub(crate) fn new(requests: u64, ok: u64, nth: impl Fn(u64) -> f64) -> Self {
        let at = |per_mille: u64| match (requests * per_mille).div_ceil(1000).max(1) {
            _ if requests == 0 => 0.0,
            rank if rank > ok => f64::INFINITY,
            rank => nth(rank),
        };
        Self {
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            max: at(1000),
        }
    }
}

impl ClientFigures {
    /// The value of a measure; `None` for a latency when no request was measured.
    pub(crate) fn value(&self, measure: Measure) -> Option<f64> {
        if measure.is_latency() && self.requests == 0 {
            return None;
        }
        Some(match measure {
            Measure::P50 => self.latency.p50,
            Measure::P90 => self.latency.p90,
            Measure::P99 => self.latency.p99,
            Measure::P999 => self.latency.p999,
            Measure::Max => self.latency.max,
            Measure::Rate => self.rate,
            Measure::Refused => real(self.refused),
            Measure::Errors => real(self.errors),
            Measure::Share => self.share,
            Measure::Jain => self.jain,
        })
    }
}

/// The value of a measure over `clients`: of one of them, or of all together.
pub(crate) fn value(clients: &[ClientFigures], who: Option<&str>, measure: Measure) -> Option<f64> {
    let Some(who) = who else {
        let values: Option<Vec<f64>> = clients.iter().map(|client| client.value(measure)).collect();
        let values = values?;
        return Some(match measure {
            Measure::Jain => {
                let parts = clients.iter().filter(|client| client.ideal_share > 0.0);
                jain_index(parts.map(|client| client.share / client.ideal_share)).unwrap_or(0.0)
            }
            _ if measure.is_latency() => values.into_iter().fold(0.0, f64::max),
            _ => values.into_iter().sum(),
        });
    };
    clients
        .iter()
        .find(|client| client.name == who)?
        .value(measure)
}

/// The medians over slices that have the same clients in the same order. Counts are sums, so that no error is lost. A slice
/// without a request of a client that has some in others counts as infinitely long: its latency is not known, and not 0.
pub(crate) fn medians(slices: &[Vec<ClientFigures>]) -> Vec<ClientFigures> {
    let Some(first) = slices.first() else {
        return Vec::new();
    };
    let names = first.iter().enumerate();
    let merged = names.map(|(index, client)| {
        let all: Vec<&ClientFigures> = slices.iter().filter_map(|slice| slice.get(index)).collect();
        let mid =
            |of: fn(&ClientFigures) -> f64| median(all.iter().map(|figures| of(figures)).collect());
        let sum = |of: fn(&ClientFigures) -> u64| all.iter().map(|figures| of(figures)).sum();
        let requests: u64 = sum(|f| f.requests);
        let latency = |of: fn(&LatencyFigures) -> f64| {
            let known = all.iter().map(|figures| match figures.requests {
                0 if requests > 0 => f64::INFINITY,
                _ => of(&figures.latency),
            });
            median(known.collect())
        };
        ClientFigures {
            name: client.name.clone(),
            requests,
            ok: sum(|f| f.ok),
            refused: sum(|f| f.refused),
            errors: sum(|f| f.errors),
            unanswered: sum(|f| f.unanswered),
            retried: sum(|f| f.retried),
            events: sum(|f| f.events),
            rate: mid(|f| f.rate),
            latency: LatencyFigures {
                p50: latency(|l| l.p50),
                p90: latency(|l| l.p90),
                p99: latency(|l| l.p99),
                p999: latency(|l| l.p999),
                max: latency(|l| l.max),
            },
            share: mid(|f| f.share),
            ideal_share: mid(|f| f.ideal_share),
            jain: mid(|f| f.jain),
            last_error: all
                .iter()
                .rev()
                .find_map(|figures| figures.last_error.clone()),
        }
    });
    merged.collect()
}

/// The median of `values`; of an even number, the mean of the two in the middle; 0 without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, p99: f64, errors: u64) -> ClientFigures {
        ClientFigures {
            name: name.to_owned(),
            requests: 10,
            ok: 10,
            errors,
            share: p99,
            ideal_share: 2.0,
            latency: LatencyFigures {
                p99,
                ..LatencyFigures::default()
            },
            ..ClientFigures::default()
        }
    }

    #[test]
    fn medians_keep_every_error() {
        let slices = [1.0, 9.0, 2.0].map(|p99| vec![client("a", p99, u64::from(p99 > 8.0))]);
        let merged = medians(&slices);
        assert!((merged[0].latency.p99 - 2.0).abs() < 1e-9);
        assert_eq!((merged[0].errors, merged[0].ok), (1, 30));
    }

    #[test]
    fn a_round_without_a_request_is_not_a_fast_one() {
        let silent = || {
            vec![ClientFigures {
                name: "a".to_owned(),
                ..ClientFigures::default()
            }]
        };
        let served = || vec![client("a", 1.0, 0)];
        let p99 = |slices: &[Vec<ClientFigures>]| value(&medians(slices), None, Measure::P99);
        let mostly_silent = p99(&[silent(), silent(), served()]).unwrap();
        assert!(!mostly_silent.is_finite(), "{mostly_silent}");
        assert_eq!(p99(&[silent(), served(), served()]), Some(1.0));
        assert_eq!(p99(&[silent(), silent()]), None);
    }

    #[test]
    fn over_all_clients_latencies_are_maxima_and_counts_are_sums() {
        let clients = [client("a", 1.0, 3), client("b", 3.0, 4)];
        assert_eq!(value(&clients, None, Measure::Errors), Some(7.0));
        assert_eq!(value(&clients, None, Measure::P99), Some(3.0));
        assert_eq!(value(&clients, Some("a"), Measure::P99), Some(1.0));
        assert_eq!(value(&clients, Some("c"), Measure::P99), None);
        // The shares are 0.5 and 1.5 times the ideal.
        let index = value(&clients, None, Measure::Jain).unwrap();
        assert!((index - 0.8).abs() < 1e-9, "{index}");
    }

    #[test]
    fn requests_without_success_count_as_infinitely_long() {
        let seconds = |rank: u64| real(rank) / 1000.0;
        let served = LatencyFigures::new(100, 100, seconds);
        assert_eq!((served.p50, served.p99, served.max), (0.05, 0.099, 0.1));
        let most = LatencyFigures::new(100, 99, seconds);
        assert_eq!((most.p50, most.p99, most.max), (0.05, 0.099, f64::INFINITY));
        let few = LatencyFigures::new(100, 2, seconds);
        assert_eq!((few.p50, few.p99), (f64::INFINITY, f64::INFINITY));
        assert_eq!(
            LatencyFigures::new(0, 0, seconds),
            LatencyFigures::default()
        );
    }

    #[test]
    fn a_latency_without_a_request_is_not_known() {
        let silent = ClientFigures {
            requests: 0,
            ..client("a", 1.0, 0)
        };
        assert_eq!(silent.value(Measure::P99), None);
        assert_eq!(silent.value(Measure::Errors), Some(0.0));
    }
}
