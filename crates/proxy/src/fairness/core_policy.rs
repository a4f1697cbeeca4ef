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
    apf::{SchemaIndex, dispatcher::PolicyView, work::EstimatorSettings},
    cells::FlowCells,
};

/// The policy and the settings as one core uses them, with the data of each FlowSchema that requests need.
///
/// What each request refers to, a core has for itself: two cores that count their references in the same memory would wait
/// for each other with each request.
#[derive(Debug)]
pub struct CorePolicy {
    /// Policy and levels.
    pub view: PolicyView<Waiter>,
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
    /// In the order of the policy; made by the first request of each.
    facts: Box<[OnceLock<Box<FlowFacts>>]>,
}

/// The FlowSchemas of a policy. All cores share it.
#[derive(Debug)]
pub(super) struct PolicyFlows {
    /// In the order of the policy.
    cells: Box<[CellsOfCores]>,
    /// The index of each FlowSchema by its stable id; [`GONE`] for those that the policy no longer has.
    index_by_id: Box<[u32]>,
}

const GONE: u32 = u32::MAX;

/// The counters of one FlowSchema, one set per core. A set takes almost a kilobyte, and few of many FlowSchemas
/// are in use, so a core allocates its set with the first request.
pub(super) type CellsOfCores = Arc<[OnceLock<Arc<FlowCells>>]>;

/// What a request needs of the FlowSchema that it matched.
#[derive(Debug)]
pub struct FlowFacts {
    /// The counters of this core.
    pub cells: Arc<FlowCells>,
    /// Name of the schema.
    pub schema: Arc<str>,
    /// Name of its level.
    pub level: Arc<str>,
    /// UIDs of schema and level, ready to be put into headers.
    pub uids: Arc<FlowUids>,
}

impl PolicyFlows {
    /// The FlowSchemas of `view`, whose counters are `cells`, in the same order.
    pub(super) fn new(view: &PolicyView<Waiter>, cells: &[CellsOfCores]) -> Self {
        let mut index_by_id = Vec::new();
        for (index, _) in (0..).zip(view.policy().schemas()) {
            let id = view.schema_id(SchemaIndex(index)).0 as usize;
            if index_by_id.len() <= id {
                index_by_id.resize(id + 1, GONE);
            }
            index_by_id[id] = index;
        }
        Self {
            cells: cells.into(),
            index_by_id: index_by_id.into(),
        }
    }
}

impl CorePolicy {
    /// The policy for `core`; `flows` are those of the same view.
    pub(super) fn new(
        core: u16,
        view: &PolicyView<Waiter>,
        settings: &FlowControlSettings,
        flows: Arc<PolicyFlows>,
    ) -> Self {
        let schemas = view.policy().schemas();
        Self {
            view: view.for_core(),
            enforcement: settings.enforcement,
            request_timeout: settings.request_timeout,
            max_queued: settings.max_queued,
            estimator: settings.estimator,
            spool: settings.spool,
            min_send_rate: settings.bodies.min_send_rate,
            core,
            flows,
            facts: schemas.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// What a request needs of the FlowSchema that it matched.
    pub fn flow(&self, schema: SchemaIndex) -> &FlowFacts {
        let facts = &self.facts[schema.0 as usize];
        facts.get_or_init(|| Box::new(self.make_facts(schema)))
    }

    /// The counters of a FlowSchema on this core.
    pub fn cells(&self, schema: SchemaIndex) -> &Arc<FlowCells> {
        &self.flow(schema).cells
    }

    /// The counters of a FlowSchema by its stable id, which survives policy changes.
    pub(super) fn cells_of(&self, id: u32) -> Option<&FlowCells> {
        let index = *self.flows.index_by_id.get(id as usize)?;
        (index != GONE).then(|| &**self.cells(SchemaIndex(index)))
    }

    /// Copies of names and UIDs, not references to those of the policy.
    #[cold]
    fn make_facts(&self, schema: SchemaIndex) -> FlowFacts {
        let index = schema.0 as usize;
        let policy = self.view.policy();
        let schema = &policy.schemas()[index];
        let level = &policy.levels()[schema.level.0 as usize];
        let cells = self.flows.cells[index][self.core as usize].get_or_init(Arc::default);
        FlowFacts {
            cells: Arc::clone(cells),
            schema: Arc::from(&*schema.name),
            level: Arc::from(&*level.name),
            uids: Arc::new(FlowUids {
                schema: uid_header(&schema.uid),
                level: uid_header(&level.uid),
            }),
        }
    }
}

/// A UID as a header value, never empty. One that is no valid header value is replaced by a fixed text.
fn uid_header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid)
        .ok()
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| HeaderValue::from_static("not-representable"))
}
