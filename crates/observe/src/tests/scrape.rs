//! A parser of the metrics text that checks the rules of the format.

use std::collections::{BTreeMap, BTreeSet};

/// A metrics text, taken apart by the rules of the format.
#[derive(Default)]
pub(super) struct Scrape {
    pub(super) kinds: BTreeMap<String, String>,
    pub(super) samples: BTreeMap<String, f64>,
}

impl Scrape {
    pub(super) fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut family = String::new();
        let mut helped = BTreeSet::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect(line);
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect(line);
                assert!(helped.contains(name), "help goes first: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let before = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "each family is declared once: {line}");
                family = name.to_owned();
            } else {
                let (series, value) = line.rsplit_once(' ').expect(line);
                scrape.check_series(&family, series);
                let value = match value {
                    "+Inf" => f64::INFINITY,
                    value => value.parse().expect(line),
                };
                let before = scrape.samples.insert(series.to_owned(), value);
                assert_eq!(before, None, "each series has one sample: {line}");
            }
        }
        scrape.check_histograms();
        scrape
    }

    fn check_series(&self, family: &str, series: &str) {
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(series)),
            None => (series, ""),
        };
        let suffixes: &[&str] = match &*self.kinds[family] {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let fits = suffixes.iter().any(|s| name == format!("{family}{s}"));
        assert!(fits, "{series} under {family}");
        let name_of = |text: &str| {
            let rest = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
            assert!(
                rest.len() < text.len(),
                "a name begins {text:?} in {series}"
            );
            text.len() - rest.len()
        };
        let mut rest = labels;
        let mut names = Vec::new();
        while !rest.is_empty() {
            let end = name_of(rest);
            names.push(rest[..end].to_owned());
            rest = rest[end..].strip_prefix("=\"").expect(series);
            let mut escaped = false;
            let end = rest.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            rest = &rest[end.expect(series) + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        names.retain(|name| name != "le");
        assert!(names.is_sorted(), "{series}");
    }

    /// Buckets rise and end with the count.
    fn check_histograms(&self) {
        let mut last: Option<(String, f64)> = None;
        let families = self.kinds.iter().filter(|(_, kind)| *kind == "histogram");
        for (family, _) in families {
            let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for (series, value) in &self.samples {
                let Some(labels) = series.strip_prefix(&format!("{family}_bucket")) else {
                    continue;
                };
                let (labels, bound) = labels.rsplit_once("le=\"").expect(series);
                let bound = match bound.trim_end_matches("\"}") {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().unwrap(),
                };
                let group = format!("{family}_count{}}}", labels.trim_end_matches(','));
                groups.entry(group).or_default().push((bound, *value));
            }
            for (count, mut buckets) in groups {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{count}");
                let (bound, most) = buckets.pop().unwrap();
                assert!(bound.is_infinite());
                assert!((self.samples[&count] - most).abs() < 0.5, "{count}");
                last = Some((count, most));
            }
        }
        assert!(last.is_some(), "there are histograms");
    }

    pub(super) fn bounds(&self, family: &str) -> Vec<String> {
        let prefix = format!("{family}_bucket");
        let mut bounds: Vec<_> = self
            .samples
            .keys()
            .filter(|series| series.starts_with(&prefix))
            .map(|series| {
                let (_, bound) = series.rsplit_once("le=\"").unwrap();
                bound.trim_end_matches("\"}").to_owned()
            })
            .filter(|bound| bound != "+Inf")
            .collect();
        bounds.sort_by(|a, b| a.parse::<f64>().unwrap().total_cmp(&b.parse().unwrap()));
        bounds.dedup();
        bounds
    }

    #[track_caller]
    pub(super) fn value(&self, series: &str) -> f64 {
        let found = self.samples.get(series);
        *found.unwrap_or_else(|| panic!("no {series} in\n{:#?}", self.samples.keys()))
    }

    #[track_caller]
    pub(super) fn is(&self, series: &str, expected: f64) {
        let value = self.value(series);
        assert!((value - expected).abs() < 1e-6, "{series}: {value}");
    }
}
