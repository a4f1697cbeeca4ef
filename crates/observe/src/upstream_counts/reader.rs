//! Reads object counts out of metrics in Prometheus' text format, as they arrive.
//!
//! Metrics of a server run to tens of MiB, of which a few hundred lines matter; nothing else is kept.

use std::collections::BTreeMap;

use fairgate_base::metrics_text::MetricSample;

use super::ObjectCount;

/// The longest line that is looked at. Those that matter are shorter than 700 bytes, names being
/// limited to 253.
pub(super) const MAX_LINE: usize = 2 << 10;

/// The maximum number of resources that are kept.
pub(super) const MAX_RESOURCES: usize = 10_000;

/// Reads metrics in Prometheus' text format, in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct CountReader {
    /// The line that is not complete yet.
    pub(super) line: Vec<u8>,
    /// Whether the line is too long; it is then skipped up to its end.
    is_too_long: bool,
    rows: BTreeMap<(Box<str>, Box<str>), Row>,
}

/// What the metrics say of one resource. A value below zero means that the server does not know.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// `apiserver_resource_objects`
    objects: Option<u64>,
    /// `apiserver_storage_objects`, its predecessor.
    storage_objects: Option<u64>,
    /// `apiserver_resource_size_estimate_bytes`
    bytes: Option<u64>,
}

impl CountReader {
    /// Reads a piece. Lines that do not matter or make no sense are passed over.
    pub(crate) fn read(&mut self, data: &[u8]) {
        let mut rest = data;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if self.line.is_empty() && !self.is_too_long {
                self.read_line(line);
            } else {
                self.hold(line);
                self.read_held();
            }
            rest = after;
        }
        self.hold(rest);
    }

    /// The counts, in order of group and resource. Resources whose count the server does not know
    /// are left out.
    pub(crate) fn finish(mut self) -> Vec<ObjectCount> {
        self.read_held();
        self.rows
            .into_iter()
            .filter_map(|((group, resource), row)| {
                Some(ObjectCount {
                    group,
                    resource,
                    count: row.objects.or(row.storage_objects)?,
                    total_bytes: row.bytes,
                })
            })
            .collect()
    }

    fn hold(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > MAX_LINE {
            self.is_too_long = true;
            self.line.clear();
        }
        if !self.is_too_long {
            self.line.extend_from_slice(part);
        }
    }

    fn read_held(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !std::mem::take(&mut self.is_too_long) {
            self.read_line(&line);
        }
        self.line = line;
        self.line.clear();
    }

    fn read_line(&mut self, line: &[u8]) {
        if line.starts_with(b"apiserver_")
            && line.len() <= MAX_LINE
            && let Ok(line) = str::from_utf8(line)
            && let Some(sample) = Sample::parse(line)
        {
            self.take(sample);
        }
    }

    fn take(&mut self, sample: Sample) {
        let key = (sample.group, sample.resource);
        if self.rows.len() >= MAX_RESOURCES && !self.rows.contains_key(&key) {
            return;
        }
        let row = self.rows.entry(key).or_default();
        match sample.metric {
            Metric::Objects => row.objects = sample.value,
            Metric::StorageObjects => row.storage_objects = sample.value,
            Metric::Bytes => row.bytes = sample.value,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Objects,
    StorageObjects,
    Bytes,
}

/// One line that matters.
struct Sample {
    metric: Metric,
    group: Box<str>,
    resource: Box<str>,
    value: Option<u64>,
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (name, _) = line.split_once('{')?;
        let metric = match name.trim_end() {
            "apiserver_resource_objects" => Metric::Objects,
            "apiserver_storage_objects" => Metric::StorageObjects,
            "apiserver_resource_size_estimate_bytes" => Metric::Bytes,
            _ => return None,
        };
        let MetricSample { labels, value, .. } = MetricSample::parse(line)?;
        let (mut group, mut resource) = (String::new(), String::new());
        for (name, value) in labels {
            match name {
                "group" => group = value,
                "resource" => resource = value,
                _ => {}
            }
        }
        if metric == Metric::StorageObjects
            && let Some((plural, suffix)) = resource.split_once('.')
        {
            (group, resource) = (suffix.to_owned(), plural.to_owned());
        }
        if resource.is_empty() {
            return None;
        }
        Some(Self {
            metric,
            group: group.into(),
            resource: resource.into(),
            value: whole(value),
        })
    }
}

/// A count as a whole number; `None` for what cannot be one, as -1 for unknown.
fn whole(value: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and the cast saturates"
    )]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}
