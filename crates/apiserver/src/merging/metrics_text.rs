//! Merges two scrapes in Prometheus' text format: the upstream's, and the gateway's flow control metrics.
//!
//! A metric may appear once in a scrape, with one `HELP` and one `TYPE`. So samples of a metric that both have
//! are put behind the upstream's; the label `apiserver`, which all samples of the gateway have, tells them apart.
//! Metrics that only the gateway has are added at the end. The upstream's text itself is not changed.
//!
//! Not here: where the texts come from (`merged_metrics`).

use std::collections::{BTreeMap, BTreeSet};

/// The beginning of the names of the metrics that are merged.
const MERGED: &str = "apiserver_flowcontrol_";

/// Lines about one metric.
#[derive(Clone, Copy, Debug, Default)]
struct Family<'t> {
    name: &'t str,
    /// The type in the `TYPE` line; empty without one.
    metric_type: &'t str,
    /// All its lines, each with its end.
    text: &'t str,
    /// Those after the descriptions.
    samples: &'t str,
}

/// `upstream` with the flow control metrics in `own`, whose samples have the label `apiserver` with the same value.
///
/// A metric is left out if the upstream has it with another type, or has samples with that label already: a scrape
/// with such a metric would be refused as a whole. `None` if `upstream` is not in the text format. O(length).
pub(crate) fn merge(upstream: &str, own: &str) -> Option<String> {
    let upstream_families = families(upstream)?;
    let own_families = families(own)?.into_iter();
    let mut own: BTreeMap<&str, Family<'_>> = own_families
        .filter(|family| family.name.starts_with(MERGED))
        .map(|family| (family.name, family))
        .collect();
    let added: usize = own.values().map(|family| family.text.len()).sum();
    let mut merged = String::with_capacity(upstream.len() + added + 1);
    for family in upstream_families {
        merged.push_str(family.text);
        let Some(ours) = own.remove(family.name) else {
            continue;
        };
        if ours.metric_type == family.metric_type && !family.has_samples_of(&ours) {
            end_line(&mut merged);
            merged.push_str(ours.samples);
        }
    }
    end_line(&mut merged);
    for ours in own.into_values() {
        merged.push_str(ours.text);
    }
    Some(merged)
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

impl Family<'_> {
    /// Whether it has samples with the first label of the other's first sample: in the gateway's, that is `apiserver`.
    fn has_samples_of(&self, other: &Self) -> bool {
        let label = other.samples.split_once('{').and_then(|(_, labels)| {
            let end = labels.find("\",").or_else(|| labels.find("\"}"))?;
            Some(&labels[..=end])
        });
        label.is_some_and(|label| self.samples.contains(label))
    }

    /// Whether a sample of this name is one of this metric.
    fn has(&self, sample: &str) -> bool {
        let Some(suffix) = sample.strip_prefix(self.name) else {
            return false;
        };
        match self.metric_type {
            "histogram" => ["", "_bucket", "_sum", "_count"].contains(&suffix),
            "summary" => ["", "_sum", "_count"].contains(&suffix),
            _ => suffix.is_empty(),
        }
    }
}

/// The metrics of a text, which together are the whole text; `None` if it is not in the text format, or a metric
/// appears twice.
fn families(text: &str) -> Option<Vec<Family<'_>>> {
    let mut all: Vec<Family<'_>> = Vec::new();
    let mut names = BTreeSet::new();
    let mut current = Family::default();
    // Where the metric, its samples and the line begin.
    let (mut begin, mut samples, mut at) = (0, 0, 0);
    for line in text.split_inclusive('\n') {
        let kind = Line::of(line)?;
        if let Some(name) = kind.begins_after(&current) {
            if !names.insert(name) {
                return None;
            }
            (current.text, current.samples) = (&text[begin..at], &text[samples..at]);
            all.push(current);
            (begin, samples) = (at, at);
            current = Family {
                name,
                ..Family::default()
            };
        }
        at += line.len();
        if let Line::Type(_, metric_type) = kind {
            current.metric_type = metric_type;
        }
        if let Line::Help(_) | Line::Type(..) = kind {
            samples = at;
        }
    }
    (current.text, current.samples) = (&text[begin..], &text[samples..]);
    all.push(current);
    Some(all)
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'t> {
    Help(&'t str),
    Type(&'t str, &'t str),
    /// The name of a sample.
    Sample(&'t str),
    /// A comment or an empty line.
    Other,
}

impl<'t> Line<'t> {
    /// The name of the metric that begins with this line, unless it belongs to `current`.
    fn begins_after(self, current: &Family<'_>) -> Option<&'t str> {
        match self {
            Self::Other => None,
            Self::Help(name) | Self::Type(name, _) => (name != current.name).then_some(name),
            Self::Sample(name) => (!current.has(name)).then_some(name),
        }
    }

    /// `None` if no text format has such a line.
    fn of(line: &'t str) -> Option<Self> {
        let line = line.trim_matches([' ', '\t', '\r', '\n']);
        let Some(comment) = line.strip_prefix('#') else {
            return match line {
                "" => Some(Self::Other),
                _ => sample_name(line).map(Self::Sample),
            };
        };
        let mut words = comment.split([' ', '\t']).filter(|word| !word.is_empty());
        match words.next() {
            Some("HELP") => Some(Self::Help(words.next()?)),
            Some("TYPE") => Some(Self::Type(words.next()?, words.next()?)),
            // The end of OpenMetrics, whose samples have other names.
            Some("EOF") => None,
            _ => Some(Self::Other),
        }
    }
}

/// The name of the metric in the line of a sample. A name with other characters is quoted, inside the braces.
fn sample_name(line: &str) -> Option<&str> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        None => ("", rest),
        Some(rest) => rest.split_at(end_of_labels(rest)?),
    };
    is_value(value).then_some(())?;
    if let ("", Some(quoted)) = (name, labels.strip_prefix('"')) {
        let (name, rest) = quoted.split_once('"')?;
        return rest.starts_with([',', '}']).then_some(name);
    }
    let first = name.bytes().next()?;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    (name.bytes().all(is_legal) && !first.is_ascii_digit()).then_some(name)
}

/// Where the labels end, behind their closing brace.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = text.bytes().position(|byte| {
        let ends = byte == b'}' && !is_quoted;
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        ends
    });
    end.map(|end| end + 1)
}

/// Whether a text is a value, perhaps with a time.
fn is_value(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let is_number = words
        .next()
        .is_some_and(|value| value.parse::<f64>().is_ok());
    let is_time = words.next().is_none_or(|time| time.parse::<i64>().is_ok());
    is_number && is_time && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: &str = "apiserver_flowcontrol_nominal_limit_seats";

    fn own() -> String {
        format!(
            "# HELP {LIMIT} [BETA] Ours.\n# TYPE {LIMIT} gauge\n\
             {LIMIT}{{apiserver=\"a:1\",priority_level=\"x\"}} 3\n\
             # HELP apiserver_flowcontrol_wait [BETA] Ours, too.\n\
             # TYPE apiserver_flowcontrol_wait histogram\n\
             apiserver_flowcontrol_wait_bucket{{apiserver=\"a:1\",le=\"+Inf\"}} 1\n\
             apiserver_flowcontrol_wait_sum{{apiserver=\"a:1\"}} 2\n\
             apiserver_flowcontrol_wait_count{{apiserver=\"a:1\"}} 1\n\
             # HELP fairgate_x X.\n# TYPE fairgate_x gauge\nfairgate_x 1\n"
        )
    }

    #[test]
    fn samples_of_a_metric_that_both_have_follow_the_upstreams_and_others_are_added() {
        let upstream = format!(
            "# HELP a A.\n# TYPE a counter\na 1\n# HELP {LIMIT} [BETA] Theirs.\n# TYPE {LIMIT} gauge\n\
             {LIMIT}{{priority_level=\"y\"}} 5\n# HELP z Z.\n# TYPE z gauge\nz{{b=\"c d\"}} 1 123\n"
        );
        let merged = merge(&upstream, &own()).unwrap();
        assert_eq!(
            merged,
            format!(
                "# HELP a A.\n# TYPE a counter\na 1\n# HELP {LIMIT} [BETA] Theirs.\n# TYPE {LIMIT} gauge\n\
                 {LIMIT}{{priority_level=\"y\"}} 5\n{LIMIT}{{apiserver=\"a:1\",priority_level=\"x\"}} 3\n\
                 # HELP z Z.\n# TYPE z gauge\nz{{b=\"c d\"}} 1 123\n\
                 # HELP apiserver_flowcontrol_wait [BETA] Ours, too.\n\
                 # TYPE apiserver_flowcontrol_wait histogram\n\
                 apiserver_flowcontrol_wait_bucket{{apiserver=\"a:1\",le=\"+Inf\"}} 1\n\
                 apiserver_flowcontrol_wait_sum{{apiserver=\"a:1\"}} 2\n\
                 apiserver_flowcontrol_wait_count{{apiserver=\"a:1\"}} 1\n"
            )
        );
    }

    #[test]
    fn the_parts_of_histograms_and_summaries_belong_to_them() {
        let text = "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n\
                    # TYPE s summary\ns{quantile=\"0\"} 1\ns_sum 1\ns_count 1\n\
                    # TYPE g gauge\ng 1\ng_sum 2\n";
        let all = families(text).unwrap();
        let names: Vec<_> = all.iter().map(|family| family.name).collect();
        assert_eq!(names, ["", "h", "s", "g", "g_sum"]);
        let whole: String = all.iter().map(|family| family.text).collect();
        assert_eq!(whole, text);
    }

    #[test]
    fn a_metric_that_would_spoil_the_scrape_is_left_out() {
        let other_type = format!("# TYPE {LIMIT} counter\n{LIMIT} 1\n");
        let merged = merge(&other_type, &own()).unwrap();
        assert!(merged.starts_with(&other_type));
        assert!(!merged.contains("priority_level=\"x\""), "{merged}");
        assert!(merged.contains("apiserver_flowcontrol_wait_sum"));
        // The upstream is a gateway with the same value of the label.
        let same_label = format!("# TYPE {LIMIT} gauge\n{LIMIT}{{apiserver=\"a:1\"}} 1\n");
        let merged = merge(&same_label, &own()).unwrap();
        assert!(!merged.contains("priority_level=\"x\""), "{merged}");
        let other_label = same_label.replace("a:1", "b:1");
        let merged = merge(&other_label, &own()).unwrap();
        assert!(merged.contains("priority_level=\"x\""), "{merged}");
    }

    #[test]
    fn the_upstreams_text_is_kept_to_the_last_byte() {
        let odd = "\r\n# a comment\n#HELP  b  B\\n\\\\.\nb{x=\"}\\\"\\n\"}  1\r\n\n{\"odd.name\",a=\"b\"} 2\n c 3";
        let merged = merge(odd, "").unwrap();
        assert_eq!(merged, format!("{odd}\n"));
        assert_eq!(merge("", "").unwrap(), "");
        let merged = merge("a 1", &own()).unwrap();
        assert!(merged.starts_with("a 1\n# HELP apiserver_flowcontrol_nominal"));
    }

    #[test]
    fn other_texts_are_not_understood() {
        for text in [
            "<html>\n",
            "{\"kind\":\"Status\"}\n",
            "a 1\n# EOF\n",
            "1a 2\n",
            "alone\n",
            "the upstream's",
            "a{b=\"c\" 1\n",
            "a 1 2 3\n",
            "# TYPE a\na 1\n",
            "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na 2\n",
        ] {
            assert_eq!(merge(text, &own()), None, "{text:?}");
        }
    }
}
