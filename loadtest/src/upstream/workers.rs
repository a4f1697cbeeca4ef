//! The processors of the stand-in server: the model of `model`, driven by a thread.
//!
//! A thread that sleeps until the next end wakes within tens of microseconds. The timers of the runtime fire at whole
//! milliseconds: ends that a real server spreads would come in groups.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::model::SharedProcessor;
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// The longest that the thread sleeps without a request.
const IDLE: Duration = Duration::from_secs(1);

/// The processors. They work until the process ends.
#[derive(Debug)]
pub(crate) struct Workers {
    clock: Clock,
    max_in_flight: usize,
    state: Mutex<WorkersState>,
    changed: Condvar,
}

#[derive(Debug)]
struct WorkersState {
    processor: SharedProcessor<oneshot::Sender<()>>,
    stats: UpstreamStats,
}

/// Statistics of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpstreamStats {
    /// Requests in progress.
    pub(crate) in_flight: usize,
    /// The most requests in progress since the last reset.
    pub(crate) peak: usize,
    /// Requests that have begun.
    pub(crate) begun: u64,
    /// Requests that were answered with 429.
    pub(crate) refused: u64,
}

impl Workers {
    /// Starts the thread.
    pub(crate) fn start(capacity: u32, degradation: f64, max_in_flight: u32) -> Arc<Self> {
        let clock = Clock::system();
        let processor = SharedProcessor::new(capacity, degradation, clock.now());
        let workers = Arc::new(Self {
            clock,
            max_in_flight: max_in_flight as usize,
            state: Mutex::new(WorkersState {
                processor,
                stats: UpstreamStats::default(),
            }),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&workers);
        thread::spawn(move || shared.work());
        workers
    }

    /// Executes a request that takes `work` at full speed; false if there are too many. It is executed to its end,
    /// also when the caller has gone.
    pub(crate) async fn execute(&self, work: Duration) -> bool {
        let (done, ended) = oneshot::channel();
        {
            let mut state = self.lock();
            if self.max_in_flight > 0 && state.processor.len() >= self.max_in_flight {
                state.stats.refused += 1;
                return false;
            }
            let mut finished = Vec::new();
            state
                .processor
                .begin(self.clock.now(), work, done, &mut finished);
            state.stats.begun += 1;
            state.stats.peak = state.stats.peak.max(state.processor.len());
            release(finished);
        }
        self.changed.notify_one();
        ended.await.is_ok()
    }

    /// Makes everything take `factor` times as long.
    pub(crate) fn slow_down(&self, factor: f64) {
        let mut finished = Vec::new();
        self.lock()
            .processor
            .slow_down(self.clock.now(), factor, &mut finished);
        release(finished);
        self.changed.notify_one();
    }

    /// The statistics. Resets the peak.
    pub(crate) fn stats(&self) -> UpstreamStats {
        let mut state = self.lock();
        let in_flight = state.processor.len();
        let stats = UpstreamStats {
            in_flight,
            ..state.stats
        };
        state.stats.peak = in_flight;
        stats
    }

    /// Ends requests when their time has come.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            let mut finished = Vec::new();
            let now = self.clock.now();
            state.processor.advance(now, &mut finished);
            release(finished);
            let next: Option<Time> = state.processor.next_end();
            let pause = next.map_or(IDLE, |next| next.since(now).min(IDLE));
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies the callers that still wait.
fn release(finished: Vec<oneshot::Sender<()>>) {
    for done in finished {
        let _ = done.send(());
    }
}
