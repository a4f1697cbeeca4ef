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
    records::{LedgerEntry, Report, SeatLedger, Standing, TenantFlows},
};

/// The tenants of a ledger, those with the most flows: as many as have numbers for so many gateways together, so that a ledger has at most
/// some tens of KiB more for them.
const MOST_NUMBERS: usize = 1024;

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

/// The tenants that have several flows and are active at several gateways: those with the most flows, within [`MOST_NUMBERS`]. In order of level
/// and hash. `entries` are those of the ledger; only reports of members count that go on.
pub(crate) fn spread_tenants(entries: &[LedgerEntry], reports: &[&Report]) -> Vec<TenantFlows> {
    let goes_on = |gateway: &GatewayRun| {
        let place = entries.iter().position(|entry| entry.gateway == *gateway)?;
        let entry = &entries[place];
        (entry.standing == Standing::Member && !entry.reported.leaving).then_some(place)
    };
    let (places, reports): (Vec<usize>, Vec<&Report>) = reports
        .iter()
        .filter_map(|report| Some((goes_on(&report.gateway)?, *report)))
        .unzip();
    let levels = reports.iter().flat_map(|report| &report.levels);
    let levels: BTreeSet<&str> = levels.map(|level| level.level.as_str()).collect();
    let mut spread = Vec::new();
    for level in levels {
        for (hash, tenant) in tenants_of(level, &reports) {
            if tenant.at.len() < 2 || tenant.flows() < 2 {
                continue;
            }
            let at = tenant.by_report().map(|(place, at)| {
                let flows = at.named.saturating_add(at.unnamed);
                (places[place], flows)
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
    let mut numbers = 0;
    spread.retain(|tenant| {
        // Counted also for tenants that are left out, so that no smaller tenant is kept in place of a larger one.
        numbers += tenant.at.len();
        numbers <= MOST_NUMBERS
    });
    // An order that does not change with the numbers of flows, by which `differ_much` compares two ledgers.
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
    let place = ledger
        .entries
        .iter()
        .position(|entry| entry.gateway == *own);
    let tenants = ledger.tenants.iter();
    let elsewhere = tenants.map(|tenant| {
        let here = tenant
            .at
            .iter()
            .find(|(gateway, _)| Some(*gateway) == place);
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
        grants::Grants,
        records::{FlowLoad, LevelLoad, Reported, TenantLoad},
        tests::report_of,
    };

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
            ..report_of(name)
        }
    }

    fn entry(name: &str) -> LedgerEntry {
        LedgerEntry {
            gateway: report_of(name).gateway,
            standing: Standing::Member,
            grant: 1,
            levels: Vec::new(),
            reported: Reported::default(),
            outstanding: Grants::default(),
        }
    }

    #[test]
    fn a_flow_that_several_gateways_name_is_one_flow() {
        let reports = [report("a", &[1, 2], 0), report("b", &[2, 3], 10)];
        let reports: Vec<&Report> = reports.iter().collect();
        let entries = ["0", "b", "a"].map(entry);
        let spread = spread_tenants(&entries, &reports);
        assert_eq!(spread.len(), 1, "{spread:?}");
        assert_eq!(spread[0].flows, 3 + 10);
        assert_eq!(spread[0].at, [(2, 2), (1, 2 + 10)]);
        let ledger = SeatLedger {
            entries: entries.into(),
            tenants: spread,
            ..SeatLedger::default()
        };
        let [at_a, at_b, at_c] =
            ["a", "b", "c"].map(|own| elsewhere(&ledger, &report_of(own).gateway));
        assert_eq!(at_a[0].flows, 11);
        assert_eq!(at_b[0].flows, 1);
        assert_eq!(at_c[0].flows, 13, "it is not there yet");
    }

    #[test]
    fn a_tenant_of_one_gateway_or_of_one_flow_is_not_told() {
        let entries = ["a", "b"].map(entry);
        let tenants =
            |reports: [Report; 2]| spread_tenants(&entries, &[&reports[0], &reports[1]]).len();
        assert_eq!(tenants([report("a", &[1, 2], 9), report("b", &[], 0)]), 1);
        let mut none = report("b", &[], 0);
        none.tenants.clear();
        assert_eq!(tenants([report("a", &[1, 2], 9), none.clone()]), 0);
        let mut one = report("a", &[1], 0);
        one.tenants.clear();
        none.flows.clone_from(&one.flows);
        assert_eq!(tenants([one, none]), 0);
    }

    /// Their last reports stay in the engine, and are out of date.
    #[test]
    fn gateways_that_are_gone_or_leave_do_not_count() {
        let reports = [report("a", &[1], 9), report("b", &[], 500)];
        let reports: Vec<&Report> = reports.iter().collect();
        let mut entries = ["a", "b"].map(entry);
        assert_eq!(spread_tenants(&entries, &reports).len(), 1);
        entries[1].reported.leaving = true;
        assert_eq!(spread_tenants(&entries, &reports), []);
        entries[1].reported.leaving = false;
        for standing in [Standing::Silent, Standing::Gone] {
            entries[1].standing = standing;
            assert_eq!(spread_tenants(&entries, &reports), []);
        }
        assert_eq!(spread_tenants(&entries[..1], &reports), []);
        entries[1] = entry("b");
        entries[1].gateway.incarnation = 2;
        assert_eq!(spread_tenants(&entries, &reports), [], "a later run");
    }

    /// A Lease of Kubernetes has room for 256 KiB.
    #[test]
    fn whatever_tenants_come_a_ledger_stays_small() {
        let names: Vec<String> = (0..100).map(|number| format!("gateway-{number}")).collect();
        let entries: Vec<LedgerEntry> = names.iter().map(|name| entry(name)).collect();
        let reports: Vec<Report> = names
            .iter()
            .map(|name| {
                let mut report = report(name, &[], 0);
                report.tenants = (0..64)
                    .map(|tenant| TenantLoad {
                        level: "a-level-with-a-long-name".to_owned(),
                        tenant: u64::MAX - tenant,
                        flows: u32::MAX,
                        demand: u32::MAX,
                    })
                    .collect();
                report.levels[0].level = "a-level-with-a-long-name".to_owned();
                report
            })
            .collect();
        let reports: Vec<&Report> = reports.iter().collect();
        let spread = spread_tenants(&entries, &reports);
        assert_eq!(spread.len(), MOST_NUMBERS / 100);
        assert_eq!(spread[0].flows, u32::MAX);
        let size = serde_json::to_vec(&spread).unwrap().len();
        assert!(size < 32 << 10, "{size} bytes");
    }

    #[test]
    fn a_few_more_flows_are_not_worth_a_ledger() {
        let told = |flows| {
            vec![TenantFlows {
                level: "low".to_owned(),
                tenant: 7,
                flows,
                at: vec![(0, flows), (1, 1)],
            }]
        };
        assert!(!differ_much(&told(80), &told(90)));
        assert!(differ_much(&told(80), &told(91)));
        assert!(differ_much(&told(4), &told(5)));
        assert!(differ_much(&told(4), &[]));
    }
}
