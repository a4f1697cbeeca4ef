//! How far an attack has to go: until every other client was served several times while it was on.
//!
//! This is an order of events, not a time: a machine that stops for seconds only makes the attack longer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    mode,
    time::{LIVENESS, ms, now, until},
};

/// Responses that each client has to get, and events that each watch has to get: one arrives every 250 ms.
const RESPONSES: usize = 30;
const EVENTS: usize = 2;

/// How many responses, or events of its watch, a client got.
#[derive(Debug)]
pub(crate) struct ServedClient {
    pub(crate) count: AtomicUsize,
    pub(crate) is_watch: bool,
}

impl ServedClient {
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn wanted(&self) -> usize {
        if self.is_watch { EVENTS } else { RESPONSES }
    }
}

/// What the other clients have to get from now on.
#[derive(Clone)]
pub(crate) struct Goal(Arc<GoalState>);

struct GoalState {
    clients: Arc<[ServedClient]>,
    at_first: Vec<usize>,
    begun: Instant,
    /// How long the attack lasts at least.
    lasts: Duration,
    /// Whether it was reached while the attack was on.
    is_reached: AtomicBool,
    /// Whether something else is to happen while the attack is on.
    is_awaited: AtomicBool,
}

impl Goal {
    /// A goal of these clients, beginning now. Where figures are measured, the attack lasts at least for `lasts`.
    pub(crate) fn new(clients: &Arc<[ServedClient]>, lasts: Duration) -> Self {
        Self(Arc::new(GoalState {
            clients: Arc::clone(clients),
            at_first: clients.iter().map(ServedClient::count).collect(),
            begun: now(),
            lasts: if mode::measures() { lasts } else { ms(0) },
            is_reached: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        }))
    }

    /// Whether the attack has to go on. To be asked while it is on.
    pub(crate) fn is_open(&self) -> bool {
        if self.0.missing() == 0 {
            self.0.is_reached.store(true, Ordering::Relaxed);
        }
        let elapsed = self.0.begun.elapsed();
        let is_awaited = self.0.is_awaited.load(Ordering::Relaxed);
        let is_short = !self.is_reached() || elapsed < self.0.lasts || is_awaited;
        is_short && elapsed < LIVENESS
    }

    /// Waits for something that is to happen while the attack is on: it goes on until then.
    pub(crate) async fn lasts_for<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.0.is_awaited.store(true, Ordering::Relaxed);
        let result = waiting.await;
        self.0.is_awaited.store(false, Ordering::Relaxed);
        result
    }

    /// Whether an attack may still go on for a reason of its own.
    pub(crate) fn has_time(&self) -> bool {
        self.0.begun.elapsed() < LIVENESS
    }

    /// Whether any client has got nothing yet.
    pub(crate) fn is_waiting_for_any(&self) -> bool {
        let mut clients = self.0.clients.iter().zip(&self.0.at_first);
        clients.any(|(client, first)| client.count() == *first)
    }

    /// Waits until it is reached. To be called while the attack is on.
    pub(crate) async fn reach(&self) {
        until(LIVENESS, || !self.is_open()).await;
    }

    /// Whether it was reached while the attack was on.
    pub(crate) fn is_reached(&self) -> bool {
        self.0.is_reached.load(Ordering::Relaxed)
    }

    /// What was found, in words.
    pub(crate) fn found(&self) -> String {
        let all = self.0.clients.len();
        format!("{} of {all} did not", self.0.missing())
    }

    /// What is wanted, in words.
    pub(crate) fn wanted() -> String {
        format!(
            "each other client gets {RESPONSES} responses, or {EVENTS} events, while the attack is on"
        )
    }
}

impl GoalState {
    /// The number of clients that have not got enough.
    fn missing(&self) -> usize {
        let clients = self.clients.iter().zip(&self.at_first);
        clients
            .filter(|(client, first)| client.count() - **first < client.wanted())
            .count()
    }
}
