//! What is reserved, and how new grants follow from targets.
//!
//! *Reserved* = max(held in its last report, every grant not older than the epoch that it reported). A gateway that reported
//! epoch e has e or a later ledger in force, so it uses no more than it held then or one of these grants.
//!
//! Not here: when a gateway counts as silent, and when a ledger is written (`coordinator`).

use fairgate_core::apf::Seats;

use crate::{
    grants::Grants,
    identity::{Epoch, GatewayRun},
    records::{LedgerEntry, LevelGrant, Report, Reported, Standing},
    rules::{Mutant, ProtocolRules},
    settings::Settings,
};

impl LedgerEntry {
    /// The seats that this run of a gateway may be using.
    pub fn reserved(&self) -> Seats {
        self.reserved_by(ProtocolRules::default())
    }

    pub(crate) fn reserved_by(&self, rules: ProtocolRules) -> Seats {
        let outstanding = self.outstanding.greatest();
        if self.standing == Standing::Gone {
            return outstanding;
        }
        if self.reported.leaving || rules.has(Mutant::NoAcknowledgement) {
            return self.reported.held;
        }
        if rules.has(Mutant::NoHeldSeats) {
            return outstanding;
        }
        if rules.has(Mutant::OnlyLastGrant) {
            return self.reported.held.max(self.grant);
        }
        self.reported.held.max(outstanding)
    }
}

/// What a gateway should have: its seats, at least the floor, and how they are divided among levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeatTarget {
    /// All its seats.
    pub seats: Seats,
    /// By level; sums to `seats`, or is empty.
    pub levels: Vec<LevelGrant>,
}

/// The entries of the ledger that is being made.
pub(crate) struct Book<'a> {
    settings: &'a Settings,
    pub(crate) entries: Vec<LedgerEntry>,
    /// What to put in place of the entries of a name if its new run cannot join yet.
    before_join: Vec<(GatewayRun, Vec<LedgerEntry>)>,
}

impl<'a> Book<'a> {
    pub(crate) fn new(settings: &'a Settings, entries: &[LedgerEntry]) -> Self {
        Self {
            settings,
            entries: entries.to_vec(),
            before_join: Vec::new(),
        }
    }

    /// The seats that may be in use, and the floors of gateways that are not listed.
    pub(crate) fn reserved(&self) -> u64 {
        let rules = self.settings.rules;
        let listed = self.entries.iter().map(|entry| entry.reserved_by(rules));
        listed.map(u64::from).sum::<u64>() + self.floors_of_unlisted()
    }

    pub(crate) fn floors_of_unlisted(&self) -> u64 {
        if self.settings.rules.has(Mutant::FloorNotReserved) {
            return 0;
        }
        let unlisted = u64::from(self.settings.max_gateways).saturating_sub(self.names());
        unlisted * u64::from(self.settings.floor)
    }

    fn names(&self) -> u64 {
        let mut names: Vec<&str> = Vec::new();
        names.extend(self.entries.iter().map(|entry| &*entry.gateway.name));
        names.sort_unstable();
        names.dedup();
        names.len() as u64
    }

    /// Takes the newest report of a gateway.
    pub(crate) fn take(&mut self, report: &Report) {
        let known = self
            .entries
            .iter()
            .position(|e| e.gateway == report.gateway);
        let Some(place) = known else {
            return self.join(report);
        };
        let entry = &mut self.entries[place];
        if entry.standing == Standing::Gone || report.sequence <= entry.reported.sequence {
            return;
        }
        entry.reported = report.summary();
        if report.leaving && !self.settings.rules.has(Mutant::LeavingFreesFloor) {
            // The next run may use it at once.
            entry.reported.held = report.held.max(self.settings.floor);
        }
        entry.standing = Standing::Member;
        entry.outstanding.acknowledge(report.epoch);
        if report.leaving && report.held == 0 {
            self.entries.remove(place);
        }
    }

    /// A run of a gateway that the ledger does not list. Whatever an earlier run held stays reserved: its requests may execute.
    fn join(&mut self, report: &Report) {
        let gateway = &report.gateway;
        let (before, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| entry.gateway.name == gateway.name);
        self.entries = others;
        let is_full = before.is_empty() && self.names() >= u64::from(self.settings.max_gateways);
        if report.leaving || is_full {
            self.entries.extend(before);
            return;
        }
        let mut left = before.clone();
        for entry in &mut left {
            let reserved = entry.reserved_by(self.settings.rules);
            entry.outstanding = Grants::only(Epoch::default(), reserved);
            entry.standing = Standing::Gone;
            entry.grant = 0;
            entry.levels.clear();
        }
        let rules = self.settings.rules;
        let was_listed = before.iter().any(|entry| entry.standing != Standing::Gone);
        if !was_listed && !report.settled && !rules.has(Mutant::ForgetUnlistedRun) {
            left.retain(|entry| entry.gateway.incarnation != UNKNOWN);
            left.push(unknown_run(gateway, self.settings.floor));
        }
        if self.settings.rules.has(Mutant::ForgetPredecessor) {
            left.clear();
        }
        self.entries.extend(left);
        self.entries.push(LedgerEntry {
            gateway: gateway.clone(),
            standing: Standing::Member,
            grant: 0,
            levels: Vec::new(),
            reported: report.summary(),
            outstanding: Grants::default(),
        });
        self.before_join.push((gateway.clone(), before));
    }

    /// Takes the seats of a gateway back, but for its floor. What it reported up to the sequence `last` counts no more, also for a
    /// successor of the coordinator.
    pub(crate) fn reclaim(&mut self, gateway: &GatewayRun, epoch: Epoch, last: u64) {
        let floor = self.settings.floor;
        self.entries.retain_mut(|entry| {
            if entry.gateway != *gateway {
                return true;
            }
            if entry.standing == Standing::Gone || entry.reported.leaving {
                return false;
            }
            entry.standing = Standing::Silent;
            entry.grant = floor;
            entry.levels.clear();
            entry.outstanding = Grants::only(epoch, floor);
            entry.reported.held = floor;
            entry.reported.sequence = entry.reported.sequence.max(last);
            true
        });
    }

    /// The seats that members share: what silent and former gateways and those not listed do not need.
    pub(crate) fn pool(&self, limit: Seats) -> Seats {
        let rules = self.settings.rules;
        let others = self.entries.iter().filter(|entry| !is_divided(entry));
        let held: u64 = others
            .map(|entry| u64::from(entry.reserved_by(rules)))
            .sum();
        let pool = u64::from(limit).saturating_sub(held + self.floors_of_unlisted());
        Seats::try_from(pool).unwrap_or(limit)
    }

    /// The entries that get targets, in the order of the targets.
    pub(crate) fn members(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.iter().filter(|entry| is_divided(entry))
    }

    /// Grants the targets as far as seats are free: decreases at once, increases from seats that are not reserved. New
    /// gateways first get their floor; one for which there is no seat yet is not listed.
    pub(crate) fn grant(&mut self, mut targets: Vec<SeatTarget>, limit: Seats, epoch: Epoch) {
        let rules = self.settings.rules;
        let floor = self.settings.floor;
        self.let_join(&mut targets, limit, epoch);
        let mut free = u64::from(limit).saturating_sub(self.reserved());
        if rules.has(Mutant::IncreaseAtOnce) {
            free = u64::MAX;
        }
        // A report that was sent before its gateway lapsed may arrive after its seats went to others. Then more seems to be
        // held than there is, and what it says is no reason to grant as much.
        let is_held_for_certain =
            self.reserved() <= u64::from(limit) || rules.has(Mutant::HeldIsFree);
        let members = self.entries.iter_mut().filter(|entry| is_divided(entry));
        let mut pairs: Vec<(&mut LedgerEntry, SeatTarget)> = members.zip(targets).collect();
        let wants: Vec<u64> = pairs
            .iter()
            .map(|(entry, target)| u64::from(target.seats.saturating_sub(entry.reserved_by(rules))))
            .collect();
        for ((entry, target), more) in pairs.iter_mut().zip(in_proportion(&wants, free)) {
            let own = if is_held_for_certain {
                entry.reserved_by(rules)
            } else {
                entry.outstanding.greatest()
            };
            let reserved = u64::from(own) + more;
            let least = target.seats.max(floor);
            let seats = least.min(Seats::try_from(reserved).unwrap_or(Seats::MAX));
            entry.grant = seats;
            entry.levels = scaled(&target.levels, target.seats, seats);
        }
    }

    /// New runs get their floor, one after the other, if there are seats for it; otherwise all stays as it was before they came.
    fn let_join(&mut self, targets: &mut Vec<SeatTarget>, limit: Seats, epoch: Epoch) {
        let floor = self.settings.floor;
        for (gateway, before) in std::mem::take(&mut self.before_join) {
            let reserved = self.reserved();
            let Some(place) = self.members().position(|entry| entry.gateway == gateway) else {
                continue;
            };
            let new = self
                .entries
                .iter_mut()
                .find(|entry| entry.gateway == gateway);
            let held = new.as_ref().map_or(0, |entry| entry.reported.held);
            if reserved + u64::from(floor.saturating_sub(held)) <= u64::from(limit) {
                if let Some(entry) = new {
                    entry.outstanding.add(epoch, floor);
                }
            } else {
                targets.remove(place);
                self.entries
                    .retain(|entry| entry.gateway.name != gateway.name);
                self.entries.extend(before);
            }
        }
    }

    /// Counts the grants of this ledger as outstanding.
    pub(crate) fn commit(mut self, epoch: Epoch) -> Vec<LedgerEntry> {
        for entry in &mut self.entries {
            if entry.standing != Standing::Gone {
                entry.outstanding.add(epoch, entry.grant);
            }
        }
        self.entries
            .sort_by(|one, other| one.gateway.cmp(&other.gateway));
        self.entries
    }
}

fn is_divided(entry: &LedgerEntry) -> bool {
    entry.standing == Standing::Member && !entry.reported.leaving
}

/// Stands for runs that no ledger listed; no gateway has it.
pub(crate) const UNKNOWN: u64 = 0;

/// Runs of a gateway that nobody listed may have used the floor.
fn unknown_run(gateway: &GatewayRun, floor: Seats) -> LedgerEntry {
    LedgerEntry {
        gateway: GatewayRun {
            name: gateway.name.clone(),
            incarnation: UNKNOWN,
        },
        standing: Standing::Gone,
        grant: 0,
        levels: Vec::new(),
        reported: Reported::default(),
        outstanding: Grants::only(Epoch::default(), floor),
    }
}

/// Divides `amount`: everybody's wants if that is enough, otherwise in proportion to them, in whole seats.
pub(crate) fn in_proportion(wants: &[u64], amount: u64) -> Vec<u64> {
    let sum: u64 = wants.iter().sum();
    if sum <= amount {
        return wants.to_vec();
    }
    let product = |want: u64| u128::from(want) * u128::from(amount);
    let part = |want: &u64| u64::try_from(product(*want) / u128::from(sum)).unwrap_or(0);
    let mut parts: Vec<u64> = wants.iter().map(part).collect();
    let mut left = amount - parts.iter().sum::<u64>();
    let mut by_remainder: Vec<usize> = (0..wants.len()).collect();
    by_remainder.sort_by_key(|index| std::cmp::Reverse(product(wants[*index]) % u128::from(sum)));
    for index in by_remainder {
        let one = left.min(1).min(wants[index] - parts[index]);
        parts[index] += one;
        left -= one;
    }
    parts
}

/// The levels of a target of `from` seats in proportion, for a grant of `to` seats. A target of none says nothing of them: they are divided
/// by shares then.
fn scaled(levels: &[LevelGrant], from: Seats, to: Seats) -> Vec<LevelGrant> {
    if from == to {
        return levels.to_vec();
    }
    if from == 0 {
        return Vec::new();
    }
    let wants: Vec<u64> = levels
        .iter()
        .map(|level| u64::from(level.seats) * u64::from(to.max(1)))
        .collect();
    let parts = in_proportion(&wants, u64::from(to));
    let level = |(level, part): (&LevelGrant, u64)| LevelGrant {
        level: level.level.clone(),
        seats: Seats::try_from(part).unwrap_or(to),
    };
    levels.iter().zip(parts).map(level).collect()
}
