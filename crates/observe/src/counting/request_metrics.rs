//! Writes the metrics of requests by their attributes, which kube-apiserver has, too.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    recorder::{ReasonCounts, RefusalCounts},
    request_counts::{OTHER, RequestLabels, RequestRegistry, RequestTotals, StatusTotals},
};
use crate::metrics::{
    catalogue::{self, MetricDef},
    exposition::Exposition,
};
use fairgate_core::cells::HistogramTotal;
use fairgate_proxy::fairness::FlowControl;

/// The `component` label.
const COMPONENT: (&str, &str) = ("component", "apiserver");

/// Writes all metrics of requests by their attributes.
pub(crate) fn write(
    text: &mut Exposition,
    requests: &RequestRegistry,
    refusals: &[Arc<RefusalCounts>],
    flow_control: &FlowControl,
) {
    let kinds = requests.totals();
    text.family(&catalogue::REQUESTS);
    for (kind, totals) in &kinds {
        write_codes(text, &catalogue::REQUESTS, kind, &totals.requests, true);
    }
    text.family(&catalogue::TERMINATIONS);
    for (kind, totals) in &kinds {
        let family = &catalogue::TERMINATIONS;
        write_codes(text, family, kind, &totals.terminations, false);
    }
    write_filter(text, flow_control);
    write_histogram(text, &catalogue::SLI, &kinds, |of| &of.timings.sli);
    write_durations(text, &kinds);
    write_histogram(text, &catalogue::RESPONSE_SIZES, &kinds, |of| {
        &of.timings.sizes
    });
    text.family(&catalogue::ABORTS);
    for (kind, totals) in kinds.iter().filter(|(_, totals)| totals.aborts > 0) {
        text.sample(&catalogue::ABORTS, &of_kind(kind), totals.aborts);
    }
    write_running(text, requests, flow_control);
    write_refusals(text, &catalogue::REFUSALS, refusals, |core| &core.enforced);
    let family = &catalogue::UNENFORCED_REFUSALS;
    write_refusals(text, family, refusals, |core| &core.not_enforced);
    text.family(&catalogue::REQUEST_KINDS);
    let kinds = u64::try_from(kinds.len()).unwrap_or(u64::MAX);
    text.sample(&catalogue::REQUEST_KINDS, &[], kinds);
}

type Kinds = [(RequestLabels, RequestTotals)];

/// The labels of a kind, in alphabetical order.
fn of_kind(kind: &RequestLabels) -> [(&'static str, &str); 6] {
    [
        ("group", &kind.group),
        ("resource", &kind.resource),
        ("scope", kind.scope),
        ("subresource", &kind.subresource),
        ("verb", kind.verb),
        ("version", &kind.version),
    ]
}

fn write_filter(text: &mut Exposition, flow_control: &FlowControl) {
    text.family(&catalogue::FILTER);
    let mut filter = HistogramTotal::default();
    for core in flow_control.core_cells() {
        core.filter.add_to(&mut filter);
    }
    let labels = [("filter", "priorityandfairness")];
    text.histogram(&catalogue::FILTER, &labels, &filter);
}

/// Leaves out empty histograms.
fn write_histogram(
    text: &mut Exposition,
    family: &MetricDef,
    kinds: &Kinds,
    of: impl Fn(&RequestTotals) -> &HistogramTotal,
) {
    text.family(family);
    for (kind, totals) in kinds {
        let total = of(totals);
        if total.count() > 0 {
            let labels = [&[COMPONENT][..], &of_kind(kind)].concat();
            text.histogram(family, &labels, total);
        }
    }
}

fn write_durations(text: &mut Exposition, kinds: &Kinds) {
    text.family(&catalogue::DURATION);
    for (kind, totals) in kinds {
        for (dry_run, total) in &totals.timings.duration {
            if total.count() > 0 {
                let first = [COMPONENT, ("dry_run", dry_run.as_str())];
                let labels = [&first[..], &of_kind(kind)].concat();
                text.histogram(&catalogue::DURATION, &labels, total);
            }
        }
    }
}

fn write_running(text: &mut Exposition, requests: &RequestRegistry, flow_control: &FlowControl) {
    let running = [&flow_control.watches, &flow_control.long_running].map(|those| those.requests());
    let running = running.iter().flatten().map(|request| &request.info);
    text.family(&catalogue::LONGRUNNING);
    for (kind, count) in requests.count_running(running) {
        let labels = [&[COMPONENT][..], &of_kind(&kind)].concat();
        text.sample(&catalogue::LONGRUNNING, &labels, count);
    }
}

fn write_refusals(
    text: &mut Exposition,
    family: &MetricDef,
    refusals: &[Arc<RefusalCounts>],
    which: fn(&RefusalCounts) -> &ReasonCounts,
) {
    let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
    for core in refusals {
        for (reason, count) in which(core).counts() {
            *by_reason.entry(reason).or_default() += count;
        }
    }
    text.family(family);
    for (reason, count) in by_reason {
        text.sample(family, &[("reason", reason)], count);
    }
}

fn write_codes(
    text: &mut Exposition,
    family: &MetricDef,
    kind: &RequestLabels,
    totals: &StatusTotals,
    has_dry_run: bool,
) {
    for ((code, dry_run), count) in totals {
        let code = code.map_or_else(|| OTHER.to_owned(), |code| code.to_string());
        let first = [("code", &*code), ("component", "apiserver")];
        let dry_run = [("dry_run", dry_run.as_str())];
        let dry_run = if has_dry_run { &dry_run[..] } else { &[] };
        let labels = [&first, dry_run, &of_kind(kind)].concat();
        text.sample(family, &labels, *count);
    }
}
