//! Seats that are divided among names at each moment, in parts of any size.
//!
//! A name demands the seats of all its requests. It gets its demand, or the *level* times its weight: the level is the same for
//! all names, and is such that all seats are in use while some name gets less than it demands (weighted max-min). Within a
//! name the earliest requests get all their seats, as far as the seats of the name go, and the next one gets the rest.
//!
//! Thousands of names may be active, and the level changes with each event. Only names that may serve their first request with
//! all its seats are looked at each time (*heavy*); they are as many as there are seats, and a few more. All others (*light*)
//! serve a part of their first request. Those of one tenant have the same weight, so one clock of each tenant says how many
//! seat-seconds each of its light names has received, and its requests wait in the order in which that clock ends them.
//! An event costs `O(seats + tenants)`, and `O(log names)` for each name that becomes light or heavy.
//!
//! Not here: when requests arrive, and how long they wait (`super`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::calls::Number;
use fairgate_core::apf::units::Seats;

/// The tenant of names that are a tenant each. Those of it never weigh less than one name of a tenant may.
pub(super) const EACH_NAME: usize = 0;

/// Service that is left undone because numbers are rounded, in seconds or seat-seconds.
const NOTHING: f64 = 1e-11;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct FluidRequest {
    pub(super) flow: usize,
    /// A hash of its name.
    pub(super) name: u64,
    /// The number of its tenant, or [`EACH_NAME`].
    pub(super) tenant: usize,
    /// The seats that it demands, if the limit is not below them.
    pub(super) width: Seats,
    /// Seconds that it takes with all its seats.
    pub(super) service: f64,
    /// Those of them that are left.
    pub(super) left: f64,
    /// The seats that it demands after the response, and for how many seconds if it gets them.
    pub(super) final_seats: Seats,
    pub(super) final_seconds: f64,
    /// Whether the response was sent, so that only final seats are left of it, or nothing.
    pub(super) responded: bool,
    /// Whether it left before it received anything.
    pub(super) has_left: bool,
}

impl FluidRequest {
    /// Whether it neither was served nor left.
    pub(super) const fn is_unfinished(&self) -> bool {
        !self.responded && !self.has_left
    }

    fn has_received_nothing(&self) -> bool {
        self.is_unfinished() && self.left >= self.service * (1.0 - 1e-9)
    }
}

/// A name with requests.
#[derive(Debug)]
struct Name {
    hash: u64,
    /// In the order of their arrival.
    requests: VecDeque<Number>,
    /// The seats of all of them.
    demand: Seats,
    /// The tenants that have requests under this name, and how many.
    tenants: Vec<(usize, u32)>,
    weight: f64,
}

/// A name that serves a part of its first request.
struct LightName {
    name: Name,
    /// The seats of that request.
    width: Seats,
    /// The clock of the tenant when the request was last accounted for, and when it will end.
    since: f64,
    ends: f64,
}

/// A tenant, or all those that have one name.
#[derive(Default)]
struct FluidTenant {
    /// The names under which it has requests.
    names: u32,
    /// What one of these weighs, if no other tenant has requests under it.
    weight: f64,
    /// Seat-seconds that a light name has received since there are any.
    clock: f64,
    /// Light names, by when their first request ends on the clock (as bits, which sort as the numbers do) and by its seats.
    by_end: BTreeSet<(u64, u64)>,
    by_width: BTreeSet<(Seats, u64)>,
}

/// What a request of a heavy name gets.
struct Served {
    number: Number,
    seats: f64,
    /// Seconds of service in a second.
    rate: f64,
}

/// A server without whole seats.
pub(super) struct FluidServer {
    limit: Seats,
    tenant_weight: f64,
    /// The most seats that a request demanded so far.
    widest: Seats,
    requests: Vec<FluidRequest>,
    heavy: Vec<Name>,
    light: BTreeMap<u64, LightName>,
    tenants: Vec<FluidTenant>,
    /// Seats for a weight of 1.
    level: f64,
    served: Vec<Served>,
    /// Whether `level` and `served` are those of the requests that there are.
    is_shared: bool,
    /// What each flow has received, in seat-seconds; that of light names only until they were last accounted for.
    received: Vec<f64>,
}

impl FluidServer {
    /// A server of so many seats without requests, for that many flows and tenants; the names of one tenant weigh together at
    /// most `tenant_weight`, which is at least 1.
    pub(super) fn new(limit: Seats, flows: usize, tenants: usize, tenant_weight: f64) -> Self {
        let mut all = Vec::new();
        all.resize_with(tenants + 1, FluidTenant::default);
        Self {
            limit,
            tenant_weight,
            widest: 0,
            requests: Vec::new(),
            heavy: Vec::new(),
            light: BTreeMap::new(),
            tenants: all,
            level: f64::INFINITY,
            served: Vec::new(),
            is_shared: true,
            received: vec![0.0; flows],
        }
    }

    /// All requests so far, by number.
    pub(super) fn requests(&self) -> &[FluidRequest] {
        &self.requests
    }

    /// A request arrives.
    pub(super) fn arrive(&mut self, request: FluidRequest) -> Number {
        self.is_shared = false;
        let number = Number::try_from(self.requests.len()).expect("a few million requests");
        self.widest = self.widest.max(request.width).max(request.final_seats);
        let place = self.heavy_place(request.name).unwrap_or_else(|| {
            self.heavy.push(Name {
                hash: request.name,
                requests: VecDeque::new(),
                demand: 0,
                tenants: Vec::new(),
                weight: 0.0,
            });
            self.heavy.len() - 1
        });
        let name = &mut self.heavy[place];
        name.requests.push_back(number);
        name.demand += request.width.min(self.limit);
        let tenants = &mut name.tenants;
        if let Some((_, count)) = tenants.iter_mut().find(|(t, _)| *t == request.tenant) {
            *count += 1;
        } else {
            tenants.push((request.tenant, 1));
            self.tenants[request.tenant].names += 1;
        }
        self.requests.push(request);
        number
    }

    /// A request leaves, if it has received nothing; otherwise this returns false.
    pub(super) fn leave(&mut self, number: Number) -> bool {
        let request = &self.requests[number as usize];
        let light = self.light.get(&request.name);
        let is_served = light.is_some_and(|light| light.name.requests.front() == Some(&number));
        if is_served || !request.has_received_nothing() {
            return false;
        }
        self.requests[number as usize].has_left = true;
        self.remove(number);
        true
    }

    /// The limit becomes `seats`, at least 1.
    pub(super) fn set_limit(&mut self, seats: Seats) {
        self.is_shared = false;
        if self.widest <= seats.min(self.limit) {
            self.limit = seats;
            return;
        }
        // Requests that are wider than the level demand other seats now.
        let hashes: Vec<u64> = self.light.keys().copied().collect();
        for hash in hashes {
            self.make_heavy(hash);
        }
        self.limit = seats;
        for name in &mut self.heavy {
            let requests = name.requests.iter();
            let widths = requests.map(|number| self.requests[*number as usize].width);
            name.demand = widths.map(|width| width.min(seats)).sum();
        }
    }

    /// Seconds until the next request ends, if nothing else happens before; infinite if there are no requests.
    pub(super) fn next_end(&mut self) -> f64 {
        if !self.is_shared {
            self.share();
        }
        let heavy = self.served.iter();
        let heavy = heavy.map(|served| self.requests[served.number as usize].left / served.rate);
        let tenants = self.tenants.iter();
        let light = tenants.filter_map(|tenant| {
            let (ends, _) = tenant.by_end.first()?;
            Some((f64::from_bits(*ends) - tenant.clock) / (tenant.weight * self.level))
        });
        heavy.chain(light).fold(f64::INFINITY, f64::min).max(0.0)
    }

    /// So many seconds pass, at most [`Self::next_end`].
    pub(super) fn pass(&mut self, seconds: f64) {
        if !self.is_shared {
            self.share();
        }
        for served in &self.served {
            let request = &mut self.requests[served.number as usize];
            request.left = (request.left - served.rate * seconds).max(0.0);
            self.received[request.flow] += served.seats * seconds;
        }
        for tenant in &mut self.tenants {
            if !tenant.by_end.is_empty() {
                tenant.clock += tenant.weight * self.level * seconds;
            }
        }
    }

    /// Ends the requests that have all their service. Returns those to which the response is sent now.
    pub(super) fn end(&mut self) -> Vec<Number> {
        let mut ended = Vec::new();
        for tenant in 0..self.tenants.len() {
            while let Some(hash) = self.ended_light(tenant) {
                self.make_heavy(hash);
                let name = self.heavy.last().expect("it has become heavy");
                ended.push(name.requests[0]);
            }
        }
        let heavy = self.served.iter().map(|served| served.number);
        ended.extend(heavy.filter(|number| self.requests[*number as usize].left <= NOTHING));
        ended.retain(|number| self.respond(*number));
        ended
    }

    /// What each flow has received so far, in seat-seconds.
    pub(super) fn received(&mut self) -> &[f64] {
        let Self {
            light,
            tenants,
            requests,
            received,
            ..
        } = self;
        for light in light.values_mut() {
            light.account(tenants, requests, received);
        }
        received
    }

    /// The light name of this tenant whose first request has ended, if there is one.
    fn ended_light(&self, tenant: usize) -> Option<u64> {
        let tenant = &self.tenants[tenant];
        let (ends, hash) = tenant.by_end.first()?;
        let rounding = NOTHING + 4.0 * f64::EPSILON * tenant.clock;
        (f64::from_bits(*ends) <= tenant.clock + rounding).then_some(*hash)
    }

    /// The service of a request ends: it keeps its final seats, or is gone. Returns whether the response is sent now.
    fn respond(&mut self, number: Number) -> bool {
        let request = &mut self.requests[number as usize];
        let was_sent = std::mem::replace(&mut request.responded, true);
        request.left = 0.0;
        if was_sent || request.final_seats == 0 || request.final_seconds <= 0.0 {
            self.remove(number);
            return !was_sent;
        }
        self.is_shared = false;
        let before = std::mem::replace(&mut request.width, request.final_seats);
        let after = request.width;
        request.left = request.final_seconds;
        let hash = request.name;
        let place = self.heavy_place(hash).expect("its name has requests");
        let demand = &mut self.heavy[place].demand;
        *demand = *demand - before.min(self.limit) + after.min(self.limit);
        true
    }

    /// A request is gone.
    fn remove(&mut self, number: Number) {
        self.is_shared = false;
        let request = &self.requests[number as usize];
        let (hash, tenant) = (request.name, request.tenant);
        let width = request.width.min(self.limit);
        let place = self.heavy_place(hash).expect("its name has requests");
        let name = &mut self.heavy[place];
        name.demand -= width;
        name.requests.retain(|other| *other != number);
        let of_tenant = name.tenants.iter().position(|(other, _)| *other == tenant);
        let of_tenant = of_tenant.expect("its tenant has requests");
        name.tenants[of_tenant].1 -= 1;
        if name.tenants[of_tenant].1 == 0 {
            name.tenants.swap_remove(of_tenant);
            self.tenants[tenant].names -= 1;
        }
        if name.requests.is_empty() {
            self.heavy.swap_remove(place);
        }
    }

    /// The place of a name among the heavy ones. A light one becomes heavy.
    fn heavy_place(&mut self, hash: u64) -> Option<usize> {
        if self.light.contains_key(&hash) {
            self.make_heavy(hash);
            return Some(self.heavy.len() - 1);
        }
        self.heavy.iter().position(|name| name.hash == hash)
    }
}

/// How seats are divided.
impl FluidServer {
    /// Divides the seats among the requests.
    fn share(&mut self) {
        self.is_shared = true;
        for number in 0..self.tenants.len() {
            let weight = self.weight(&[(number, 1)]);
            self.tenants[number].weight = weight;
        }
        for place in 0..self.heavy.len() {
            self.heavy[place].weight = self.weight(&self.heavy[place].tenants);
        }
        loop {
            self.level = self.level();
            let Some(hash) = self.light_beyond_its_first() else {
                break;
            };
            self.make_heavy(hash);
        }
        if self.heavy.len() > 2 * self.limit as usize + 16 {
            self.make_light();
        }
        self.serve();
    }

    /// The weight of a name under which these tenants have requests.
    fn weight(&self, tenants: &[(usize, u32)]) -> f64 {
        let given = tenants.iter().map(|(tenant, _)| {
            let names = match *tenant {
                EACH_NAME => 1,
                other => self.tenants[other].names.max(1),
            };
            self.tenant_weight / f64::from(names)
        });
        given.sum::<f64>().min(1.0)
    }

    /// The level at which all seats are in use; infinite if all names get what they demand. It is right if no light name can serve
    /// its first request with all its seats.
    fn level(&self) -> f64 {
        let light = self.tenants.iter();
        let light = light.map(|tenant| super::real(tenant.by_end.len()) * tenant.weight);
        let light: f64 = light.sum();
        // Those that get their demand at one level do so at a greater one, so it only rises.
        let mut level = 0.0;
        loop {
            let (mut seats, mut weight) = (f64::from(self.limit), light);
            for name in &self.heavy {
                if f64::from(name.demand) <= name.weight * level {
                    seats -= f64::from(name.demand);
                } else {
                    weight += name.weight;
                }
            }
            if weight <= 0.0 {
                return f64::INFINITY;
            }
            let next = seats / weight;
            if next <= level {
                return level;
            }
            level = next;
        }
    }

    /// A light name that could serve its first request with all its seats.
    fn light_beyond_its_first(&self) -> Option<u64> {
        self.tenants.iter().find_map(|tenant| {
            let (width, hash) = tenant.by_width.first()?;
            (f64::from(*width) <= tenant.weight * self.level).then_some(*hash)
        })
    }

    /// A light name becomes heavy, at the end of the list.
    fn make_heavy(&mut self, hash: u64) {
        let mut light = self.light.remove(&hash).expect("it is light");
        light.account(&self.tenants, &mut self.requests, &mut self.received);
        let tenant = &mut self.tenants[light.tenant()];
        tenant.by_end.remove(&(light.ends.to_bits(), hash));
        tenant.by_width.remove(&(light.width, hash));
        if tenant.by_end.is_empty() {
            tenant.clock = 0.0;
        }
        light.name.weight = tenant.weight;
        self.heavy.push(light.name);
    }

    /// Heavy names become light if they serve only a part of their first request, and no other tenant has requests under them.
    fn make_light(&mut self) {
        for mut name in std::mem::take(&mut self.heavy) {
            let request = &self.requests[name.requests[0] as usize];
            let width = request.width.min(self.limit);
            let is_partial = name.weight * self.level < f64::from(width);
            if !is_partial || name.tenants.len() > 1 {
                self.heavy.push(name);
                continue;
            }
            name.requests.shrink_to_fit();
            let hash = name.hash;
            let tenant = &mut self.tenants[name.tenants[0].0];
            let ends = tenant.clock + request.left * f64::from(width);
            tenant.by_end.insert((ends.to_bits(), hash));
            tenant.by_width.insert((width, hash));
            let since = tenant.clock;
            let light = LightName {
                name,
                width,
                since,
                ends,
            };
            self.light.insert(hash, light);
        }
    }

    /// Divides the seats of heavy names among their requests.
    fn serve(&mut self) {
        self.served.clear();
        for name in &self.heavy {
            let mut left = f64::from(name.demand).min(name.weight * self.level);
            for number in &name.requests {
                let width = self.requests[*number as usize].width.min(self.limit);
                let seats = f64::from(width).min(left);
                if seats <= 0.0 {
                    break;
                }
                left -= seats;
                self.served.push(Served {
                    number: *number,
                    seats,
                    rate: seats / f64::from(width),
                });
            }
        }
        debug_assert!(self.seats_in_use() <= f64::from(self.limit) * (1.0 + 1e-9));
    }

    /// The seats in use.
    fn seats_in_use(&self) -> f64 {
        let heavy: f64 = self.served.iter().map(|served| served.seats).sum();
        let tenants = self.tenants.iter();
        let light = tenants.filter(|tenant| !tenant.by_end.is_empty());
        let light = light.map(|t| super::real(t.by_end.len()) * t.weight * self.level);
        heavy + light.sum::<f64>()
    }
}

impl LightName {
    /// The only tenant that has requests under the name.
    fn tenant(&self) -> usize {
        self.name.tenants[0].0
    }

    /// Accounts for what its first request has received.
    fn account(
        &mut self,
        tenants: &[FluidTenant],
        requests: &mut [FluidRequest],
        received: &mut [f64],
    ) {
        let clock = tenants[self.tenant()].clock;
        let seat_seconds = clock - self.since;
        self.since = clock;
        let request = &mut requests[self.name.requests[0] as usize];
        request.left = (request.left - seat_seconds / f64::from(self.width)).max(0.0);
        received[request.flow] += seat_seconds;
    }
}
