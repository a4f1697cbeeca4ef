//! The requests that flows hold of other tenants than their owners.
//!
//! Not here: who owns a flow ([`super::FlowTable`]).

use std::collections::BTreeMap;

/// How many tenants are compared when one of them becomes the owner of a flow.
const MOST_COMPARED: usize = 16;

/// The tenants that have requests in flows of others.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// How many, by the number of the flow and the hash of the tenant; at least 1.
    requests: BTreeMap<(u32, u64), u32>,
}

impl Guests {
    /// So many more requests of `tenant` are in a flow that it does not own.
    pub(super) fn add(&mut self, flow: u32, tenant: u64, requests: u32) {
        if requests > 0 {
            *self.requests.entry((flow, tenant)).or_insert(0) += requests;
        }
    }

    /// A request of `tenant` leaves a flow that it does not own.
    pub(super) fn leave(&mut self, flow: u32, tenant: u64) {
        if let Some(requests) = self.requests.get_mut(&(flow, tenant)) {
            *requests -= 1;
            if *requests == 0 {
                self.requests.remove(&(flow, tenant));
            }
        }
    }

    /// `tenant` owns the flow from now on; returns how many requests of it are there.
    pub(super) fn take(&mut self, flow: u32, tenant: u64) -> u32 {
        self.requests.remove(&(flow, tenant)).unwrap_or(0)
    }

    /// Some of the tenants that have requests in a flow of another one; all, if they are few.
    pub(super) fn some_of(&self, flow: u32) -> impl Iterator<Item = u64> {
        let all = self.requests.range((flow, 0)..=(flow, u64::MAX));
        all.take(MOST_COMPARED).map(|((_, tenant), _)| *tenant)
    }

    /// How many requests of `tenant` are in a flow that it does not own; for tests.
    pub(super) fn of(&self, flow: u32, tenant: u64) -> u32 {
        self.requests.get(&(flow, tenant)).copied().unwrap_or(0)
    }

    /// How many there are in all; for tests.
    pub(super) fn count(&self) -> u32 {
        self.requests.values().sum()
    }
}
