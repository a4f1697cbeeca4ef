//! Threads for what takes long: reading large bodies, and evaluating by costly policies.
//!
//! Their priority is lower than that of data cores, so that requests that need none of this are served as if nothing were
//! done here. Users take turns: expensive requests delay only their own user. How many bytes are decoded at a time is bounded,
//! however many threads there are.

use std::{
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, PoisonError},
};

use fairgate_base::{account::TurnQueue, background, stack};
use fairgate_core::sync::{Mutex, lock};
use tokio::sync::oneshot;

use crate::limits::body_budget::MAX_BODY;

/// The size in bytes of texts above which they are not read on a data core.
pub(crate) const LARGE: usize = 32 << 10;
/// How many bytes may be decoded at a time, unless one body alone is longer. Decoded, they take up to some hundred times as
/// much memory.
const DECODED_BYTES: usize = MAX_BODY;

/// What a thread is to do.
struct PooledWork {
    run: Box<dyn FnOnce() + Send>,
    /// How many bytes are decoded for it.
    bytes: usize,
}

/// The threads. They are started when there is work for them, and end when this is dropped.
pub struct WorkerPool {
    shared: Arc<WorkerShared>,
    limit: usize,
}

#[derive(Default)]
struct WorkerShared {
    queue: Mutex<WorkQueue>,
    arrived: Condvar,
}

/// Work that waits for a thread.
#[derive(Default)]
struct WorkQueue {
    waiting: TurnQueue<PooledWork>,
    threads: usize,
    /// Threads without work.
    idle: usize,
    /// The bytes of work that is being done.
    decoded: usize,
    is_closed: bool,
}

impl WorkQueue {
    /// The first work of the user whose turn it is. Work for which too much is decoded at the moment keeps its turn; until it
    /// is done, only work without bytes goes before it.
    fn take(&mut self) -> Option<PooledWork> {
        let mut room = match self.decoded {
            0 => usize::MAX,
            decoded => DECODED_BYTES.saturating_sub(decoded),
        };
        let work = self.waiting.pop_if(|work| {
            if work.bytes > room {
                room = 0;
            }
            work.bytes <= room
        })?;
        self.decoded += work.bytes;
        Some(work)
    }
}

impl WorkerPool {
    /// At most `limit` threads; at least 1.
    pub fn new(limit: usize) -> Self {
        Self {
            shared: Arc::default(),
            limit: limit.max(1),
        }
    }

    /// Has a thread do work for a user, in the user's turn; `bytes` are decoded for it. Work that has begun is done to its
    /// end, also if nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// Why it was not done.
    pub async fn run<T: Send + 'static>(
        &self,
        user: &str,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let (sender, done) = oneshot::channel::<T>();
        let run = Box::new(move || {
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        });
        self.push(user, PooledWork { run, bytes })?;
        done.await.map_err(|_| "a worker thread failed".to_owned())
    }

    fn push(&self, user: &str, work: PooledWork) -> Result<(), String> {
        let mut queue = lock(&self.shared.queue);
        if queue.waiting.len() >= queue.idle && queue.threads < self.limit {
            let shared = Arc::clone(&self.shared);
            let name = format!("admission-{}", queue.threads);
            let started = stack::thread(name).spawn(move || {
                background::lower_priority();
                background::use_own_memory();
                shared.work();
            });
            match started {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => return Err(error.to_string()),
                // The other threads do it.
                Err(_) => {}
            }
        }
        queue.waiting.push(user, 1, work);
        drop(queue);
        self.shared.arrived.notify_one();
        Ok(())
    }
}

impl WorkerShared {
    /// Does what there is to do, until the pool is dropped.
    fn work(&self) {
        let mut queue = lock(&self.queue);
        while !queue.is_closed {
            if let Some(work) = queue.take() {
                drop(queue);
                // Who waits for it learns that it failed; the thread goes on.
                let _ = catch_unwind(AssertUnwindSafe(work.run));
                queue = lock(&self.queue);
                queue.decoded -= work.bytes;
                if work.bytes > 0 && !queue.waiting.is_empty() {
                    // There may be room for what another thread has left.
                    self.arrived.notify_one();
                }
                continue;
            }
            queue.idle += 1;
            let woken = self.arrived.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.is_closed = true;
        let undone = mem::take(&mut queue.waiting);
        drop(queue);
        drop(undone);
        self.shared.arrived.notify_all();
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        task::Poll,
    };

    use super::*;

    #[tokio::test]
    async fn users_take_turns_and_nobody_waits_behind_all_work_of_another() {
        let pool = WorkerPool::new(1);
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let mut held = Box::pin(pool.run("busy", 0, move || {
            begun.send(()).unwrap();
            ends.recv()
        }));
        begin(&mut held).await;
        begins.recv().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let work = |user: &'static str, number: usize| {
            let order = Arc::clone(&order);
            pool.run(user, 0, move || lock(&order).push((user, number)))
        };
        let busy = (0..3).map(|number| work("busy", number));
        let mut all: Vec<_> = busy.chain([work("quiet", 0)]).map(Box::pin).collect();
        for one in &mut all {
            begin(one).await;
        }
        end.send(()).unwrap();
        held.await.unwrap().unwrap();
        for one in all {
            one.await.unwrap();
        }
        let expected = [("busy", 0), ("quiet", 0), ("busy", 1), ("busy", 2)];
        assert_eq!(*lock(&order), expected);
    }

    /// Has the work wait for its turn.
    async fn begin<F: Future>(work: &mut Pin<Box<F>>) {
        let once = std::future::poll_fn(|cx| {
            assert!(work.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        });
        once.await;
    }

    #[test]
    fn only_so_much_is_decoded_at_a_time_and_nothing_goes_before_what_waits_for_room() {
        let mut queue = WorkQueue::default();
        for (user, bytes) in [
            ("a", DECODED_BYTES),
            ("b", 0),
            ("c", DECODED_BYTES + 1),
            ("d", 1),
            ("e", 0),
        ] {
            let run = Box::new(|| ());
            queue.waiting.push(user, 1, PooledWork { run, bytes });
        }
        let mut taken = || queue.take().map(|work| work.bytes);
        assert_eq!(taken(), Some(DECODED_BYTES));
        assert_eq!([taken(), taken(), taken()], [Some(0), Some(0), None]);
        queue.decoded = 1;
        assert!(queue.take().is_none(), "the third one is first");
        queue.decoded = 0;
        let mut taken = || queue.take().map(|work| work.bytes);
        assert_eq!([taken(), taken()], [Some(DECODED_BYTES + 1), None]);
        queue.decoded = 0;
        assert_eq!(queue.take().map(|work| work.bytes), Some(1));
        assert!(queue.waiting.is_empty());
    }

    #[tokio::test]
    async fn work_that_fails_is_an_error_and_the_thread_goes_on() {
        let pool = WorkerPool::new(1);
        let failed = pool.run("a", 0, || -> () { panic!("expected") }).await;
        assert_eq!(failed, Err("a worker thread failed".to_owned()));
        let threads = |pool: &WorkerPool| lock(&pool.shared.queue).threads;
        assert_eq!(pool.run("a", 0, || 7).await, Ok(7));
        assert_eq!(threads(&pool), 1);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_left_out() {
        let pool = WorkerPool::new(1);
        let (end, ends) = mpsc::channel::<()>();
        let mut held = Box::pin(pool.run("a", 0, move || ends.recv()));
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let mut left = Box::pin(pool.run("b", 0, move || done.store(true, Ordering::Relaxed)));
        begin(&mut held).await;
        begin(&mut left).await;
        drop(left);
        end.send(()).unwrap();
        held.await.unwrap().unwrap();
        assert_eq!(pool.run("c", 0, || 7).await, Ok(7));
        assert!(!is_done.load(Ordering::Relaxed));
    }
}
