//! The writer of Prometheus' text format: it writes all of `/metrics`.
//!
//! Samples are written in the order they are given, so the same state gives the same text.
//!
//! Not here: which metrics there are ([`super::catalogue`]).

use std::fmt::Write as _;

use fairgate_core::apf::ratio::RatioSnapshot;
use fairgate_core::cells::HistogramTotal;

use super::catalogue::MetricDef;

/// Names and values of a sample's labels, in alphabetical order.
pub(crate) type LabelPairs<'a> = &'a [(&'a str, &'a str)];

/// Metrics as text.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    /// A label of all samples: its name, and its escaped value.
    common: Option<(&'static str, String)>,
}

impl Exposition {
    /// An empty text whose samples all get the label `name` with this `value`, before all others.
    pub(crate) fn with_label(name: &'static str, value: &str) -> Self {
        let mut escaped = String::with_capacity(value.len());
        escape(&mut escaped, value);
        Self {
            text: String::with_capacity(64 << 10),
            common: Some((name, escaped)),
        }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Starts a metric; its samples follow.
    pub(crate) fn family(&mut self, family: &MetricDef) {
        let MetricDef { name, help, .. } = family;
        let _ = write!(self.text, "# HELP {name} ");
        if family.is_of_kubernetes() {
            let _ = write!(self.text, "[{}] ", family.stability.as_str());
        }
        let ty = family.metric_type.as_str();
        let _ = writeln!(self.text, "{help}\n# TYPE {name} {ty}");
    }

    /// Samples of a family that are already lines of the text format: those of the `metrics` facade.
    pub(crate) fn lines<'l>(&mut self, lines: impl IntoIterator<Item = &'l str>) {
        for line in lines {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// The same, with the label of all samples added.
    pub(crate) fn lines_with_common_label<'l>(&mut self, lines: impl IntoIterator<Item = &'l str>) {
        let Some((name, value)) = self.common.clone() else {
            return self.lines(lines);
        };
        for line in lines {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (metric, rest) = line.split_at(end);
            let _ = match rest.strip_prefix('{') {
                Some(labels) => writeln!(self.text, "{metric}{{{name}=\"{value}\",{labels}"),
                None => writeln!(self.text, "{metric}{{{name}=\"{value}\"}}{rest}"),
            };
        }
    }

    /// A sample of a counter or gauge.
    pub(crate) fn sample(
        &mut self,
        family: &MetricDef,
        labels: LabelPairs<'_>,
        value: impl Into<SampleValue>,
    ) {
        self.line(family, "", labels, None, value.into());
    }

    /// The samples of a histogram.
    pub(crate) fn histogram(
        &mut self,
        family: &MetricDef,
        labels: LabelPairs<'_>,
        total: &HistogramTotal,
    ) {
        let mut count = 0;
        for (bound, within) in total.bounds.iter().zip(&total.counts) {
            count += within;
            self.line(family, "_bucket", labels, Some(*bound), count.into());
        }
        let count = total.count();
        self.line(family, "_bucket", labels, Some(f64::INFINITY), count.into());
        self.line(family, "_sum", labels, None, total.sum.into());
        self.line(family, "_count", labels, None, count.into());
    }

    /// Writes samples without the label of all samples.
    pub(crate) fn without_common_label(&mut self, write: impl FnOnce(&mut Self)) {
        let common = self.common.take();
        write(self);
        self.common = common;
    }

    /// The samples of a histogram, without the label of all samples.
    pub(crate) fn own_histogram(
        &mut self,
        family: &MetricDef,
        labels: LabelPairs<'_>,
        total: &HistogramTotal,
    ) {
        self.without_common_label(|text| text.histogram(family, labels, total));
    }

    /// The samples of a ratio over time, which counts nanoseconds.
    pub(crate) fn ratio(
        &mut self,
        family: &MetricDef,
        labels: LabelPairs<'_>,
        ratio: &RatioSnapshot,
    ) {
        for (bound, nanos) in ratio.buckets() {
            self.line(family, "_bucket", labels, Some(bound), nanos.into());
        }
        let count = ratio.count;
        self.line(family, "_bucket", labels, Some(f64::INFINITY), count.into());
        self.line(family, "_sum", labels, None, ratio.sum.into());
        self.line(family, "_count", labels, None, count.into());
    }

    fn line(
        &mut self,
        family: &MetricDef,
        suffix: &str,
        labels: LabelPairs<'_>,
        bound: Option<f64>,
        value: SampleValue,
    ) {
        let text = &mut self.text;
        text.push_str(family.name);
        text.push_str(suffix);
        let mut separator = '{';
        if let Some((name, value)) = &self.common {
            let _ = write!(text, "{separator}{name}=\"{value}\"");
            separator = ',';
        }
        for (name, value) in labels {
            let _ = write!(text, "{separator}{name}=\"");
            escape(text, value);
            text.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(text, "{separator}le=\"{}\"", SampleValue::Real(bound));
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleValue {
    /// An exact count.
    Whole(u64),
    /// A measurement.
    Real(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for SampleValue {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl std::fmt::Display for SampleValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(value) => write!(f, "{value}"),
            Self::Real(value) if value.is_nan() => f.write_str("NaN"),
            Self::Real(f64::INFINITY) => f.write_str("+Inf"),
            Self::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Self::Real(value) => write!(f, "{value}"),
        }
    }
}

/// Appends `value` as the value of a label.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            // Readers refuse the whole text for some of them.
            c if c.is_control() => text.push(char::REPLACEMENT_CHARACTER),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::catalogue::{MetricType, Stability, Unit};

    const THING: MetricDef = MetricDef {
        name: "thing_total",
        metric_type: MetricType::Counter,
        unit: Unit::Count,
        stability: Stability::Alpha,
        labels: &["a"],
        help: "Things.",
    };

    #[test]
    fn label_values_are_escaped() {
        let mut text = Exposition::with_label("apiserver", "a\"b");
        text.family(&THING);
        text.sample(&THING, &[("name", "x\\y\n\"z\"")], 3_u64);
        assert_eq!(
            text.finish(),
            concat!(
                "# HELP thing_total Things.\n# TYPE thing_total counter\n",
                r#"thing_total{apiserver="a\"b",name="x\\y\n\"z\""} 3"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_control_character_in_a_label_cannot_spoil_the_whole_scrape() {
        let mut text = Exposition::default();
        text.sample(&THING, &[("name", "a\0b\rc")], 3_u64);
        assert_eq!(
            text.finish(),
            "thing_total{name=\"a\u{fffd}b\u{fffd}c\"} 3\n"
        );
    }

    #[test]
    fn lines_of_the_facade_get_the_common_label_with_labels_and_without() {
        let mut text = Exposition::with_label("apiserver", "a");
        text.lines_with_common_label(["plain_total 1", "one_total{b=\"{ c\"} 2"]);
        let expected = "plain_total{apiserver=\"a\"} 1\none_total{apiserver=\"a\",b=\"{ c\"} 2\n";
        assert_eq!(text.finish(), expected);
        let mut text = Exposition::default();
        text.lines_with_common_label(["plain_total 1"]);
        assert_eq!(text.finish(), "plain_total 1\n");
    }

    #[test]
    fn a_sample_without_labels_has_no_braces() {
        let mut text = Exposition::default();
        text.sample(&THING, &[], 0.5);
        assert_eq!(text.finish(), "thing_total 0.5\n");
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_infinity() {
        let mut text = Exposition::default();
        let total = HistogramTotal {
            bounds: &[0.0, 0.005, 1.0, 10_000.0],
            counts: vec![1, 0, 2, 0, 3],
            sum: 7.25,
        };
        text.histogram(&THING, &[("a", "b")], &total);
        assert_eq!(
            text.finish(),
            concat!(
                "thing_total_bucket{a=\"b\",le=\"0\"} 1\n",
                "thing_total_bucket{a=\"b\",le=\"0.005\"} 1\n",
                "thing_total_bucket{a=\"b\",le=\"1\"} 3\n",
                "thing_total_bucket{a=\"b\",le=\"10000\"} 3\n",
                "thing_total_bucket{a=\"b\",le=\"+Inf\"} 6\n",
                "thing_total_sum{a=\"b\"} 7.25\n",
                "thing_total_count{a=\"b\"} 6\n",
            )
        );
    }

    #[test]
    fn what_is_not_a_number_is_written_as_prometheus_reads_it() {
        assert_eq!(SampleValue::Real(f64::NAN).to_string(), "NaN");
        assert_eq!(SampleValue::Real(f64::NEG_INFINITY).to_string(), "-Inf");
        assert_eq!(SampleValue::from(1e20).to_string(), "100000000000000000000");
    }
}
