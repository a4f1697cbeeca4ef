//! Remote charges: what a flow received at other gateways since the last ledger.
//!
//! A gateway adds it to the flow's virtual start, so that a flow which uses several gateways does not get a share at each. The caller limits
//! what it adds to one second of the flow's share, and adds nothing while the level has free seats.

use std::collections::BTreeMap;

use crate::{identity::GatewayRun, records::SeatLedger};

/// What was charged so far.
#[derive(Clone, Debug, Default)]
pub struct RemoteCharges {
    seen: BTreeMap<(String, u64), BTreeMap<GatewayRun, u64>>,
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

impl RemoteCharges {
    /// What flows received at gateways other than `own` between the last ledger and this one. Work at a gateway that
    /// is listed for the first time counts from now on. Flows that the ledger does not list are forgotten.
    pub fn take(&mut self, ledger: &SeatLedger, own: &GatewayRun) -> Vec<Charge> {
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
        assert_eq!(charges.take(&ledger(10, 100), &own), []);
        let charged = charges.take(&ledger(50, 130), &own);
        assert_eq!(
            charged.iter().map(|charge| charge.work).collect::<Vec<_>>(),
            [30]
        );
        assert_eq!(charges.take(&ledger(90, 130), &own), []);
    }
}
