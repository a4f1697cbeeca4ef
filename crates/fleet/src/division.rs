//! The division: who should have how many seats.
//!
//! Borrowing over the demand of all gateways gives each level its limit in the fleet. In a level, flows get weighted
//! max-min shares; a tenant's flows weigh at most `tenant_weight` together, counted over the fleet. Each share is split over gateways
//! by the flow's demand there. Seats that nobody asks for are spread evenly. A gateway has no more than it reaches (`reach`).
//!
//! Flows that a gateway does not name are one for each tenant that it tells of, with the weight of all of them. What else it asks for
//! counts as one flow that weighs as much as there are tenants, 1 each.
//!
//! Not here: whether these seats are free to be granted (`book`).

mod reach;

use std::collections::BTreeMap;

use fairgate_core::{
    apf::{
        Seats,
        borrowing::{LevelDemand, LevelLimits, divide_seats},
    },
    fairness::weighted_max_min_shares,
};

use crate::{
    book::{SeatTarget, in_proportion},
    records::{LevelGrant, LevelLoad, Report},
    tenants::tenants_of,
};
use reach::{Reach, keep_within_reach};

/// One level of the policy.
#[derive(Clone, Debug)]
pub struct FleetLevel {
    /// The name of the PriorityLevelConfiguration.
    pub name: String,
    /// Its limits, of the seats of all servers.
    pub limits: LevelLimits,
    /// Whether nothing holds its requests back.
    pub exempt: bool,
}

/// What the division follows besides reports.
#[derive(Clone, Debug)]
pub struct FleetDivision {
    /// All levels.
    pub levels: Vec<FleetLevel>,
    /// What the flows of one tenant weigh together at most.
    pub tenant_weight: u32,
    /// The seats that each gateway has at least.
    pub floor: Seats,
}

/// Parts of a seat in which shares are computed.
const PARTS: f64 = 1e6;

impl FleetDivision {
    /// The target of each gateway, in the order of the reports. Sums to `pool`, or to the floors if these are more; to less if the
    /// gateways together reach less.
    ///
    /// `O(levels · flows²)` with few allocations; for a timer.
    pub fn targets(&self, reports: &[&Report], pool: Seats) -> Vec<SeatTarget> {
        let limits = self.level_limits(reports, pool);
        let mut targets = vec![SeatTarget::default(); reports.len()];
        for (level, limit) in self.levels.iter().zip(limits) {
            let parts = self.level_parts(&level.name, reports, limit);
            for (target, seats) in targets.iter_mut().zip(parts) {
                target.seats += seats;
                target.levels.push(LevelGrant {
                    level: level.name.clone(),
                    seats,
                });
            }
        }
        keep_within_reach(&mut targets, &self.reaches(reports));
        self.raise_to_floors(&mut targets);
        targets
    }

    /// What each gateway can use.
    fn reaches(&self, reports: &[&Report]) -> Vec<Reach> {
        let demand = |report: &Report, level: &FleetLevel| {
            let own = report.levels.iter().find(|own| own.level == level.name);
            own.map_or(0, |own| own.demand)
        };
        // Where nobody reaches a server, all try all.
        let reaches_any = |report: &&Report| report.reach != Some(0);
        let is_any_reached = reports.iter().any(reaches_any);
        let reach = |report: &&Report| Reach {
            seats: report
                .reach
                .filter(|_| is_any_reached)
                .unwrap_or(Seats::MAX),
            demand: self
                .levels
                .iter()
                .map(|level| demand(report, level))
                .collect(),
        };
        reports.iter().map(reach).collect()
    }

    /// The limit of each level over the fleet; sums to `pool`.
    fn level_limits(&self, reports: &[&Report], pool: Seats) -> Vec<Seats> {
        let demand = |level: &FleetLevel| LevelDemand {
            exempt: level.exempt,
            limits: level.limits,
            demand: reports
                .iter()
                .flat_map(|report| &report.levels)
                .filter(|at| at.level == level.name)
                .map(|at| u64::from(at.demand))
                .sum(),
        };
        let demands: Vec<_> = self.levels.iter().map(demand).collect();
        let limits = divide_seats(&demands);
        // Nominal limits are rounded up, and floors and former gateways take seats away: less than their sum is there.
        let wants: Vec<u64> = limits
            .iter()
            .map(|seats| u64::from(*seats) * 1000)
            .collect();
        to_seats(&in_proportion(&wants, pool.into()))
    }

    /// The seats of one level at each gateway; sums to `limit`.
    fn level_parts(&self, level: &str, reports: &[&Report], limit: Seats) -> Vec<Seats> {
        if reports.is_empty() {
            return Vec::new();
        }
        let flows = self.flows(level, reports);
        let demands: Vec<f64> = flows.iter().map(|flow| f64::from(flow.demand())).collect();
        let weights: Vec<f64> = flows.iter().map(|flow| flow.weight).collect();
        let shares = weighted_max_min_shares(&demands, &weights, limit.into());
        let mut parts = vec![0.0; reports.len()];
        for (flow, share) in flows.iter().zip(&shares) {
            for (gateway, demand) in &flow.by_gateway {
                parts[*gateway] += share * f64::from(*demand) / f64::from(flow.demand());
            }
        }
        let gateways = f64::from(u32::try_from(reports.len()).unwrap_or(u32::MAX));
        let spare = (f64::from(limit) - shares.iter().sum::<f64>()).max(0.0) / gateways;
        let wants: Vec<u64> = parts.iter().map(|part| in_parts(part + spare)).collect();
        to_seats(&in_proportion(&wants, limit.into()))
    }

    /// The flows of a level that ask for seats, with their weights. Those of a tenant that are not named are one for each gateway.
    fn flows(&self, level: &str, reports: &[&Report]) -> Vec<FleetFlow> {
        let tenants = tenants_of(level, reports);
        let mut named: BTreeMap<u64, FleetFlow> = BTreeMap::new();
        let mut others = Vec::new();
        let mut told = vec![Told::default(); reports.len()];
        for (gateway, report) in reports.iter().enumerate() {
            let flows = report.flows.iter().filter(|flow| flow.level == level);
            for flow in flows.filter(|flow| flow.demand > 0) {
                told[gateway].flows += u64::from(flow.demand);
                let entry = named.entry(flow.flow).or_insert_with(|| FleetFlow {
                    weight: tenants[&flow.tenant].weight_of_each(self.tenant_weight),
                    by_gateway: Vec::new(),
                });
                entry.by_gateway.push((gateway, flow.demand));
            }
        }
        for tenant in tenants.values() {
            let weight = tenant.weight_of_each(self.tenant_weight);
            let unnamed = tenant.by_report().filter(|(_, at)| at.unnamed_demand > 0);
            for (gateway, at) in unnamed {
                told[gateway].tenants += u64::from(at.unnamed_demand);
                others.push(FleetFlow {
                    weight: weight * f64::from(at.unnamed.max(1)),
                    by_gateway: vec![(gateway, at.unnamed_demand)],
                });
            }
        }
        let rest = (0..)
            .zip(reports)
            .zip(told)
            .filter_map(|((gateway, report), told)| {
                let at = report.levels.iter().find(|at| at.level == level)?;
                let demand = told.rest(at);
                (demand > 0).then(|| FleetFlow {
                    weight: f64::from(at.unnamed_tenants.max(1)),
                    by_gateway: vec![(gateway, demand)],
                })
            });
        others.extend(rest);
        named.into_values().chain(others).collect()
    }

    /// Gives gateways with less than the floor what they lack, of whoever has most.
    fn raise_to_floors(&self, targets: &mut [SeatTarget]) {
        for index in 0..targets.len() {
            while targets[index].seats < self.floor {
                let richest = (0..targets.len()).max_by_key(|other| targets[*other].seats);
                let Some(richest) = richest.filter(|other| targets[*other].seats > self.floor)
                else {
                    break;
                };
                let largest = targets[richest]
                    .levels
                    .iter_mut()
                    .max_by_key(|level| level.seats);
                let Some(largest) = largest else { break };
                largest.seats -= 1;
                let level = largest.level.clone();
                targets[richest].seats -= 1;
                targets[index].seats += 1;
                let own = targets[index].levels.iter_mut();
                own.filter(|own| own.level == level)
                    .for_each(|own| own.seats += 1);
            }
        }
    }
}

/// What a gateway told of the demand of a level.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// By flow.
    flows: u64,
    /// By tenant, of flows that it did not name.
    tenants: u64,
}

impl Told {
    /// What the level asks for beside that.
    fn rest(self, at: &LevelLoad) -> Seats {
        // The demand of the level is that of the last second, so a part that no flow asks for now need not be a flow.
        let rest = match at.unnamed {
            Some(unnamed) => u64::from(unnamed),
            None => u64::from(at.demand).saturating_sub(self.flows),
        };
        Seats::try_from(rest.saturating_sub(self.tenants)).unwrap_or(Seats::MAX)
    }
}

/// A flow, wherever it is active.
#[derive(Clone, Debug, Default)]
struct FleetFlow {
    weight: f64,
    /// Its demand by gateway; above 0.
    by_gateway: Vec<(usize, Seats)>,
}

impl FleetFlow {
    fn demand(&self) -> Seats {
        let demands = self.by_gateway.iter().map(|(_, demand)| *demand);
        demands.fold(0, Seats::saturating_add)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares are not negative, and the cast saturates"
)]
fn in_parts(seats: f64) -> u64 {
    (seats * PARTS).ceil() as u64
}

fn to_seats(parts: &[u64]) -> Vec<Seats> {
    let seats = parts.iter().map(|part| Seats::try_from(*part));
    seats.map(|seats| seats.unwrap_or(Seats::MAX)).collect()
}

#[cfg(test)]
mod tests;
