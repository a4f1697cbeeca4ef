//! The coordinator's part of the protocol: when a ledger is written, and what it says.
//!
//! One process of the fleet is coordinator: the one whose election key exists in the engine. It never relies on that
//! being exclusive. A ledger is stored by compare-and-swap with the revision that this coordinator knows, and only while the election key
//! still has the create revision that is its fence.
//!
//! A gateway is *silent* only when a read of all reports, **sent** [`Settings::silence`] after its last new report was first
//! seen, shows no newer one. That nothing arrived on a watch is no proof: the watch may be late.
//!
//! Not here: the arithmetic of reserved seats (`book`), who should have how many seats (`division`), elections.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_core::{apf::Seats, time::Time};

use crate::{
    book::{Book, SeatTarget, UNKNOWN},
    identity::{Epoch, Fence, GatewayRun, KeyRevision},
    records::{FORMAT_VERSION, FlowWork, LedgerEntry, Report, SeatLedger, Standing},
    rules::Mutant,
    settings::Settings,
    tenants::{differ_much, spread_tenants},
};

/// What a coordinator knows.
#[derive(Clone, Debug)]
pub struct Coordinator {
    settings: Settings,
    fence: Fence,
    /// L.
    limit: Seats,
    /// The ledger as it is stored, as far as known.
    stored: SeatLedger,
    revision: KeyRevision,
    adopted: Time,
    /// Whether all reports were read since a ledger of another coordinator was adopted.
    has_read_reports: bool,
    in_flight: Option<(WriteAttempt, SeatLedger)>,
    attempts: u64,
    must_read: bool,
    /// The revision that the ledger was expected to have when a write was refused.
    refused: Option<KeyRevision>,
    is_deposed: bool,
    written: Option<Time>,
    reports: BTreeMap<String, (KeyRevision, Report)>,
    /// When the last news of a run was first seen.
    last_news: BTreeMap<GatewayRun, Time>,
    /// By name: when the run that reports now was first seen.
    run_seen: BTreeMap<String, Time>,
    silent: BTreeSet<GatewayRun>,
}

/// A ledger to be written: if the ledger has this revision, and the election key was created at the ledger's fence.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What to write.
    pub ledger: SeatLedger,
    /// The revision that the ledger must have.
    pub expected: KeyRevision,
    /// Which attempt this is; hand it back with the outcome.
    pub attempt: WriteAttempt,
}

/// Tells the outcomes of attempts to write apart, so that a late answer is not taken for that of a later attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteAttempt(u64);

impl Coordinator {
    /// A coordinator whose election key was created at `fence`. It adopts the ledger that was read **after** that.
    pub fn new(
        settings: Settings,
        fence: Fence,
        limit: Seats,
        now: Time,
        ledger: SeatLedger,
        revision: KeyRevision,
    ) -> Self {
        let mut coordinator = Self {
            settings,
            fence,
            limit,
            stored: SeatLedger::default(),
            revision: KeyRevision::default(),
            adopted: now,
            has_read_reports: false,
            in_flight: None,
            attempts: 0,
            must_read: true,
            refused: None,
            is_deposed: false,
            written: None,
            reports: BTreeMap::new(),
            last_news: BTreeMap::new(),
            run_seen: BTreeMap::new(),
            silent: BTreeSet::new(),
        };
        coordinator.adopt(now, ledger, revision);
        coordinator
    }

    /// L: the seats of all healthy servers. Seats that are granted beyond a smaller limit are taken back as fast as gateways
    /// acknowledge it.
    pub fn set_limit(&mut self, limit: Seats) {
        self.limit = limit;
    }

    /// The seats of the servers that the member reaches that reaches most; `None` if none tells. Members report at least each quarter of
    /// the lease: one that has missed that may be gone, and its servers with it.
    pub fn widest_reach(&self, now: Time) -> Option<Seats> {
        let recent = self.settings.lease * 3 / 8;
        let is_present = |report: &&Report| {
            let gateway = &report.gateway;
            let entry = self.stored.entry(gateway);
            let is_member = entry.is_some_and(|entry| entry.standing == Standing::Member);
            let news = self.last_news.get(gateway);
            let is_recent = news.is_some_and(|news| now.since(*news) <= recent);
            is_member && is_recent && !report.leaving && !self.silent.contains(gateway)
        };
        let reports = self.reports.values().map(|(_, report)| report);
        reports
            .filter(is_present)
            .filter_map(|report| report.reach)
            .max()
    }

    /// Its fencing token.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Whether its election key has gone or a successor has written. This coordinator must be dropped.
    pub fn is_deposed(&self) -> bool {
        self.is_deposed && !self.settings.rules.has(Mutant::NoFence)
    }

    /// Whether it waits for [`Self::adopt`]: a write was refused, or nobody knows what became of it.
    pub fn must_read(&self) -> bool {
        self.must_read
    }

    /// The ledger has been read: from the engine itself, not from a cache, by a read sent after whatever made it necessary.
    pub fn adopt(&mut self, now: Time, ledger: SeatLedger, revision: KeyRevision) {
        self.in_flight = None;
        self.must_read = false;
        // The ledger was as expected, so it is the election key that has gone.
        let has_lost_election = self.refused.take() == Some(revision);
        self.is_deposed |= ledger.fence > self.fence || has_lost_election;
        if revision < self.revision {
            return;
        }
        if ledger.fence != self.fence {
            self.has_read_reports = false;
            self.adopted = now;
        }
        for entry in &ledger.entries {
            let first = if self.settings.rules.has(Mutant::ClocksNotRestarted) {
                Time::ZERO
            } else {
                now
            };
            self.last_news.entry(entry.gateway.clone()).or_insert(first);
        }
        self.stored = ledger;
        self.revision = revision;
    }

    /// A report arrived, by a watch or a read, at this revision of its key.
    pub fn observe(&mut self, now: Time, report: Report, revision: KeyRevision) {
        let name = &report.gateway.name;
        let known = self.reports.get(name);
        if known.is_some_and(|(known, _)| *known >= revision) {
            return;
        }
        if known.is_none_or(|(_, known)| known.gateway != report.gateway) {
            self.run_seen.insert(name.clone(), now);
        }
        self.last_news.insert(report.gateway.clone(), now);
        self.silent.remove(&report.gateway);
        self.reports.insert(name.clone(), (revision, report));
    }

    /// All reports have been read, from the engine itself, by a read that was sent at `sent`.
    pub fn read_all(
        &mut self,
        sent: Time,
        now: Time,
        reports: impl IntoIterator<Item = (Report, KeyRevision)>,
    ) {
        for (report, revision) in reports {
            self.observe(now, report, revision);
        }
        self.has_read_reports |= sent >= self.adopted;
        self.notice_silence(sent);
    }

    /// Who has been silent for long enough, by a read that was sent at `sent`.
    fn notice_silence(&mut self, sent: Time) {
        let silence = self.settings.silence();
        for entry in &self.stored.entries {
            let news = self.news_of(entry);
            if news.is_some_and(|news| sent.since(news) >= silence) {
                self.silent.insert(entry.gateway.clone());
            }
        }
    }

    /// From when the silence of a run counts. Its last report may have been overwritten unseen by that of its successor.
    fn news_of(&self, entry: &LedgerEntry) -> Option<Time> {
        let name = &entry.gateway.name;
        let news = self.last_news.get(&entry.gateway).copied()?;
        let current = self.reports.get(name);
        let is_overwritten = current.is_some_and(|(_, report)| report.gateway != entry.gateway);
        let forgets = self.settings.rules.has(Mutant::OverwrittenIsSilent);
        if entry.standing == Standing::Gone || !is_overwritten || forgets {
            return Some(news);
        }
        let seen = self.run_seen.get(name).copied();
        Some(seen.map_or(news, |seen| seen.max(news)))
    }

    /// Makes the next ledger, if there is something to write and writing is allowed: to be written now.
    ///
    /// `divide` gets the last reports of the members and the seats that they share, and returns a target for each; their
    /// sum should be at most these seats. The bound holds whatever it returns.
    pub fn propose(
        &mut self,
        now: Time,
        divide: impl FnOnce(&[&Report], Seats) -> Vec<SeatTarget>,
    ) -> Option<Proposal> {
        let interval = self.settings.ledger_interval;
        let is_early = self.written.is_some_and(|at| now.since(at) < interval);
        let is_busy = self.in_flight.is_some() || self.must_read;
        if self.is_deposed() || is_busy || is_early || !self.has_read_reports {
            return None;
        }
        if self.settings.rules.has(Mutant::SilenceWithoutRead) {
            self.notice_silence(now);
        }
        if self.is_behind() {
            self.must_read = true;
            return None;
        }
        // After the last epoch there is none: somebody has written it.
        let epoch = Epoch(self.stored.epoch.0.checked_add(1)?);
        let entries = self.entries(epoch, divide)?;
        let reports = self.reports_of_members(&entries);
        let flows = flow_work(&reports);
        let mut tenants = spread_tenants(&entries, &reports);
        if !differ_much(&self.stored.tenants, &tenants) {
            tenants.clone_from(&self.stored.tenants);
        }
        let tells_news = flows != self.stored.flows || tenants != self.stored.tenants;
        if !tells_news && !self.is_worth_writing(&entries) {
            return None;
        }
        let ledger = SeatLedger {
            version: FORMAT_VERSION,
            epoch,
            fence: self.fence,
            entries,
            flows,
            tenants,
        };
        self.restart_clocks(now, &ledger);
        self.written = Some(now);
        self.attempts += 1;
        let attempt = WriteAttempt(self.attempts);
        self.in_flight = Some((attempt, ledger.clone()));
        Some(Proposal {
            ledger,
            expected: self.revision,
            attempt,
        })
    }

    /// What a run leaves behind is reserved from when its successor was first seen: runs between them may have used the floor.
    fn restart_clocks(&mut self, now: Time, ledger: &SeatLedger) {
        let entries = ledger.entries.iter();
        for entry in entries.filter(|entry| entry.standing == Standing::Gone) {
            let gateway = &entry.gateway;
            let known = self.stored.entry(gateway);
            let was_gone = known.is_some_and(|known| known.standing == Standing::Gone);
            let is_same_name = |other: &&LedgerEntry| other.gateway.name == gateway.name;
            let mut same_name = ledger.entries.iter().filter(is_same_name);
            let has_new_run = same_name.any(|other| self.stored.entry(&other.gateway).is_none());
            if !was_gone || (gateway.incarnation == UNKNOWN && has_new_run) {
                let seen = self.run_seen.get(&gateway.name).copied().unwrap_or(now);
                self.silent.remove(gateway);
                self.last_news.insert(gateway.clone(), seen);
            }
        }
    }

    /// Whether some gateway has applied a ledger that this coordinator has not seen: a successor wrote it, or the engine
    /// has lost data. Its grants are not known, so nothing may be written.
    pub fn is_behind(&self) -> bool {
        let mut reports = self.reports.values();
        reports.any(|(_, report)| report.epoch > self.stored.epoch)
    }

    /// The entries of the next ledger; `None` if it would reserve more than it may, which would be a bug.
    fn entries(
        &self,
        epoch: Epoch,
        divide: impl FnOnce(&[&Report], Seats) -> Vec<SeatTarget>,
    ) -> Option<Vec<LedgerEntry>> {
        let mut book = Book::new(&self.settings, &self.stored.entries);
        for gateway in &self.silent {
            if self.stored.entry(gateway).is_some() {
                let last = self.reports.get(&gateway.name);
                let last = last.filter(|(_, report)| report.gateway == *gateway);
                book.reclaim(
                    gateway,
                    epoch,
                    last.map_or(0, |(_, report)| report.sequence),
                );
            }
        }
        let reports = self.reports.values().map(|(_, report)| report);
        // The last report of a silent gateway may be newer than the one that the ledger has. It is no news.
        for report in reports.filter(|report| !self.silent.contains(&report.gateway)) {
            book.take(report);
        }
        let before = book.reserved();
        let members: Vec<&Report> = book
            .members()
            .filter_map(|entry| self.reports.get(&entry.gateway.name))
            .map(|(_, report)| report)
            .collect();
        let pool = book.pool(self.limit);
        let mut targets = divide(&members, pool);
        // A member without a report in memory would shift the targets: there is none, since all reports have been read.
        targets.resize(book.members().count(), SeatTarget::default());
        book.grant(targets, self.limit, epoch);
        let bound = before.max(self.limit.into());
        let breaks_rules = self.settings.rules.is_any_broken();
        let entries = book.commit(epoch);
        let after = Book::new(&self.settings, &entries).reserved();
        debug_assert!(
            after <= bound || breaks_rules,
            "{after} seats are reserved of {bound}"
        );
        (after <= bound || breaks_rules).then_some(entries)
    }

    /// The last reports of the members among these entries. Those of others, which are silent or gone, are out of date.
    fn reports_of_members(&self, entries: &[LedgerEntry]) -> Vec<&Report> {
        let is_member = |report: &&Report| {
            let mut entries = entries.iter();
            let entry = entries.find(|entry| entry.gateway == report.gateway);
            entry.is_some_and(|entry| entry.standing == Standing::Member)
        };
        let reports = self.reports.values().map(|(_, report)| report);
        reports.filter(is_member).collect()
    }

    fn is_worth_writing(&self, entries: &[LedgerEntry]) -> bool {
        let visible = |entries: &[LedgerEntry]| -> Vec<_> {
            let parts = entries.iter();
            parts
                .map(|e| {
                    (
                        e.gateway.clone(),
                        e.standing,
                        e.grant,
                        e.levels.clone(),
                        e.reported.leaving,
                    )
                })
                .collect()
        };
        let is_acknowledgement_due = |entry: &LedgerEntry| {
            let report = self.reports.get(&entry.gateway.name);
            let is_lapsed = report.is_some_and(|(_, r)| r.lapsed && r.gateway == entry.gateway);
            let acknowledged = self.stored.entry(&entry.gateway);
            is_lapsed && acknowledged.is_some_and(|a| a.reported.sequence < entry.reported.sequence)
        };
        self.stored.fence != self.fence
            || visible(entries) != visible(&self.stored.entries)
            || entries.iter().any(is_acknowledgement_due)
    }

    /// The ledger of this attempt is stored, at this revision.
    pub fn stored(&mut self, attempt: WriteAttempt, revision: KeyRevision) {
        let Some((_, ledger)) = self.in_flight.take_if(|(current, _)| *current == attempt) else {
            return;
        };
        self.stored = ledger;
        self.revision = revision;
        let stored = &self.stored;
        self.silent
            .retain(|gateway| stored.entry(gateway).is_some());
    }

    /// The ledger of this attempt was refused: read it.
    pub fn refused(&mut self, attempt: WriteAttempt) {
        if self
            .in_flight
            .take_if(|(current, _)| *current == attempt)
            .is_some()
        {
            self.must_read = true;
            self.refused = Some(self.revision);
        }
    }

    /// Nobody knows whether the ledger of this attempt is stored: read it.
    pub fn unanswered(&mut self, attempt: WriteAttempt) {
        if self
            .in_flight
            .take_if(|(current, _)| *current == attempt)
            .is_some()
        {
            self.must_read = true;
        }
    }

    /// The ledger as it is stored, as far as known.
    pub fn ledger(&self) -> &SeatLedger {
        &self.stored
    }
}

/// What flows that are active at several gateways received at each.
fn flow_work(reports: &[&Report]) -> Vec<FlowWork> {
    let mut flows: BTreeMap<(&str, u64), Vec<(GatewayRun, u64)>> = BTreeMap::new();
    for report in reports {
        for flow in &report.flows {
            let works = flows.entry((&flow.level, flow.flow)).or_default();
            works.push((report.gateway.clone(), flow.work));
        }
    }
    let several = flows.into_iter().filter(|(_, work)| work.len() > 1);
    let flow = |((level, flow), work): ((&str, u64), _)| FlowWork {
        level: level.to_owned(),
        flow,
        work,
    };
    several.map(flow).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{records::FlowLoad, settings::Reclaim, tests::report_of};

    /// A report of a gateway at which the flow 7 received so much.
    fn report(name: &str, sequence: u64, work: u64) -> Report {
        Report {
            sequence,
            flows: vec![FlowLoad {
                level: "low".to_owned(),
                flow: 7,
                demand: 1,
                work,
                ..FlowLoad::default()
            }],
            ..report_of(name)
        }
    }

    /// Has the coordinator write a ledger, if there is one to be written. Whether it did.
    fn writes(coordinator: &mut Coordinator, now: Time) -> bool {
        let even = |members: &[&Report], _| {
            let target = SeatTarget {
                seats: 2,
                levels: Vec::new(),
            };
            vec![target; members.len()]
        };
        let Some(proposal) = coordinator.propose(now, even) else {
            return false;
        };
        coordinator.stored(proposal.attempt, KeyRevision(proposal.ledger.epoch.0));
        true
    }

    #[test]
    fn what_flows_received_at_a_gateway_that_is_silent_is_not_told_any_more() {
        let settings = Settings::new(2, 1, Reclaim::Prompt);
        let (interval, silence) = (settings.ledger_interval, settings.silence());
        let mut now = Time::ZERO;
        let nothing = SeatLedger::default();
        let mut coordinator =
            Coordinator::new(settings, Fence(1), 10, now, nothing, KeyRevision(0));
        let reports = [report("a", 1, 10), report("b", 1, 20)];
        let reports = reports.map(|report| (report, KeyRevision(1)));
        coordinator.read_all(now, now, reports);
        assert!(writes(&mut coordinator, now));
        assert_eq!(coordinator.ledger().flows[0].work.len(), 2);
        now = now.plus(silence);
        coordinator.read_all(now, now, [(report("a", 2, 30), KeyRevision(2))]);
        assert!(writes(&mut coordinator, now));
        assert_eq!(coordinator.ledger().flows, []);
        // What the flow receives at the only gateway that is left is no news.
        now = now.plus(interval.max(Duration::from_millis(1)));
        coordinator.read_all(now, now, [(report("a", 3, 40), KeyRevision(3))]);
        assert!(!writes(&mut coordinator, now));
    }
}
