//! Measures how long the machine stalls this process, independently of the gateway.
//!
//! A task sleeps and reads the clock. On a busy machine it wakes late, and so do the tasks that are measured,
//! so the report can distinguish a busy machine from an unfair queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use fairgate_base::{clock::Clock, tasks};
use fairgate_core::time::nanos;

/// How often to wake.
const PERIOD: Duration = Duration::from_millis(10);

/// Measures stalls until it is dropped.
#[derive(Debug)]
pub(super) struct StallWatch {
    longest_nanos: Arc<AtomicU64>,
    _watching: JoinSet<()>,
}

impl StallWatch {
    /// Starts measuring, on the current runtime.
    pub(super) fn start(clock: Clock) -> Self {
        let longest_nanos = Arc::new(AtomicU64::new(0));
        let longest = Arc::clone(&longest_nanos);
        let mut watching = JoinSet::new();
        watching.spawn(tasks::boxed(async move {
            loop {
                let intended = clock.now().plus(PERIOD);
                tokio::time::sleep_until(clock.instant(intended)).await;
                let late = clock.now().since(intended);
                longest.fetch_max(nanos(late), Ordering::Relaxed);
            }
        }));
        Self {
            longest_nanos,
            _watching: watching,
        }
    }

    /// The longest delay of a wake-up since the start.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed))
    }
}
