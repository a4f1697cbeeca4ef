//! Writes the metrics of flows: how evenly each level serves them, and the largest ones by name.
//!
//! Flows are known by their hashes. To name one, the core of one of its requests is asked what the request
//! is; flows whose requests have ended meanwhile are left out. Of each level the `admin.topFlows` largest flows are
//! named and as many that wait longest, so that clients cannot create series at will.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    counting::{
        flow_states::{LevelFlows, PresentFlow},
        sampler::Sampler,
    },
    dumps::{Distinguishers, described_requests::describe},
    metrics::{
        catalogue,
        exposition::{Exposition, SampleValue},
    },
    sanitized::sanitize,
};
use fairgate_core::{apf::dispatcher::SchemaId, time::Time};
use fairgate_proxy::fairness::FlowControl;

/// Bytes of a flow's name that are exposed.
const MAX_NAME: usize = 128;

/// A flow with its names.
#[derive(Clone, Debug)]
pub(super) struct NamedFlow {
    level: Arc<str>,
    schema: Arc<str>,
    /// The flow distinguisher, shortened to [`MAX_NAME`] bytes.
    flow: String,
    waiting: u32,
    seats: u32,
    /// When the request arrived that has waited longest.
    oldest: Option<Time>,
    fair_share: Option<f64>,
}

/// The flows of each level that are named: the `most` largest, and the `most` that wait longest.
pub(super) fn notable(levels: &[LevelFlows], most: usize) -> Vec<(Arc<str>, PresentFlow)> {
    let of_level = |level: &LevelFlows| {
        let name = Arc::clone(&level.level);
        let flows = level.notable(most).into_iter();
        flows
            .map(move |flow| (Arc::clone(&name), flow))
            .collect::<Vec<_>>()
    };
    levels.iter().flat_map(of_level).collect()
}

/// Names flows. Waits at most a second for the cores.
pub(super) async fn name(
    flow_control: &Arc<FlowControl>,
    flows: Vec<(Arc<str>, PresentFlow)>,
    sampler: &Sampler,
) -> Vec<NamedFlow> {
    let requests = flows.iter().filter_map(|(_, flow)| flow.request);
    let digests = describe(flow_control, requests).await;
    let view = flow_control.dispatcher().view();
    let distinguishers = Distinguishers::new(view.policy());
    let name = |(level, flow): (Arc<str>, PresentFlow)| {
        let digest = digests.get(&flow.request?)?;
        let schema = flow_control.dispatcher().schema_name(SchemaId(flow.schema));
        let flow_name = distinguishers.of(&schema, digest);
        Some(NamedFlow {
            flow: sanitize(&flow_name, MAX_NAME).into_owned(),
            fair_share: sampler.fair_share(&level, flow.hash),
            level,
            schema,
            waiting: flow.waiting,
            seats: flow.seats,
            oldest: flow.oldest,
        })
    };
    flows.into_iter().filter_map(name).collect()
}

/// Writes the metrics of each level about its flows.
pub(super) fn write_levels(
    text: &mut Exposition,
    levels: &[LevelFlows],
    sampler: &Sampler,
    now: Time,
) {
    let mut gauge = |family, value: &dyn Fn(&LevelFlows) -> f64| {
        text.family(family);
        for level in levels {
            text.sample(family, &[("priority_level", &*level.level)], value(level));
        }
    };
    gauge(&catalogue::JAIN, &|level| sampler.shares(&level.level).jain);
    gauge(&catalogue::LARGEST_SHARE, &|level| {
        sampler.shares(&level.level).largest
    });
    gauge(&catalogue::OLDEST_WAIT, &|level| {
        level
            .oldest
            .map_or(0.0, |oldest| now.since(oldest).as_secs_f64())
    });
    gauge(&catalogue::BYSTANDER_WAIT, &|level| {
        sampler.bystander_wait(&level.level).as_secs_f64()
    });
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    gauge(&catalogue::ACTIVE_QUEUES, &|level| {
        level.active_queues as f64
    });
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    gauge(&catalogue::ACTIVE_FLOWS, &|level| level.flows.len() as f64);
}

/// What is known of flows that have the same name.
#[derive(Clone, Copy, Default)]
struct FlowSum {
    waiting: u64,
    seats: u64,
    wait: Duration,
    /// The least.
    fair_share: Option<f64>,
}

impl FlowSum {
    fn add(&mut self, flow: &NamedFlow, now: Time) {
        self.waiting += u64::from(flow.waiting);
        self.seats += u64::from(flow.seats);
        let wait = flow
            .oldest
            .map_or(Duration::ZERO, |oldest| now.since(oldest));
        self.wait = self.wait.max(wait);
        let shares = self.fair_share.into_iter().chain(flow.fair_share);
        self.fair_share = shares.reduce(f64::min);
    }
}

/// Writes the metrics of named flows. Flows that have the same name once it is shortened count together.
pub(super) fn write_flows(text: &mut Exposition, flows: &[NamedFlow], now: Time) {
    let mut sums: BTreeMap<_, FlowSum> = BTreeMap::new();
    for flow in flows {
        let labels = (&*flow.level, &*flow.schema, &*flow.flow);
        sums.entry(labels).or_default().add(flow, now);
    }
    let mut gauge = |family, value: &dyn Fn(&FlowSum) -> Option<SampleValue>| {
        text.family(family);
        for ((level, schema, flow), sum) in &sums {
            let labels = [
                ("flow", *flow),
                ("flow_schema", schema),
                ("priority_level", level),
            ];
            if let Some(value) = value(sum) {
                text.sample(family, &labels, value);
            }
        }
    };
    gauge(&catalogue::FLOW_INQUEUE, &|sum| Some(sum.waiting.into()));
    gauge(&catalogue::FLOW_SEATS, &|sum| Some(sum.seats.into()));
    gauge(&catalogue::FLOW_OLDEST_WAIT, &|sum| {
        Some(sum.wait.as_secs_f64().into())
    });
    gauge(&catalogue::FLOW_FAIR_SHARE, &|sum| {
        sum.fair_share.map(Into::into)
    });
}
