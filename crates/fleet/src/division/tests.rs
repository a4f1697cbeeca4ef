//! The worked cases of flows that use several gateways.

use super::*;
use crate::{
    records::{FlowLoad, LevelLoad, TenantLoad},
    tests::report_of,
};

fn level(name: &str, nominal: Seats, total: Seats) -> FleetLevel {
    FleetLevel {
        name: name.to_owned(),
        limits: LevelLimits {
            nominal,
            min: nominal / 2,
            max: total,
        },
        exempt: false,
    }
}

fn division(levels: Vec<FleetLevel>) -> FleetDivision {
    FleetDivision {
        levels,
        tenant_weight: 4,
        floor: 1,
    }
}

/// A gateway with these flows of the level "low": hash, tenant, demand.
fn report(flows: &[(u64, u64, Seats)]) -> Report {
    let flow = |(flow, tenant, demand): &(u64, u64, Seats)| FlowLoad {
        level: "low".to_owned(),
        flow: *flow,
        tenant: *tenant,
        demand: *demand,
        work: 0,
    };
    let demand = flows.iter().map(|(_, _, demand)| *demand).sum();
    Report {
        levels: vec![LevelLoad {
            level: "low".to_owned(),
            demand,
            ..LevelLoad::default()
        }],
        flows: flows.iter().map(flow).collect(),
        ..report_of("a")
    }
}

fn seats(division: &FleetDivision, reports: &[Report], pool: Seats) -> Vec<Seats> {
    let reports: Vec<&Report> = reports.iter().collect();
    let targets = division.targets(&reports, pool);
    for target in &targets {
        let by_level: Seats = target.levels.iter().map(|level| level.seats).sum();
        assert_eq!(by_level, target.seats);
    }
    targets.iter().map(|target| target.seats).collect()
}

#[test]
fn a_flow_on_three_gateways_has_one_share_split_over_them() {
    let reports = [1, 2, 3].map(|mouse| report(&[(9, 9, 100), (mouse, mouse, 100)]));
    assert_eq!(
        seats(&division(vec![level("low", 60, 60)]), &reports, 60),
        [20, 20, 20]
    );
    let mice: Vec<_> = (1..10).map(|mouse| (mouse, mouse, 100)).collect();
    let all = [&[(99, 99, 100)][..], &mice].concat();
    let elephant = report(&[(99, 99, 100)]);
    let reports = [report(&all), elephant.clone(), elephant];
    assert_eq!(
        seats(&division(vec![level("low", 60, 60)]), &reports, 60),
        [56, 2, 2]
    );
}

#[test]
fn the_flows_of_one_tenant_weigh_no_more_than_the_tenant_may() {
    let many: Vec<_> = (1..9).map(|flow| (flow, 7, 100)).collect();
    let reports = [report(&many), report(&[(100, 100, 100)])];
    assert_eq!(
        seats(&division(vec![level("low", 60, 60)]), &reports, 60),
        [48, 12]
    );
}

#[test]
fn seats_that_nobody_asks_for_are_spread() {
    let reports = [report(&[(1, 1, 10)]), report(&[]), report(&[])];
    assert_eq!(
        seats(&division(vec![level("low", 40, 40)]), &reports, 40),
        [20, 10, 10]
    );
}

#[test]
fn a_level_borrows_what_another_does_not_need_over_the_whole_fleet() {
    let levels = vec![level("low", 40, 80), level("high", 40, 80)];
    let reports = [report(&[(1, 1, 100)]), report(&[(2, 2, 100)])];
    let refs: Vec<&Report> = reports.iter().collect();
    let targets = division(levels).targets(&refs, 80);
    let low: Seats = targets.iter().map(|target| target.levels[0].seats).sum();
    assert_eq!(low, 60);
    assert_eq!(targets.iter().map(|target| target.seats).sum::<Seats>(), 80);
}

#[test]
fn every_gateway_has_its_floor_and_no_more_is_given_than_there_is() {
    let mut division = division(vec![level("low", 10, 10)]);
    division.floor = 2;
    let reports = [
        report(&[(1, 1, 100)]),
        report(&[(1, 1, 1)]),
        report(&[(1, 1, 1)]),
    ];
    assert_eq!(seats(&division, &reports, 10), [6, 2, 2]);
}

#[test]
fn what_a_gateway_does_not_reach_goes_to_who_lacks_it() {
    let division = division(vec![level("low", 30, 30)]);
    let mut reports = [1, 2, 3].map(|flow| report(&[(flow, flow, 100)]));
    reports[1].reach = Some(4);
    assert_eq!(seats(&division, &reports, 30), [13, 4, 13]);
    // What nobody asks for is spread over those that reach it.
    let mut reports = [0, 0, 5].map(|demand| report(&[(7, 7, demand)]));
    reports[2].reach = Some(10);
    let spread = seats(&division, &reports, 30);
    assert_eq!((spread.iter().sum::<Seats>(), spread[2]), (30, 10));
    // What nobody reaches is left out.
    for report in &mut reports {
        report.reach = Some(4);
    }
    assert_eq!(seats(&division, &reports, 30), [4, 4, 4]);
}

#[test]
fn a_gateway_that_reaches_no_server_has_its_floor_while_another_reaches_one() {
    let mut division = division(vec![level("low", 30, 30)]);
    division.floor = 2;
    let mut reports = [1, 2, 3].map(|flow| report(&[(flow, flow, 100)]));
    for (report, reach) in reports.iter_mut().zip([0, 30, 30]) {
        report.reach = Some(reach);
    }
    assert_eq!(seats(&division, &reports, 30), [2, 14, 14]);
    // Where nobody reaches any, all are tried.
    for report in &mut reports {
        report.reach = Some(0);
    }
    assert_eq!(seats(&division, &reports, 30), [10, 10, 10]);
}

#[test]
fn flows_that_are_not_named_weigh_together_what_their_tenant_may() {
    let many = TenantLoad {
        level: "low".to_owned(),
        tenant: 9,
        flows: 100,
        demand: 100,
    };
    let mut reports = [&[(1, 1, 100)][..], &[], &[]].map(report);
    for report in &mut reports {
        report.levels[0].demand += 100;
        report.levels[0].unnamed = Some(100);
        report.tenants = vec![many.clone()];
    }
    let mut division = division(vec![level("low", 30, 30)]);
    division.tenant_weight = 1;
    // Two tenants: 15 seats each, a third of those of the second at each gateway.
    assert_eq!(seats(&division, &reports, 30), [20, 5, 5]);
    // A flow that gateways name is one of those, wherever it is.
    for report in &mut reports {
        report.levels[0].demand += 1;
        report.flows.push(FlowLoad {
            level: "low".to_owned(),
            flow: 2,
            tenant: 9,
            demand: 1,
            work: 0,
        });
    }
    assert_eq!(seats(&division, &reports, 30), [20, 5, 5]);
}

#[test]
fn tenants_that_are_not_told_of_weigh_1_each() {
    let mut reports = [&[][..], &[(1, 1, 100)]].map(report);
    reports[0].levels[0].demand = 100;
    reports[0].levels[0].unnamed = Some(100);
    reports[0].levels[0].unnamed_tenants = 29;
    let division = division(vec![level("low", 30, 30)]);
    assert_eq!(seats(&division, &reports, 30), [29, 1]);
}
