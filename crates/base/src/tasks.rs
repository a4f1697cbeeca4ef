//! Spawns tasks that are compiled once.
//!
//! For each type of future, the runtime's code for tasks is compiled anew, and for each kind of scheduler: often more code
//! than the future itself has. Here the future is boxed first, which costs an allocation and hides its type, so that this code is
//! compiled once for each type of result. It is for tasks of the control runtime.
//!
//! Not here: the tasks of data cores ([`turns`](crate::turns)).

use std::pin::Pin;

use tokio::{runtime::Handle, task::JoinHandle};

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
}
