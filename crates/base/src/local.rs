//! Additions to the runtime for work that stays on one thread, without `unsafe`.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::turns;

/// Spawns futures on the current thread; they need not be `Send`. Panics outside a `LocalSet` and a local runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        turns::spawn_local(future);
    }
}

/// Registers `source` with the current runtime, which then tells when it is readable.
///
/// # Errors
///
/// When the kernel cannot watch another file descriptor.
pub fn watch_readable<T: AsFd + AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, and requires only what an owned descriptor guarantees"
    )]
    AsyncFd::with_interest(source, Interest::READABLE)
}
