//! One gateway's part of the protocol: which seats it may use, what it reports, which ledgers it applies.
//!
//! A gateway uses its *grant* until T after it **sent** its last successful report, by its own clock, and after that its *floor*.
//! Once a grant has expired it is void for good: reports that succeed later do not revive it, only a ledger that
//! acknowledges a report sent after that. Otherwise a report that arrives late could revive seats that have been given to others.
//!
//! The clock that the caller passes must be monotonic and must go on while the machine sleeps (on Linux `CLOCK_BOOTTIME`).
//!
//! Not here: sending reports, and which request gets a seat.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fairgate_core::{apf::Seats, time::Time};

use crate::{
    identity::{Epoch, GatewayRun},
    records::{
        FORMAT_VERSION, FlowLoad, LevelGrant, LevelLoad, Report, SeatLedger, Standing, TenantLoad,
    },
    rules::Mutant,
    settings::Settings,
};

/// What a gateway knows of its part of the fleet.
#[derive(Clone, Debug)]
pub struct FleetGateway {
    settings: Settings,
    identity: GatewayRun,
    epoch: Epoch,
    /// The seats of the last ledger that listed this run.
    grant: Seats,
    /// How the grant is divided among levels.
    levels: Vec<LevelGrant>,
    /// Until when the grant holds if it is acknowledged; zero while no report is known to be stored since the last lapse.
    lease_end: Time,
    /// The greatest sequence that a ledger acknowledged.
    acknowledged: u64,
    /// The grant is void until a report of this sequence or later is acknowledged.
    needed: u64,
    next_sequence: u64,
    /// From when requests of earlier runs have ended for certain.
    settled_from: Time,
    /// From when the floor may be used.
    floor_from: Time,
    /// Whether the last ledger lists as many other gateways as the fleet may have, so that no floor is kept for this one.
    is_one_too_many: bool,
    phase: GatewayPhase,
    /// Whether another process reports under this name.
    is_name_taken: bool,
    reported: LastReport,
    /// The flows that use several gateways, by level and hash: what they had received here by the last report.
    shared_work: BTreeMap<(String, u64), u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayPhase {
    Running,
    /// It dispatches nothing any more.
    Leaving,
    /// Another process runs under its name.
    Displaced,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastReport {
    at: Option<Time>,
    held: Seats,
    demand: Seats,
    /// The flows that were named or told of by tenant.
    flows: u32,
    /// [`Load::reach`].
    reach: Option<Seats>,
    epoch: Epoch,
}

/// Where a gateway stands; for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayState {
    /// It has a grant.
    Granted,
    /// It has its floor alone: its grant has expired, or no ledger lists it yet. It has not even that if the fleet has as many gateways without
    /// it as it may have.
    Isolated,
    /// It has started a short time ago and no ledger lists it: requests of an earlier run may still execute.
    Starting,
    /// It shuts down.
    Leaving,
    /// Another process reports under its name: give each gateway a name of its own.
    Displaced,
}

/// Proof that a report was made; hand it back when the report is stored.
#[derive(Clone, Copy, Debug)]
#[must_use = "a report counts only when its receipt is handed back"]
pub struct Receipt {
    sequence: u64,
    sent: Time,
}

impl Receipt {
    /// Which report it is for.
    pub fn sequence(self) -> u64 {
        self.sequence
    }
}

/// What became of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerOutcome {
    /// It is older than the one in force, or the same.
    Stale,
    /// It is in force, and does not list this run.
    NotListed,
    /// It is in force.
    Granted,
}

/// What a gateway wants to tell.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Seats executing.
    pub executing: Seats,
    /// [`Report::reach`].
    pub reach: Option<Seats>,
    /// [`Report::hash_key_mark`].
    pub hash_key_mark: Option<u64>,
    /// By level.
    pub levels: Vec<LevelLoad>,
    /// The most active flows.
    pub flows: Vec<FlowLoad>,
    /// The tenants with the most of the others.
    pub tenants: Vec<TenantLoad>,
}

impl Load {
    fn demand(&self) -> Seats {
        let demands = self.levels.iter().map(|level| level.demand);
        demands.fold(0, Seats::saturating_add)
    }

    /// How many flows it tells of.
    fn flows(&self) -> u32 {
        let named = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
        let others = self.tenants.iter().map(|tenant| tenant.flows);
        others.fold(named, u32::saturating_add)
    }
}

impl FleetGateway {
    /// A gateway that started at `now`. It may use its floor when requests of an earlier run have ended for certain: after D, or as soon
    /// as a ledger lists it.
    pub fn new(settings: Settings, identity: GatewayRun, now: Time) -> Self {
        let wait = if settings.rules.has(Mutant::FloorAtOnce) {
            Duration::ZERO
        } else {
            settings.drain_as_counted()
        };
        Self {
            settled_from: now.plus(settings.drain_as_counted()),
            floor_from: now.plus(wait),
            is_one_too_many: false,
            settings,
            identity,
            epoch: Epoch::default(),
            grant: 0,
            levels: Vec::new(),
            lease_end: Time::ZERO,
            acknowledged: 0,
            needed: 1,
            next_sequence: 1,
            phase: GatewayPhase::Running,
            is_name_taken: false,
            reported: LastReport::default(),
            shared_work: BTreeMap::new(),
        }
    }

    /// The seats that may be in use at `now`. Look at the clock for each dispatch, and again after waiting. A few
    /// comparisons; no allocation.
    ///
    /// A request that is wider counts as this wide and executes alone.
    pub fn may_use(&self, now: Time) -> Seats {
        let grant_holds = self.holds(now);
        match self.phase {
            GatewayPhase::Leaving => 0,
            // Also if another process has the name: what was granted to this run stays reserved until it expires.
            _ if grant_holds => self.grant,
            GatewayPhase::Running if now >= self.floor_from => self.floor(),
            GatewayPhase::Running | GatewayPhase::Displaced => 0,
        }
    }

    /// Whether the fleet has as many other gateways as it may have, so that no seats are kept for this one.
    pub fn has_no_place(&self) -> bool {
        self.is_one_too_many
    }

    /// The seats that are kept for it, whether or not a ledger lists it.
    fn floor(&self) -> Seats {
        if self.is_one_too_many {
            0
        } else {
            self.settings.floor
        }
    }

    /// How what may be used at `now` is divided among levels; empty without a grant, which is divided by shares.
    pub fn levels(&self, now: Time) -> &[LevelGrant] {
        if self.holds(now) && self.phase != GatewayPhase::Leaving {
            &self.levels
        } else {
            &[]
        }
    }

    /// Where it stands.
    pub fn state(&self, now: Time) -> GatewayState {
        match self.phase {
            GatewayPhase::Leaving => GatewayState::Leaving,
            GatewayPhase::Displaced => GatewayState::Displaced,
            GatewayPhase::Running if self.holds(now) => GatewayState::Granted,
            GatewayPhase::Running if now >= self.floor_from => GatewayState::Isolated,
            GatewayPhase::Running => GatewayState::Starting,
        }
    }

    /// Who it is.
    pub fn identity(&self) -> &GatewayRun {
        &self.identity
    }

    /// The last ledger that it applied.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Until when the grant may be used: T after the last successful report was sent. [`Time::ZERO`] while it is void.
    pub fn lease_end(&self) -> Time {
        if self.acknowledged >= self.needed {
            self.lease_end
        } else {
            Time::ZERO
        }
    }

    /// What may be used once the grant has expired, if nothing else happens until then.
    pub fn after_lapse(&self, now: Time) -> Seats {
        let may_use_floor = self.phase == GatewayPhase::Running && now >= self.floor_from;
        if may_use_floor { self.floor() } else { 0 }
    }

    fn holds(&self, now: Time) -> bool {
        self.acknowledged >= self.needed && now < self.lease_end
    }

    /// Whether a report is due: something changed and the interval has passed, or a quarter of the lease has.
    pub fn is_report_due(&self, now: Time, load: &Load) -> bool {
        if self.phase == GatewayPhase::Displaced {
            return false;
        }
        let Some(at) = self.reported.at else {
            return true;
        };
        let elapsed = now.since(at);
        let held = self.may_use(now).max(load.executing);
        let last = self.reported;
        let changed = (held, load.demand(), self.epoch) != (last.held, last.demand, last.epoch);
        // A tenant may have many more flows at once without asking for more seats.
        let flows = load.flows().abs_diff(last.flows) > last.flows / 8;
        let changed = changed || flows || load.reach != last.reach;
        let due = changed || self.has_work_to_tell(load) || self.acknowledged < self.needed;
        // A quarter, so that reports may fail or be late before the grant expires.
        elapsed >= self.settings.lease / 4 || (due && elapsed >= self.settings.report_interval)
    }

    /// Whether a flow that uses several gateways has received something here since the last report. The others charge it for that:
    /// if they learned of it late, it would have a share at each gateway until then.
    fn has_work_to_tell(&self, load: &Load) -> bool {
        load.flows.iter().any(|flow| {
            let told = self.shared_work.get(&(flow.level.clone(), flow.flow));
            told.is_some_and(|told| *told != flow.work)
        })
    }

    /// Makes a report, to be written to the engine now: `now` is when it was sent at the latest.
    ///
    /// It must be written by compare-and-swap with the revision that the caller last knew of its own key. If the key turns
    /// out to hold the report of another run that this process did not find there when it started, call
    /// [`Self::displace`].
    pub fn report(&mut self, now: Time, load: Load) -> (Report, Receipt) {
        self.notice_lapse(now);
        let limit = self.may_use(now);
        // Mutants break one rule each, so that tests show that each rule is needed.
        let held = if self.settings.rules.has(Mutant::HeldIsTheLimit) {
            limit
        } else {
            limit.max(load.executing)
        };
        self.reported = LastReport {
            at: Some(now),
            held: limit.max(load.executing),
            demand: load.demand(),
            flows: load.flows(),
            reach: load.reach,
            epoch: self.epoch,
        };
        for flow in &load.flows {
            let key = (flow.level.clone(), flow.flow);
            if let Some(told) = self.shared_work.get_mut(&key) {
                *told = flow.work;
            }
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let report = Report {
            version: FORMAT_VERSION,
            gateway: self.identity.clone(),
            sequence,
            epoch: self.epoch,
            held,
            lapsed: !self.holds(now),
            settled: now >= self.settled_from,
            leaving: self.phase == GatewayPhase::Leaving,
            terms: self.settings.terms(),
            reach: load.reach,
            hash_key_mark: load.hash_key_mark,
            levels: load.levels,
            flows: load.flows,
            tenants: load.tenants,
        };
        let receipt = Receipt {
            sequence,
            sent: now,
        };
        (report, receipt)
    }

    /// The engine has stored the report of this receipt, as the gateway learned at `now`.
    pub fn reported(&mut self, now: Time, receipt: Receipt) {
        self.notice_lapse(now);
        let rules = self.settings.rules;
        let from = if rules.has(Mutant::LeaseFromAnswer) {
            now
        } else {
            receipt.sent
        };
        let end = from.plus(self.settings.lease);
        // A report from before the lapse, or one whose lease is over already, revives nothing.
        if receipt.sequence < self.needed || end <= now {
            return;
        }
        if self.lease_end == Time::ZERO && !rules.has(Mutant::AnyAcknowledgement) {
            self.needed = receipt.sequence;
        }
        self.lease_end = self.lease_end.max(end);
        if rules.has(Mutant::LeaseWithoutEnd) {
            self.lease_end = Time::NEVER;
        }
    }

    /// A grant that has expired is void until a report that is sent from now on is stored, known to be stored, and acknowledged.
    fn notice_lapse(&mut self, now: Time) {
        let has_lapsed = self.lease_end > Time::ZERO && now >= self.lease_end;
        if has_lapsed && !self.settings.rules.has(Mutant::LapseIsForgotten) {
            self.lease_end = Time::ZERO;
            self.needed = self.next_sequence;
        }
    }

    /// Applies a ledger if it is newer than the one in force.
    pub fn apply(&mut self, now: Time, ledger: &SeatLedger) -> LedgerOutcome {
        self.notice_lapse(now);
        let any_epoch = self.settings.rules.has(Mutant::EpochsMayFall);
        if ledger.epoch <= self.epoch && !any_epoch {
            return LedgerOutcome::Stale;
        }
        self.epoch = ledger.epoch;
        let mut before = std::mem::take(&mut self.shared_work);
        self.shared_work = ledger
            .flows
            .iter()
            .map(|flow| {
                let key = (flow.level.clone(), flow.flow);
                let told = before.remove(&key).unwrap_or(0);
                (key, told)
            })
            .collect();
        self.is_one_too_many = self.has_no_place_in(ledger);
        let entry = ledger.entry(&self.identity);
        let Some(entry) = entry.filter(|entry| entry.standing != Standing::Gone) else {
            self.grant = 0;
            self.levels.clear();
            self.acknowledged = 0;
            return LedgerOutcome::NotListed;
        };
        self.grant = entry.grant;
        self.levels.clone_from(&entry.levels);
        self.acknowledged = entry.reported.sequence;
        self.floor_from = self.floor_from.min(now);
        LedgerOutcome::Granted
    }

    /// Whether the ledger lists as many gateways as the fleet may have, by name, and not this one.
    fn has_no_place_in(&self, ledger: &SeatLedger) -> bool {
        let names = ledger.entries.iter().map(|entry| &*entry.gateway.name);
        let names: BTreeSet<&str> = names.collect();
        let most = usize::try_from(self.settings.max_gateways).unwrap_or(usize::MAX);
        names.len() >= most && !names.contains(&*self.identity.name)
    }

    /// Stops dispatching for good. Report until a report with nothing executing is stored.
    pub fn leave(&mut self) {
        if self.phase == GatewayPhase::Running {
            self.phase = GatewayPhase::Leaving;
        }
    }

    /// Whether another process reports under this name.
    pub fn is_displaced(&self) -> bool {
        self.is_name_taken
    }

    /// Another process reports under this name. What is granted may be used until it expires; after that there is no floor, because the
    /// other process has it. One that leaves goes on to do so, and reports no more.
    pub fn displace(&mut self) {
        self.is_name_taken = true;
        if self.phase == GatewayPhase::Running {
            self.phase = GatewayPhase::Displaced;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        grants::Grants,
        records::{FlowWork, LedgerEntry, Reported},
        settings::Reclaim,
    };

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// A gateway with a grant of five seats, whose flow 7 uses other gateways, too.
    fn granted() -> FleetGateway {
        let settings = Settings::new(3, 1, Reclaim::Prompt);
        let identity = GatewayRun {
            name: "a".to_owned(),
            incarnation: 1,
        };
        let mut gateway = FleetGateway::new(settings, identity.clone(), at(0));
        let ledger = SeatLedger {
            epoch: Epoch(1),
            entries: vec![LedgerEntry {
                gateway: identity,
                standing: Standing::Member,
                grant: 5,
                levels: Vec::new(),
                reported: Reported {
                    sequence: 1,
                    ..Reported::default()
                },
                outstanding: Grants::only(Epoch(1), 5),
            }],
            flows: vec![FlowWork {
                level: "low".to_owned(),
                flow: 7,
                work: Vec::new(),
            }],
            ..SeatLedger::default()
        };
        gateway.apply(at(1), &ledger);
        gateway
    }

    #[test]
    fn a_report_is_due_when_a_server_is_lost_or_reached_again() {
        let load = |reach| Load {
            reach: Some(reach),
            ..Load::default()
        };
        let mut gateway = granted();
        let (report, _) = gateway.report(at(100), load(30));
        assert_eq!(report.reach, Some(30));
        assert!(!gateway.is_report_due(at(200), &load(30)), "no change");
        assert!(gateway.is_report_due(at(200), &load(20)));
    }

    #[test]
    fn what_a_flow_of_several_gateways_received_is_told_although_nothing_else_changes() {
        let load = |flow, work| Load {
            flows: vec![FlowLoad {
                level: "low".to_owned(),
                flow,
                work,
                ..FlowLoad::default()
            }],
            ..Load::default()
        };
        let mut gateway = granted();
        let _ = gateway.report(at(100), load(7, 50));
        assert!(!gateway.is_report_due(at(200), &load(7, 50)), "no change");
        assert!(!gateway.is_report_due(at(150), &load(7, 60)), "too early");
        assert!(gateway.is_report_due(at(200), &load(7, 60)));
        assert!(
            !gateway.is_report_due(at(200), &load(8, 60)),
            "it is at one gateway"
        );
    }

    /// A ledger that lists these gateways and not "a".
    fn ledger_of(epoch: u64, names: &[&str]) -> SeatLedger {
        let entry = |name: &&str| LedgerEntry {
            gateway: GatewayRun {
                name: (*name).to_owned(),
                incarnation: 1,
            },
            standing: Standing::Silent,
            grant: 1,
            levels: Vec::new(),
            reported: Reported::default(),
            outstanding: Grants::only(Epoch(epoch), 1),
        };
        SeatLedger {
            epoch: Epoch(epoch),
            entries: names.iter().map(entry).collect(),
            ..SeatLedger::default()
        }
    }

    #[test]
    fn a_gateway_for_which_the_fleet_has_no_place_has_no_floor() {
        let identity = GatewayRun {
            name: "a".to_owned(),
            incarnation: 2,
        };
        let mut gateway = FleetGateway::new(Settings::new(3, 1, Reclaim::Prompt), identity, at(0));
        gateway.apply(at(1), &ledger_of(1, &["b", "c"]));
        assert_eq!(gateway.may_use(at(5_000)), 1, "it is reserved");
        gateway.apply(at(5_000), &ledger_of(2, &["b", "c", "d"]));
        let found = (gateway.may_use(at(5_000)), gateway.after_lapse(at(5_000)));
        assert_eq!(found, (0, 0));
        assert_eq!(gateway.state(at(5_000)), GatewayState::Isolated);
        // An earlier run has its name: its floor is kept.
        gateway.apply(at(6_000), &ledger_of(3, &["a", "c", "d"]));
        assert_eq!(gateway.may_use(at(6_000)), 1);
        gateway.apply(at(7_000), &ledger_of(4, &["b", "c", "d"]));
        assert_eq!(gateway.may_use(at(7_000)), 0);
        gateway.apply(at(8_000), &ledger_of(5, &["c", "d"]));
        assert_eq!(gateway.may_use(at(8_000)), 1);
    }
}
