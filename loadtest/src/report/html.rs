//! A report as one page that needs nothing else: plots are part of it.

use std::fmt::Write as _;

use super::{
    RunReport, VariantReport,
    plot::ReportPlot,
    table::{HEADINGS, notes, row},
};
use crate::verdict::ExpectationOutcome;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 900px; margin: 2em auto; padding: 0 1em; }
h1 { margin-bottom: 0; } h2 { margin-top: 2em; } .scenario { color: #666; margin-top: 0; }
.verdict { font-size: 1.3em; font-weight: 600; padding: .4em .8em; border-radius: 6px; color: #fff; display: inline-block; }
.passed { background: #00785a; } .failed { background: #b33900; } .headline { font-size: 1.15em; }
table { border-collapse: collapse; margin: .5em 0; } th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } td.l { text-align: left; }
.holds { color: #00785a; } .fails { color: #b33900; font-weight: 600; } .unknown { color: #777; }
figure { margin: 1.2em 0; } figcaption { font-weight: 600; } svg { max-width: 100%; height: auto; }
";

/// The page.
pub(super) fn page(report: &RunReport, plots: &[ReportPlot]) -> String {
    let mut page = String::new();
    let title = escaped(&report.title);
    let (class, verdict) = if report.passed {
        ("passed", "Passed")
    } else {
        ("failed", "Failed")
    };
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p class=\"scenario\">{}, measured for {:.0} s, {} \
         round(s)</p>\n<p class=\"verdict {class}\">{verdict}</p>\n",
        escaped(&report.scenario),
        report.seconds,
        report.rounds
    );
    if let Some(headline) = &report.headline {
        let _ = writeln!(page, "<p class=\"headline\">{}</p>", escaped(headline));
    }
    let _ = writeln!(page, "<p>{}</p>", escaped(&report.about));
    expectations(&mut page, report);
    for variant in &report.variants {
        figures(&mut page, variant);
    }
    if !report.ratios.is_empty() {
        page += "<h2>Ratios</h2>\n";
    }
    for ratios in &report.ratios {
        let _ = writeln!(page, "<p>{}</p>", escaped(&ratios.written()));
    }
    if !report.remarks.is_empty() {
        page += "<h2>Notes</h2>\n<ul>";
        for remark in &report.remarks {
            let _ = write!(page, "<li>{}.</li>", escaped(remark));
        }
        page += "</ul>\n";
    }
    page += "<h2>Plots</h2>\n";
    for plot in plots {
        let _ = writeln!(
            page,
            "<figure><figcaption>{}</figcaption>\n{}</figure>",
            escaped(&plot.title),
            plot.svg
        );
    }
    page + "</body></html>\n"
}

fn expectations(page: &mut String, report: &RunReport) {
    *page += "<h2>Expectations</h2>\n<table>";
    for judgement in &report.expectations {
        let (class, word) = match judgement.outcome {
            ExpectationOutcome::Holds => ("holds", "holds"),
            ExpectationOutcome::Fails => ("fails", "fails"),
            ExpectationOutcome::Unknown => ("unknown", "unknown"),
        };
        let _ = write!(
            page,
            "<tr><td><code>{}</code></td><td class=\"{class}\">{word}</td><td class=\"l\">{}</td></tr>",
            escaped(&judgement.expectation),
            escaped(&judgement.detail)
        );
    }
    *page += "</table>\n";
    *page += match report.holds_without_fairness {
        Some(true) => "<p>All of this holds without fairness, too, so it proves nothing.</p>\n",
        Some(false) => "<p>Without fairness this would fail.</p>\n",
        None => "",
    };
    for failure in &report.failures {
        let _ = writeln!(page, "<p class=\"fails\">{}</p>", escaped(failure));
    }
}

fn figures(page: &mut String, variant: &VariantReport) {
    let _ = write!(page, "<h2>{}</h2>\n<table>", escaped(&variant.name));
    write_row(page, "th", &HEADINGS);
    for client in &variant.clients {
        write_row(page, "td", &row(client));
    }
    *page += "</table>\n";
    for note in notes(variant) {
        let _ = writeln!(page, "<p>{}</p>", escaped(&note));
    }
}

/// A row of a table, whose cells are elements of the name `element`.
fn write_row(page: &mut String, element: &str, cells: &[impl AsRef<str>]) {
    *page += "<tr>";
    for cell in cells {
        let _ = write!(page, "<{element}>{}</{element}>", escaped(cell.as_ref()));
    }
    *page += "</tr>";
}

/// Text in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_scenarios_and_servers_is_escaped() {
        assert_eq!(escaped("<b a=\"x\">&"), "&lt;b a=&quot;x&quot;&gt;&amp;");
    }
}
