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
    apf::{SchemaIndex, dispatcher::PolicyView, policy::Schema, work::EstimatorSettings},
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
    /// How many bytes per second a client has to send while its request holds a seat that others need.
    pub min_send_rate: u64,
    core: u16,
    flows: Arc<PolicyFlows>,
}

/// What requests need of the FlowSchemas of a policy. All cores share it.
#[derive(Debug)]
pub(super) struct PolicyFlows {
    /// In the order of the policy.
    facts: Box<[FlowFacts]>,
    /// The index of each FlowSchema by its stable id; [`GONE`] for those that the policy no longer has.
    index_by_id: Box<[u32]>,
}

const GONE: u32 = u32::MAX;

/// The counters of one FlowSchema, one set per core. A set takes almost a kilobyte, and few of many FlowSchemas
/// are in use, so a core allocates its set with the first request.
pub(super) type CellsOfCores = Arc<[OnceLock<Arc<FlowCells>>]>;

/// What a request needs of the FlowSchema that it matched.
#[derive(Clone, Debug)]
pub struct FlowFacts {
    cells: CellsOfCores,
    /// Name of the schema.
    pub schema: Arc<str>,
    /// Name of its level.
    pub level: Arc<str>,
    /// UIDs of schema and level, ready to be put into headers.
    pub uids: FlowUids,
}

impl PolicyFlows {
    /// The FlowSchemas of `view`, whose counters are `cells`, in the same order.
    pub(super) fn new(view: &PolicyView<Waiter>, cells: &[CellsOfCores]) -> Self {
        let policy = view.policy();
        let mut index_by_id = Vec::new();
        for (index, _) in (0..).zip(policy.schemas()) {
            let id = view.schema_id(SchemaIndex(index)).0 as usize;
            if index_by_id.len() <= id {
                index_by_id.resize(id + 1, GONE);
            }
            index_by_id[id] = index;
        }
        let uids: Vec<HeaderValue> = policy.levels().iter().map(|l| uid_header(&l.uid)).collect();
        let facts = |(schema, cells): (&Schema, &CellsOfCores)| {
            let level = schema.level.0 as usize;
            FlowFacts {
                cells: Arc::clone(cells),
                schema: Arc::clone(&schema.name),
                level: Arc::clone(&policy.levels()[level].name),
                uids: FlowUids {
                    schema: uid_header(&schema.uid),
                    level: uids[level].clone(),
                },
            }
        };
        Self {
            facts: policy.schemas().iter().zip(cells).map(facts).collect(),
            index_by_id: index_by_id.into(),
        }
    }
}

impl CorePolicy {
    /// The policy for `core`; `flows` are those of the same view.
    pub(super) fn new(
        core: u16,
        view: Arc<PolicyView<Waiter>>,
        settings: &FlowControlSettings,
        flows: Arc<PolicyFlows>,
    ) -> Self {
        Self {
            view,
            enforcement: settings.enforcement,
            request_timeout: settings.request_timeout,
            max_queued: settings.max_queued,
            estimator: settings.estimator,
            spool: settings.spool,
            min_send_rate: settings.bodies.min_send_rate,
            core,
            flows,
        }
    }

    /// What a request needs of the FlowSchema that it matched.
    pub fn flow(&self, schema: SchemaIndex) -> &FlowFacts {
        &self.flows.facts[schema.0 as usize]
    }

    /// The counters of a FlowSchema on this core, allocated by the first call.
    pub fn cells(&self, schema: SchemaIndex) -> &Arc<FlowCells> {
        self.flow(schema).cells[self.core as usize].get_or_init(Arc::default)
    }

    /// The counters of a FlowSchema by its stable id, which survives policy changes.
    pub(super) fn cells_of(&self, id: u32) -> Option<&FlowCells> {
        let index = *self.flows.index_by_id.get(id as usize)?;
        (index != GONE).then(|| &**self.cells(SchemaIndex(index)))
    }
}

/// A UID as a header value, never empty. One that is no valid header value is replaced by a fixed text.
fn uid_header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid)
        .ok()
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| HeaderValue::from_static("not-representable"))
}
