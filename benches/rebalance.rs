//! What does one rebalancing cost, by the number of levels and by how many of them have changed?
//!
//! Ten and 10 000 levels beside the mandatory ones. Each round rebalances, in some cases after requests of one level have come
//! or gone. It is a second later than the one before, so that the demand before is forgotten. The baseline has ten levels of
//! which none changes.

mod support;

use std::sync::Arc;

use fairgate_core::{
    apf::{
        Flow, ObjectSet, Policy, SchemaIndex, Seats, Work,
        dispatcher::{Dispatcher, PolicyView},
        level::{Arrival, Decisions, Ticket},
        objects::Bootstrap,
    },
    time::Time,
};
use serde_json::{Value, json};
use support::{Case, measure_rounds, settings};

/// What happens before each rebalancing.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    /// One of three levels gets or loses requests, for which it has seats.
    Change,
    /// The same, and these requests take half as many seats again as the level has.
    Borrow,
}

/// How the seats are divided among the levels.
#[derive(Clone, Copy)]
enum Shares {
    /// Ten seats each.
    Equal,
    /// 1 000 seats and more, another number for each.
    Different,
}

/// A dispatcher with many levels, and the requests that execute in three of them.
struct Lenders {
    dispatcher: Dispatcher<u32>,
    view: Arc<PolicyView<u32>>,
    /// The levels whose requests come and go: flow, nominal limit, requests.
    changing: Vec<(Flow, Seats, Vec<Ticket<u32>>)>,
    now: u64,
    round: usize,
}

impl Lenders {
    fn new(levels: u32, shares: Shares) -> Self {
        let shares_of = |number: u32| match shares {
            Shares::Equal => 10,
            Shares::Different => 1_000 + number,
        };
        let objects = (0..levels).map(|number| ("bench", level(number, shares_of(number))));
        let objects = ObjectSet::read(objects).with_bootstrap(Bootstrap::Mandatory);
        let total_seats = (0..levels).map(shares_of).sum();
        let policy = Policy::compile(&objects, &settings(total_seats)).expect("it is valid");
        let dispatcher = Dispatcher::new(Arc::new(policy.policy), Time::ZERO);
        let view = dispatcher.view();
        let reports = dispatcher.report(Time::ZERO);
        let changing = [1, levels / 2, levels - 1].map(|number| {
            let name = name(number);
            let report = reports.iter().find(|report| *report.spec.name == *name);
            let flow = Flow {
                schema: SchemaIndex(0),
                level: view.policy().level_by_name(&name).expect("it is there"),
                hash: 1,
                tenant: 0,
            };
            (
                flow,
                report.expect("it is there").limits.nominal,
                Vec::new(),
            )
        });
        Self {
            dispatcher,
            view,
            changing: changing.into(),
            now: 0,
            round: 0,
        }
    }

    fn round(&mut self, before: Before) {
        self.now += 1_000_000_000;
        self.round += 1;
        let now = Time::from_nanos(self.now);
        match before {
            Before::Nothing => {}
            Before::Change => self.change(now, false),
            Before::Borrow => self.change(now, true),
        }
        let mut out = Decisions::default();
        self.dispatcher.rebalance(now, &mut out);
        for (number, ticket) in out.dispatched {
            self.changing[number as usize].2.push(ticket);
        }
    }

    fn change(&mut self, now: Time, borrow: bool) {
        let number = self.round % self.changing.len();
        let waiter = u32::try_from(number).expect("three");
        let (flow, nominal, tickets) = &mut self.changing[number];
        let mut out = Decisions::default();
        if !tickets.is_empty() {
            while let Some(ticket) = tickets.pop() {
                ticket.finish(now, &mut out);
                tickets.extend(out.dispatched.drain(..).map(|(_, ticket)| ticket));
            }
            return;
        }
        let widths = [*nominal / 2, *nominal];
        for width in &widths[..=usize::from(borrow)] {
            let work = Work {
                initial_seats: *width,
                ..Work::ONE
            };
            match self.view.arrive(now, flow, work, waiter, &mut out) {
                Arrival::Execute(ticket) => tickets.push(ticket),
                Arrival::Wait(place) => drop(place),
                Arrival::Reject(rejection) => panic!("{rejection:?}"),
            }
        }
    }
}

fn name(number: u32) -> String {
    format!("tenant-{number:05}")
}

fn level(number: u32, shares: u32) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name(number)},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": 50,
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": 2, "handSize": 1, "queueLengthLimit": 50}},
        }},
    })
}

fn main() {
    let cases = [
        (
            "10 levels, none changes",
            10,
            Shares::Equal,
            Before::Nothing,
        ),
        ("10 levels, one changes", 10, Shares::Equal, Before::Change),
        ("10 levels, one borrows", 10, Shares::Equal, Before::Borrow),
        (
            "10000 levels, none changes",
            10_000,
            Shares::Equal,
            Before::Nothing,
        ),
        (
            "10000 levels, one changes",
            10_000,
            Shares::Equal,
            Before::Change,
        ),
        (
            "10000 levels, one borrows",
            10_000,
            Shares::Equal,
            Before::Borrow,
        ),
        (
            "10000 different ones, one changes",
            10_000,
            Shares::Different,
            Before::Change,
        ),
        (
            "10000 different ones, one borrows",
            10_000,
            Shares::Different,
            Before::Borrow,
        ),
    ];
    let cases = cases.map(|(name, levels, shares, before)| {
        Case::new(name, move || {
            let mut lenders = Lenders::new(levels, shares);
            move || lenders.round(before)
        })
    });
    measure_rounds("One rebalancing of all levels.", cases.into(), 20);
}
