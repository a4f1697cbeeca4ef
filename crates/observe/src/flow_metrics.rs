//! Writes the metrics of flows: how evenly each level serves them, and the largest ones by name.
//!
//! Flows are known by their hashes. To name one, the core of one of its requests is asked what the request
//! is; flows whose requests have ended meanwhile are left out. At most `admin.topFlows` flows of a level are
//! named, so that clients cannot create series at will.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    catalogue,
    described_requests::describe,
    dumps::Distinguishers,
    exposition::Exposition,
    flow_states::{LevelFlows, PresentFlow},
    recorder::sanitize,
    sampler::Sampler,
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
}

/// The `most` largest flows of each level.
pub(super) fn largest(levels: &[LevelFlows], most: usize) -> Vec<(Arc<str>, PresentFlow)> {
    let of_level = |level: &LevelFlows| {
        let name = Arc::clone(&level.level);
        let flows = level.largest(most).into_iter();
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
            level,
            schema,
            waiting: flow.waiting,
            seats: flow.seats,
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

/// Writes the metrics of named flows. Flows that have the same name once it is shortened count together.
pub(super) fn write_flows(text: &mut Exposition, flows: &[NamedFlow]) {
    let mut sums: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for flow in flows {
        let labels = (&*flow.level, &*flow.schema, &*flow.flow);
        let (waiting, seats) = sums.entry(labels).or_default();
        *waiting += u64::from(flow.waiting);
        *seats += u64::from(flow.seats);
    }
    for (family, is_waiting) in [
        (&catalogue::FLOW_INQUEUE, true),
        (&catalogue::FLOW_SEATS, false),
    ] {
        text.family(family);
        for ((level, schema, flow), sum) in &sums {
            let labels = [
                ("flow", *flow),
                ("flow_schema", schema),
                ("priority_level", level),
            ];
            let (waiting, seats) = *sum;
            text.sample(family, &labels, if is_waiting { waiting } else { seats });
        }
    }
}
