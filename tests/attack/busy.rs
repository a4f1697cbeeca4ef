//! Work of the lowest priority on every core, so that a measurement finds the machine as busy as an attack makes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crate::hostile::LOWEST;

/// Threads that work without end, one for each core, until this is dropped.
pub(crate) struct BusyMachine {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyMachine {
    /// Starts the threads. Their priority is that of attackers, and of the gateway's threads that evaluate requests.
    pub(crate) fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                rustix::process::nice(LOWEST).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..cores).map(|_| work()).collect();
        Self { ended, threads }
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
