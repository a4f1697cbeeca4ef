//! Reads samples in Prometheus' text format.
//!
//! Names, labels and values of one line at a time; lines that make no sense are passed over.
//!
//! Not here: metrics as a whole, with their descriptions and types, whose text must stay as it is
//! (`metrics_text` of the hosted API), and the text of the gateway's own metrics, which `fairgate-observe` writes.

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample<'t> {
    /// The name with the labels, as written.
    pub series: &'t str,
    /// The name.
    pub name: &'t str,
    /// The labels in their order, without escapes.
    pub labels: Vec<(&'t str, String)>,
    /// The value.
    pub value: f64,
}

/// The samples of a text, in its order.
pub fn samples(text: &str) -> impl Iterator<Item = MetricSample<'_>> {
    text.lines().filter_map(MetricSample::parse)
}

impl<'t> MetricSample<'t> {
    /// Reads one line. `None` for comments, empty lines, and what is not a sample.
    pub fn parse(line: &'t str) -> Option<Self> {
        let end = line.find(['{', ' ', '\t'])?;
        if end == 0 || line.starts_with('#') {
            return None;
        }
        let name = &line[..end];
        let mut rest = line[end..].trim_start();
        let mut labels = Vec::new();
        let mut series = name;
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while let Some(label) = take_label(&mut rest)? {
                labels.push(label);
            }
            series = &line[..line.len() - rest.len()];
        }
        // A time may follow.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self {
            series,
            name,
            labels,
            value,
        })
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        labels.find_map(|(label, value)| (*label == name).then_some(&**value))
    }
}

/// Takes the next label off `text`, which begins after the opening brace or after a label. `Some(None)` after the last
/// label: then the closing brace is taken off. `None` if the text is malformed.
#[expect(clippy::option_option, reason = "malformed, ended, or a label")]
fn take_label<'a>(text: &mut &'a str) -> Option<Option<(&'a str, String)>> {
    let rest = text.trim_start_matches([' ', '\t', ',']);
    if let Some(behind) = rest.strip_prefix('}') {
        *text = behind;
        return Some(None);
    }
    let (name, rest) = rest.split_once('=')?;
    let mut characters = rest.trim_start().strip_prefix('"')?.chars();
    let mut value = String::new();
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => value.push(match characters.next()? {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    *text = characters.as_str();
    Some(Some((name.trim(), value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_name_labels_and_a_value() {
        let text = "# HELP a A.\n# TYPE a gauge\na 1\na_b{x=\"1\",y=\"p \\\"q\\\"\\n}\"} 2.5 1700000000\n\nc {z=\"\"} +Inf\n";
        let all: Vec<_> = samples(text).collect();
        let named: Vec<_> = all.iter().map(|one| (one.name, one.value)).collect();
        assert_eq!(named, [("a", 1.0), ("a_b", 2.5), ("c", f64::INFINITY)]);
        assert_eq!(all[1].series, "a_b{x=\"1\",y=\"p \\\"q\\\"\\n}\"}");
        assert_eq!(all[1].label("y"), Some("p \"q\"\n}"));
        assert_eq!((all[2].label("z"), all[2].label("y")), (Some(""), None));
    }

    #[test]
    fn lines_that_are_no_samples_are_passed_over() {
        for line in [
            "a",
            "a{b=\"c\" 1",
            "a{b=c} 1",
            "a{ 3",
            "a x",
            "{b=\"c\"} 1",
            "# a 1",
            "",
        ] {
            assert_eq!(MetricSample::parse(line), None, "{line:?}");
        }
    }
}
