//! The dump of tenants, which kube-apiserver does not have: whose flows weigh how much in each level.
//!
//! The core knows tenants by their hashes. To name one, the core of one of its requests is asked what the request is. Levels
//! are copied one after the other, each under its lock; everything else happens afterwards.
//!
//! Not here: who can read it ([`crate::ports::dumps_layer`], [`crate::ports::admin`]), what a tenant is (`fairgate_core::apf::policy`).

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::described_requests::describe;
use crate::aligned_table::AlignedTable;
use fairgate_core::{
    apf::{
        Policy,
        dispatcher::SchemaId,
        level::Level,
        policy::TenantName,
        queueset::{Phase, TenantReport},
    },
    digest::{RequestDigest, readable},
};
use fairgate_proxy::fairness::{FlowControl, Waiter};

/// The tenants of each level that are shown.
const MOST_TENANTS: usize = 100;

/// A tenant with flows in a level.
struct TenantRow {
    level: Arc<str>,
    tenant: TenantReport,
    /// Its waiting requests, under flows of others, too.
    waiting: u32,
    /// The seats that its requests hold.
    seats: u32,
    /// One of its requests that has not ended, and the number of its FlowSchema.
    request: Option<(Waiter, u32)>,
}

/// The [`MOST_TENANTS`] heaviest tenants of each level, one row each. O(requests · log(requests)); waits at most a second for
/// cores to describe requests. To be called on the control runtime.
pub(crate) async fn make(flow_control: &Arc<FlowControl>) -> String {
    let levels = flow_control.dispatcher().levels();
    let rows: Vec<TenantRow> = levels
        .iter()
        .flat_map(|(name, level)| heaviest(name, level))
        .collect();
    let requests = rows.iter().filter_map(|row| Some(row.request?.0));
    let digests = describe(flow_control, requests).await;
    let view = flow_control.dispatcher().view();
    let mut table = AlignedTable::new(&[
        "PriorityLevelName",
        "TenantKind",
        "Tenant",
        "Flows",
        "Weight",
        "WaitingRequests",
        "SeatsInUse",
    ]);
    for row in &rows {
        let known = row.request.and_then(|(waiter, schema)| {
            let schema = flow_control.dispatcher().schema_name(SchemaId(schema));
            named(view.policy(), &schema, digests.get(&waiter)?)
        });
        let (kind, name) = known.unwrap_or_else(|| ("unknown", String::new()));
        table.row([
            row.level.to_string(),
            kind.to_owned(),
            name,
            row.tenant.flows.to_string(),
            weight_text(row.tenant.weight),
            row.waiting.to_string(),
            row.seats.to_string(),
        ]);
    }
    table.to_text()
}

/// The kind and name of the tenant of a request by the current policy. A flow that is a tenant has the name of its FlowSchema
/// and its distinguisher.
fn named(policy: &Policy, schema: &str, digest: &RequestDigest) -> Option<(&'static str, String)> {
    let index = policy.schema_by_name(schema)?;
    let tenant = policy.tenant(index, digest);
    let name = match tenant {
        TenantName::Flow => {
            let distinguisher = policy.distinguisher(index, digest);
            format!("{schema}/{}", readable(distinguisher))
        }
        _ => tenant.name(),
    };
    Some((tenant.kind(), name))
}

/// A whole weight as such, any other with two decimals.
fn weight_text(weight: f64) -> String {
    let text = format!("{weight:.2}");
    text.strip_suffix(".00").map_or(text.clone(), str::to_owned)
}

/// What counts of a request.
#[derive(Clone, Copy)]
struct TenantRequest {
    tenant: u64,
    phase: Phase,
    seats: u32,
    waiter: Waiter,
    schema: u32,
}

fn heaviest(name: &Arc<str>, level: &Level<Waiter>) -> Vec<TenantRow> {
    let (tenants, requests) = read(level);
    let row = |tenant: TenantReport| TenantRow {
        level: Arc::clone(name),
        tenant,
        waiting: 0,
        seats: 0,
        request: None,
    };
    let rows = tenants.into_iter().map(|tenant| (tenant.hash, row(tenant)));
    let mut rows: BTreeMap<u64, TenantRow> = rows.collect();
    for request in requests {
        if let Some(row) = rows.get_mut(&request.tenant) {
            row.count(request);
        }
    }
    let mut rows: Vec<TenantRow> = rows.into_values().collect();
    let load = |row: &TenantRow| u64::from(row.waiting) + u64::from(row.seats);
    rows.sort_by_key(|row| Reverse((row.tenant.flows, load(row))));
    // A stable sort: equally heavy ones stay in that order.
    rows.sort_by(|a, b| b.tenant.weight.total_cmp(&a.tenant.weight));
    rows.truncate(MOST_TENANTS);
    rows
}

/// The tenants of a level, and all its requests if there are any tenants.
fn read(level: &Level<Waiter>) -> (Vec<TenantReport>, Vec<TenantRequest>) {
    level.inspect(|set| {
        let tenants: Vec<TenantReport> = set.tenants().collect();
        let mut requests = Vec::new();
        if tenants.is_empty() {
            return (tenants, requests);
        }
        let summary = set.summary();
        let present = summary.waiting + summary.executing + summary.lingering;
        requests.reserve(present as usize);
        set.visit(|entry| {
            requests.push(TenantRequest {
                tenant: entry.tenant_hash(),
                phase: entry.phase,
                seats: entry.seats,
                waiter: entry.waiter,
                schema: entry.schema,
            });
        });
        (tenants, requests)
    })
}

impl TenantRow {
    fn count(&mut self, request: TenantRequest) {
        match request.phase {
            Phase::Waiting => self.waiting += 1,
            Phase::Executing | Phase::Lingering => {
                self.seats = self.seats.saturating_add(request.seats);
            }
        }
        if request.phase != Phase::Lingering {
            let known = Some((request.waiter, request.schema));
            self.request = self.request.or(known);
        }
    }
}
