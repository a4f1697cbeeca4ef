//! A report as text.

use std::io::{self, Write};

use super::{
    RunReport, VariantReport,
    table::{HEADINGS, notes, row},
};
use crate::verdict::ExpectationOutcome;

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
        write_variant(variant, out)?;
    }
    if !report.ratios.is_empty() {
        writeln!(out)?;
    }
    for ratios in &report.ratios {
        writeln!(out, "{}", ratios.written())?;
    }
    if !report.remarks.is_empty() {
        writeln!(out)?;
    }
    for remark in &report.remarks {
        writeln!(out, "Note: {remark}.")?;
    }
    Ok(())
}

fn write_variant(variant: &VariantReport, out: &mut dyn Write) -> io::Result<()> {
    let mut headings = HEADINGS.map(str::to_uppercase);
    headings[0].clone_from(&variant.name);
    let rows: Vec<_> = variant.clients.iter().map(row).collect();
    let names = rows.iter().map(|row| row[0].len());
    let width = names.max().unwrap_or(0).max(variant.name.len()).max(10);
    writeln!(out)?;
    write_row(&headings, width, out)?;
    for row in &rows {
        write_row(row, width, out)?;
    }
    for note in notes(variant) {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn write_row(cells: &[String; 12], width: usize, out: &mut dyn Write) -> io::Result<()> {
    let [name, figures @ ..] = cells;
    write!(out, "{name:<width$}")?;
    for figure in figures {
        write!(out, " {figure:>9}")?;
    }
    writeln!(out)
}
