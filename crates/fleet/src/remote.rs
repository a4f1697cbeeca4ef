//! What a ledger tells a gateway of the other gateways: what flows received there since the last ledger, and how many flows tenants
//! have there.
//!
//! A gateway adds what a flow received to its virtual start, so that a flow which uses several gateways does not get a share at each. The caller limits
//! what it adds to one second of the flow's share, and adds nothing while the level has free seats.

use std::collections::BTreeMap;

use fairgate_core::apf::queueset::LevelElsewhere;

use crate::{
    identity::GatewayRun,
    records::SeatLedger,
    tenants::{self, TenantElsewhere},
};

/// What was charged so far.
#[derive(Clone, Debug, Default)]
pub struct RemoteCharges {
    seen: BTreeMap<(String, u64), BTreeMap<GatewayRun, u64>>,
}

/// What happens at other gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// What flows received there since the last ledger.
    pub charges: Vec<Charge>,
    /// The tenants that have flows there. All others have none.
    pub tenants: Vec<TenantElsewhere>,
}

/// What one flow received elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The name of its level.
    pub level: String,
    /// Its keyed hash.
    pub flow: u64,
    /// Seat-milliseconds; above 0.
    pub work: u64,
}

impl Elsewhere {
    /// What happens in the level of this name.
    pub fn of_level(&self, name: &str) -> LevelElsewhere {
        let charges = self.charges.iter().filter(|charge| charge.level == name);
        let tenants = self.tenants.iter().filter(|tenant| tenant.level == name);
        LevelElsewhere {
            received: charges.map(|charge| (charge.flow, charge.work)).collect(),
            tenants: tenants
                .map(|tenant| (tenant.tenant, tenant.flows))
                .collect(),
        }
    }
}

impl RemoteCharges {
    /// What this ledger tells of gateways other than `own`. Flows are charged for what they received between the last ledger and this one.
    /// Work at a gateway that is listed for the first time counts from now on. Flows that the ledger does not list are forgotten.
    pub fn take(&mut self, ledger: &SeatLedger, own: &GatewayRun) -> Elsewhere {
        Elsewhere {
            charges: self.charges(ledger, own),
            tenants: tenants::elsewhere(ledger, own),
        }
    }

    fn charges(&mut self, ledger: &SeatLedger, own: &GatewayRun) -> Vec<Charge> {
        let mut seen = BTreeMap::new();
        let mut charges = Vec::new();
        for flow in &ledger.flows {
            let key = (flow.level.clone(), flow.flow);
            let before = self.seen.remove(&key).unwrap_or_default();
            let others = flow.work.iter().filter(|(gateway, _)| gateway != own);
            let more = others.map(|(gateway, work)| {
                work.saturating_sub(before.get(gateway).copied().unwrap_or(*work))
            });
            let work = more.fold(0_u64, u64::saturating_add);
            if work > 0 {
                let (level, flow) = key.clone();
                charges.push(Charge { level, flow, work });
            }
            seen.insert(key, flow.work.iter().cloned().collect());
        }
        self.seen = seen;
        charges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::FlowWork;

    #[test]
    fn only_what_others_served_since_the_last_ledger_is_charged() {
        let [own, other] = ["a", "b"].map(|name| GatewayRun {
            name: name.to_owned(),
            incarnation: 1,
        });
        let ledger = |here, there| SeatLedger {
            flows: vec![FlowWork {
                level: "low".to_owned(),
                flow: 7,
                work: vec![(own.clone(), here), (other.clone(), there)],
            }],
            ..SeatLedger::default()
        };
        let mut charges = RemoteCharges::default();
        assert_eq!(charges.take(&ledger(10, 100), &own).charges, []);
        let charged = charges.take(&ledger(50, 130), &own).charges;
        assert_eq!(
            charged.iter().map(|charge| charge.work).collect::<Vec<_>>(),
            [30]
        );
        assert_eq!(charges.take(&ledger(90, 130), &own).charges, []);
    }
}
