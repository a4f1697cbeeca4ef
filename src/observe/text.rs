//! Prometheus' text format, as a writer.
//!
//! Samples come out in the order they are given, so whoever gives them in a settled order gets the
//! same text every time. Not here: which metrics there are ([`super::names`]).

use std::fmt::Write as _;

use fairgate_core::apf::ratio::RatioSnapshot;
use fairgate_core::cells::HistogramTotal;

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ever rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by buckets.
    Histogram,
}

/// A metric: its name, and what it tells.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name, prefix included.
    pub name: &'static str,
    /// What kind of metric it is.
    pub kind: Kind,
    /// What it tells, in one line.
    pub help: &'static str,
}

/// Names and values of a sample's labels, in the order of the alphabet.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Metrics as text.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    /// A label that all samples have: its name, and its value escaped.
    common: Option<(&'static str, String)>,
}

impl Exposition {
    /// No text yet; every sample gets the label `name` of this `value`, before all others.
    pub fn with_label(name: &'static str, value: &str) -> Self {
        let mut escaped = String::with_capacity(value.len());
        escape(&mut escaped, value);
        Self {
            text: String::with_capacity(64 << 10),
            common: Some((name, escaped)),
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    /// Begins a metric; its samples follow.
    pub fn family(&mut self, family: &Family) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let Family { name, help, .. } = family;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of a counter or gauge.
    pub fn sample(&mut self, family: &Family, labels: Labels<'_>, value: impl Into<Value>) {
        self.line(family, "", labels, None, value.into());
    }

    /// The samples of a histogram.
    pub fn histogram(&mut self, family: &Family, labels: Labels<'_>, total: &HistogramTotal) {
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

    /// The samples of a ratio over time, which counts nanoseconds.
    pub fn ratio(&mut self, family: &Family, labels: Labels<'_>, ratio: &RatioSnapshot) {
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
        family: &Family,
        suffix: &str,
        labels: Labels<'_>,
        bound: Option<f64>,
        value: Value,
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
            let _ = write!(text, "{separator}le=\"{}\"", Value::Real(bound));
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
pub enum Value {
    /// A count; exact.
    Whole(u64),
    /// A measure.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl std::fmt::Display for Value {
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

    const THING: Family = Family {
        name: "thing_total",
        kind: Kind::Counter,
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
        assert_eq!(Value::Real(f64::NAN).to_string(), "NaN");
        assert_eq!(Value::Real(f64::NEG_INFINITY).to_string(), "-Inf");
        assert_eq!(Value::from(1e20).to_string(), "100000000000000000000");
    }
}
