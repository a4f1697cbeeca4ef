//! The results: figures of each flow, and a verdict.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use serde::Serialize;

use super::{comparison::DemoComparison, flow::DemoFlow};
use fairgate_core::fairness::{jain_index, max_min_shares};
use fairgate_core::sync::Arc;

/// The factor by which fairness should shorten the latency of the mice.
const TENFOLD: f64 = 10.0;
/// Stalls of the machine are reported if they last at least this long.
const LONG_STALL: Duration = Duration::from_millis(50);
/// A Jain's index of at least this counts as fair.
const EVEN: f64 = 0.95;

/// The results of both sides. As JSON `{"with": {"flows": […], "jain": x}, "without": {…}}`, of a fleet with
/// `"comparison": {"kind": "fleet", "gateways": 3}`; as text a table and a verdict.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// What the two sides are.
    #[serde(skip_serializing_if = "DemoComparison::is_of_fairness")]
    pub comparison: DemoComparison,
    /// With fairness, or with a fleet.
    pub with: SideFigures,
    /// With one queue for all, or with seats divided evenly among gateways.
    pub without: SideFigures,
    /// Whether it was stopped early.
    #[serde(skip)]
    pub interrupted: bool,
    /// The period whose requests are counted.
    #[serde(skip)]
    pub measured: Duration,
    /// The longest time for which the machine did not run this process.
    #[serde(skip)]
    pub stalled: Duration,
}

/// The results of one side.
#[derive(Clone, Debug, Serialize)]
pub struct SideFigures {
    /// The elephant first, then the mice.
    pub flows: Vec<FlowFigures>,
    /// Jain's index over each flow's served part of its max-min fair share, for all flows with a demand;
    /// `None` if nothing was served.
    pub jain: Option<f64>,
    /// The maximum of concurrent requests at the upstream.
    #[serde(skip)]
    pub most_upstream: usize,
}

/// The results of one flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowFigures {
    /// The user; begins with `elephant` or `mouse`.
    pub name: String,
    /// Counted requests.
    pub requests: u64,
    /// Of these, those that succeeded.
    pub ok: u64,
    /// Those that were rejected with 429.
    pub rejected: u64,
    /// Median latency in milliseconds of those that succeeded, from the intended moment of sending to the
    /// end of the response; `None` if none did.
    pub p50_ms: Option<f64>,
    /// The same for the 99th percentile, by nearest rank.
    pub p99_ms: Option<f64>,
    /// The 99th percentile of all counted requests, of which those without success are infinitely long. A server that serves some
    /// of a flow's requests at once and refuses the others is not fast. `None` if none were counted.
    #[serde(skip)]
    pub p99_of_all_ms: Option<f64>,
    /// Requests that were neither served nor rejected.
    #[serde(skip)]
    pub failed: u64,
    /// The last error.
    #[serde(skip)]
    pub failure: Option<String>,
}

impl SideFigures {
    /// The results of `flows`, the elephant first, for the requests of the period `measured`.
    pub(super) fn of(
        flows: &[Arc<DemoFlow>],
        most_upstream: usize,
        measured: Duration,
        comparison: DemoComparison,
    ) -> Self {
        let flows: Vec<FlowFigures> = flows.iter().map(|flow| FlowFigures::of(flow)).collect();
        Self {
            jain: jain_of(&flows, measured, comparison),
            flows,
            most_upstream,
        }
    }

    fn elephant(&self) -> Option<&FlowFigures> {
        self.flows.iter().find(|flow| flow.is_elephant())
    }

    /// The largest 99th percentile of all requests of the mice.
    fn mice_p99_ms(&self) -> Option<f64> {
        let mice = self.flows.iter().filter(|flow| !flow.is_elephant());
        mice.filter_map(|flow| flow.p99_of_all_ms).reduce(f64::max)
    }
}

impl FlowFigures {
    fn of(flow: &DemoFlow) -> Self {
        let mut tally = flow.tally();
        Self {
            name: flow.name().to_owned(),
            requests: tally.requests,
            ok: tally.ok,
            rejected: tally.rejected,
            p50_ms: tally.latency(50).map(tenths_of_ms),
            p99_ms: tally.latency(99).map(tenths_of_ms),
            p99_of_all_ms: tally.latency_of_all(99).map(tenths_of_ms),
            failed: tally.failed(),
            failure: tally.failure,
        }
    }

    fn is_elephant(&self) -> bool {
        self.name.starts_with("elephant")
    }

    fn cells(&self) -> String {
        format!(
            "{:>6}{:>6}{:>5}{:>8}{:>8}",
            self.requests,
            self.ok,
            self.rejected,
            or_dash(self.p50_ms),
            or_dash(self.p99_ms),
        )
    }
}

/// Jain's index over the served part of each flow's max-min fair share. The elephant's demand is unbounded, and so is that of a mouse
/// that asks for more than its share; that of others is the number of their requests.
fn jain_of(flows: &[FlowFigures], measured: Duration, comparison: DemoComparison) -> Option<f64> {
    let server = comparison.server();
    let capacity =
        f64::from(server.workers) * measured.as_secs_f64() / server.service_time.as_secs_f64();
    let demand = |flow: &FlowFigures| {
        if flow.is_elephant() || comparison.mouse_connections().is_some() {
            f64::INFINITY
        } else {
            count(flow.requests)
        }
    };
    let demands: Vec<f64> = flows.iter().map(demand).collect();
    let shares = max_min_shares(&demands, capacity);
    let of_share = flows.iter().zip(shares);
    jain_index(
        of_share
            .filter(|(_, share)| *share > 0.0)
            .map(|(flow, share)| count(flow.ok) / share),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a run makes far fewer requests than 2^52"
)]
fn count(number: u64) -> f64 {
    number as f64
}

/// Infinite for [`Duration::MAX`].
fn tenths_of_ms(time: Duration) -> f64 {
    if time == Duration::MAX {
        return f64::INFINITY;
    }
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

/// The text with a capital letter.
fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at_checked(1).unwrap_or_default();
    first.to_ascii_uppercase() + rest
}

fn or_dash(ms: Option<f64>) -> String {
    ms.map_or("-".to_owned(), |ms| format!("{ms:.0}"))
}

/// A 99th percentile in words.
fn in_words(ms: f64) -> String {
    if ms.is_finite() {
        format!("{ms:.0} ms")
    } else {
        "infinite, as requests were refused or failed,".to_owned()
    }
}

impl Display for DemoReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let head = format!(
            "{:>6}{:>6}{:>5}{:>8}{:>8}",
            "ASKED", "OK", "429", "P50 ms", "P99 ms"
        );
        let [with, without] = self.comparison.headings();
        writeln!(f, "{:<11}{with:<33}  {without}", "")?;
        writeln!(f, "{:<11}{head}  {head}", "")?;
        for (with, without) in self.with.flows.iter().zip(&self.without.flows) {
            writeln!(f, "{:<11}{}  {}", with.name, with.cells(), without.cells())?;
        }
        writeln!(f)?;
        if self.interrupted {
            writeln!(
                f,
                "Interrupted: results of the first {:.0} s.",
                self.measured.as_secs_f64()
            )?;
        }
        match self.comparison {
            DemoComparison::Fairness => {
                self.write_latency(f)?;
                self.write_shares(f)?;
            }
            DemoComparison::Fleet { .. } => self.write_fleet(f)?,
        }
        self.write_warnings(f)
    }
}

impl DemoReport {
    /// How many times longer the slowest mouse waits without fairness than with it.
    fn gain(&self) -> Option<f64> {
        Some(self.without.mice_p99_ms()? / self.with.mice_p99_ms()?)
    }

    fn write_latency(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Some(with), Some(without), Some(gain)) = (
            self.with.mice_p99_ms(),
            self.without.mice_p99_ms(),
            self.gain(),
        ) else {
            return writeln!(f, "It ended before there were results to compare.");
        };
        let verdict = if gain >= TENFOLD {
            "Fairness keeps the mice out of the elephant's queue."
        } else if gain > 1.0 {
            "Fairness helps the mice, but less than tenfold."
        } else {
            "Fairness did not help the mice."
        };
        let times = if gain.is_finite() && gain > 0.0 {
            format!(": {gain:.1} times as long")
        } else {
            String::new()
        };
        writeln!(
            f,
            "{verdict}\n\
             The slowest mouse's p99 is {} with it and {} without{times}.\n\
             Each request takes about {} ms to serve; the rest is waiting.",
            in_words(with),
            in_words(without),
            self.comparison.server().service_time.as_millis()
        )
    }

    fn write_shares(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Some(with), Some(without)) = (self.with.jain, self.without.jain) else {
            return Ok(());
        };
        let rate = |side: &SideFigures| {
            let ok = side.elephant().map_or(0, |elephant| elephant.ok);
            count(ok) / self.measured.as_secs_f64()
        };
        writeln!(
            f,
            "The elephant is served {:.0} requests a second with it, {:.0} without.",
            rate(&self.with),
            rate(&self.without),
        )?;
        write!(
            f,
            "Jain's fairness index over the flows' fair shares is {with:.3} with it, {without:.3} \
             without"
        )?;
        match (with >= EVEN, without >= EVEN) {
            (true, true) => writeln!(
                f,
                ":\nboth serve all flows, but only without fairness the mice wait."
            ),
            (true, false) => writeln!(f, "."),
            (false, _) => writeln!(f, ":\nless fair than expected."),
        }
    }

    /// The verdict on a fleet: what each user is served, and how long the mice wait.
    fn write_fleet(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sides = [&self.with, &self.without];
        let [Some(jain), Some(jain_without)] = sides.map(|side| side.jain) else {
            return writeln!(f, "It ended before there were results to compare.");
        };
        let verdict = if jain <= jain_without {
            "The fleet did not make the shares more even."
        } else if jain >= EVEN {
            "With the fleet every user gets one share, wherever its clients connect."
        } else {
            "The fleet makes the shares more even, but less than expected."
        };
        let rate = |ok: u64| count(ok) / self.measured.as_secs_f64();
        let elephant = |side: &SideFigures| rate(side.elephant().map_or(0, |flow| flow.ok));
        let least = |side: &SideFigures| {
            let mice = side.flows.iter().filter(|flow| !flow.is_elephant());
            rate(mice.map(|flow| flow.ok).min().unwrap_or(0))
        };
        let [elephants, mice] = [sides.map(elephant), sides.map(least)];
        let waits = sides.map(|side| side.mice_p99_ms().map_or("unknown".to_owned(), in_words));
        writeln!(
            f,
            "{verdict}\n\
             The elephant is served {:.0} requests a second with it, {:.0} without;\n\
             the mouse that is served least {:.0} with it, {:.0} without.\n\
             The slowest mouse's p99 is {} with it and {} without.\n\
             Each request takes about {} ms to serve; the rest is waiting.\n\
             Jain's fairness index over the users' shares is {jain:.3} with it, {jain_without:.3} without.",
            elephants[0],
            elephants[1],
            mice[0],
            mice[1],
            waits[0],
            waits[1],
            self.comparison.server().service_time.as_millis()
        )
    }

    fn write_warnings(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.stalled >= LONG_STALL {
            writeln!(
                f,
                "The machine was busy and kept programs waiting for up to {} ms; that is in all \
                 figures.",
                self.stalled.as_millis()
            )?;
        }
        let names = self.comparison.sides().map(capitalized);
        for (name, side) in names.iter().zip([&self.with, &self.without]) {
            let failed: u64 = side.flows.iter().map(|flow| flow.failed).sum();
            if failed > 0 {
                let failure = side.flows.iter().find_map(|flow| flow.failure.as_deref());
                let failure = failure.unwrap_or("no response in time");
                writeln!(f, "{name} {failed} requests failed: {failure}.")?;
            }
            let workers = self.comparison.server().workers;
            if side.most_upstream > workers as usize {
                writeln!(
                    f,
                    "{name} {} requests were at the server at once, of {workers} allowed.",
                    side.most_upstream
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(name: &str, requests: u64, ok: u64, p99_ms: f64) -> FlowFigures {
        let is_served = (requests * 99).div_ceil(100) <= ok;
        FlowFigures {
            name: name.to_owned(),
            requests,
            ok,
            rejected: requests - ok,
            p50_ms: Some(p99_ms / 2.0),
            p99_ms: Some(p99_ms),
            p99_of_all_ms: Some(if is_served { p99_ms } else { f64::INFINITY }),
            failed: 0,
            failure: None,
        }
    }

    /// A side of ten seconds with one mouse.
    fn side(elephant_ok: u64, mouse_ok: u64, mouse_p99_ms: f64) -> SideFigures {
        let flows = vec![
            flow("elephant", elephant_ok, elephant_ok, 1000.0),
            flow("mouse-1", 20, mouse_ok, mouse_p99_ms),
        ];
        SideFigures {
            jain: jain_of(&flows, Duration::from_secs(10), DemoComparison::Fairness),
            flows,
            most_upstream: 10,
        }
    }

    fn report(with: SideFigures, without: SideFigures) -> DemoReport {
        DemoReport {
            comparison: DemoComparison::Fairness,
            with,
            without,
            interrupted: false,
            measured: Duration::from_secs(10),
            stalled: Duration::ZERO,
        }
    }

    #[test]
    fn jains_index_is_over_served_parts_of_fair_shares() {
        // 200 a second for 10 s: 20 for the mouse, which sends no more, and 1980 for the elephant.
        let jain = |elephant_ok, mouse_ok| side(elephant_ok, mouse_ok, 60.0).jain.unwrap();
        assert!((jain(1980, 20) - 1.0).abs() < 1e-9);
        assert!((jain(990, 10) - 1.0).abs() < 1e-9);
        assert!((jain(1980, 0) - 0.5).abs() < 1e-9);
        assert!((jain(1980, 10) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn json_has_the_agreed_keys_and_no_others() {
        let json = serde_json::to_value(report(side(1980, 20, 60.0), side(1980, 20, 900.0)));
        let flow = serde_json::json!({
            "name": "mouse-1", "requests": 20, "ok": 20, "rejected": 0, "p50_ms": 450.0, "p99_ms": 900.0,
        });
        let json = json.unwrap();
        assert_eq!(json["without"]["flows"][1], flow);
        assert!(json["with"]["jain"].is_f64());
        let keys = |value: &serde_json::Value| value.as_object().unwrap().len();
        assert_eq!((keys(&json), keys(&json["with"])), (2, 2));
        let of_fleet = DemoReport {
            comparison: DemoComparison::of_gateways(3),
            ..report(side(1980, 20, 60.0), side(1980, 20, 900.0))
        };
        let json = serde_json::to_value(of_fleet).unwrap();
        let comparison = serde_json::json!({"kind": "fleet", "gateways": 3});
        assert_eq!((&json["comparison"], keys(&json)), (&comparison, 3));
    }

    #[test]
    fn the_verdict_says_by_how_much_the_mice_are_faster() {
        let text = report(side(1950, 20, 60.0), side(1950, 20, 900.0)).to_string();
        assert!(text.contains("keeps the mice out"), "{text}");
        assert!(text.contains("both serve all flows"), "{text}");
        assert!(text.contains("15.0 times as long"), "{text}");
        assert!(text.contains("served 195 requests a second"), "{text}");
    }

    #[test]
    fn the_verdict_does_not_claim_what_is_not_so() {
        let text = report(side(1950, 20, 300.0), side(1950, 20, 900.0)).to_string();
        assert!(text.contains("less than tenfold"), "{text}");
        let text = report(side(1950, 2, 900.0), side(1950, 20, 300.0)).to_string();
        assert!(text.contains("did not help"), "{text}");
        assert!(text.contains("less fair than expected"), "{text}");
    }

    #[test]
    fn refused_requests_of_mice_are_not_fast_ones() {
        let text = report(side(1950, 5, 60.0), side(1950, 20, 900.0)).to_string();
        assert!(text.contains("did not help"), "{text}");
        assert!(
            text.contains("infinite, as requests were refused or failed, with it and 900 ms"),
            "{text}"
        );
        assert!(!text.contains("times as long"), "{text}");
        let text = report(side(1950, 5, 60.0), side(1950, 5, 900.0)).to_string();
        assert!(text.contains("did not help"), "{text}");
        let text = report(side(1950, 20, 60.0), side(1950, 5, 900.0)).to_string();
        assert!(text.contains("keeps the mice out"), "{text}");
        assert!(text.contains("p99 is 60 ms with it and infinite"), "{text}");
    }

    #[test]
    fn failures_are_reported() {
        let mut with = side(1950, 20, 60.0);
        with.flows[0].failed = 3;
        with.flows[0].failure = Some("response 502 Bad Gateway".to_owned());
        with.most_upstream = 12;
        let mut report = report(with, side(1950, 20, 900.0));
        assert!(!report.to_string().contains("busy"), "{report}");
        report.stalled = Duration::from_millis(300);
        let text = report.to_string();
        assert!(text.contains("up to 300 ms"), "{text}");
        assert!(
            text.contains("3 requests failed: response 502 Bad Gateway"),
            "{text}"
        );
        assert!(text.contains("12 requests were at the server"), "{text}");
    }

    const FLEET: DemoComparison = DemoComparison::Fleet { gateways: 3 };

    /// A side of ten seconds in which one mouse asks for more than its share.
    fn hungry(elephant_ok: u64, mouse_ok: u64, mouse_p99_ms: f64) -> SideFigures {
        let flows = vec![
            flow("elephant", elephant_ok, elephant_ok, 1000.0),
            flow("mouse-1", mouse_ok, mouse_ok, mouse_p99_ms),
        ];
        SideFigures {
            jain: jain_of(&flows, Duration::from_secs(10), FLEET),
            flows,
            most_upstream: 10,
        }
    }

    #[test]
    fn the_verdict_on_a_fleet_says_what_each_user_is_served() {
        let fleet = |with, without| DemoReport {
            comparison: FLEET,
            ..report(with, without)
        };
        let text = fleet(hungry(1000, 990, 110.0), hungry(1700, 290, 320.0)).to_string();
        for part in [
            "every user gets one share",
            "served 100 requests a second with it, 170 without",
            "least 99 with it, 29 without",
            "p99 is 110 ms with it and 320 ms without",
            "is 1.000 with it, 0.666 without",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = fleet(hungry(1700, 290, 320.0), hungry(1000, 990, 110.0)).to_string();
        assert!(text.contains("did not make the shares more even"), "{text}");
        let text = fleet(hungry(1400, 500, 320.0), hungry(1700, 290, 110.0)).to_string();
        assert!(text.contains("less than expected"), "{text}");
    }
}
