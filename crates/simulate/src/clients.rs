//! Closed-loop clients against one priority level, in virtual time.
//!
//! Each client is a flow with a number of threads; a thread issues its next call a fixed time after
//! its last one began to execute. The result is the time-average of the seats with which a client's
//! requests execute: it shows shares, not latencies.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use fairgate_core::{
    apf::{
        queueset::{Admission, ArrivingRequest, EntryId, QueueSet, QueueSetEvents},
        units::Seats,
        work::Work,
    },
    rejection::RejectReason,
    time::{Time, nanos},
};

/// One flow of identical requests.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The hash of the flow.
    pub hash: u64,
    /// The number of threads.
    pub threads: u32,
    /// The number of calls of each thread.
    pub calls: u32,
    /// How long a call executes.
    pub execution: Duration,
    /// From the end of a call to the next, in nanoseconds; may be -1, so that the flow always has
    /// requests.
    pub think_nanos: i64,
    /// The work of a call.
    pub work: Work,
    /// When the threads start, counted from the beginning of the run.
    pub starts: Duration,
    /// Whether half of the threads start only after half of the period (each with half of the calls).
    pub split: bool,
}

/// The result for one client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientShare {
    /// Time-average of initial seats executing, over the first and second half of the period.
    pub halves: [f64; 2],
    /// The longest that a call waited.
    pub longest_wait: Duration,
    /// The number of calls that were executed.
    pub executed: u32,
    /// Calls rejected, in the order of [`RejectReason::ALL`].
    pub rejected: [u32; RejectReason::ALL.len()],
}

impl ClientShare {
    /// Time-average of initial seats executing.
    pub fn average(&self) -> f64 {
        f64::midpoint(self.halves[0], self.halves[1])
    }
}

/// The identifier of a waiting call: client, thread, call.
pub type CallId = (u32, u32, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    Call(CallId),
    End(CallId, usize),
    Tick,
}

/// The state of one run.
#[derive(Debug)]
pub struct ClientRun<'a> {
    clients: &'a [Client],
    set: QueueSet<CallId>,
    period: u64,
    /// Future events by time in nanoseconds; simultaneous ones in the order in which they were added.
    events: BinaryHeap<Reverse<(u64, u64, SimulatedEvent)>>,
    sequence: u64,
    executing: Vec<Option<(EntryId, u64)>>,
    shares: Vec<ClientShare>,
}

impl<'a> ClientRun<'a> {
    /// Sets up `clients` against `set`, measured for `period`.
    pub fn new(clients: &'a [Client], set: QueueSet<CallId>, period: Duration) -> Self {
        let mut run = Self {
            clients,
            set,
            period: nanos(period),
            events: BinaryHeap::new(),
            sequence: 0,
            executing: Vec::new(),
            shares: vec![ClientShare::default(); clients.len()],
        };
        for (i, client) in (0u32..).zip(clients) {
            for j in 0..client.threads {
                let late = client.split && j >= client.threads / 2;
                // The small offsets fix the order in which the first calls arrive.
                let from = nanos(client.starts) + if late { run.period / 2 } else { 0 };
                run.at(
                    from + 90 * u64::from(j) + 20 * u64::from(i),
                    SimulatedEvent::Call((i, j, 0)),
                );
            }
        }
        run
    }

    /// Runs until all calls have ended. Returns the results, and the queue set.
    pub fn finish(self) -> (Vec<ClientShare>, QueueSet<CallId>) {
        self.until(Time::NEVER)
    }

    /// Runs until `end`. Returns the results, and the queue set at that time.
    pub fn until(mut self, end: Time) -> (Vec<ClientShare>, QueueSet<CallId>) {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            let now = Time::from_nanos(at);
            if now > end {
                break;
            }
            let mut out = QueueSetEvents::default();
            match event {
                SimulatedEvent::Call(caller) => self.call(now, caller, &mut out),
                SimulatedEvent::End(caller, slot) => self.end(now, caller, slot, &mut out),
                SimulatedEvent::Tick => {
                    if let Some(at) = self.set.tick(now, &mut out) {
                        self.at(at.as_nanos(), SimulatedEvent::Tick);
                    }
                }
            }
            if let Some((client, ..)) = out.replaced {
                self.shares[client as usize].rejected[RejectReason::QueueFull as usize] += 1;
            }
            for (caller, id) in out.dispatched {
                self.begin(now, caller, id);
            }
        }
        (self.shares, self.set)
    }

    fn at(&mut self, time: u64, event: SimulatedEvent) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn call(&mut self, now: Time, caller: CallId, out: &mut QueueSetEvents<CallId>) {
        let client = &self.clients[caller.0 as usize];
        let arriving = ArrivingRequest {
            waiter: caller,
            schema: caller.0,
            hash: client.hash,
            tenant: client.hash,
            work: client.work,
        };
        match self.set.arrive(now, arriving, out) {
            Admission::Execute(id) => self.begin(now, caller, id),
            Admission::Wait(_) => {}
            Admission::Reject(reason) => {
                self.shares[caller.0 as usize].rejected[reason as usize] += 1;
            }
        }
    }

    fn begin(&mut self, now: Time, caller: CallId, id: EntryId) {
        let arrived = self.set.arrived(id).unwrap_or(now);
        let client = self.clients[caller.0 as usize];
        let begun = now.as_nanos();
        let share = &mut self.shares[caller.0 as usize];
        share.executed += 1;
        share.longest_wait = share.longest_wait.max(now.since(arrived));
        let slot = self.executing.len();
        self.executing.push(Some((id, begun)));
        let ended = begun + nanos(client.execution);
        let late = client.split && caller.1 >= client.threads / 2;
        let calls = if late { client.calls / 2 } else { client.calls };
        if caller.2 + 1 < calls {
            let next = ended.saturating_add_signed(client.think_nanos);
            self.at(
                next,
                SimulatedEvent::Call((caller.0, caller.1, caller.2 + 1)),
            );
        }
        self.at(ended, SimulatedEvent::End(caller, slot));
    }

    fn end(&mut self, now: Time, caller: CallId, slot: usize, out: &mut QueueSetEvents<CallId>) {
        let (id, begun) = self.executing[slot].take().expect("a call ends once");
        self.measure(caller.0, begun, now.as_nanos());
        if let Some(release) = self.set.finish(now, id, out) {
            self.at(release.as_nanos(), SimulatedEvent::Tick);
        }
    }

    /// Adds the seats of one execution to the averages.
    #[expect(
        clippy::cast_precision_loss,
        reason = "virtual times are far below 2^52 ns or need no such precision"
    )]
    fn measure(&mut self, client: u32, begun: u64, ended: u64) {
        let half = self.period / 2;
        let seats: Seats = self.clients[client as usize].work.initial_seats;
        for (i, from) in [0, half].into_iter().enumerate() {
            let overlap = ended.min(from + half).saturating_sub(begun.max(from));
            self.shares[client as usize].halves[i] +=
                f64::from(seats) * overlap as f64 / half as f64;
        }
    }
}
