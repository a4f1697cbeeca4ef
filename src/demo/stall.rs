//! How long the machine keeps this process waiting, whatever the gateway does.
//!
//! A task that only sleeps and looks at the clock. When something else keeps the machine busy it
//! wakes late, and so does everything whose times are in the figures: the verdict can then tell a
//! busy machine from a bad queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use fairgate_base::clock::Clock;
use fairgate_core::time::nanos;

/// How often to wake.
const PERIOD: Duration = Duration::from_millis(10);

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct StallWatch {
    longest_nanos: Arc<AtomicU64>,
    _watching: JoinSet<()>,
}

impl StallWatch {
    /// Starts watching, on the current runtime.
    pub(super) fn start(clock: Clock) -> Self {
        let longest_nanos = Arc::new(AtomicU64::new(0));
        let longest = Arc::clone(&longest_nanos);
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            loop {
                let intended = clock.now().plus(PERIOD);
                tokio::time::sleep_until(clock.instant(intended)).await;
                let late = clock.now().since(intended);
                longest.fetch_max(nanos(late), Ordering::Relaxed);
            }
        });
        Self {
            longest_nanos,
            _watching: watching,
        }
    }

    /// By how much it woke late at most.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed))
    }
}
