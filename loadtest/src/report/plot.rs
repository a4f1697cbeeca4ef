//! The plots of a report, as SVG.

use std::collections::BTreeSet;

use plotters::{
    coord::ranged1d::{IntoSegmentedCoord, SegmentValue},
    prelude::*,
};

use super::{RunReport, VariantReport};
use crate::{
    figures::{ClientFigures, real},
    load::gateway_metrics::LevelState,
};

const SIZE: (u32, u32) = (860, 320);

/// Colours that people with any colour vision can tell apart (M. Okabe and K. Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(0, 0, 0),
];

/// One plot.
#[derive(Clone, Debug)]
pub(super) struct ReportPlot {
    /// The name of its file, without extension.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) svg: String,
}

/// Points of one line.
struct PlotLine {
    name: String,
    points: Vec<(f64, f64)>,
}

/// The greatest values over all variants of what is drawn on one scale.
#[derive(Clone, Copy)]
struct PlotScales {
    milliseconds: f64,
    queued: f64,
    seats: f64,
}

/// The scale of the values, up to the greatest one.
#[derive(Clone, Copy)]
enum PlotScale {
    Linear(f64),
    Log(f64),
}

/// Selects the measured or the ideal share of a client.
type ShareOf = fn(&ClientFigures) -> f64;

type PlotResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// All plots for which there is data.
pub(super) fn plots(report: &RunReport) -> Vec<ReportPlot> {
    // Latencies, queues and seats of all variants on one scale each: their difference is what matters.
    let greatest = |lines: fn(&VariantReport) -> Vec<PlotLine>| {
        let lines = report.variants.iter().flat_map(lines);
        let values = lines.flat_map(|line| line.points).map(|(_, value)| value);
        values.fold(1.0, f64::max)
    };
    let scales = PlotScales {
        milliseconds: greatest(latency_lines),
        queued: greatest(queue_lines),
        seats: greatest(seat_lines),
    };
    let mut plots = Vec::new();
    for (number, variant) in (1..).zip(&report.variants) {
        plots.extend(plots_of(number, variant, report.seconds, scales));
    }
    if let Some(svg) = report.variants.first().and_then(shares) {
        let title = format!(
            "Shares of the seats against the ideal, {}",
            report.variants[0].name
        );
        plots.push(ReportPlot {
            name: "shares".to_owned(),
            title,
            svg,
        });
    }
    plots
}

/// The plots over time of one variant.
fn plots_of(
    number: u32,
    variant: &VariantReport,
    seconds: f64,
    scales: PlotScales,
) -> Vec<ReportPlot> {
    let rate = rate_lines(variant, seconds);
    let refusals = refusal_lines(variant, seconds);
    let (rate_scale, refusal_scale) = (scale_of(&rate), scale_of(&refusals));
    let kinds = [
        (
            "latency",
            "Latency (p99)",
            latency_lines(variant),
            "ms",
            PlotScale::Log(scales.milliseconds),
        ),
        ("rate", "Successful requests", rate, "1/s", rate_scale),
        (
            "refusals",
            "Refusals and errors",
            refusals,
            "1/s",
            refusal_scale,
        ),
        (
            "queues",
            "Waiting requests by level",
            queue_lines(variant),
            "requests",
            PlotScale::Linear(scales.queued),
        ),
        (
            "seats",
            "Seats in use by level",
            seat_lines(variant),
            "seats",
            PlotScale::Linear(scales.seats),
        ),
    ];
    let drawn = kinds
        .into_iter()
        .filter_map(|(kind, title, lines, unit, scale)| {
            Some(ReportPlot {
                name: format!("{number}-{kind}"),
                title: format!("{title}, {}", variant.name),
                svg: chart(&lines, seconds, unit, scale)?,
            })
        });
    drawn.collect()
}

/// The scale for `lines` alone.
fn scale_of(lines: &[PlotLine]) -> PlotScale {
    let points = lines.iter().flat_map(|line| &line.points);
    PlotScale::Linear(points.map(|(_, value)| *value).fold(0.0, f64::max))
}

fn queue_lines(variant: &VariantReport) -> Vec<PlotLine> {
    level_lines(variant, &|level| level.queued, "")
}

/// The seats in use of each level, and then its limit.
fn seat_lines(variant: &VariantReport) -> Vec<PlotLine> {
    let mut lines = level_lines(variant, &|level| level.seats, "");
    lines.extend(level_lines(variant, &|level| level.limit, ", limit"));
    lines
}

fn latency_lines(variant: &VariantReport) -> Vec<PlotLine> {
    let lines = variant.series.iter().map(|series| PlotLine {
        name: series.name.clone(),
        points: series
            .intervals
            .iter()
            .filter_map(|at| Some((at.at, at.p99? * 1000.0)))
            .collect(),
    });
    lines.collect()
}

fn rate_lines(variant: &VariantReport, seconds: f64) -> Vec<PlotLine> {
    let lines = variant.series.iter().map(|series| {
        let length = seconds / real(series.intervals.len() as u64).max(1.0);
        let points = series
            .intervals
            .iter()
            .map(|at| (at.at, real(at.ok) / length));
        PlotLine {
            name: series.name.clone(),
            points: points.collect(),
        }
    });
    lines.collect()
}

/// Nothing if there were neither refusals nor errors.
fn refusal_lines(variant: &VariantReport, seconds: f64) -> Vec<PlotLine> {
    let mut lines = Vec::new();
    for series in &variant.series {
        let length = seconds / real(series.intervals.len() as u64).max(1.0);
        let refusals = series
            .intervals
            .iter()
            .map(|at| (at.at, real(at.refusals) / length));
        let errors = series
            .intervals
            .iter()
            .map(|at| (at.at, real(at.errors) / length));
        lines.push(PlotLine {
            name: format!("{}: 429", series.name),
            points: refusals.collect(),
        });
        lines.push(PlotLine {
            name: format!("{}: errors", series.name),
            points: errors.collect(),
        });
    }
    lines.retain(|line| line.points.iter().any(|(_, value)| *value > 0.0));
    lines
}

/// The levels that were used at all.
fn level_lines(
    variant: &VariantReport,
    of: &dyn Fn(&LevelState) -> f64,
    suffix: &str,
) -> Vec<PlotLine> {
    let used = |state: &LevelState| state.seats > 0.0 || state.queued > 0.0;
    let samples = variant
        .levels
        .iter()
        .flat_map(|sample| sample.levels.iter());
    let names: BTreeSet<&String> = samples
        .filter(|(_, state)| used(state))
        .map(|(name, _)| name)
        .collect();
    let lines = names.into_iter().map(|name| {
        let points = variant.levels.iter().filter(|sample| sample.at >= 0.0);
        let points = points.filter_map(|sample| Some((sample.at, of(sample.levels.get(name)?))));
        PlotLine {
            name: format!("{name}{suffix}"),
            points: points.collect(),
        }
    });
    lines.collect()
}

/// Lines over time; `None` without data.
fn chart(lines: &[PlotLine], seconds: f64, unit: &str, scale: PlotScale) -> Option<String> {
    if lines.iter().all(|line| line.points.is_empty()) {
        return None;
    }
    let mut svg = String::new();
    let drawn = match scale {
        PlotScale::Log(most) => draw_log(&mut svg, lines, seconds, unit, most),
        PlotScale::Linear(most) => draw_linear(&mut svg, lines, seconds, unit, most),
    };
    drawn.ok().map(|()| svg)
}

macro_rules! draw_lines {
    ($svg:expr, $lines:expr, $seconds:expr, $unit:expr, $scale:expr) => {{
        let area = SVGBackend::with_string($svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(34)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..$seconds, $scale)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc($unit)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 13))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()?;
        for (index, line) in $lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), style))?
                .label(line.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .label_font(("sans-serif", 13))
            .draw()?;
        area.present()
    }};
}

fn draw_linear(
    svg: &mut String,
    lines: &[PlotLine],
    seconds: f64,
    unit: &str,
    most: f64,
) -> PlotResult {
    // Room for the legend above the lines.
    draw_lines!(svg, lines, seconds, unit, 0.0..(most * 1.25).max(1.0))
}

fn draw_log(
    svg: &mut String,
    lines: &[PlotLine],
    seconds: f64,
    unit: &str,
    top: f64,
) -> PlotResult {
    draw_lines!(
        svg,
        lines,
        seconds,
        unit,
        (1.0..(top * 8.0).max(10.0)).log_scale()
    )
}

/// Bars of the shares of all clients beside the ideal ones; `None` without clients.
fn shares(variant: &VariantReport) -> Option<String> {
    let most = variant
        .clients
        .iter()
        .map(|client| client.share.max(client.ideal_share))
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let mut svg = String::new();
    draw_shares(&mut svg, variant, most).ok().map(|()| svg)
}

fn draw_shares(svg: &mut String, variant: &VariantReport, most: f64) -> PlotResult {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let names: Vec<String> = variant
        .clients
        .iter()
        .map(|client| client.name.clone())
        .collect();
    let count = names.len();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(62)
        .build_cartesian_2d(
            (0..count.saturating_sub(1)).into_segmented(),
            0.0..most * 1.25,
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc("seats used on average")
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(count.max(1))
        .x_label_formatter(&|value| match value {
            SegmentValue::CenterOf(index) | SegmentValue::Exact(index) => {
                names.get(*index).cloned().unwrap_or_default()
            }
            SegmentValue::Last => String::new(),
        })
        .draw()?;
    let bars: [(&str, RGBColor, ShareOf); 2] = [
        ("measured", COLOURS[1], |client| client.share),
        ("ideal", COLOURS[6], |client| client.ideal_share),
    ];
    // Two bars side by side within one segment.
    let width = (SIZE.0 - 86) / u32::try_from(count.max(1)).unwrap_or(1);
    let margins = [(width / 10, width / 2), (width / 2, width / 10)];
    for ((label, colour, of), (left, right)) in bars.into_iter().zip(margins) {
        let style = colour.mix(0.85).filled();
        let bars = variant.clients.iter().enumerate().map(|(index, client)| {
            let ends = (SegmentValue::Exact(index), SegmentValue::Exact(index + 1));
            let mut bar = Rectangle::new([(ends.0, 0.0), (ends.1, of(client))], style);
            bar.set_margin(0, 0, left, right);
            bar
        });
        let legend = move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], style);
        chart.draw_series(bars)?.label(label).legend(legend);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()
}
