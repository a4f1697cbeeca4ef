//! The coordinator's part of a turn: when there is one, what it has read, and what it writes.

use fairgate_core::{apf::Seats, time::Time};
use fairgate_fleet::{
    coordinator::{Coordinator, Proposal, WriteAttempt},
    division::FleetDivision,
    identity::{Fence, KeyRevision},
    records::{Report, SeatLedger},
    settings::Settings,
};

use crate::engine::{EngineError, EngineFailure, StoreOutcome, StoredRecord};

/// This gateway as coordinator, if it is elected.
#[derive(Debug)]
pub(crate) struct Coordination {
    settings: Settings,
    coordinator: Option<Coordinator>,
    /// The fence with which it has been deposed: it waits for another one.
    spent: Option<Fence>,
}

impl Coordination {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            coordinator: None,
            spent: None,
        }
    }

    /// Whether there is a coordinator with this fence.
    pub(crate) fn is_active(&self, fence: Option<Fence>) -> bool {
        let coordinator = self.coordinator.as_ref();
        coordinator.is_some_and(|known| Some(known.fence()) == fence && !known.is_deposed())
    }

    /// The seats of the servers that some gateway reaches, as far as gateways tell; 0 without a coordinator.
    pub(crate) fn widest_reach(&self, now: Time) -> Seats {
        let coordinator = self.coordinator.as_ref();
        let reach = coordinator.and_then(|coordinator| coordinator.widest_reach(now));
        reach.unwrap_or(0)
    }

    /// Whether the ledger must be read before it can go on. Forgets a coordinator whose time is over.
    pub(crate) fn wants_ledger(&mut self, fence: Option<Fence>) -> bool {
        if !self.is_active(fence) {
            if let Some(old) = self.coordinator.take().filter(Coordinator::is_deposed) {
                tracing::warn!(fence = old.fence().0, "fleet: another gateway coordinates");
                self.spent = Some(old.fence());
            }
            return fence.is_some() && fence != self.spent;
        }
        self.coordinator
            .as_ref()
            .is_some_and(Coordinator::must_read)
    }

    /// The ledger was read, by a read sent after this gateway was elected with this fence.
    pub(crate) fn adopt(
        &mut self,
        fence: Option<Fence>,
        limit: Seats,
        now: Time,
        ledger: SeatLedger,
        revision: KeyRevision,
    ) {
        match (&mut self.coordinator, fence) {
            (Some(coordinator), _) => coordinator.adopt(now, ledger, revision),
            (None, Some(fence)) if ledger.fence > fence => self.spent = Some(fence),
            (None, Some(fence)) => {
                let settings = self.settings.clone();
                let new = Coordinator::new(settings, fence, limit, now, ledger, revision);
                self.coordinator = Some(new);
            }
            (None, None) => {}
        }
    }

    /// All reports were read by a read sent at `sent`.
    pub(crate) fn observe(&mut self, sent: Time, now: Time, reports: Vec<(Report, KeyRevision)>) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.read_all(sent, now, reports);
        }
    }

    /// The next ledger.
    pub(crate) fn propose(
        &mut self,
        now: Time,
        division: &FleetDivision,
        limit: Seats,
    ) -> Option<Proposal> {
        let coordinator = self.coordinator.as_mut()?;
        coordinator.set_limit(limit);
        coordinator.propose(now, |members, pool| division.targets(members, pool))
    }

    /// The outcome of writing a ledger. Returns the ledger if it is stored.
    pub(crate) fn written(
        &mut self,
        attempt: WriteAttempt,
        outcome: &Result<StoreOutcome, EngineError>,
    ) -> Option<SeatLedger> {
        let coordinator = self.coordinator.as_mut()?;
        match outcome {
            Ok(StoreOutcome::Stored(revision)) => {
                coordinator.stored(attempt, *revision);
                return Some(coordinator.ledger().clone());
            }
            Ok(StoreOutcome::Conflict) => coordinator.refused(attempt),
            Err(_) => coordinator.unanswered(attempt),
        }
        None
    }
}

/// A report that cannot be read, or whose gateway goes by other terms, stops the coordinator: the gateway may use seats that nobody
/// would count.
pub(crate) fn parse_report(
    record: &StoredRecord,
    terms: &str,
) -> Result<(Report, KeyRevision), EngineError> {
    let report = Report::parse(&record.value);
    let report = report.map_err(|error| EngineError::of_record("a report", &error))?;
    // One that has left uses no seat, whatever its terms were.
    let has_left = report.leaving && report.held == 0;
    if report.terms != terms && !report.terms.is_empty() && !has_left {
        let (name, theirs) = (&report.gateway.name, &report.terms);
        return Err(EngineError::of(
            EngineFailure::Unusable,
            format!(
                "gateway {name} has other settings of the fleet ({theirs}) than this one ({terms}); give all the same"
            ),
        ));
    }
    Ok((report, record.revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(terms: &str, leaving: bool, held: u32) -> StoredRecord {
        let report = json!({
            "version": 1, "gateway": {"name": "a", "incarnation": 1}, "sequence": 1, "epoch": 1, "held": held, "lapsed": false,
            "leaving": leaving, "terms": terms,
        });
        StoredRecord {
            value: serde_json::to_vec(&report).unwrap(),
            revision: KeyRevision(7),
        }
    }

    #[test]
    fn other_terms_stop_the_coordinator_unless_the_gateway_has_left() {
        for (terms, leaving, held, stops) in [
            ("same", false, 5, false),
            ("other", false, 5, true),
            ("other", true, 5, true),
            ("other", false, 0, true),
            ("other", true, 0, false),
        ] {
            let parsed = parse_report(&record(terms, leaving, held), "same");
            assert_eq!(
                parsed.is_err(),
                stops,
                "{terms} {leaving} {held}: {parsed:?}"
            );
        }
    }
}
