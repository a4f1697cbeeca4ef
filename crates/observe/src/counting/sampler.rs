//! Samples of what no single core knows: how many requests wait and execute on all cores together.
//!
//! `read_vs_write_current_requests` is a ratio over time. Each core counts its own requests; the sum is read
//! every [`PERIOD`] and weighted with the time since the last reading. Shorter bursts may be missed, but
//! means over seconds are correct. The watermarks of the last second are exact for each core; their sum is an
//! upper bound of the true one, and exact with one core.
//!
//! Once a second it also reads which flows have which seats ([`super::flow_shares`]), and how long they wait
//! ([`super::bystander_waits`]).

use std::time::Duration;

use fairgate_core::cells::{Access, CoreCells};
use fairgate_core::{
    apf::{
        Policy,
        borrowing::LevelLimits,
        policy::{LevelKind, LimitResponse},
        ratio::{Buckets, RatioHistogram, RatioSnapshot},
    },
    sync::{Arc, Mutex, lock},
    time::Time,
};
use fairgate_proxy::fairness::FlowControl;

use super::{
    bystander_waits::BystanderWaits,
    flow_shares::{FlowShares, ShareReport},
    flow_states,
};

/// How often the cores are read.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);
/// The window of the watermarks.
const WINDOW: Duration = Duration::from_secs(1);

/// The samples so far.
#[derive(Debug)]
pub(crate) struct Sampler(Mutex<State>);

#[derive(Debug)]
struct State {
    waiting: [RatioHistogram; 2],
    executing: [RatioHistogram; 2],
    most_waiting: [u32; 2],
    most_executing: [u32; 2],
    window_since: Time,
    policy: Option<Arc<Policy>>,
    shares: FlowShares,
    bystanders: BystanderWaits,
}

/// The samples for a scrape; read-only requests first, then mutating ones.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    /// Waiting requests over the places in all queues.
    pub(crate) waiting: [RatioSnapshot; 2],
    /// Executing requests over all nominal limits.
    pub(crate) executing: [RatioSnapshot; 2],
    /// Most waiting requests in the last second.
    pub(crate) most_waiting: [u32; 2],
    /// Most executing requests in the last second.
    pub(crate) most_executing: [u32; 2],
}

impl Sampler {
    /// No samples before `now`.
    pub(crate) fn new(now: Time) -> Self {
        let ratios = || [(); 2].map(|()| RatioHistogram::new(Buckets::READ_VS_WRITE, now, 0, 1));
        Self(Mutex::new(State {
            waiting: ratios(),
            executing: ratios(),
            most_waiting: [0; 2],
            most_executing: [0; 2],
            window_since: now,
            policy: None,
            shares: FlowShares::default(),
            bystanders: BystanderWaits::default(),
        }))
    }

    /// See [`FlowShares::fair_share`].
    pub(crate) fn fair_share(&self, level: &str, hash: u64) -> Option<f64> {
        lock(&self.0).shares.fair_share(level, hash)
    }

    /// Reads all cores; to be called every [`PERIOD`]. O(cores), and O(levels + requests) once a second.
    pub(crate) fn sample(&self, flow_control: &FlowControl, now: Time) {
        let mut state = lock(&self.0);
        let cores = flow_control.core_cells();
        for access in Access::ALL {
            let sum = |of: &dyn Fn(&CoreCells) -> u32| cores.iter().map(|c| u64::from(of(c))).sum();
            let waiting = sum(&|core| core.waiting(access).now());
            let executing = sum(&|core| core.executing(access).now());
            state.waiting[access as usize].set_numerator(now, waiting);
            state.executing[access as usize].set_numerator(now, executing);
        }
        if state.policy.is_none() || now.since(state.window_since) >= WINDOW {
            state.window_since = now;
            state.end_window(flow_control);
            state.follow_policy(flow_control, now);
            let flows = flow_states::read(flow_control);
            state.shares.sample(&flows);
            state.bystanders.sample(&flows, now);
        }
    }

    /// How evenly the flows of `level` shared its seats.
    pub(crate) fn shares(&self, level: &str) -> ShareReport {
        lock(&self.0).shares.report(level)
    }

    /// The longest wait of the last half minute in `level`, but for its largest flow.
    pub(crate) fn bystander_wait(&self, level: &str) -> Duration {
        lock(&self.0).bystanders.longest(level)
    }

    /// The samples up to `now`.
    pub(crate) fn sampled(&self, now: Time) -> Sampled {
        let state = lock(&self.0);
        let snapshots = |ratios: &[RatioHistogram; 2]| ratios.each_ref().map(|r| r.snapshot(now));
        Sampled {
            waiting: snapshots(&state.waiting),
            executing: snapshots(&state.executing),
            most_waiting: state.most_waiting,
            most_executing: state.most_executing,
        }
    }
}

impl State {
    fn end_window(&mut self, flow_control: &FlowControl) {
        let window = flow_control.window().advance();
        for access in Access::ALL {
            let cores = flow_control.core_cells().iter();
            self.most_waiting[access as usize] = cores
                .clone()
                .map(|core| core.waiting(access).most_in(window))
                .sum();
            self.most_executing[access as usize] = cores
                .map(|core| core.executing(access).most_in(window))
                .sum();
        }
    }

    /// Sets the denominators of the ratios.
    fn follow_policy(&mut self, flow_control: &FlowControl, now: Time) {
        let view = flow_control.dispatcher().view();
        let policy = view.policy();
        if self
            .policy
            .as_ref()
            .is_some_and(|mine| Arc::ptr_eq(mine, policy))
        {
            return;
        }
        let (places, seats) = capacity(policy);
        for access in Access::ALL {
            self.waiting[access as usize].set_denominator(now, places);
            self.executing[access as usize].set_denominator(now, seats);
        }
        self.policy = Some(Arc::clone(policy));
    }
}

/// The places in all queues of all levels, and the sum of all nominal limits.
fn capacity(policy: &Policy) -> (u64, u64) {
    let share_sum = LevelLimits::share_sum(policy.levels().iter());
    let (mut places, mut seats) = (0, 0);
    for level in policy.levels() {
        seats +=
            u64::from(LevelLimits::of(level, policy.settings().total_seats, share_sum).nominal);
        if let LevelKind::Limited {
            response: LimitResponse::Queue(queuing),
            ..
        } = level.kind
        {
            places += u64::from(queuing.queues) * u64::from(queuing.queue_length_limit);
        }
    }
    (places, seats)
}
