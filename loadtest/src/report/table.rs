//! The figures of a variant as rows and sentences, which all formats of a report show.

use super::VariantReport;
use crate::{figures::ClientFigures, scenario::expectation::Measure};

/// The headings of the columns; the first is that of the client's name.
pub(super) const HEADINGS: [&str; 12] = [
    "client", "requests", "ok", "refused", "errors", "ok/s", "p50", "p99", "p99.9", "max", "share",
    "ideal",
];

/// Of a machine with more processors, those after the first ones are not shown.
const MOST_PROCESSORS: usize = 8;

/// The cells of a client's row. A latency is a dash if no request was measured.
pub(super) fn row(client: &ClientFigures) -> [String; 12] {
    let latency = |measure: Measure| {
        let value = client.value(measure);
        value.map_or_else(|| "-".to_owned(), |value| measure.written(value))
    };
    [
        client.name.clone(),
        client.requests.to_string(),
        client.ok.to_string(),
        client.refused.to_string(),
        client.errors.to_string(),
        format!("{:.1}", client.rate),
        latency(Measure::P50),
        latency(Measure::P99),
        latency(Measure::P999),
        latency(Measure::Max),
        format!("{:.2}", client.share),
        format!("{:.2}", client.ideal_share),
    ]
}

/// What does not fit the table: costs, spread over the slices, the peak at the server, errors.
pub(super) fn notes(variant: &VariantReport) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(cpu), Some(memory)) = (variant.cpu_micros_per_response, variant.memory) {
        let (mib, kind) = (memory.bytes >> 20, memory.kind.name());
        let events = variant.clients.iter().any(|client| client.events > 0);
        let each = if events {
            "response and event"
        } else {
            "response"
        };
        notes.push(format!(
            "The process used {cpu:.1} us of CPU time for each {each}, and {mib} MiB of memory ({kind})."
        ));
    }
    if let (Some(busy), false) = (variant.busy_processors, variant.idle_processors.is_empty()) {
        let parts = variant.idle_processors.iter().take(MOST_PROCESSORS);
        let parts: Vec<String> = parts.map(|part| format!("{:.0} %", part * 100.0)).collect();
        let (busy, idle) = (busy * 100.0, parts.join(", "));
        notes.push(format!(
            "It ran for {busy:.0} % of the time. Processors were idle: {idle}."
        ));
    }
    for client in variant.clients.iter().filter(|client| client.events > 0) {
        let (name, events) = (&client.name, client.events);
        notes.push(format!("{name}: {events} events of watches."));
    }
    if let Some(peak) = variant.upstream_peak {
        notes.push(format!(
            "At most {peak} requests were at the server at once."
        ));
    }
    if variant.slices > 1 {
        let spreads = variant.clients.iter().zip(&variant.p99_spread);
        let spreads = spreads.filter(|(client, _)| client.requests > 0);
        let spreads = spreads.map(|(client, (least, most))| {
            let [least, most] = [*least, *most].map(|seconds| Measure::P99.written(seconds));
            format!("{} {least} to {most}", client.name)
        });
        let spreads: Vec<String> = spreads.collect();
        if !spreads.is_empty() {
            let (slices, spreads) = (variant.slices, spreads.join(", "));
            notes.push(format!("p99 over {slices} slices: {spreads}."));
        }
    }
    for client in &variant.clients {
        if let Some(error) = &client.last_error {
            notes.push(format!("{}: last error: {error}", client.name));
        }
    }
    notes
}
