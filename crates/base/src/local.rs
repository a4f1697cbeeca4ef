//! Additions to the runtime for work that stays on one thread, without `unsafe`.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

/// Spawns on the current thread; nothing need be `Send`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Lets the current runtime watch `source` for something to read.
///
/// # Errors
///
/// When the kernel cannot watch one more descriptor.
pub fn watch_readable<T: AsFd + AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, and requires only what an owned descriptor guarantees"
    )]
    AsyncFd::with_interest(source, Interest::READABLE)
}
