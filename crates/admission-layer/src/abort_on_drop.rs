//! Tasks of the control runtime that a request waits for.

use tokio::task::JoinHandle;

/// A task that is aborted when the future that waits for it is dropped.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
