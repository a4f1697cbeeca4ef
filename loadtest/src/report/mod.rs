//! Reports: the verdict first, the figures after; as text, JSON, and a page with plots.

mod html;
mod plot;
mod ratio;
mod table;
mod text;

use std::{io, path::Path};

use serde::Serialize;

use crate::{
    figures::{self, ClientFigures},
    load::{ClientSeries, SliceResult, gateway_metrics::LevelSample},
    process::ProcessMemory,
    scenario::{Scenario, expectation::Measure},
    verdict::{self, Evidence, Judgement},
};

pub(crate) use ratio::TargetRatios;
pub(crate) use text::write_text;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunReport {
    pub(crate) scenario: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// Whether every expectation holds that can be known.
    pub(crate) passed: bool,
    /// The most important figure in one sentence.
    pub(crate) headline: Option<String>,
    pub(crate) expectations: Vec<Judgement>,
    /// Whether the expectations hold without fairness, too, and so prove nothing; `None` if that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holds_without_fairness: Option<bool>,
    /// The measurements; the one that is judged comes first.
    pub(crate) variants: Vec<VariantReport>,
    /// The first target beside each other one, where targets are compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ratios: Vec<TargetRatios>,
    /// The events that did not happen during the run; with any, the run has not passed.
    pub(crate) failures: Vec<String>,
    /// Remarks for the reader.
    pub(crate) remarks: Vec<String>,
    /// Measured seconds of each slice.
    pub(crate) seconds: f64,
    /// Slices of each variant.
    pub(crate) rounds: u32,
}

/// The results of all clients against one target, or under one setting.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VariantReport {
    pub(crate) name: String,
    /// Medians over the slices; counts are sums.
    pub(crate) clients: Vec<ClientFigures>,
    /// How many slices were measured.
    pub(crate) slices: usize,
    /// Least and greatest p99 of each client over the slices, in seconds.
    pub(crate) p99_spread: Vec<(f64, f64)>,
    /// The most requests at the stand-in server at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_peak: Option<usize>,
    /// CPU time of the process for each response, refusals included, and for each event of a watch; the median over the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_micros_per_response: Option<f64>,
    /// The processors that the process kept busy, on average; the median over the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busy_processors: Option<f64>,
    /// The part of the time in which each processor of this machine was idle; medians over the rounds.
    pub(crate) idle_processors: Vec<f64>,
    /// Memory of the process at the end of the last round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<ProcessMemory>,
    /// The last round over time.
    pub(crate) series: Vec<ClientSeries>,
    pub(crate) levels: Vec<LevelSample>,
}

impl VariantReport {
    /// The results of `slices`.
    pub(crate) fn of(
        name: impl Into<String>,
        slices: &[SliceResult],
        upstream_peak: Option<usize>,
    ) -> Self {
        let clients = crate::measure::medians(slices);
        let spread = (0..clients.len()).map(|index| {
            let p99s = slices.iter().filter_map(|slice| slice.clients.get(index));
            let p99s: Vec<f64> = p99s
                .filter_map(|client| client.value(Measure::P99))
                .collect();
            let least = p99s.iter().copied().fold(f64::INFINITY, f64::min);
            (
                if p99s.is_empty() { 0.0 } else { least },
                p99s.iter().copied().fold(0.0, f64::max),
            )
        });
        let last = slices.last();
        let costs: Vec<f64> = slices.iter().filter_map(cpu_per_response).collect();
        let busy = slices.iter().filter_map(|slice| slice.process);
        let busy: Vec<f64> = busy.map(|process| process.busy).collect();
        let process = last.and_then(|slice| slice.process);
        Self {
            name: name.into(),
            slices: slices.len(),
            p99_spread: spread.collect(),
            clients,
            upstream_peak,
            cpu_micros_per_response: (!costs.is_empty()).then(|| figures::median(costs) * 1e6),
            busy_processors: (!busy.is_empty()).then(|| figures::median(busy)),
            idle_processors: idle_processors(slices),
            memory: process.map(|process| process.memory),
            series: last.map(|slice| slice.series.clone()).unwrap_or_default(),
            levels: last.map(|slice| slice.levels.clone()).unwrap_or_default(),
        }
    }
}

impl RunReport {
    /// Judges `evidence` by what `scenario` expects.
    pub(crate) fn new(
        scenario: &Scenario,
        evidence: &Evidence,
        variants: Vec<VariantReport>,
        (remarks, failures): (Vec<String>, Vec<String>),
        rounds: u32,
        names: [&str; 2],
    ) -> Self {
        let expectations = verdict::judge(&scenario.expect, evidence);
        let holds_without_fairness = evidence.without.clone().map(|clients| {
            let without = Evidence {
                clients,
                ..evidence.clone()
            };
            verdict::holds(&verdict::judge(&scenario.expect, &without))
        });
        Self {
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            about: scenario.about.clone(),
            passed: failures.is_empty() && verdict::holds(&expectations),
            headline: headline(scenario, evidence, names),
            expectations,
            holds_without_fairness,
            variants,
            ratios: Vec::new(),
            failures,
            remarks,
            seconds: scenario.duration.as_secs_f64(),
            rounds,
        }
    }

    /// Writes `report.html`, `report.json`, `report.txt` and the plots as SVG to `directory`, which is created.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub(crate) fn write_to(&self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let plots = plot::plots(self);
        for plot in &plots {
            std::fs::write(directory.join(format!("{}.svg", plot.name)), &plot.svg)?;
        }
        std::fs::write(directory.join("report.html"), html::page(self, &plots))?;
        std::fs::write(
            directory.join("report.json"),
            serde_json::to_vec_pretty(self)?,
        )?;
        let mut text = Vec::new();
        write_text(self, &mut text)?;
        std::fs::write(directory.join("report.txt"), text)
    }
}

/// The idle part of each processor, the median over the slices.
fn idle_processors(slices: &[SliceResult]) -> Vec<f64> {
    let processors = slices.iter().map(|slice| slice.idle.len());
    let medians = (0..processors.min().unwrap_or(0)).map(|index| {
        let parts = slices.iter().map(|slice| slice.idle[index]);
        figures::median(parts.collect())
    });
    medians.collect()
}

/// Seconds of CPU time of the process for each response and each event of a watch; `None` if it was not measured.
fn cpu_per_response(slice: &SliceResult) -> Option<f64> {
    let responses: u64 = slice
        .clients
        .iter()
        .map(|client| client.ok + client.refused + client.retried + client.events)
        .sum();
    let process = slice.process.filter(|_| responses > 0)?;
    Some(process.cpu_seconds / figures::real(responses))
}

/// The first latency that is expected of a client, with fairness and without.
fn headline(
    scenario: &Scenario,
    evidence: &Evidence,
    [with_name, without_name]: [&str; 2],
) -> Option<String> {
    let (who, measure) = verdict::headline(&scenario.expect)?;
    let name = format!("{measure:?}").to_lowercase();
    let value = |clients: &[ClientFigures]| {
        let value = figures::value(clients, Some(who), measure);
        value.map_or_else(
            || "unknown (no request was measured)".to_owned(),
            |value| measure.written(value),
        )
    };
    let with = value(&evidence.clients);
    let Some(without) = &evidence.without else {
        return Some(format!("{who}: {name} {with}."));
    };
    let mut line = format!(
        "{who}: {name} {with} {with_name}, {} {without_name}",
        value(without)
    );
    if let Some(alone) = evidence.alone.get(who) {
        line = format!("{line}, {} alone", value(alone));
    }
    Some(line + ".")
}
