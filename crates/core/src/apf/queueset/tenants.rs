//! Who the flows of a level belong to, and what they weigh for that.
//!
//! Each active flow has an *owner*: the tenant whose requests it holds, or among several the one that owns the fewest
//! flows when it comes, or when the last request of the owner leaves. A tenant that owns at most `allowance` flows has flows of weight 1; if it owns n more, they
//! share that allowance evenly, so they weigh `allowance / n` each. So a tenant's flows weigh together what they are, at
//! most `allowance`, and all flows of the level together an exact whole number, whatever the names that arrive (but for what is elsewhere,
//! see below).
//!
//! In a fleet of gateways a tenant may have active flows at others, too. These count here, so that it weighs here only the part that
//! it has here of what it may weigh in the fleet: with n flows here and m elsewhere, more than its allowance together, each weighs
//! `allowance / (n + m)`.
//!
//! Not here: what a weight does ([`super::fair`]).

mod placing;
mod weight_sum;

use std::{collections::HashMap, hash::BuildHasherDefault};

use self::weight_sum::WeightSum;
use super::{
    reports::TenantReport,
    service_times::{LONGEST_ASSUMED, moved},
};
use crate::{
    apf::units::{SeatSeconds, Seats},
    identity_hasher::IdentityHasher,
    time::{Nanos, Time},
};

/// What the flows of one tenant weigh together at most, where a flow weighs 1, unless configured.
pub const DEFAULT_TENANT_WEIGHT: u32 = 4;

/// How many flows at other gateways count for a tenant at most. Bounds how small its weight here can be, and so how fast virtual time
/// can advance.
const MOST_ELSEWHERE: u32 = 1 << 16;

/// The tenants that own flows.
#[derive(Debug)]
pub(super) struct TenantTable {
    all: Vec<KnownTenant>,
    numbers: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    free: Vec<u32>,
    /// What the active flows of one tenant weigh together at most; at least 1.
    allowance: u32,
    /// What all active flows weigh together.
    weight: WeightSum,
    /// The active flows that tenants have at other gateways, by hash; also of tenants that own none here.
    elsewhere: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    /// Those whose flows wait in places that are not by their weight any more.
    misplaced: Vec<u32>,
    /// How many events there were since there were some.
    events: u32,
}

/// One tenant.
#[derive(Clone, Copy, Debug)]
struct KnownTenant {
    hash: u64,
    /// Flows that name it as their owner, active or not.
    known: u32,
    /// Those of them that are active.
    active: u32,
    /// Those, and its active flows at other gateways.
    in_fleet: u32,
    /// The seats that its flows hold.
    seats: Seats,
    /// How long its requests take on average, in microseconds, and of how many that is, up to the number that is remembered.
    mean_micros: u32,
    learnt: u8,
    /// Whether its flows are to be placed anew, and how many there were in the fleet when they were placed last; no more than fit.
    is_misplaced: bool,
    placed: u16,
    /// When a request of it started last.
    served: Time,
    /// The work that its flows were given, as if it had been one flow that was always active before it was known, in virtual time.
    received: SeatSeconds,
    /// The virtual time until which it has to pay for seats that were drained for it.
    drained: SeatSeconds,
}

/// How much of a unit of weight a flow has: 1, or allowance / flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    numerator: u32,
    denominator: u32,
}

impl TenantTable {
    pub(super) fn new(allowance: u32) -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::default(),
            free: Vec::new(),
            allowance: allowance.max(1),
            weight: WeightSum::default(),
            elsewhere: HashMap::default(),
            misplaced: Vec::new(),
            events: 0,
        }
    }

    /// `amount`, divided by what all active flows weigh together; by 1 if none is active.
    pub(super) fn divide_by_all(&self, amount: u64) -> u64 {
        self.weight.divide(amount)
    }

    /// `amount` times what all active flows weigh together, rounded up; saturates.
    pub(super) fn times_all(&self, amount: u64) -> u64 {
        self.weight.times(amount)
    }

    /// What the active flows of one tenant weigh together at most.
    pub(super) fn allowance(&self) -> u32 {
        self.allowance
    }

    /// Changes what the active flows of one tenant weigh together at most; at least 1. O(tenants).
    pub(super) fn set_allowance(&mut self, allowance: u32) {
        self.allowance = allowance.max(1);
        self.weigh_all();
    }

    /// Weighs all tenants anew. The caller places all flows. O(tenants).
    fn weigh_all(&mut self) {
        let mut weight = WeightSum::default();
        for tenant in &mut self.all {
            weight.add(tenant.weight(self.allowance));
            tenant.note_placed();
        }
        self.weight = weight;
    }

    /// Whether no tenant has flows at other gateways that weighs less for it.
    pub(super) fn are_weights_whole(&self) -> bool {
        self.weight.parts == 0
    }

    /// The tenants with these hashes have so many active flows at other gateways; all others have none. Further ones than
    /// [`MOST_ELSEWHERE`] of a tenant do not count. Whether that changes anything for a tenant that is known. O(tenants).
    pub(super) fn set_elsewhere(&mut self, flows: impl IntoIterator<Item = (u64, u32)>) -> bool {
        self.elsewhere.clear();
        let flows = flows.into_iter();
        let flows = flows.map(|(hash, flows)| (hash, flows.min(MOST_ELSEWHERE)));
        self.elsewhere.extend(flows.filter(|(_, flows)| *flows > 0));
        let mut changes = false;
        for tenant in &mut self.all {
            let elsewhere = self.elsewhere.get(&tenant.hash).copied().unwrap_or(0);
            let in_fleet = tenant.active + elsewhere;
            changes |= tenant.in_fleet != in_fleet;
            tenant.in_fleet = in_fleet;
        }
        if changes {
            self.weigh_all();
        }
        changes
    }

    /// What [`Self::set_elsewhere`] was told last.
    pub(super) fn take_elsewhere(&mut self) -> impl IntoIterator<Item = (u64, u32)> + use<> {
        std::mem::take(&mut self.elsewhere)
    }

    /// Whether [`Self::set_elsewhere`] was told the same last; each tenant is there once, with at least one flow.
    pub(super) fn are_elsewhere(&self, flows: &[(u64, u32)]) -> bool {
        let is_known = |(hash, flows): &(u64, u32)| {
            let known = self.elsewhere.get(hash);
            known == Some((*flows).min(MOST_ELSEWHERE)).as_ref()
        };
        flows.len() == self.elsewhere.len() && flows.iter().all(is_known)
    }

    /// How many active flows the tenant of this hash owns.
    pub(super) fn flows_of(&self, hash: u64) -> u32 {
        let number = self.numbers.get(&hash);
        number.map_or(0, |number| self.all[*number as usize].active)
    }

    /// How many active flows a tenant owns.
    pub(super) fn flows(&self, number: u32) -> u32 {
        self.all[number as usize].active
    }

    /// Whether a tenant has more idle flows than its flows may weigh together.
    pub(super) fn has_many_idle(&self, number: u32) -> bool {
        let tenant = &self.all[number as usize];
        tenant.known - tenant.active > self.allowance
    }

    /// Whether a tenant has more flows, active in the fleet or known here, than may weigh 1 each. Then what they save and owe counts
    /// together: with another name for each request it would be that of as many flows.
    pub(super) fn has_many(&self, number: u32) -> bool {
        let tenant = &self.all[number as usize];
        tenant.known - tenant.active + tenant.in_fleet > self.allowance
    }

    /// The same of the tenant with this hash, which is perhaps not known.
    pub(super) fn hash_has_many(&self, hash: u64) -> bool {
        let number = self.numbers.get(&hash);
        number.is_some_and(|number| self.has_many(*number))
    }

    /// The hash of a tenant.
    pub(super) fn hash(&self, number: u32) -> u64 {
        self.all[number as usize].hash
    }

    /// The seats that the flows of a tenant hold.
    pub(super) fn seats(&self, number: u32) -> Seats {
        self.all[number as usize].seats
    }

    /// The flows of a tenant hold `after` seats where they held `before`.
    pub(super) fn hold(&mut self, number: u32, before: Seats, after: Seats) {
        let tenant = &mut self.all[number as usize];
        tenant.seats = tenant.seats - before + after;
    }

    /// `amount`, divided by what the active flows of a tenant weigh together; by 1 if it has none.
    pub(super) fn divide_by_weight_of(&self, number: u32, amount: u64) -> u64 {
        let tenant = &self.all[number as usize];
        if tenant.in_fleet == tenant.active {
            return amount / u64::from(tenant.active.min(self.allowance).max(1));
        }
        tenant.weight(self.allowance).divide(amount)
    }

    /// The tenants that have active flows.
    pub(super) fn active(&self) -> impl Iterator<Item = TenantReport> {
        let active = self.all.iter().filter(|tenant| tenant.active > 0);
        active.map(|tenant| TenantReport {
            hash: tenant.hash,
            flows: tenant.active,
            weight: tenant.weight(self.allowance).as_f64(),
        })
    }

    /// The weight of each flow of a tenant that has active ones.
    pub(super) fn weight_of(&self, number: u32) -> Weight {
        self.weight_of_each(self.all[number as usize].in_fleet)
    }

    /// The weight that each flow of the tenant of this hash has once one more is active.
    pub(super) fn weight_of_another(&self, hash: u64) -> Weight {
        let flows = match self.numbers.get(&hash) {
            Some(number) => self.all[*number as usize].in_fleet,
            None => self.elsewhere.get(&hash).copied().unwrap_or(0),
        };
        self.weight_of_each(flows + 1)
    }

    /// The weight of each of so many active flows of one tenant, wherever they are.
    fn weight_of_each(&self, active: u32) -> Weight {
        if active <= self.allowance {
            return Weight::ONE;
        }
        Weight {
            numerator: self.allowance,
            denominator: active,
        }
    }

    /// The number of the tenant with this hash, known or new, for one more flow. A new one has received as much as others have
    /// at virtual time `now`.
    pub(super) fn acquire(&mut self, hash: u64, now: SeatSeconds) -> u32 {
        if let Some(&number) = self.numbers.get(&hash) {
            self.all[number as usize].known += 1;
            return number;
        }
        let tenant = KnownTenant {
            hash,
            known: 1,
            active: 0,
            in_fleet: self.elsewhere.get(&hash).copied().unwrap_or(0),
            seats: 0,
            mean_micros: 0,
            learnt: 0,
            is_misplaced: false,
            placed: 0,
            served: Time::ZERO,
            received: now,
            drained: SeatSeconds::ZERO,
        };
        let number = if let Some(number) = self.free.pop() {
            self.all[number as usize] = tenant;
            number
        } else {
            self.all.push(tenant);
            u32::try_from(self.all.len() - 1).expect("fewer than 2^32 tenants are known")
        };
        self.numbers.insert(hash, number);
        number
    }

    /// A request of a tenant took so long.
    pub(super) fn learn(&mut self, number: u32, took: Nanos) {
        let tenant = &mut self.all[number as usize];
        let mean = match tenant.learnt {
            0 => took.min(LONGEST_ASSUMED),
            _ => micros(tenant.mean_micros.into()),
        };
        let mut learnt = u32::from(tenant.learnt);
        let mean = moved(mean, &mut learnt, took);
        tenant.learnt = u8::try_from(learnt).unwrap_or(u8::MAX);
        tenant.mean_micros = u32::try_from(mean.as_nanos() / 1_000).unwrap_or(u32::MAX);
    }

    /// How long the requests of a tenant take on average, if one has ended.
    pub(super) fn mean(&self, number: u32) -> Option<Nanos> {
        let tenant = &self.all[number as usize];
        (tenant.learnt > 0).then_some(micros(tenant.mean_micros.into()))
    }

    /// What a tenant has received.
    pub(super) fn received(&self, number: u32) -> SeatSeconds {
        self.all[number as usize].received
    }

    /// When a request of a tenant started last.
    pub(super) fn served(&self, number: u32) -> Time {
        self.all[number as usize].served
    }

    /// A request of a tenant starts, and it receives `work`.
    pub(super) fn receive(&mut self, number: u32, work: SeatSeconds, now: Time) {
        let tenant = &mut self.all[number as usize];
        tenant.served = now;
        tenant.received = tenant.received.plus(work);
    }

    /// A tenant counts as having received at least `least`.
    pub(super) fn raise_received(&mut self, number: u32, least: SeatSeconds) {
        let tenant = &mut self.all[number as usize];
        tenant.received = tenant.received.max(least);
    }

    /// What a tenant received was `actual` in place of `assumed`, in units of seat-seconds.
    pub(super) fn correct(&mut self, number: u32, assumed: u64, actual: u64) {
        let tenant = &mut self.all[number as usize];
        let received = (tenant.received.units() + actual).saturating_sub(assumed);
        tenant.received = SeatSeconds::from_units(received);
    }

    /// The virtual time until which a tenant has to pay for drained seats.
    pub(super) fn drained(&self, number: u32) -> SeatSeconds {
        self.all[number as usize].drained
    }

    /// A tenant has to pay for drained seats until this virtual time at least.
    pub(super) fn raise_drained(&mut self, number: u32, until: SeatSeconds) {
        let tenant = &mut self.all[number as usize];
        tenant.drained = tenant.drained.max(until);
    }

    /// Virtual time is set back. O(tenants).
    pub(super) fn set_back(&mut self, by: u64) {
        for tenant in &mut self.all {
            let received = tenant.received.units().saturating_sub(by);
            tenant.received = SeatSeconds::from_units(received);
            let drained = tenant.drained.units().saturating_sub(by);
            tenant.drained = SeatSeconds::from_units(drained);
        }
    }

    /// A flow names this tenant no longer.
    pub(super) fn release(&mut self, number: u32) {
        let tenant = &mut self.all[number as usize];
        tenant.known -= 1;
        if tenant.known == 0 {
            self.numbers.remove(&tenant.hash);
            self.free.push(number);
        }
    }

    /// A flow of this tenant becomes active.
    #[inline]
    pub(super) fn activate(&mut self, number: u32) {
        let tenant = &mut self.all[number as usize];
        if tenant.in_fleet == tenant.active && tenant.active < self.allowance {
            self.weight.whole += 1;
            tenant.active += 1;
            tenant.in_fleet += 1;
        } else {
            self.activate_one_of_many(number);
        }
    }

    /// A flow becomes active of a tenant whose flows then share its allowance, or that has some at other gateways.
    fn activate_one_of_many(&mut self, number: u32) {
        let tenant = &mut self.all[number as usize];
        self.weight.subtract(tenant.weight(self.allowance));
        tenant.active += 1;
        tenant.in_fleet += 1;
        self.weight.add(tenant.weight(self.allowance));
        let placed = u32::from(tenant.placed);
        if tenant.in_fleet > self.allowance && tenant.in_fleet / 2 >= placed {
            self.misplace(number);
        }
    }

    /// A flow of this tenant becomes idle.
    #[inline]
    pub(super) fn deactivate(&mut self, number: u32) {
        let tenant = &mut self.all[number as usize];
        let most = tenant.active.max(tenant.placed.into());
        if tenant.in_fleet == tenant.active && most <= self.allowance {
            self.weight.whole -= 1;
            tenant.active -= 1;
            tenant.in_fleet -= 1;
        } else {
            self.deactivate_one_of_many(number);
        }
    }

    /// A flow becomes idle of a tenant whose flows share its allowance, or did when they were placed, or that has some at other gateways.
    fn deactivate_one_of_many(&mut self, number: u32) {
        let tenant = &mut self.all[number as usize];
        self.weight.subtract(tenant.weight(self.allowance));
        tenant.active -= 1;
        tenant.in_fleet -= 1;
        self.weight.add(tenant.weight(self.allowance));
        let placed = u32::from(tenant.placed);
        if placed > self.allowance && tenant.in_fleet <= placed / 2 {
            self.misplace(number);
        }
    }

    /// Recomputes what is kept running; for tests. `active` is the number of active flows of each tenant that has some, `seats` what its
    /// flows hold.
    ///
    /// # Panics
    ///
    /// If a kept value is wrong.
    pub(super) fn check_invariants(&self, active: &HashMap<u32, u32>, seats: &HashMap<u32, Seats>) {
        let mut weight = WeightSum::default();
        for (number, tenant) in (0..).zip(&self.all) {
            let flows = active.get(&number).copied().unwrap_or(0);
            assert_eq!(tenant.active, flows, "active flows of a tenant");
            assert!(tenant.known >= flows, "flows of a tenant");
            let held = seats.get(&number).copied().unwrap_or(0);
            assert_eq!(tenant.seats, held, "seats of a tenant");
            let elsewhere = self.elsewhere.get(&tenant.hash).copied().unwrap_or(0);
            assert_eq!(tenant.in_fleet, flows + elsewhere, "flows in the fleet");
            weight.add(tenant.weight(self.allowance));
        }
        assert_eq!(self.weight, weight, "the weight of all flows");
    }
}

impl KnownTenant {
    /// What its active flows weigh together.
    fn weight(&self, allowance: u32) -> WeightSum {
        if self.in_fleet == self.active || self.in_fleet <= allowance {
            return WeightSum {
                whole: u64::from(self.active.min(allowance)),
                parts: 0,
            };
        }
        let parts = u128::from(allowance) * u128::from(WeightSum::UNIT) * u128::from(self.active);
        // Rounded up, so that a flow that is alone has its part.
        let parts = parts.div_ceil(self.in_fleet.into());
        WeightSum {
            whole: 0,
            parts: u64::try_from(parts).unwrap_or(u64::MAX),
        }
    }
}

fn micros(micros: u64) -> Nanos {
    Nanos::from_nanos(micros * 1_000)
}

impl Weight {
    pub(super) const ONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// `amount` divided by the weight; at most a sixteenth of what can be represented.
    pub(super) fn divide(self, amount: u64) -> u64 {
        if self.numerator == self.denominator {
            return amount;
        }
        let divided =
            u128::from(amount) * u128::from(self.denominator) / u128::from(self.numerator);
        u64::try_from(divided)
            .unwrap_or(u64::MAX)
            .min(u64::MAX / 16)
    }
}

#[cfg(test)]
mod tests;
