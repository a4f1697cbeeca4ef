//! A report as text.

use std::io::{self, Write};

use super::{RunReport, VariantReport};
use crate::{scenario::expectation::Measure, verdict::ExpectationOutcome};

/// Writes `report` for people.
pub(crate) fn write_text(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    let verdict = if report.passed { "PASSED" } else { "FAILED" };
    writeln!(out, "{verdict}: {} ({})", report.title, report.scenario)?;
    if let Some(headline) = &report.headline {
        writeln!(out, "{headline}")?;
    }
    writeln!(out)?;
    for judgement in &report.expectations {
        let mark = match judgement.outcome {
            ExpectationOutcome::Holds => "ok     ",
            ExpectationOutcome::Fails => "FAILED ",
            ExpectationOutcome::Unknown => "unknown",
        };
        writeln!(
            out,
            "{mark} {}: {}",
            judgement.expectation, judgement.detail
        )?;
    }
    match report.holds_without_fairness {
        Some(true) => writeln!(
            out,
            "(All of this holds without fairness, too, so it proves nothing.)"
        )?,
        Some(false) => writeln!(out, "(Without fairness this would fail.)")?,
        None => {}
    }
    for failure in &report.failures {
        writeln!(out, "FAILED  {failure}")?;
    }
    for variant in &report.variants {
        write_variant(variant, report.rounds, out)?;
    }
    if !report.remarks.is_empty() {
        writeln!(out)?;
    }
    for remark in &report.remarks {
        writeln!(out, "Note: {remark}.")?;
    }
    Ok(())
}

fn write_variant(variant: &VariantReport, rounds: u32, out: &mut dyn Write) -> io::Result<()> {
    let width = variant
        .clients
        .iter()
        .map(|client| client.name.len())
        .max()
        .unwrap_or(0)
        .max(10);
    writeln!(
        out,
        "\n{:<width$} {:>9} {:>9} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        variant.name,
        "REQUESTS",
        "OK",
        "REFUSED",
        "ERRORS",
        "RATE/s",
        "P50",
        "P99",
        "P99.9",
        "MAX",
        "SHARE",
        "IDEAL"
    )?;
    for client in &variant.clients {
        let latency = |measure| {
            client
                .value(measure)
                .map_or_else(|| "-".to_owned(), |value| measure.written(value))
        };
        writeln!(
            out,
            "{:<width$} {:>9} {:>9} {:>8} {:>7} {:>9.1} {:>9} {:>9} {:>9} {:>9} {:>8.2} {:>8.2}",
            client.name,
            client.requests,
            client.ok,
            client.refused,
            client.errors,
            client.rate,
            latency(Measure::P50),
            latency(Measure::P99),
            latency(Measure::P999),
            latency(Measure::Max),
            client.share,
            client.ideal_share,
        )?;
    }
    write_notes(variant, rounds, out)
}

/// What does not fit the table: costs, spread, errors.
fn write_notes(variant: &VariantReport, rounds: u32, out: &mut dyn Write) -> io::Result<()> {
    if let (Some(cpu), Some(memory)) = (variant.cpu_micros_per_response, variant.resident_mib) {
        writeln!(
            out,
            "its process: {cpu:.1} us of CPU time for each response, {memory:.0} MiB"
        )?;
    }
    if rounds > 1 {
        let spread =
            variant
                .clients
                .iter()
                .zip(&variant.p99_spread)
                .map(|(client, (least, most))| {
                    let written = |seconds| Measure::P99.written(seconds);
                    format!("{} {} to {}", client.name, written(*least), written(*most))
                });
        let spread: Vec<String> = spread.collect();
        writeln!(out, "p99 over {rounds} rounds: {}", spread.join(", "))?;
    }
    for client in &variant.clients {
        if let Some(error) = &client.last_error {
            writeln!(out, "{}: last error: {error}", client.name)?;
        }
    }
    Ok(())
}
