//! How long the tasks of a data core keep it to themselves.
//!
//! A data core serves many connections in turn, so a task that computes for long makes all others wait. This counts
//! such turns by the processor time of the thread, which, unlike the clock, does not run on while other processes have the core. It
//! is a check for tests: it costs two system calls a turn, and is off unless the environment variable
//! [`COUNT_TURNS`] is `1` when the process starts. Then [`counts`] says what was found.
//!
//! The turns of the tasks of the control runtime ([`tasks`](crate::tasks)) are counted always, since there are few: [`control_counts`].
//!
//! Not here: work that is no task, such as that of a runtime's root future, and tasks that libraries spawn.

use std::{
    cell::Cell,
    pin::Pin,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;

use crate::clock::TurnGuard;

/// The environment variable that switches counting on.
pub const COUNT_TURNS: &str = "FAIRGATE_COUNT_TURNS";

/// A turn that takes more processor time is a long one.
pub const LONG: Duration = Duration::from_millis(20);

/// The turns of all data cores since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounts {
    /// All of them.
    pub turns: u64,
    /// Those longer than [`LONG`].
    pub long: u64,
    /// The longest.
    pub longest: Duration,
}

/// Spawns `future` on the current thread, and counts its turns if that is switched on. Panics outside a `LocalSet` and a
/// local runtime.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let counted = CountedTurns {
        future: Some(future),
        counter: COUNTER.as_ref(),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "everything else spawns through this function"
    )]
    tokio::task::spawn_local(counted)
}

/// The same for tasks that few requests start: the future is boxed, so that the runtime's code for tasks is not compiled anew for its
/// type (see [`tasks`](crate::tasks)).
pub fn spawn_local_boxed(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    spawn_hidden(Box::pin(future))
}

/// Not generic, so it is compiled here for all crates.
fn spawn_hidden(future: Pin<Box<dyn Future<Output = ()>>>) -> JoinHandle<()> {
    spawn_local(future)
}

/// A turn of the control runtime that takes more processor time is a long one.
pub const LONG_CONTROL_TURN: Duration = Duration::from_millis(10);

/// Counts the turns of the tasks of the current thread as those of the control runtime.
pub fn count_control_turns() {
    COUNTS_CONTROL.set(true);
}

/// What was counted on the control runtime.
pub fn control_counts() -> TurnCounts {
    CONTROL.counts()
}

/// A task whose turns are counted if it runs on the control runtime.
pub(crate) fn counted_on_control<T>(
    mut task: Pin<Box<dyn Future<Output = T> + Send>>,
) -> impl Future<Output = T> + Send {
    std::future::poll_fn(move |cx| {
        if !COUNTS_CONTROL.get() {
            return task.as_mut().poll(cx);
        }
        let begun = thread_cpu_time();
        let polled = task.as_mut().poll(cx);
        let took = thread_cpu_time().saturating_sub(begun);
        CONTROL.add(took, LONG_CONTROL_TURN);
        polled
    })
}

thread_local! {
    static COUNTS_CONTROL: Cell<bool> = const { Cell::new(false) };
}

static CONTROL: TurnCounter = TurnCounter::new();

/// What was counted; nothing unless that is switched on.
pub fn counts() -> TurnCounts {
    COUNTER
        .as_ref()
        .map(TurnCounter::counts)
        .unwrap_or_default()
}

static COUNTER: LazyLock<Option<TurnCounter>> = LazyLock::new(|| {
    let is_on = std::env::var_os(COUNT_TURNS).is_some_and(|value| value == "1");
    is_on.then(TurnCounter::default)
});

#[derive(Debug, Default)]
struct TurnCounter {
    turns: AtomicU64,
    long: AtomicU64,
    longest_nanos: AtomicU64,
}

impl TurnCounter {
    const fn new() -> Self {
        Self {
            turns: AtomicU64::new(0),
            long: AtomicU64::new(0),
            longest_nanos: AtomicU64::new(0),
        }
    }

    fn add(&self, took: Duration, long: Duration) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.long
            .fetch_add(u64::from(took > long), Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    fn counts(&self) -> TurnCounts {
        TurnCounts {
            turns: self.turns.load(Ordering::Relaxed),
            long: self.long.load(Ordering::Relaxed),
            longest: Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed)),
        }
    }
}

pin_project! {
    /// A future whose turns are counted.
    struct CountedTurns<F> {
        // Freed in its last turn: that may take long, too.
        #[pin]
        future: Option<F>,
        counter: Option<&'static TurnCounter>,
    }
}

impl<F: Future> Future for CountedTurns<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _turn = TurnGuard::begin();
        let Some(counter) = self.counter else {
            return self.poll_once(cx);
        };
        let begun = thread_cpu_time();
        let polled = self.as_mut().poll_once(cx);
        counter.add(thread_cpu_time().saturating_sub(begun), LONG);
        polled
    }
}

impl<F: Future> CountedTurns<F> {
    fn poll_once(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut future = self.project().future;
        let Some(running) = future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let polled = running.poll(cx);
        if polled.is_ready() {
            future.set(None);
        }
        polled
    }
}

/// The processor time of the current thread.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes for so much processor time in one turn.
    fn compute(time: Duration) {
        let begun = thread_cpu_time();
        while thread_cpu_time().saturating_sub(begun) < time {
            std::hint::spin_loop();
        }
    }

    /// The counts of a task that does `work` in its second turn, and `on_drop` when it is freed.
    async fn counted(work: Duration, on_drop: Duration) -> TurnCounts {
        struct OnDrop(Duration);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                compute(self.0);
            }
        }
        let counter: &'static TurnCounter = Box::leak(Box::default());
        let held = OnDrop(on_drop);
        let future = async move {
            tokio::task::yield_now().await;
            compute(work);
            drop(held);
        };
        let counted = CountedTurns {
            future: Some(future),
            counter: Some(counter),
        };
        counted.await;
        counter.counts()
    }

    #[tokio::test]
    async fn turns_are_counted_by_the_processor_time_that_they_take() {
        let brief = counted(Duration::ZERO, Duration::ZERO).await;
        assert_eq!(brief.turns, 2);
        let long = counted(2 * LONG, Duration::ZERO).await;
        assert!(long.long >= 1 && long.longest > LONG, "{long:?}");
        let freed = counted(Duration::ZERO, 2 * LONG).await;
        assert!(freed.long >= 1, "{freed:?}");
    }

    #[test]
    fn turns_of_the_control_runtime_are_counted_always() {
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(count_control_turns)
            .build()
            .unwrap();
        let before = control_counts();
        let long = || counted_on_control(Box::pin(async { compute(2 * LONG_CONTROL_TURN) }));
        control.block_on(control.spawn(long())).unwrap();
        let after = control_counts();
        assert!(
            after.turns > before.turns && after.long > before.long,
            "{after:?}"
        );
        assert!(after.longest > LONG_CONTROL_TURN);
        // Elsewhere nothing is.
        let other = tokio::runtime::Runtime::new().unwrap();
        other.block_on(other.spawn(long())).unwrap();
        assert_eq!(control_counts(), after);
    }

    #[tokio::test]
    async fn nothing_is_counted_unless_that_is_switched_on() {
        let local = tokio::task::LocalSet::new();
        let spawned = local.run_until(async { spawn_local(async { 7 }).await });
        assert_eq!(spawned.await.unwrap(), 7);
        assert_eq!(counts(), TurnCounts::default());
    }
}
