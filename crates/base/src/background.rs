//! Threads for work in the background, which takes long and much memory, and must not disturb those that serve clients.

use std::{fmt, io, sync::OnceLock};

use tokio::sync::oneshot;

use crate::stack;

/// How much lower the priority of a thread in the background is, as a nice value: it gets a quarter of a core that one
/// other thread wants for itself, and all of one that nobody else wants.
#[cfg(target_os = "linux")]
const BACKGROUND: i32 = 5;

/// The nice value of work that nobody waits for: it gets a tenth of such a core.
#[cfg(target_os = "linux")]
const UNAWAITED: i32 = 10;

static OWN_MEMORY: OnceLock<fn()> = OnceLock::new();

/// Sets what [`use_own_memory`] does. It depends on the allocator, which a program chooses. Only the first call has an
/// effect.
pub fn set_own_memory(own_memory: fn()) {
    let _ = OWN_MEMORY.set(own_memory);
}

/// Has the current thread take its memory apart from threads that serve clients, as the program has set it.
pub fn use_own_memory() {
    if let Some(own_memory) = OWN_MEMORY.get() {
        own_memory();
    }
}

/// Lowers the priority of the current thread, so that it does not slow down those that serve clients. It cannot be raised
/// again. Does nothing where the operating system knows only priorities of processes, or refuses.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(BACKGROUND);
}

/// The same, for work that no client waits for.
fn lowest_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(UNAWAITED);
}

/// Why work in the background has no result.
#[derive(Debug)]
pub enum BackgroundError {
    /// The system refuses another thread.
    NoThread(io::Error),
    /// It panicked.
    Panicked,
}

impl fmt::Display for BackgroundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Panicked => f.write_str("it panicked"),
        }
    }
}

impl std::error::Error for BackgroundError {}

/// Runs `work`, for which no client waits, on a thread of its own with a low priority, whose memory is apart from that of threads that serve clients. It
/// runs to its end also if nobody waits for it any more; its result is then freed there.
///
/// # Errors
///
/// When there is no thread for it, or it panics.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BackgroundError> {
    let (sender, receiver) = oneshot::channel();
    let thread = stack::thread("background".to_owned());
    let started = thread.spawn(move || {
        lowest_priority();
        use_own_memory();
        let _ = sender.send(work());
    });
    started.map_err(BackgroundError::NoThread)?;
    receiver.await.map_err(|_| BackgroundError::Panicked)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn work_in_the_background_has_a_result_or_an_error() {
        let here = thread::current().id();
        let there = run(|| thread::current().id()).await.unwrap();
        assert_ne!(here, there);
        let failed = run(|| assert_eq!(1 + 1, 3, "for the test")).await;
        assert!(matches!(failed, Err(BackgroundError::Panicked)));
    }
}
