//! One gateway of a fleet: its dispatcher, and its turns in the protocol.

use std::{collections::BTreeMap, sync::Arc};

use fairgate_core::{
    apf::{
        Policy, Seats,
        dispatcher::{Dispatcher, PolicyView, SharedSeats},
        level::Decisions,
        seat_lease::SeatLease,
    },
    sync,
    time::Time,
};
use fairgate_fleet::{
    coordinator::Coordinator,
    division::FleetDivision,
    gateway::FleetGateway,
    identity::{Fence, GatewayRun, KeyRevision},
    received::ReceivedWork,
    records::{LevelGrant, Report, SeatLedger},
    remote::RemoteCharges,
    settings::{Reclaim, Settings},
};

use super::{SeatDivision, levels::FLOOR};

/// A request's number in the order of arrival, over all gateways.
pub(super) type RequestNumber = usize;

/// The keys of the engine: reports by gateway, and the ledger.
#[derive(Default)]
pub(super) struct LedgerInMemory {
    revision: u64,
    reports: BTreeMap<String, (KeyRevision, Report)>,
    ledger: SeatLedger,
}

impl LedgerInMemory {
    fn next_revision(&mut self) -> KeyRevision {
        self.revision += 1;
        KeyRevision(self.revision)
    }
}

/// What the gateway that coordinates has besides.
struct Coordinating {
    coordinator: Coordinator,
    division: FleetDivision,
}

/// One gateway.
pub(super) struct Site {
    pub(super) dispatcher: Dispatcher<RequestNumber>,
    pub(super) view: Arc<PolicyView<RequestNumber>>,
    /// Whether a request had to wait since limits were adjusted.
    pub(super) is_contended: bool,
    pub(super) rebalanced: Time,
    identity: GatewayRun,
    gateway: FleetGateway,
    remote: RemoteCharges,
    has_charges: bool,
    received: ReceivedWork,
    coordinating: Option<Coordinating>,
    lease: Option<sync::Arc<SeatLease>>,
    given: Option<(Seats, Vec<LevelGrant>, bool)>,
}

impl Site {
    /// The gateway of this number in a fleet of `gateways`; the first coordinates.
    pub(super) fn new(
        policy: &Arc<Policy>,
        number: usize,
        gateways: usize,
        division: SeatDivision,
    ) -> Self {
        let dispatcher = Dispatcher::new(Arc::clone(policy), Time::ZERO);
        let count = u32::try_from(gateways).expect("a few gateways");
        // Until this fleet is known to have had no members before, a floor stays reserved for each: 11 s, or D more with `Strict`.
        let settings = Settings::new(count, FLOOR, Reclaim::Prompt);
        let identity = GatewayRun {
            name: format!("gateway-{number}"),
            incarnation: 1,
        };
        let coordinating = (number == 0).then(|| Coordinating {
            coordinator: Coordinator::new(
                settings.clone(),
                Fence(1),
                policy.settings().total_seats,
                Time::ZERO,
                SeatLedger::default(),
                KeyRevision(0),
            ),
            division: super::levels::division(policy),
        });
        Self {
            view: dispatcher.view(),
            dispatcher,
            is_contended: false,
            rebalanced: Time::ZERO,
            gateway: FleetGateway::new(settings, identity.clone(), Time::ZERO),
            identity,
            remote: RemoteCharges::default(),
            has_charges: division == SeatDivision::WithCharges,
            received: ReceivedWork::default(),
            coordinating,
            lease: None,
            given: None,
        }
    }

    /// Gives the gateway a part of the seats for good.
    pub(super) fn give_part(&self, seats: Seats, out: &mut Decisions<RequestNumber>) {
        let shared = SharedSeats {
            seats,
            levels: Vec::new(),
            floor: seats,
            lease: sync::Arc::new(SeatLease::new(Time::NEVER)),
        };
        self.dispatcher.share_seats(Time::ZERO, shared, out);
    }

    /// Looks at what flows use, between two turns.
    pub(super) fn sample(&mut self, now: Time) {
        self.received.sample(now, &self.dispatcher);
    }

    /// One turn, as `fairgate_fleet_engine::member` has it.
    pub(super) fn turn(
        &mut self,
        now: Time,
        engine: &mut LedgerInMemory,
        out: &mut Decisions<RequestNumber>,
    ) {
        self.apply(now, &engine.ledger, out);
        self.give_seats(now, out);
        let load = self.received.load(&self.dispatcher);
        if self.gateway.is_report_due(now, &load) {
            let (report, receipt) = self.gateway.report(now, load);
            let revision = engine.next_revision();
            let name = report.gateway.name.clone();
            engine.reports.insert(name, (revision, report));
            self.gateway.reported(now, receipt);
        }
        self.give_seats(now, out);
        if self.coordinate(now, engine) {
            self.apply(now, &engine.ledger, out);
            self.give_seats(now, out);
        }
    }

    /// Whether a ledger was written.
    fn coordinate(&mut self, now: Time, engine: &mut LedgerInMemory) -> bool {
        let Some(Coordinating {
            coordinator,
            division,
        }) = &mut self.coordinating
        else {
            return false;
        };
        let reports = engine.reports.values().cloned();
        coordinator.read_all(
            now,
            now,
            reports.map(|(revision, report)| (report, revision)),
        );
        let proposal = coordinator.propose(now, |members, pool| division.targets(members, pool));
        let Some(proposal) = proposal else {
            return false;
        };
        engine.ledger = proposal.ledger;
        coordinator.stored(proposal.attempt, engine.next_revision());
        true
    }

    fn apply(&mut self, now: Time, ledger: &SeatLedger, out: &mut Decisions<RequestNumber>) {
        let before = self.gateway.epoch();
        self.gateway.apply(now, ledger);
        if self.gateway.epoch() == before {
            return;
        }
        let elsewhere = self.remote.take(ledger, &self.identity);
        if !self.has_charges {
            return;
        }
        let of_level = |name: &str| elsewhere.of_level(name);
        self.dispatcher.note_elsewhere(now, of_level, out);
    }

    fn give_seats(&mut self, now: Time, out: &mut Decisions<RequestNumber>) {
        let end = self.gateway.lease_end();
        let seats = self.gateway.may_use(now);
        let is_granted = now < end;
        let (floor, until) = if is_granted {
            (self.gateway.after_lapse(now), end)
        } else {
            self.lease = None;
            (seats, Time::NEVER)
        };
        let lease = if let Some(lease) = &self.lease {
            lease.set_until(end);
            sync::Arc::clone(lease)
        } else {
            sync::Arc::new(SeatLease::new(until))
        };
        if is_granted {
            self.lease = Some(sync::Arc::clone(&lease));
        }
        let levels = self.gateway.levels(now);
        let given = (seats, levels.to_vec(), is_granted);
        if self.given.as_ref() != Some(&given) {
            let levels = levels.iter();
            let seats = SharedSeats {
                seats,
                levels: levels
                    .map(|level| (Arc::from(level.level.as_str()), level.seats))
                    .collect(),
                floor,
                lease,
            };
            self.given = Some(given);
            self.dispatcher.share_seats(now, seats, out);
        }
    }
}
