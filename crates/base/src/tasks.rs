//! Spawns tasks that are compiled once.
//!
//! For each type of future, the runtime's code for tasks is compiled anew, and for each kind of scheduler: often more code
//! than the future itself has. Here the future is boxed first, which costs an allocation and hides its type, so that this code is
//! compiled once for each type of result. It is for tasks of the control runtime.
//!
//! Not here: the tasks of data cores ([`turns`](crate::turns)).

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};

use crate::turns::counted_on_control;

/// A future whose type is hidden.
pub type BoxedTask<T = ()> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Hides the type of `future`.
pub fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> BoxedTask<T> {
    Box::pin(future)
}

/// Spawns `future` on `runtime`.
pub fn spawn(
    runtime: &Handle,
    future: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    spawn_boxed(runtime, boxed(future))
}

/// Spawns `future` on `runtime`; its result is awaited there.
pub fn spawn_with_result<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime.spawn(counted_on_control(boxed(future)))
}

/// A task that is aborted when this is dropped: nobody waits for it any more.
#[derive(Debug)]
#[must_use = "the task is aborted when this is dropped"]
pub struct AbortOnDrop<T = ()>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    /// Takes over a task that was spawned.
    pub fn new(task: JoinHandle<T>) -> Self {
        Self(task)
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Spawns `future` on `runtime`, until what is returned is dropped; its result is awaited there.
pub fn spawn_until_dropped<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> AbortOnDrop<T> {
    AbortOnDrop::new(spawn_with_result(runtime, future))
}

/// Runs `future` on a thread of `runtime` for work that blocks: each of its turns may take long. It runs to its end also if nobody
/// waits for it any more.
pub fn spawn_on_blocking_pool<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let (driver, future) = (runtime.clone(), boxed(future));
    runtime.spawn_blocking(move || driver.block_on(future))
}

/// The same on the current runtime. A panic in `future` is one of the caller.
pub async fn on_blocking_pool<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    match spawn_on_blocking_pool(&Handle::current(), future).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Not generic, so it is compiled here for all crates.
fn spawn_boxed(runtime: &Handle, task: BoxedTask) -> JoinHandle<()> {
    runtime.spawn(counted_on_control(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_result_of_a_task_can_be_awaited() {
        let runtime = Handle::current();
        assert_eq!(spawn_with_result(&runtime, async { 7 }).await.unwrap(), 7);
        assert!(spawn(&runtime, async {}).await.is_ok());
    }

    #[tokio::test]
    async fn a_task_ends_with_whoever_waits_for_it() {
        let runtime = Handle::current();
        let task = spawn_until_dropped(&runtime, async { 7 });
        assert_eq!(task.await.unwrap(), 7);
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let task = spawn_until_dropped(&runtime, async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        tokio::task::yield_now().await;
        drop(task);
        assert!(receiver.await.is_err(), "the task and its sender are gone");
    }

    #[tokio::test]
    async fn work_of_the_blocking_pool_is_on_another_thread_and_its_panic_here() {
        let here = std::thread::current().id();
        let there = on_blocking_pool(async {
            tokio::task::yield_now().await;
            std::thread::current().id()
        });
        assert_ne!(here, there.await);
        let failing = on_blocking_pool(async { assert_eq!(1 + 1, 3, "for the test") });
        let failed = spawn_with_result(&Handle::current(), failing).await;
        assert!(failed.unwrap_err().is_panic());
    }
}
