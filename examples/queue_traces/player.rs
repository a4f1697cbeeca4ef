//! Plays events on a queue set with the semantics `Compatible`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairgate_core::{
    apf::{
        Semantics, Work,
        queueset::{
            Admission, ArrivingRequest, EntryId, Phase, QueueReport, QueueSet, QueueSetEvents,
        },
    },
    time::Time,
};

use crate::trace::{Event, Number, Outcome, QueueState, State, Trace};

/// A queue set, and the requests of a trace in it.
pub(crate) struct Player {
    set: QueueSet<Number>,
    lazy: bool,
    /// The requests that wait, and those that execute.
    pub waiting: BTreeMap<Number, EntryId>,
    pub executing: BTreeMap<Number, EntryId>,
    /// When lingering seats are released that still linger.
    releases: BTreeSet<u64>,
    /// Whether seats of two requests are released at the same time. Their order is not defined.
    pub tie: bool,
    /// When the last event was.
    now: u64,
    queues: Vec<QueueState>,
}

impl Player {
    pub(crate) fn new(trace: &Trace) -> Self {
        let discipline = trace.shape.discipline();
        let mut player = Self {
            set: QueueSet::new(Semantics::Compatible, discipline, trace.limit, Time::ZERO),
            lazy: trace.lazy,
            waiting: BTreeMap::new(),
            executing: BTreeMap::new(),
            releases: BTreeSet::new(),
            tie: false,
            now: 0,
            queues: Vec::new(),
        };
        player.queues = player.queue_states();
        player
    }

    /// Plays an event. `None` if the numbers of the original cannot hold it: more work at a time than a signed number
    /// takes, or virtual time set back by more than some request or queue has seen of it.
    pub(crate) fn play(&mut self, at: u64, event: Event) -> Option<Outcome> {
        const MOST: u128 = 10 * i64::MAX.unsigned_abs() as u128;
        let limit = self.set.summary().limit;
        let passed = u128::from(at - self.now) * u128::from(limit);
        if passed.max(self.held(at, event)) >= MOST {
            return None;
        }
        let outcome = self.played(at, event);
        (self.set.summary().counters.epochs_failed == 0).then_some(outcome)
    }

    /// Seat-nanoseconds of the request that finishes.
    fn held(&self, at: u64, event: Event) -> u128 {
        let Event::Finish { number } = event else {
            return 0;
        };
        let requests = self.set.requests();
        let finishes = requests.iter().find(|r| r.entry.waiter == number);
        finishes.map_or(0, |request| {
            let since = request.entry.started.map_or(at, Time::as_nanos);
            u128::from(at - since) * u128::from(request.entry.work.initial_seats)
        })
    }

    fn played(&mut self, at: u64, event: Event) -> Outcome {
        let mut events = QueueSetEvents::default();
        // Otherwise it would not be known yet whether a request that is named waits or executes.
        let releases_too = match event {
            Event::Arrive { .. } | Event::Limit { .. } | Event::Shape { .. } => true,
            Event::Finish { number } => self.executing.contains_key(&number),
            Event::Cancel { .. } | Event::Pass => false,
        };
        if !(self.lazy && releases_too) {
            self.release_until(at, &mut events);
        }
        let fate = self.apply(Time::from_nanos(at), event, &mut events);
        let started = self.note(events);
        self.releases.retain(|release| *release > at);
        self.set.check_invariants();
        self.now = at;
        Outcome {
            fate,
            started,
            state: self.state(),
        }
    }

    fn release_until(&mut self, at: u64, events: &mut QueueSetEvents<Number>) {
        while let Some(release) = self.releases.first().copied().filter(|first| *first <= at) {
            self.set.tick(Time::from_nanos(release), events);
            self.releases.remove(&release);
        }
        // The event may name a request that has just started.
        for (number, id) in &events.dispatched {
            self.waiting.remove(number);
            self.executing.insert(*number, *id);
        }
    }

    fn apply(
        &mut self,
        now: Time,
        event: Event,
        events: &mut QueueSetEvents<Number>,
    ) -> &'static str {
        match event {
            Event::Arrive {
                number,
                hash,
                initial,
                last,
                latency,
            } => {
                let work = Work {
                    initial_seats: initial,
                    final_seats: last,
                    additional_latency: Duration::from_nanos(latency),
                };
                self.arrive(now, number, hash, work, events)
            }
            Event::Finish { number } => {
                let Some(id) = self.executing.remove(&number) else {
                    return "left alone";
                };
                if let Some(until) = self.set.finish(now, id, events) {
                    self.tie |= !self.releases.insert(until.as_nanos());
                }
                "finishes"
            }
            Event::Cancel { number } => {
                let Some(id) = self.waiting.remove(&number) else {
                    return "left alone";
                };
                assert!(self.set.cancel(now, id, events), "it waits");
                "gives up"
            }
            Event::Limit { limit } => {
                self.set.set_limit(now, limit, limit.max(1), events);
                ""
            }
            Event::Shape { shape } => {
                let discipline = shape.discipline();
                self.set
                    .configure(now, Semantics::Compatible, discipline, events);
                ""
            }
            Event::Pass => "",
        }
    }

    fn arrive(
        &mut self,
        now: Time,
        number: Number,
        hash: u64,
        work: Work,
        events: &mut QueueSetEvents<Number>,
    ) -> &'static str {
        let arriving = ArrivingRequest {
            waiter: number,
            schema: 0,
            hash,
            tenant: hash,
            work,
        };
        match self.set.arrive(now, arriving, events) {
            Admission::Execute(id) => {
                self.executing.insert(number, id);
                "executes"
            }
            Admission::Wait(id) => {
                self.waiting.insert(number, id);
                "waits"
            }
            Admission::Reject(reason) => reason.as_str(),
        }
    }

    fn note(&mut self, events: QueueSetEvents<Number>) -> Vec<Number> {
        let mut started = Vec::with_capacity(events.dispatched.len());
        for (number, id) in events.dispatched {
            if self.waiting.remove(&number).is_some() {
                self.executing.insert(number, id);
            }
            started.push(number);
        }
        started
    }

    fn state(&mut self) -> State {
        let summary = self.set.summary();
        let queues = self.queue_states();
        let before = std::mem::take(&mut self.queues);
        let changed = queues
            .iter()
            .filter(|queue| before.get(queue.index as usize) != Some(queue))
            .cloned()
            .collect();
        self.queues = queues;
        let mut queueless: Vec<Number> = (self.set.requests().iter())
            .filter(|request| request.queue.is_none() && request.entry.phase == Phase::Executing)
            .map(|request| request.entry.waiter)
            .collect();
        queueless.sort_unstable();
        State {
            r: summary.r.units(),
            seats: summary.seats_in_use,
            executing: summary.executing,
            waiting: summary.waiting,
            waiting_seats: summary.waiting_seats,
            dispatched: summary.counters.dispatched,
            rejected: summary.counters.rejected,
            cancelled: summary.counters.cancelled,
            idle: self.set.is_idle(),
            lingering: summary.lingering,
            release: self.releases.first().copied().unwrap_or(0),
            queueless,
            deck: self.queues.len(),
            queues: changed,
        }
    }

    fn queue_states(&self) -> Vec<QueueState> {
        let mut requests: BTreeMap<u32, [Vec<Number>; 2]> = BTreeMap::new();
        for request in self.set.requests() {
            let (Some(queue), waits) = (request.queue, request.entry.phase == Phase::Waiting)
            else {
                continue;
            };
            if request.entry.phase != Phase::Lingering {
                requests.entry(queue).or_default()[usize::from(!waits)].push(request.entry.waiter);
            }
        }
        let state = |queue: QueueReport| {
            let mut requests = requests.remove(&queue.index).unwrap_or_default();
            requests[1].sort_unstable();
            let known = [queue.waiting as usize, queue.executing as usize];
            QueueState {
                index: queue.index,
                next_dispatch_r: queue.next_dispatch_r.units(),
                seats: queue.seats_in_use,
                initial_seats: queue.initial_seats,
                max_seats: queue.max_seats,
                work: queue.total_work.units(),
                waiting: queue.waiting,
                executing: queue.executing,
                requests: (known == [requests[0].len(), requests[1].len()]).then_some(requests),
            }
        };
        self.set.queues().map(state).collect()
    }
}
