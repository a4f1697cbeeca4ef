//! How many flows each tenant has over the fleet, so that a tenant with many names weighs no more at several gateways than at one.
//!
//! A report names the most active flows of its gateway, and how many further ones the tenants with the most of them have. A flow that is
//! named by several gateways is one flow. Of the others it is not known, so each counts where it is: a flow that is among them at
//! three gateways has three small weights in place of one, and no more.
//!
//! Not here: what a flow weighs then (`division`, and the queue sets of the gateways).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use fairgate_core::apf::Seats;

use crate::{
    identity::GatewayRun,
    records::{Report, SeatLedger, TenantFlows},
};

/// The tenants of a ledger: those with the most flows.
const MOST_TENANTS: usize = 256;

/// The flows of one tenant in one level, over all gateways.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantInFleet {
    /// Those that some report names.
    named: BTreeSet<u64>,
    /// By place of the report: named and further ones.
    at: BTreeMap<usize, FlowsAt>,
}

/// What flows of a tenant are at one gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowsAt {
    /// How many are named.
    named: u32,
    /// How many are not.
    pub(crate) unnamed: u32,
    /// Seats that those which are not named use and ask for.
    pub(crate) unnamed_demand: Seats,
}

impl TenantInFleet {
    /// How many flows it has: at least 1 if it has any.
    pub(crate) fn flows(&self) -> u32 {
        let named = u32::try_from(self.named.len()).unwrap_or(u32::MAX);
        let unnamed = self.at.values().map(|at| at.unnamed);
        unnamed.fold(named, u32::saturating_add)
    }

    /// What each of its flows weighs, if all together may weigh `allowance`.
    pub(crate) fn weight_of_each(&self, allowance: u32) -> f64 {
        (f64::from(allowance) / f64::from(self.flows().max(1))).min(1.0)
    }

    /// Its flows by place of the report.
    pub(crate) fn by_report(&self) -> impl Iterator<Item = (usize, FlowsAt)> {
        self.at.iter().map(|(place, at)| (*place, *at))
    }
}

/// The tenants of one level that reports tell of, by hash.
pub(crate) fn tenants_of(level: &str, reports: &[&Report]) -> BTreeMap<u64, TenantInFleet> {
    let mut tenants: BTreeMap<u64, TenantInFleet> = BTreeMap::new();
    for (place, report) in reports.iter().enumerate() {
        let flows = report.flows.iter().filter(|flow| flow.level == level);
        for flow in flows.filter(|flow| flow.demand > 0) {
            let tenant = tenants.entry(flow.tenant).or_default();
            tenant.named.insert(flow.flow);
            tenant.at.entry(place).or_default().named += 1;
        }
        for load in report.tenants.iter().filter(|load| load.level == level) {
            let tenant = tenants.entry(load.tenant).or_default();
            let at = tenant.at.entry(place).or_default();
            at.unnamed = at.unnamed.saturating_add(load.flows);
            at.unnamed_demand = at.unnamed_demand.saturating_add(load.demand);
        }
    }
    tenants
}

/// The tenants that have several flows and are active at several gateways: at most [`MOST_TENANTS`], those with the most flows. In order of level
/// and hash.
pub(crate) fn spread_tenants(reports: &[&Report]) -> Vec<TenantFlows> {
    let levels = reports.iter().flat_map(|report| &report.levels);
    let levels: BTreeSet<&str> = levels.map(|level| level.level.as_str()).collect();
    let mut spread = Vec::new();
    for level in levels {
        for (hash, tenant) in tenants_of(level, reports) {
            if tenant.at.len() < 2 || tenant.flows() < 2 {
                continue;
            }
            let at = tenant.by_report().map(|(place, at)| {
                let flows = at.named.saturating_add(at.unnamed);
                (reports[place].gateway.clone(), flows)
            });
            spread.push(TenantFlows {
                level: level.to_owned(),
                tenant: hash,
                flows: tenant.flows(),
                at: at.collect(),
            });
        }
    }
    spread.sort_by_key(|tenant| Reverse(tenant.flows));
    spread.truncate(MOST_TENANTS);
    spread.sort_by(|a, b| (&a.level, a.tenant).cmp(&(&b.level, b.tenant)));
    spread
}

/// Whether a ledger with `now` would tell gateways enough that one with `before` does not: a tenant more or less, or an eighth more or
/// fewer flows of one somewhere.
pub(crate) fn differ_much(before: &[TenantFlows], now: &[TenantFlows]) -> bool {
    let differs = |before: u32, now: u32| before.abs_diff(now) > before / 8;
    let pair = |(before, now): (&TenantFlows, &TenantFlows)| {
        (&before.level, before.tenant) != (&now.level, now.tenant)
            || differs(before.flows, now.flows)
            || before.at.len() != now.at.len()
            || before
                .at
                .iter()
                .zip(&now.at)
                .any(|(before, now)| before.0 != now.0 || differs(before.1, now.1))
    };
    before.len() != now.len() || before.iter().zip(now).any(pair)
}

/// The flows of a tenant at other gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantElsewhere {
    /// The name of the level.
    pub level: String,
    /// The keyed hash of the tenant.
    pub tenant: u64,
    /// How many; above 0. Those that are active at this gateway, too, do not count.
    pub flows: u32,
}

/// What tenants have at gateways other than `own`, by this ledger.
pub(crate) fn elsewhere(ledger: &SeatLedger, own: &GatewayRun) -> Vec<TenantElsewhere> {
    let tenants = ledger.tenants.iter();
    let elsewhere = tenants.map(|tenant| {
        let here = tenant.at.iter().find(|(gateway, _)| gateway == own);
        TenantElsewhere {
            level: tenant.level.clone(),
            tenant: tenant.tenant,
            flows: tenant
                .flows
                .saturating_sub(here.map_or(0, |(_, flows)| *flows)),
        }
    });
    elsewhere.filter(|tenant| tenant.flows > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::Epoch,
        records::{FORMAT_VERSION, FlowLoad, LevelLoad, TenantLoad},
    };

    fn run(name: &str) -> GatewayRun {
        GatewayRun {
            name: name.to_owned(),
            incarnation: 1,
        }
    }

    /// A gateway at which tenant 7 has these flows, and so many that are not named.
    fn report(name: &str, flows: &[u64], unnamed: u32) -> Report {
        let flow = |flow: &u64| FlowLoad {
            level: "low".to_owned(),
            flow: *flow,
            tenant: 7,
            demand: 1,
            work: 0,
        };
        Report {
            version: FORMAT_VERSION,
            gateway: run(name),
            sequence: 1,
            epoch: Epoch(0),
            held: 0,
            lapsed: false,
            settled: true,
            leaving: false,
            terms: String::new(),
            levels: vec![LevelLoad {
                level: "low".to_owned(),
                ..LevelLoad::default()
            }],
            flows: flows.iter().map(flow).collect(),
            tenants: vec![TenantLoad {
                level: "low".to_owned(),
                tenant: 7,
                flows: unnamed,
                demand: unnamed,
            }],
        }
    }

    #[test]
    fn a_flow_that_several_gateways_name_is_one_flow() {
        let reports = [report("a", &[1, 2], 0), report("b", &[2, 3], 10)];
        let reports: Vec<&Report> = reports.iter().collect();
        let spread = spread_tenants(&reports);
        assert_eq!(spread.len(), 1, "{spread:?}");
        assert_eq!(spread[0].flows, 3 + 10);
        assert_eq!(spread[0].at, [(run("a"), 2), (run("b"), 2 + 10)]);
        let ledger = SeatLedger {
            tenants: spread,
            ..SeatLedger::default()
        };
        let [at_a, at_b, at_c] = ["a", "b", "c"].map(|own| elsewhere(&ledger, &run(own)));
        assert_eq!(at_a[0].flows, 11);
        assert_eq!(at_b[0].flows, 1);
        assert_eq!(at_c[0].flows, 13, "it is not there yet");
    }

    #[test]
    fn a_tenant_of_one_gateway_or_of_one_flow_is_not_told() {
        let tenants = |reports: [Report; 2]| spread_tenants(&[&reports[0], &reports[1]]).len();
        assert_eq!(tenants([report("a", &[1, 2], 9), report("b", &[], 0)]), 1);
        let mut none = report("b", &[], 0);
        none.tenants.clear();
        assert_eq!(tenants([report("a", &[1, 2], 9), none.clone()]), 0);
        let mut one = report("a", &[1], 0);
        one.tenants.clear();
        none.flows.clone_from(&one.flows);
        assert_eq!(tenants([one, none]), 0);
    }

    #[test]
    fn a_few_more_flows_are_not_worth_a_ledger() {
        let told = |flows| {
            vec![TenantFlows {
                level: "low".to_owned(),
                tenant: 7,
                flows,
                at: vec![(run("a"), flows), (run("b"), 1)],
            }]
        };
        assert!(!differ_much(&told(80), &told(90)));
        assert!(differ_much(&told(80), &told(91)));
        assert!(differ_much(&told(4), &told(5)));
        assert!(differ_much(&told(4), &[]));
    }
}
