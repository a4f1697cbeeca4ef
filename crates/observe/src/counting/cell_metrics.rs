//! Writes the metrics that are kept in cells.
//!
//! Adds up the cells of all cores, and reads the state of the priority levels one at a time. Nothing is kept
//! from one scrape to the next, so the series of a level or schema disappear with it. To be called on the
//! control runtime: it takes time in proportion to the number of series.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use super::{
    recorder::RefusalCounts, request_counts::RequestRegistry, request_metrics, sampler::Sampled,
};
use crate::metrics::{
    catalogue::{self, MetricDef},
    exposition::{Exposition, LabelPairs, SampleValue},
};
use fairgate_call::CutReason;
use fairgate_core::{
    apf::{
        dispatcher::{LevelReport, SchemaId},
        queueset::Phase,
    },
    cells::{Access, FlowCells, HistogramTotal},
    rejection::RejectReason,
    sync::Arc,
    time::Time,
};
use fairgate_proxy::fairness::{FlowControl, LateBody};

/// The sources of the values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellSources<'a> {
    /// Flow control.
    pub(crate) flow_control: &'a FlowControl,
    /// Requests by attributes and outcome.
    pub(crate) requests: &'a RequestRegistry,
    /// Refusals, by core.
    pub(crate) refusals: &'a [Arc<RefusalCounts>],
    /// The samples of all cores together.
    pub(crate) sampled: &'a Sampled,
    /// The time of the scrape.
    pub(crate) now: Time,
}

/// Writes all metrics of [`catalogue::CELL_METRICS`].
pub(crate) fn write(text: &mut Exposition, sources: &CellSources<'_>) {
    let flows = Flows::read(sources.flow_control);
    flows.render(text);
    let levels = sources.flow_control.dispatcher().report(sources.now);
    render_levels(text, &levels);
    text.family(&catalogue::FAIR_FRACTION);
    let fraction = sources.flow_control.dispatcher().fair_fraction();
    text.sample(&catalogue::FAIR_FRACTION, &[], fraction);
    render_virtual_time(text, &levels);
    render_ratios(text, &levels, sources.sampled);
    render_watermarks(text, sources.sampled);
    let (requests, refusals) = (sources.requests, sources.refusals);
    request_metrics::write(text, requests, refusals, sources.flow_control);
    render_abandoned(text, sources.flow_control);
    render_bodies(text, sources.flow_control);
}

type Names = (Arc<str>, Arc<str>);

/// Counts by priority level and flow schema.
struct Flows {
    counted: BTreeMap<Names, FlowTotals>,
    present: BTreeMap<Names, CurrentRequests>,
}

/// [`FlowCells`] of all cores, added up.
#[derive(Default)]
struct FlowTotals {
    dispatched: u64,
    rejected: [u64; RejectReason::ALL.len()],
    no_accommodation: u64,
    wait_executed: HistogramTotal,
    wait_refused: HistogramTotal,
    execution: HistogramTotal,
    watch_init: HistogramTotal,
    queue_length: HistogramTotal,
    watch_count: HistogramTotal,
    seats: HistogramTotal,
}

impl FlowTotals {
    fn add(&mut self, cells: &FlowCells) {
        self.dispatched += cells.dispatched.get();
        for reason in RejectReason::ALL {
            self.rejected[reason as usize] += cells.rejected(reason).get();
        }
        self.no_accommodation += cells.no_accommodation.get();
        cells.wait_executed.add_to(&mut self.wait_executed);
        cells.wait_refused.add_to(&mut self.wait_refused);
        cells.execution.add_to(&mut self.execution);
        cells.watch_init.add_to(&mut self.watch_init);
        cells.queue_length.add_to(&mut self.queue_length);
        cells.watch_count.add_to(&mut self.watch_count);
        cells.seats.add_to(&mut self.seats);
    }
}

/// Requests that wait or execute now, and their seats.
#[derive(Clone, Copy, Default)]
struct CurrentRequests {
    waiting: u64,
    waiting_seats: u64,
    executing: u64,
    seats: u64,
}

impl Flows {
    fn read(flow_control: &FlowControl) -> Self {
        let mut counted: BTreeMap<Names, FlowTotals> = BTreeMap::new();
        flow_control.visit_cells(|level, schema, cores| {
            // Schemas without requests are shown with zeros, too.
            let totals = counted.entry((level.into(), schema.into())).or_default();
            cores.for_each(|cells| totals.add(cells));
        });
        let mut present: BTreeMap<Names, CurrentRequests> = counted
            .keys()
            .map(|names| (names.clone(), CurrentRequests::default()))
            .collect();
        let mut by_schema: Vec<CurrentRequests> = Vec::new();
        for (level, queues) in flow_control.dispatcher().levels() {
            by_schema.fill(CurrentRequests::default());
            queues.inspect(|set| {
                set.visit(|entry| {
                    let schema = entry.schema as usize;
                    if schema >= by_schema.len() {
                        by_schema.resize(schema + 1, CurrentRequests::default());
                    }
                    by_schema[schema].add(entry.phase, entry.seats, entry.work.max_seats());
                });
            });
            for (id, here) in (0..).zip(&by_schema).filter(|(_, here)| here.is_any()) {
                let schema = flow_control.dispatcher().schema_name(SchemaId(id));
                present.insert((Arc::clone(&level), schema), *here);
            }
        }
        Self { counted, present }
    }

    fn render(&self, text: &mut Exposition) {
        text.family(&catalogue::REJECTED);
        for (names, totals) in &self.counted {
            for (reason, count) in RejectReason::ALL.into_iter().zip(totals.rejected) {
                let labels = with(names, ("reason", reason.as_str()));
                text.sample(&catalogue::REJECTED, &labels, count);
            }
        }
        self.counter(text, &catalogue::DISPATCHED, |totals| totals.dispatched);
        self.gauge(text, &catalogue::INQUEUE_REQUESTS, |here| here.waiting);
        self.gauge(text, &catalogue::INQUEUE_SEATS, |here| here.waiting_seats);
        self.gauge(text, &catalogue::EXECUTING_REQUESTS, |here| here.executing);
        self.gauge(text, &catalogue::EXECUTING_SEATS, |here| here.seats);
        self.gauge(text, &catalogue::IN_USE, |here| here.seats);
        self.histogram(text, &catalogue::QUEUE_LENGTH, |totals| {
            &totals.queue_length
        });
        text.family(&catalogue::WAIT);
        for (names, totals) in &self.counted {
            let execute = |value| [("execute", value), schema(names), level(names)];
            for (value, total) in [
                ("false", &totals.wait_refused),
                ("true", &totals.wait_executed),
            ] {
                histogram(text, &catalogue::WAIT, &execute(value), total);
            }
        }
        text.family(&catalogue::EXECUTION);
        for (names, totals) in &self.counted {
            let of = |value| with(names, ("type", value));
            for (value, total) in [
                ("regular", &totals.execution),
                ("watch", &totals.watch_init),
            ] {
                histogram(text, &catalogue::EXECUTION, &of(value), total);
            }
        }
        self.histogram(text, &catalogue::WATCH_COUNT, |totals| &totals.watch_count);
        self.histogram(text, &catalogue::SEATS, |totals| &totals.seats);
        self.counter(text, &catalogue::NO_ACCOMMODATION, |totals| {
            totals.no_accommodation
        });
    }

    fn counter(
        &self,
        text: &mut Exposition,
        family: &MetricDef,
        count: impl Fn(&FlowTotals) -> u64,
    ) {
        text.family(family);
        for (names, totals) in &self.counted {
            text.sample(family, &[schema(names), level(names)], count(totals));
        }
    }

    fn gauge(
        &self,
        text: &mut Exposition,
        family: &MetricDef,
        value: impl Fn(&CurrentRequests) -> u64,
    ) {
        text.family(family);
        for (names, here) in &self.present {
            text.sample(family, &[schema(names), level(names)], value(here));
        }
    }

    fn histogram(
        &self,
        text: &mut Exposition,
        family: &MetricDef,
        total: impl Fn(&FlowTotals) -> &HistogramTotal,
    ) {
        text.family(family);
        for (names, totals) in &self.counted {
            histogram(text, family, &[schema(names), level(names)], total(totals));
        }
    }
}

impl CurrentRequests {
    fn add(&mut self, phase: Phase, seats: u32, max_seats: u32) {
        match phase {
            Phase::Waiting => {
                self.waiting += 1;
                self.waiting_seats += u64::from(max_seats);
            }
            Phase::Executing => {
                self.executing += 1;
                self.seats += u64::from(seats);
            }
            Phase::Lingering => self.seats += u64::from(seats),
        }
    }

    fn is_any(&self) -> bool {
        self.waiting + self.executing + self.seats > 0
    }
}

fn level(names: &Names) -> (&'static str, &str) {
    ("priority_level", &names.0)
}

fn schema(names: &Names) -> (&'static str, &str) {
    ("flow_schema", &names.1)
}

fn with<'a>(names: &'a Names, last: (&'static str, &'a str)) -> [(&'static str, &'a str); 3] {
    [schema(names), level(names), last]
}

/// Leaves out empty histograms: with thousands of schemas most are.
fn histogram(
    text: &mut Exposition,
    family: &MetricDef,
    labels: LabelPairs<'_>,
    total: &HistogramTotal,
) {
    if total.count() > 0 {
        text.histogram(family, labels, total);
    }
}

fn render_levels(text: &mut Exposition, levels: &[LevelReport]) {
    text.family(&catalogue::EPOCHS);
    for report in levels {
        let counters = &report.summary.counters;
        for (success, count) in [("false", counters.epochs_failed), ("true", counters.epochs)] {
            let labels = [("priority_level", &*report.spec.name), ("success", success)];
            text.sample(&catalogue::EPOCHS, &labels, count);
        }
    }
    let mut gauge = |family: &MetricDef, value: &dyn Fn(&LevelReport) -> SampleValue| {
        text.family(family);
        for report in levels {
            let labels = [("priority_level", &*report.spec.name)];
            text.sample(family, &labels, value(report));
        }
    };
    gauge(&catalogue::NOMINAL_LIMIT, &|level| {
        level.limits.nominal.into()
    });
    gauge(&catalogue::CONCURRENCY_LIMIT, &|level| {
        level.limits.nominal.into()
    });
    gauge(&catalogue::LOWER_LIMIT, &|level| level.limits.min.into());
    gauge(&catalogue::UPPER_LIMIT, &|level| level.limits.max.into());
    gauge(&catalogue::CURRENT_LIMIT, &|level| level.current.into());
    gauge(&catalogue::TARGET, &|level| level.target.into());
    gauge(&catalogue::DEMAND_HIGH, &|level| {
        level.demand.high_watermark.into()
    });
    gauge(&catalogue::DEMAND_AVERAGE, &|level| {
        level.demand.average.into()
    });
    gauge(&catalogue::DEMAND_STDEV, &|level| {
        level.demand.deviation.into()
    });
    gauge(&catalogue::DEMAND_SMOOTHED, &|level| {
        level.demand.smoothed.into()
    });
    let counters = |level: &LevelReport| level.summary.counters;
    gauge(&catalogue::CURRENT_R, &|level| {
        level.summary.r.as_f64().into()
    });
    gauge(&catalogue::DISPATCH_R, &|level| {
        counters(level).dispatch_r.as_f64().into()
    });
    gauge(&catalogue::LATEST_S, &|level| {
        counters(level).latest_s.as_f64().into()
    });
}

fn render_virtual_time(text: &mut Exposition, levels: &[LevelReport]) {
    for (family, of) in [
        (&catalogue::NEXT_S, [0, 1]),
        (&catalogue::NEXT_DISCOUNTED_S, [2, 3]),
    ] {
        text.family(family);
        for report in levels {
            let Some(bounds) = report.next_s_bounds else {
                continue;
            };
            for (bound, at) in ["min", "max"].into_iter().zip(of) {
                let labels = [("bound", bound), ("priority_level", &*report.spec.name)];
                text.sample(family, &labels, bounds[at]);
            }
        }
    }
}

fn render_ratios(text: &mut Exposition, levels: &[LevelReport], sampled: &Sampled) {
    text.family(&catalogue::SEAT_UTILIZATION);
    for report in levels {
        let labels = [
            ("phase", "executing"),
            ("priority_level", &*report.spec.name),
        ];
        text.ratio(&catalogue::SEAT_UTILIZATION, &labels, &report.ratios.seats);
    }
    text.family(&catalogue::REQUEST_UTILIZATION);
    for report in levels {
        let ratios = &report.ratios;
        for (phase, ratio) in [
            ("executing", &ratios.executing),
            ("waiting", &ratios.waiting),
        ] {
            let labels = [("phase", phase), ("priority_level", &*report.spec.name)];
            text.ratio(&catalogue::REQUEST_UTILIZATION, &labels, ratio);
        }
    }
    text.family(&catalogue::READ_VS_WRITE);
    for (phase, ratios) in [
        ("executing", &sampled.executing),
        ("waiting", &sampled.waiting),
    ] {
        for (access, ratio) in Access::ALL.into_iter().zip(ratios) {
            let labels = [("phase", phase), ("request_kind", access.as_str())];
            text.ratio(&catalogue::READ_VS_WRITE, &labels, ratio);
        }
    }
    text.family(&catalogue::DEMAND);
    for report in levels {
        let labels = [("priority_level", &*report.spec.name)];
        text.ratio(&catalogue::DEMAND, &labels, &report.ratios.demand);
    }
}

fn render_watermarks(text: &mut Exposition, sampled: &Sampled) {
    for (family, most) in [
        (&catalogue::INFLIGHT, sampled.most_executing),
        (&catalogue::INQUEUE, sampled.most_waiting),
    ] {
        text.family(family);
        for (access, most) in Access::ALL.into_iter().zip(most) {
            text.sample(family, &[("request_kind", access.as_str())], most);
        }
    }
}

/// Writes metrics of requests whose clients send the body slowly.
fn render_bodies(text: &mut Exposition, flow_control: &FlowControl) {
    let bodies = &flow_control.bodies;
    let held = bodies.budget().held();
    text.family(&catalogue::AWAITED_BODIES);
    text.sample(&catalogue::AWAITED_BODIES, &[], u64::from(bodies.waiting()));
    text.family(&catalogue::AWAITED_BODY_BYTES);
    text.sample(&catalogue::AWAITED_BODY_BYTES, &[], held.now as u64);
    text.family(&catalogue::AWAITED_BODY_PEAK);
    text.sample(&catalogue::AWAITED_BODY_PEAK, &[], held.most as u64);
    text.family(&catalogue::LATE_BODIES);
    for why in LateBody::ALL {
        let count = bodies.late(why);
        text.sample(&catalogue::LATE_BODIES, &[("reason", why.as_str())], count);
    }
}

/// Writes metrics of requests whose clients have disconnected, or read slowly.
fn render_abandoned(text: &mut Exposition, flow_control: &FlowControl) {
    let (abandoned, spool) = (&flow_control.abandoned, &flow_control.spool);
    text.family(&catalogue::ABANDONED);
    text.sample(&catalogue::ABANDONED, &[], u64::from(abandoned.running()));
    text.family(&catalogue::ABANDONED_TOTAL);
    for (outcome, count) in [
        ("cancelled", abandoned.cancelled()),
        ("ended", abandoned.ended()),
    ] {
        text.sample(&catalogue::ABANDONED_TOTAL, &[("outcome", outcome)], count);
    }
    text.family(&catalogue::SPOOL_BYTES);
    text.sample(&catalogue::SPOOL_BYTES, &[], spool.bytes());
    text.family(&catalogue::SPOOL_PEAK);
    text.sample(&catalogue::SPOOL_PEAK, &[], spool.most_bytes());
    text.family(&catalogue::STALLED_SEATS);
    let cores = flow_control.core_cells().iter();
    let stalled = cores.map(|core| u64::from(core.stalled_seats.load(Ordering::Relaxed)));
    text.sample(&catalogue::STALLED_SEATS, &[], stalled.sum::<u64>());
    text.family(&catalogue::SPOOLED);
    text.sample(&catalogue::SPOOLED, &[], spool.answers());
    text.family(&catalogue::CUT);
    for why in CutReason::ALL {
        text.sample(&catalogue::CUT, &[("reason", why.as_str())], spool.cut(why));
    }
}
