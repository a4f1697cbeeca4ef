//! The format of traces: a queue set, its events, and the outcome of each.

use fairgate_core::apf::{policy::Queuing, queueset::Discipline, shard::Dealer};
use serde::{Deserialize, Serialize};

/// A request's number within its trace.
pub(crate) type Number = u32;

/// The initial queue set, and its events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Trace {
    pub seed: u64,
    pub number: u64,
    pub limit: u32,
    pub shape: Shape,
    /// Whether seats that linger are released by the next event, and not by one of their own.
    pub lazy: bool,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Nanoseconds since the queue set was made.
    pub at: u64,
    pub event: Event,
    #[serde(default, skip_deserializing)]
    pub outcome: Option<Outcome>,
}

/// How a level treats its requests, in terms of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Shape {
    Queue { queues: u32, hand: u32, length: u32 },
    Reject,
    Exempt,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A request arrives.
    Arrive {
        number: Number,
        hash: u64,
        initial: u32,
        last: u32,
        /// Nanoseconds.
        latency: u64,
    },
    /// A request that executes finishes; any other is left alone.
    Finish { number: Number },
    /// A request that waits gives up; any other is left alone.
    Cancel { number: Number },
    /// The concurrency limit changes.
    Limit { limit: u32 },
    /// Number, hands or lengths of queues change, or whether there are any.
    Shape { shape: Shape },
    /// Nothing happens, except that lingering seats are released.
    Pass,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// The outcome of the request that arrived, finished or gave up.
    pub fate: &'static str,
    /// Other requests that started, in order.
    pub started: Vec<Number>,
    pub state: State,
}

/// Work is in units of 10⁻⁸ seat-seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct State {
    pub r: u64,
    pub seats: u32,
    pub executing: u32,
    pub waiting: u32,
    pub waiting_seats: u64,
    pub dispatched: u64,
    pub rejected: u64,
    pub cancelled: u64,
    pub idle: bool,
    pub lingering: u32,
    /// When lingering seats are released next, in nanoseconds; 0 if there are none.
    pub release: u64,
    /// Requests that execute without having been queued.
    pub queueless: Vec<Number>,
    pub deck: usize,
    /// The queues that changed since the previous event.
    pub queues: Vec<QueueState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct QueueState {
    pub index: u32,
    pub next_dispatch_r: u64,
    pub seats: u32,
    pub initial_seats: u64,
    pub max_seats: u64,
    pub work: u64,
    pub waiting: u32,
    pub executing: u32,
    /// Who waits, first to last, and who executes, by number. `None` while requests of a queue that was
    /// removed under them cannot be distinguished from those of the queue that has its number now.
    pub requests: Option<[Vec<Number>; 2]>,
}

impl Shape {
    pub(crate) fn discipline(self) -> Discipline {
        match self {
            Self::Exempt => Discipline::Exempt,
            Self::Reject => Discipline::Reject,
            Self::Queue {
                queues,
                hand,
                length,
            } => Discipline::Queue {
                queuing: Queuing {
                    queues,
                    hand_size: hand,
                    queue_length_limit: length,
                },
                dealer: Dealer::new(queues, hand).expect("shapes of traces are valid"),
            },
        }
    }
}
