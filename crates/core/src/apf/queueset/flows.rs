//! The flows of a level: what each has used, and its waiting requests.
//!
//! A flow is known by its hash. It is remembered while it has requests and for some time after, so
//! that what it has used beyond its share still counts when it comes back, and its service time need
//! not be learnt again. What is remembered is bounded ([`super::idle`]).
//!
//! Not here: whose turn it is ([`super::fair`]).

mod guests;
mod owners;
mod weights;

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
};

use self::guests::Guests;
use super::{
    NONE,
    fifo::{Entries, Fifo, Phase},
    idle::{IdleFlows, MAX_IDLE},
    service_times::ServiceTimes,
    tenants::{TenantTable, Weight},
};
use crate::{
    apf::units::{SeatSeconds, Seats},
    identity_hasher::IdentityHasher,
    time::{Nanos, Time},
};

const UNCLAIMED_UNIT: u32 = 10;

/// One flow.
#[derive(Clone, Debug)]
pub(super) struct FlowState {
    pub(super) hash: u64,
    line: Fifo,
    /// Requests that wait.
    pub(super) waiting: u32,
    /// Requests that execute or linger.
    pub(super) holding: u32,
    /// The seats that these hold.
    pub(super) seats: Seats,
    /// The seats with which requests execute, and the sum over those of the nanoseconds at which they began, modulo 2⁶⁴.
    executing: Seats,
    began: u64,
    /// The virtual time at which its next request is due.
    pub(super) start: SeatSeconds,
    /// The part of `start` that is estimated: the assumed work of its executing requests.
    pub(super) guessed: SeatSeconds,
    /// When a request of it started last.
    pub(super) served: Time,
    /// Whether it has used no more than its share since its first waiting request came.
    pub(super) fresh: bool,
    /// Whether it was far behind virtual time when its first waiting request came.
    pub(super) saved: bool,
    /// See [`Self::set_unclaimed`]; in units of 2 ^ [`UNCLAIMED_UNIT`], so that it takes little memory.
    unclaimed: u32,
    /// Whether it has fallen behind so far that seats are drained for it, until it has caught up.
    pub(super) behind: bool,
    /// Whether it has taken the last place of another flow, and none of its requests has started since.
    pub(super) took_place: bool,
    /// Breaks ties: in the order in which lines began.
    pub(super) turn: u32,
    /// How long its requests take.
    pub(super) service_time: ServiceTimes,
    /// The number of the tenant that owns it.
    pub(super) owner: u32,
    /// The owner's requests that are present.
    owners_requests: u32,
    /// Another one whenever the owner changes; never 0.
    ownership: u32,
}

/// All flows of a level, named by a small dense number.
#[derive(Debug)]
pub(super) struct FlowTable {
    all: Vec<FlowState>,
    numbers: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    tenants: TenantTable,
    guests: Guests,
    /// The virtual time until which flows have to pay for seats that were drained for them; those for which some were.
    drained: BTreeMap<u32, SeatSeconds>,
    free: Vec<u32>,
    idle: IdleFlows,
}

impl FlowTable {
    /// No flows; those of one tenant are to weigh together at most `tenant_weight`.
    pub(super) fn new(tenant_weight: u32) -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::default(),
            tenants: TenantTable::new(tenant_weight),
            guests: Guests::default(),
            drained: BTreeMap::new(),
            free: Vec::new(),
            idle: IdleFlows::new(),
        }
    }

    /// How many numbers have ever been in use.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn at(&self, number: u32) -> &FlowState {
        &self.all[number as usize]
    }

    pub(super) fn at_mut(&mut self, number: u32) -> &mut FlowState {
        &mut self.all[number as usize]
    }

    /// The flow of this number, if it has ever been in use; it may be forgotten, and then has no requests.
    pub(super) fn get(&self, number: u32) -> Option<&FlowState> {
        self.all.get(number as usize)
    }

    /// The number of the flow with this hash, if it is known.
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        self.numbers.get(&hash).copied()
    }

    /// All flows, the forgotten ones too, which have no requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = &FlowState> {
        self.all.iter()
    }

    /// The number of the flow with this hash, known or new. A new one is assumed to take as long as
    /// `service_time`.
    pub(super) fn number(&mut self, hash: u64, service_time: Nanos) -> u32 {
        if let Some(number) = self.numbers.get(&hash) {
            return *number;
        }
        let flow = FlowState {
            hash,
            line: Fifo::EMPTY,
            waiting: 0,
            holding: 0,
            seats: 0,
            executing: 0,
            began: 0,
            start: SeatSeconds::ZERO,
            guessed: SeatSeconds::ZERO,
            served: Time::ZERO,
            fresh: true,
            saved: false,
            unclaimed: 0,
            behind: false,
            took_place: false,
            turn: 0,
            service_time: ServiceTimes::assumed(service_time),
            owner: NONE,
            owners_requests: 0,
            ownership: 1,
        };
        let number = if let Some(number) = self.free.pop() {
            self.all[number as usize] = flow;
            number
        } else {
            self.all.push(flow);
            u32::try_from(self.all.len() - 1).expect("fewer than 2^32 flows are known")
        };
        self.numbers.insert(hash, number);
        self.append_idle(number);
        number
    }

    /// Appends a request to the line of its flow.
    pub(super) fn push<W: Copy>(&mut self, entries: &mut Entries<W>, index: u32, number: u32) {
        self.wake(number);
        let flow = &mut self.all[number as usize];
        flow.waiting += 1;
        flow.line.push(entries, index);
    }

    /// Takes a waiting request out of the line of its flow.
    pub(super) fn unlink<W: Copy>(&mut self, entries: &mut Entries<W>, index: u32, number: u32) {
        let flow = &mut self.all[number as usize];
        flow.waiting -= 1;
        flow.line.unlink(entries, index);
        self.rest(number);
    }

    /// A request of the flow holds seats from now on.
    pub(super) fn hold(&mut self, number: u32, seats: Seats) {
        self.wake(number);
        let flow = &mut self.all[number as usize];
        flow.holding += 1;
        flow.seats += seats;
        self.tenants.hold(flow.owner, 0, seats);
    }

    /// A request of the flow that held `before` seats holds `after`.
    pub(super) fn hold_other(&mut self, number: u32, before: Seats, after: Seats) {
        let flow = &mut self.all[number as usize];
        flow.seats = flow.seats - before + after;
        self.tenants.hold(flow.owner, before, after);
    }

    /// A request of the flow holds its `seats` no longer.
    pub(super) fn release(&mut self, number: u32, seats: Seats) {
        let flow = &mut self.all[number as usize];
        flow.holding -= 1;
        flow.seats -= seats;
        self.tenants.hold(flow.owner, seats, 0);
        self.rest(number);
    }

    /// The tenants to which the flows belong.
    pub(super) fn tenants(&self) -> &TenantTable {
        &self.tenants
    }

    /// When a request of a flow of the owner started last.
    pub(super) fn owner_served(&self, number: u32) -> Time {
        self.tenants.served(self.all[number as usize].owner)
    }

    /// A request of the flow took so long.
    pub(super) fn owner_learns(&mut self, number: u32, took: Nanos) {
        let owner = self.all[number as usize].owner;
        self.tenants.learn(owner, took);
    }

    /// If nothing is known of a flow, its requests are assumed to take as long as those of other flows of its owner. Otherwise
    /// who has a new name for each request would pay for requests like those of everybody.
    pub(super) fn assume_as_of_owner(&mut self, number: u32) {
        let flow = &mut self.all[number as usize];
        if flow.service_time.learnt > 0 {
            return;
        }
        if let Some(mean) = self.tenants.mean(flow.owner) {
            flow.service_time = ServiceTimes::assumed(mean);
        }
    }

    /// What a flow has received by now, as far as its start may not show it: all that its owner has, if that is [one of many
    /// names](TenantTable::has_many).
    pub(super) fn received_for(&self, number: u32) -> SeatSeconds {
        let owner = self.all[number as usize].owner;
        if self.tenants.has_many(owner) {
            self.tenants.received(owner)
        } else {
            SeatSeconds::ZERO
        }
    }

    /// The virtual time until which a flow has to pay for drained seats; also for those of all flows of its owner, if that is [one of
    /// many names](TenantTable::has_many).
    pub(super) fn drained_for(&self, number: u32) -> SeatSeconds {
        let own = self.drained.get(&number).copied();
        let own = own.unwrap_or(SeatSeconds::ZERO);
        let owner = self.all[number as usize].owner;
        if self.tenants.has_many(owner) {
            own.max(self.tenants.drained(owner))
        } else {
            own
        }
    }

    /// A flow pays `price` for drained seats, from virtual time `from` on at the earliest, and so do all others of its owner if it is one
    /// of many. Otherwise its owner owes no more than the flow that owes most: new names begin with that.
    pub(super) fn pay_for_drain(&mut self, number: u32, price: SeatSeconds, from: SeatSeconds) {
        let owner = self.all[number as usize].owner;
        if self.tenants.has_many(owner) {
            let together = self.tenants.drained(owner).max(from).plus(price);
            self.tenants.raise_drained(owner, together);
        }
        let drained = self.drained.entry(number).or_insert(SeatSeconds::ZERO);
        *drained = (*drained).max(from).plus(price);
        self.tenants.raise_drained(owner, *drained);
    }

    /// The owner of a flow receives `work`.
    pub(super) fn owner_receives(&mut self, number: u32, work: SeatSeconds, now: Time) {
        let owner = self.all[number as usize].owner;
        self.tenants.receive(owner, work, now);
    }

    /// The owner of a flow counts as having received at least `least`.
    pub(super) fn owner_had(&mut self, number: u32, least: SeatSeconds) {
        let owner = self.all[number as usize].owner;
        self.tenants.raise_received(owner, least);
    }

    /// The number of the present ownership of a flow: another one whenever its owner changes.
    pub(super) fn ownership(&self, number: u32) -> u32 {
        self.all[number as usize].ownership
    }

    /// What the owner of a flow received for a request of this `ownership` was `actual`, not as assumed.
    pub(super) fn correct_owner(
        &mut self,
        number: u32,
        ownership: u32,
        assumed: SeatSeconds,
        actual: u64,
    ) {
        let flow = &self.all[number as usize];
        if ownership == flow.ownership {
            self.tenants.correct(flow.owner, assumed.units(), actual);
        }
    }

    /// Virtual time is set back. O(flows).
    pub(super) fn set_back(&mut self, by: u64) {
        let starts = self.all.iter_mut().map(|flow| &mut flow.start);
        for time in starts.chain(self.drained.values_mut()) {
            *time = SeatSeconds::from_units(time.units().saturating_sub(by));
        }
        self.tenants.set_back(by);
    }

    /// Forgets all flows here. What tenants have at other gateways stays.
    pub(super) fn clear(&mut self) {
        let elsewhere = self.tenants.take_elsewhere();
        *self = Self::new(self.tenants.allowance());
        self.tenants.set_elsewhere(elsewhere);
    }

    /// A flow without requests is idle from now on.
    fn rest(&mut self, number: u32) {
        let flow = &self.all[number as usize];
        if flow.is_idle() {
            self.tenants.deactivate(flow.owner);
            self.append_idle(number);
        }
    }

    /// A flow is idle from now on. A new one, which is idle until its first request joins it, has no owner yet.
    fn append_idle(&mut self, number: u32) {
        let owner = self.all[number as usize].owner;
        let is_one_of_many = owner != NONE && self.tenants.has_many_idle(owner);
        self.idle.append(number, is_one_of_many);
        if let Some(other) = self.idle.superfluous() {
            self.forget(other);
        }
    }

    fn forget(&mut self, number: u32) {
        self.idle.remove(number);
        self.drained.remove(&number);
        let flow = &self.all[number as usize];
        self.numbers.remove(&flow.hash);
        if flow.owner != NONE {
            self.tenants.release(flow.owner);
        }
        self.free.push(number);
    }

    /// A flow is about to have a request.
    fn wake(&mut self, number: u32) {
        let flow = &self.all[number as usize];
        if flow.is_idle() {
            self.tenants.activate(flow.owner);
            self.idle.remove(number);
        }
    }

    /// Recomputes what is kept running; for tests.
    ///
    /// # Panics
    ///
    /// If a kept value is wrong.
    pub(super) fn check_invariants<W: Copy>(&self, entries: &Entries<W>) {
        let (mut active, mut held) = (HashMap::new(), HashMap::new());
        let mut guests = 0;
        for (flow, number) in self.all.iter().zip(0..) {
            let waiting = flow.line.iter(entries).count();
            assert_eq!(flow.waiting as usize, waiting, "waiting in a flow");
            let present = entries.iter().filter(|entry| entry.flow == number);
            let holding = present
                .clone()
                .filter(|entry| entry.phase != Phase::Waiting);
            let seats: Seats = holding.map(|entry| entry.seats).sum();
            assert_eq!(flow.seats, seats, "seats of a flow");
            if !flow.is_idle() {
                let mut by_tenant = BTreeMap::new();
                present.for_each(|entry| *by_tenant.entry(entry.tenant).or_insert(0) += 1);
                let owners = by_tenant.remove(&self.tenants.hash(flow.owner));
                assert_eq!(owners, Some(flow.owners_requests), "requests of the owner");
                for (tenant, requests) in by_tenant {
                    assert_eq!(
                        requests,
                        self.guests.of(number, tenant),
                        "requests of a guest"
                    );
                    guests += requests;
                }
                *active.entry(flow.owner).or_insert(0) += 1;
                *held.entry(flow.owner).or_insert(0) += seats;
            }
        }
        assert_eq!(guests, self.guests.count(), "requests of guests");
        self.tenants.check_invariants(&active, &held);
        let idle = self.numbers.values().filter(|n| self.at(**n).is_idle());
        assert_eq!(self.idle.len(), idle.count(), "idle flows");
        assert!(self.idle.len() <= MAX_IDLE, "idle flows are bounded");
    }
}

impl FlowState {
    /// The first waiting request of the flow, or [`NONE`].
    pub(super) fn head(&self) -> u32 {
        self.line.head
    }

    /// The seats that it holds and that its waiting requests ask for. O(waiting requests).
    pub(super) fn demand<W: Copy>(&self, entries: &Entries<W>) -> Seats {
        let waiting = self.line.iter(entries).map(|index| entries.at(index).seats);
        waiting.fold(self.seats, Seats::saturating_add)
    }

    /// The last waiting request of the flow, or [`NONE`].
    pub(super) fn newest_waiting(&self) -> u32 {
        self.line.tail
    }

    /// A request begins to execute with so many `seats`.
    pub(super) fn begin(&mut self, seats: Seats, now: Time) {
        self.executing += seats;
        let began = now.as_nanos().wrapping_mul(seats.into());
        self.began = self.began.wrapping_add(began);
    }

    /// A request that began at `then` with so many `seats` no longer executes.
    pub(super) fn end(&mut self, seats: Seats, then: Time) {
        self.executing -= seats;
        let began = then.as_nanos().wrapping_mul(seats.into());
        self.began = self.began.wrapping_sub(began);
    }

    /// The seat-time that its executing requests have received, in units of seat-seconds.
    pub(super) fn received(&self, now: Time) -> u64 {
        // Both numbers wrap around. Their difference is right as long as it is below 2⁶⁴ seat-nanoseconds, 584
        // seat-years.
        let all = now.as_nanos().wrapping_mul(self.executing.into());
        SeatSeconds::from_seat_nanos(all.wrapping_sub(self.began)).units()
    }

    /// The seat-time that its executing requests are expected to have received when they have ended, in units of seat-seconds.
    pub(super) fn expected(&self, now: Time) -> u64 {
        let usual = SeatSeconds::product(self.executing, self.service_time.usual());
        self.received(now).max(usual.units())
    }

    /// Sets how much of what the flow was behind virtual time, when its first waiting request came, does not entitle it to more than
    /// its part of the seats; in units of seat-seconds.
    pub(super) fn set_unclaimed(&mut self, units: u64) {
        self.unclaimed = u32::try_from(units >> UNCLAIMED_UNIT).unwrap_or(u32::MAX);
    }

    /// See [`Self::set_unclaimed`].
    pub(super) fn unclaimed(&self) -> u64 {
        u64::from(self.unclaimed) << UNCLAIMED_UNIT
    }

    /// The start of the flow without the estimated part.
    pub(super) fn certain_start(&self) -> SeatSeconds {
        SeatSeconds::from_units(self.start.units().saturating_sub(self.guessed.units()))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.holding == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_idle_flows_are_remembered_and_the_longest_idle_goes_first() {
        let mut flows = FlowTable::new(1);
        for hash in (0..).take(MAX_IDLE) {
            flows.number(hash, Nanos::ZERO);
        }
        let knows = |flows: &FlowTable, hash| flows.numbers.contains_key(&hash);
        assert!(knows(&flows, 0) && knows(&flows, 1));
        flows.number(u64::MAX, Nanos::ZERO);
        assert!(!knows(&flows, 0));
        assert!(knows(&flows, 1) && knows(&flows, u64::MAX));
    }

    /// A request of a flow comes, executes and ends. Returns the number of the flow.
    fn come_and_go(flows: &mut FlowTable, tenant: u64, name: u64) -> u32 {
        let flow = flows.number(name, Nanos::ZERO);
        flows.join(flow, tenant, SeatSeconds::ZERO);
        flows.hold(flow, 1);
        flows.release(flow, 1);
        flow
    }

    #[test]
    fn a_tenant_of_few_owes_for_drains_what_its_flow_that_owes_most_does() {
        let drain = SeatSeconds::from_units(100);
        let mut flows = FlowTable::new(4);
        let few = [1, 2, 3].map(|name| come_and_go(&mut flows, 0, name));
        for flow in few {
            flows.pay_for_drain(flow, drain, SeatSeconds::ZERO);
        }
        let fourth = come_and_go(&mut flows, 0, 4);
        let fifth = come_and_go(&mut flows, 0, 5);
        for flow in few.into_iter().chain([fourth, fifth]) {
            assert_eq!(flows.drained_for(flow), drain, "{flow}");
        }
        // Now it has many, which owe what is drained for any of them.
        flows.pay_for_drain(fifth, drain, SeatSeconds::ZERO);
        assert_eq!(flows.drained_for(few[0]), drain.plus(drain));
    }

    #[test]
    fn a_flow_owes_for_drains_whoever_owns_it() {
        let drain = SeatSeconds::from_units(100);
        let mut flows = FlowTable::new(4);
        for tenant in [1, 2, 1, 2] {
            let flow = come_and_go(&mut flows, tenant, 7);
            flows.pay_for_drain(flow, drain, SeatSeconds::ZERO);
        }
        let flow = come_and_go(&mut flows, 3, 7);
        assert_eq!(flows.drained_for(flow), SeatSeconds::from_units(400));
    }

    #[test]
    fn who_has_many_names_makes_nobody_else_be_forgotten() {
        const OTHERS: u64 = 100;
        let mut flows = FlowTable::new(4);
        for tenant in 1..=OTHERS {
            come_and_go(&mut flows, tenant, tenant);
        }
        for name in 1_000..20_000 {
            come_and_go(&mut flows, 0, name);
        }
        let known = |hash| flows.find(hash).is_some();
        assert_eq!((1..=OTHERS).filter(|hash| known(*hash)).count(), 100);
        assert_eq!(
            (1_000..20_000).filter(|hash| known(*hash)).count(),
            MAX_IDLE - 100
        );
        assert!(known(19_999), "the latest of its own names are remembered");
    }

    #[test]
    fn tenants_of_one_flow_leave_half_of_the_places_to_others() {
        let mut flows = FlowTable::new(1);
        for name in 1_000..2_000 {
            come_and_go(&mut flows, 0, name);
        }
        for name in 10_000..20_000 {
            come_and_go(&mut flows, name, name);
        }
        let known = |hash| flows.find(hash).is_some();
        assert_eq!(
            (1_000..2_000).filter(|hash| known(*hash)).count(),
            MAX_IDLE / 2
        );
    }
}
