//! What a gateway reports of its flows: what they use and ask for, and what they have received.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use crate::{
    gateway::Load,
    records::{FlowLoad, LevelLoad, TenantLoad},
};
use fairgate_core::{
    apf::{
        Seats,
        dispatcher::{Dispatcher, LevelUse},
        queueset::FlowUse,
    },
    time::Time,
};

/// The flows of a report.
const MOST_FLOWS: usize = 64;
/// The tenants of a report: those with the most flows that are not among [`MOST_FLOWS`].
const MOST_TENANTS: usize = 64;
/// The flows of a level that are looked at for a report, under the lock of the level.
const MOST_EXAMINED: usize = 4096;

/// What each flow received here, by level and flow: seats in use at each sample, times the time since the last. Flows that are not
/// active at a sample are forgotten: when they come back, their work counts from 0, as that of a gateway that was restarted.
///
/// Samples must be taken at random moments. What flows hold follows the turns of the protocol: a flow that was charged for what it
/// received elsewhere gets less after a turn and more before the next, so samples at turns would count it wrongly.
#[derive(Debug, Default)]
pub struct ReceivedWork {
    sampled: Option<Time>,
    by_flow: BTreeMap<(Arc<str>, u64), u64>,
}

impl ReceivedWork {
    /// Adds what flows have received since the last sample, if they held what they hold at `now`.
    pub fn sample<W: Copy>(&mut self, now: Time, dispatcher: &Dispatcher<W>) {
        let mut flows = active(dispatcher);
        flows.truncate(MOST_FLOWS);
        self.add(now, &mut flows);
    }

    /// What the gateway reports: what all levels use, and the flows that ask for most.
    pub fn load<W: Copy>(&self, dispatcher: &Dispatcher<W>) -> Load {
        let uses = dispatcher.level_uses();
        let mut flows = active(dispatcher);
        let mut unnamed = BTreeMap::new();
        for (level, _, _) in &flows {
            unnamed.insert(Arc::clone(level), 0);
        }
        let others = flows.split_off(MOST_FLOWS.min(flows.len()));
        for (level, used, _) in &others {
            let rest: &mut Seats = unnamed.entry(Arc::clone(level)).or_default();
            *rest = rest.saturating_add(used.demand);
        }
        let mut tenants = tenants(others);
        let mut untold: BTreeMap<String, u32> = BTreeMap::new();
        for tenant in tenants.split_off(MOST_TENANTS.min(tenants.len())) {
            *untold.entry(tenant.level).or_default() += 1;
        }
        let flow = |(level, used, _): (Arc<str>, FlowUse, u64)| {
            let key = (level, used.flow);
            FlowLoad {
                work: self.by_flow.get(&key).copied().unwrap_or(0),
                level: key.0.to_string(),
                flow: used.flow,
                tenant: used.tenant,
                demand: used.demand,
            }
        };
        let level = |level: &LevelUse| LevelLoad {
            level: level.level.to_string(),
            held: level.held(),
            demand: Seats::try_from(level.demand).unwrap_or(Seats::MAX),
            unnamed: unnamed.get(&level.level).copied(),
            unnamed_tenants: untold.get(&*level.level).copied().unwrap_or(0),
        };
        Load {
            executing: uses.iter().map(LevelUse::held).sum(),
            reach: None,
            hash_key_mark: None,
            levels: uses.iter().map(level).collect(),
            flows: flows.into_iter().map(flow).collect(),
            tenants,
        }
    }

    fn add(&mut self, now: Time, flows: &mut [(Arc<str>, FlowUse, u64)]) {
        let elapsed = now.since(self.sampled.replace(now).unwrap_or(now));
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let mut before = std::mem::take(&mut self.by_flow);
        for (level, used, work) in flows {
            let key = (Arc::clone(level), used.flow);
            let received = millis.saturating_mul(used.in_use.into());
            *work = before.remove(&key).unwrap_or(0).saturating_add(received);
            self.by_flow.insert(key, *work);
        }
    }
}

/// The tenants that own these flows, those with the most of them first.
fn tenants(flows: Vec<(Arc<str>, FlowUse, u64)>) -> Vec<TenantLoad> {
    let mut tenants: BTreeMap<(Arc<str>, u64), TenantLoad> = BTreeMap::new();
    for (level, used, _) in flows {
        let tenant = tenants.entry((level, used.tenant)).or_default();
        tenant.flows += 1;
        tenant.demand = tenant.demand.saturating_add(used.demand);
    }
    let tenants = tenants
        .into_iter()
        .map(|((level, tenant), load)| TenantLoad {
            level: level.to_string(),
            tenant,
            ..load
        });
    let mut tenants: Vec<TenantLoad> = tenants.collect();
    tenants.sort_by_key(|tenant| (Reverse(tenant.flows), tenant.tenant));
    tenants
}

/// The flows that use or ask for seats, those that ask for most first, with room for their work.
fn active<W: Copy>(dispatcher: &Dispatcher<W>) -> Vec<(Arc<str>, FlowUse, u64)> {
    let mut flows = Vec::new();
    for (name, level) in dispatcher.levels() {
        let uses: Vec<_> = level.inspect(|set| set.flow_uses(MOST_EXAMINED).collect());
        flows.extend(uses.into_iter().map(|used| (Arc::clone(&name), used, 0)));
    }
    flows.sort_by_key(|(_, used, _)| (Reverse(used.demand), used.flow));
    flows
}
