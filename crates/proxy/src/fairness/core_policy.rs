//! The policy and the settings as one core uses them.
//! Every core gets a complete new [`CorePolicy`] whenever policy or settings change, and uses it until the next
//! arrives.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::HeaderValue;

use super::{
    settings::{Enforcement, FlowControlSettings},
    waiters::Waiter,
};
use fairgate_call::{FlowUids, SpoolLimits};
use fairgate_core::{
    apf::{Policy, SchemaIndex, dispatcher::PolicyView, policy::Schema, work::EstimatorSettings},
    cells::FlowCells,
};

/// The policy and the settings as one core uses them, with the data of each FlowSchema that requests need.
#[derive(Debug)]
pub struct CorePolicy {
    /// Policy and levels.
    pub view: Arc<PolicyView<Waiter>>,
    /// Whether decisions are enforced.
    pub enforcement: Enforcement,
    /// A request's time limit.
    pub request_timeout: Duration,
    /// How many requests may wait, all levels together.
    pub max_queued: u32,
    /// How costs are estimated.
    pub estimator: EstimatorSettings,
    /// How much of slowly read replies may be spooled.
    pub spool: SpoolLimits,
    flows: Box<[FlowFacts]>,
    /// The index of each FlowSchema by its stable id; [`GONE`] for those that the policy no longer has.
    index_by_id: Vec<u32>,
}

const GONE: u32 = u32::MAX;

/// The counters of one FlowSchema, one set per core. A set takes almost a kilobyte, and few of many FlowSchemas
/// are in use, so a core allocates its set with the first request.
pub(super) type CellsOfCores = Arc<[OnceLock<Arc<FlowCells>>]>;

/// What a request needs of the FlowSchema that it matched.
#[derive(Clone, Debug)]
pub struct FlowFacts {
    cells: CellsOfCores,
    core: u16,
    /// Name of the schema.
    pub schema: Arc<str>,
    /// Name of its level.
    pub level: Arc<str>,
    /// UIDs of schema and level, ready to be put into headers.
    pub uids: FlowUids,
}

impl FlowFacts {
    /// The counters of the FlowSchema on this core, allocated by the first call.
    pub fn cells(&self) -> &Arc<FlowCells> {
        self.cells[self.core as usize].get_or_init(Arc::default)
    }
}

impl CorePolicy {
    /// The policy for `core`, with the counters of each schema and its UIDs.
    pub(super) fn new<'u>(
        core: u16,
        view: Arc<PolicyView<Waiter>>,
        settings: &FlowControlSettings,
        of_schemas: impl ExactSizeIterator<Item = (&'u CellsOfCores, &'u FlowUids)>,
    ) -> Self {
        let policy = Arc::clone(view.policy());
        let mut index_by_id = Vec::new();
        let mut flows = Vec::with_capacity(of_schemas.len());
        for ((index, schema), (cells, uids)) in (0..).zip(policy.schemas()).zip(of_schemas) {
            let id = view.schema_id(SchemaIndex(index)).0 as usize;
            if index_by_id.len() <= id {
                index_by_id.resize(id + 1, GONE);
            }
            index_by_id[id] = index;
            let level = &policy.levels()[schema.level.0 as usize];
            flows.push(FlowFacts {
                cells: Arc::clone(cells),
                core,
                schema: Arc::clone(&schema.name),
                level: Arc::clone(&level.name),
                uids: uids.clone(),
            });
        }
        Self {
            view,
            enforcement: settings.enforcement,
            request_timeout: settings.request_timeout,
            max_queued: settings.max_queued,
            estimator: settings.estimator,
            spool: settings.spool,
            flows: flows.into(),
            index_by_id,
        }
    }

    /// What a request needs of the FlowSchema that it matched.
    pub fn flow(&self, schema: SchemaIndex) -> &FlowFacts {
        &self.flows[schema.0 as usize]
    }

    /// The cells of a FlowSchema by its stable id, which survives policy changes.
    pub(super) fn cells_of(&self, id: u32) -> Option<&FlowCells> {
        let index = *self.index_by_id.get(id as usize)?;
        self.flows.get(index as usize).map(|facts| &**facts.cells())
    }
}

/// The UIDs of each schema and its level as header values, which all cores share.
pub(super) fn flow_uids(policy: &Policy) -> Vec<FlowUids> {
    let levels: Vec<HeaderValue> = policy.levels().iter().map(|l| uid_header(&l.uid)).collect();
    let uids = |schema: &Schema| FlowUids {
        schema: uid_header(&schema.uid),
        level: levels[schema.level.0 as usize].clone(),
    };
    policy.schemas().iter().map(uids).collect()
}

/// A UID as a header value, never empty. One that is no valid header value is replaced by a fixed text.
fn uid_header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid)
        .ok()
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| HeaderValue::from_static("not-representable"))
}
