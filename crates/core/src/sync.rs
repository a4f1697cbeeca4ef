//! The switch between std and loom for what several threads touch.
//!
//! Code of the pure core takes its locks and atomics from here, so that `--cfg loom` explores every
//! interleaving of exactly the code that runs in production.

#[cfg(loom)]
pub use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// Locks `mutex`, even if a holder has panicked.
///
/// The guarded data is consistent wherever a holder could panic, so poisoning is ignored.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
