//! A process of the search: a gateway, perhaps coordinator too, with a clock of its own.

use std::rc::Rc;

use fairgate_core::{random::Random, time::Time};

use super::engine::{Answer, Operation};
use crate::{
    book::{SeatTarget, in_proportion},
    coordinator::{Coordinator, WriteAttempt},
    gateway::{FleetGateway, Load},
    identity::{Fence, GatewayRun, KeyRevision},
    records::{LevelGrant, LevelLoad, Report, SeatLedger},
    settings::Settings,
};

/// Milliseconds of local time after which an answer is no longer waited for.
const PATIENCE: u64 = 100;
/// Milliseconds of local time between two reads of all reports, and two campaigns.
const READ_EVERY: u64 = 60;

/// A clock that runs at some rate; times in microseconds.
pub(super) struct Clock {
    pub(super) since: u64,
    pub(super) local: u64,
    /// In thousandths.
    pub(super) rate: u64,
}

impl Clock {
    pub(super) fn read(&self, real: u64) -> Time {
        Time::from_nanos(self.local * 1000 + (real - self.since) * self.rate)
    }

    pub(super) fn set_rate(&mut self, real: u64, rate: u64) {
        self.local = self.read(real).as_nanos() / 1000;
        self.since = real;
        self.rate = rate;
    }
}

pub(super) struct Node {
    /// Counts its runs.
    pub(super) life: u64,
    pub(super) is_up: bool,
    pub(super) paused_until: u64,
    /// Whether operations, answers and watches get lost.
    pub(super) is_cut: [bool; 3],
    /// Microseconds by which its watches are late.
    pub(super) watch_lag: u64,
    pub(super) clock: Clock,
    pub(super) gateway: FleetGateway,
    pub(super) coordinator: Option<Coordinator>,
    /// Real ends, and seats, of its requests.
    pub(super) running: Vec<(u64, u32)>,
    pub(super) wants: u32,
    pub(super) limit: u32,
    pub(super) is_leaving: bool,
    /// Real time at which the last report was sent that it knows to be stored.
    pub(super) last_success: u64,
    pub(super) sent_at: Vec<(u64, u64)>,
    own_revision: KeyRevision,
    report_sent: Option<Time>,
    ledger_sent: Option<(WriteAttempt, Time)>,
    last_read: Option<Time>,
    ledger_read: Option<Time>,
    fence: Option<Fence>,
}

pub(super) fn identity(number: usize, life: u64) -> GatewayRun {
    GatewayRun {
        name: ["a", "b", "c", "d", "e"][number].to_owned(),
        incarnation: life,
    }
}

impl Node {
    pub(super) fn new(number: usize, life: u64, settings: &Settings, now: u64, rate: u64) -> Self {
        let clock = Clock {
            since: now,
            local: 1_000_000,
            rate,
        };
        Self {
            life,
            is_up: true,
            paused_until: 0,
            is_cut: [false; 3],
            watch_lag: 0,
            gateway: FleetGateway::new(settings.clone(), identity(number, life), clock.read(now)),
            clock,
            coordinator: None,
            running: Vec::new(),
            wants: 0,
            limit: 0,
            is_leaving: false,
            last_success: now,
            sent_at: Vec::new(),
            own_revision: KeyRevision(0),
            report_sent: None,
            ledger_sent: None,
            last_read: None,
            ledger_read: None,
            fence: None,
        }
    }

    pub(super) fn executing(&self, now: u64) -> u32 {
        let running = self.running.iter().filter(|(end, _)| *end > now);
        running.map(|(_, seats)| *seats).sum()
    }

    /// Starts requests as far as it may; each ends after at most `longest` microseconds.
    pub(super) fn dispatch(&mut self, now: u64, longest: u64, random: &mut Random) {
        self.running.retain(|(end, _)| *end > now);
        let may = self.gateway.may_use(self.clock.read(now));
        let more = may.min(self.wants).saturating_sub(self.executing(now));
        if more > 0 {
            let long = random.percent(50);
            let lasts = if long {
                longest
            } else {
                random.within(1..longest + 1)
            };
            self.running.push((now + lasts, more));
        }
    }

    /// What it does from time to time.
    pub(super) fn tick(&mut self, now: u64, settings: &Settings) -> Vec<Operation> {
        let local = self.clock.read(now);
        let mut out = Vec::new();
        self.tick_gateway(now, local, &mut out);
        // A watch may have lost the last ledger.
        if self
            .ledger_read
            .is_none_or(|at| passed(at, local, 3 * READ_EVERY))
        {
            self.ledger_read = Some(local);
            out.push(Operation::ReadLedger);
        }
        if self.is_leaving {
            self.coordinator = None;
            return out;
        }
        let is_read_due = self
            .last_read
            .is_none_or(|at| passed(at, local, READ_EVERY));
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.set_limit(self.limit);
            if let Some((attempt, at)) = self.ledger_sent
                && passed(at, local, PATIENCE)
            {
                coordinator.unanswered(attempt);
                self.ledger_sent = None;
            }
            if is_read_due {
                self.last_read = Some(local);
                out.push(Operation::ReadReports(local));
                if coordinator.must_read() {
                    out.push(Operation::ReadLedger);
                }
            }
            self.propose(local, settings, &mut out);
        } else if is_read_due {
            self.last_read = Some(local);
            out.push(if self.fence.is_some() {
                Operation::ReadLedger
            } else {
                Operation::Campaign(self.life)
            });
        }
        out
    }

    fn tick_gateway(&mut self, now: u64, local: Time, out: &mut Vec<Operation>) {
        let load = Load {
            executing: self.executing(now),
            levels: vec![LevelLoad {
                demand: self.wants,
                ..LevelLoad::default()
            }],
            ..Load::default()
        };
        let is_waiting = self
            .report_sent
            .is_some_and(|at| !passed(at, local, PATIENCE));
        let has_left = self.is_leaving && load.executing == 0;
        if !is_waiting && (has_left || self.gateway.is_report_due(local, &load)) {
            let (report, receipt) = self.gateway.report(local, load);
            self.report_sent = Some(local);
            self.sent_at.push((report.sequence, now));
            out.push(Operation::PutReport {
                report: Rc::new(report),
                expected: self.own_revision,
                receipt,
            });
        }
    }

    fn propose(&mut self, local: Time, settings: &Settings, out: &mut Vec<Operation>) {
        let floor = settings.floor;
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if coordinator.is_deposed() {
            self.coordinator = None;
            self.fence = None;
            return;
        }
        let proposal = coordinator.propose(local, |members, pool| divide(members, pool, floor));
        if let Some(proposal) = proposal {
            self.ledger_sent = Some((proposal.attempt, local));
            out.push(Operation::PutLedger(Rc::new(proposal), self.limit));
        }
    }

    pub(super) fn answer(&mut self, now: u64, answer: Answer, settings: &Settings) {
        let local = self.clock.read(now);
        match answer {
            Answer::ReportStored(receipt, revision) => {
                self.gateway.reported(local, receipt);
                self.own_revision = self.own_revision.max(revision);
                self.report_sent = None;
                let sent = self.sent_at.iter().find(|(n, _)| *n == receipt.sequence());
                self.last_success = self.last_success.max(sent.map_or(0, |(_, at)| *at));
            }
            Answer::ReportRefused(revision) => {
                self.own_revision = self.own_revision.max(revision);
                self.report_sent = None;
            }
            Answer::LedgerStored(attempt, revision) => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.stored(attempt, revision);
                }
            }
            Answer::LedgerRefused(attempt) => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.refused(attempt);
                }
            }
            Answer::Reports(sent, reports) => {
                if let Some(coordinator) = &mut self.coordinator {
                    let reports = reports
                        .iter()
                        .map(|(r, revision)| ((**r).clone(), *revision));
                    coordinator.read_all(sent, local, reports);
                }
            }
            Answer::LedgerRead(ledger, revision) => {
                self.ledger_read(local, &ledger, revision, settings);
            }
            Answer::Elected(fence) => self.fence = self.fence.max(Some(fence)),
        }
    }

    fn ledger_read(
        &mut self,
        local: Time,
        ledger: &SeatLedger,
        revision: KeyRevision,
        settings: &Settings,
    ) {
        self.gateway.apply(local, ledger);
        if let Some(coordinator) = &mut self.coordinator {
            if coordinator.must_read() {
                coordinator.adopt(local, ledger.clone(), revision);
            }
        } else if let Some(fence) = self.fence {
            if ledger.fence > fence {
                self.fence = None;
                return;
            }
            let settings = settings.clone();
            self.coordinator = Some(Coordinator::new(
                settings,
                fence,
                self.limit,
                local,
                ledger.clone(),
                revision,
            ));
        }
    }

    pub(super) fn saw_ledger(&mut self, now: u64, ledger: &SeatLedger) {
        self.gateway.apply(self.clock.read(now), ledger);
    }

    pub(super) fn saw_report(&mut self, now: u64, report: &Report, revision: KeyRevision) {
        let local = self.clock.read(now);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.observe(local, report.clone(), revision);
        }
    }
}

fn passed(at: Time, now: Time, millis: u64) -> bool {
    now.since(at).as_millis() >= u128::from(millis)
}

/// Floors, as far as the pool goes, and the rest by demand, all to one level.
fn divide(members: &[&Report], pool: u32, floor: u32) -> Vec<SeatTarget> {
    let wants = members
        .iter()
        .map(|report| 1 + u64::from(report.levels[0].demand) * 100);
    let wants: Vec<u64> = wants.map(|want| want * u64::from(pool)).collect();
    let floors = floor * u32::try_from(members.len()).unwrap();
    let parts = in_proportion(&wants, u64::from(pool.saturating_sub(floors)));
    let mut left = pool;
    let target = |part| {
        let own = left.min(floor);
        left -= own;
        let seats = own + u32::try_from(part).unwrap();
        let level = "all".to_owned();
        SeatTarget {
            seats,
            levels: vec![LevelGrant { level, seats }],
        }
    };
    parts.into_iter().map(target).collect()
}
