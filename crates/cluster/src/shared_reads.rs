//! Reads that requests share without ever getting an answer that is older than their question.
//!
//! A read may only be shared by those who asked before it began. So for each thing that is read there are at most two reads: one that
//! runs, and one that begins when it ends, for all who have asked since. A thing that a thousand requests ask for at once is read
//! twice.
//!
//! Not here: what is read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fairgate_admission::LookupLack;
use fairgate_base::tasks;
use fairgate_core::sync::{Mutex, lock};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};

/// How many reads run at a time.
const MAX_RUNNING: usize = 32;
/// How many things are read, or wait to be.
const MAX_KEYS: usize = 4096;
/// How long somebody waits for a read, those before it included.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

type ReadResult<T> = Option<T>;

/// The end of a read, which is yet to come.
type Ending<T> = watch::Receiver<ReadResult<T>>;

/// Reads of things of one type.
#[derive(Debug)]
pub(crate) struct SharedReads<T> {
    control: Handle,
    running: Semaphore,
    /// By key, for what is being read: the read after that, if anybody waits for it.
    next: Mutex<HashMap<String, Option<NextRead<T>>>>,
}

#[derive(Debug)]
struct NextRead<T> {
    done: watch::Sender<ReadResult<T>>,
    ending: Ending<T>,
}

impl<T> NextRead<T> {
    fn new() -> Self {
        let (done, ending) = watch::channel(None);
        Self { done, ending }
    }
}

impl<T: Clone + Send + Sync + 'static> SharedReads<T> {
    /// Reads run on `control`.
    pub(crate) fn new(control: Handle) -> Arc<Self> {
        Arc::new(Self {
            control,
            running: Semaphore::new(MAX_RUNNING),
            next: Mutex::default(),
        })
    }

    /// What a read of `key` yields that begins after this call. `read` is the same for all calls with this key, and ends within seconds.
    ///
    /// # Errors
    ///
    /// Too many wait, or it takes too long.
    pub(crate) async fn read<F>(
        self: &Arc<Self>,
        key: String,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T, LookupLack>
    where
        F: Future<Output = T> + Send,
    {
        let mut ending = self.ending(key, read)?;
        let waiting = tokio::time::timeout(WAIT_LIMIT, ending.wait_for(Option::is_some));
        let ended = waiting.await.map_err(|_| LookupLack::Time)?;
        let result = ended.ok().and_then(|result| result.clone());
        result.ok_or_else(|| LookupLack::Server("the gateway stops".to_owned()))
    }

    fn ending<F>(
        self: &Arc<Self>,
        key: String,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Ending<T>, LookupLack>
    where
        F: Future<Output = T> + Send,
    {
        let mut next = lock(&self.next);
        if let Some(next) = next.get_mut(&key) {
            let next = next.get_or_insert_with(NextRead::new);
            return Ok(next.ending.clone());
        }
        if next.len() >= MAX_KEYS {
            let why = "too many namespaces and params are being read";
            return Err(LookupLack::Server(why.to_owned()));
        }
        next.insert(key.clone(), None);
        let first = NextRead::new();
        let ending = first.ending;
        let mut task = ReadTask {
            reads: Arc::clone(self),
            key,
            has_ended: false,
        };
        tasks::spawn(&self.control, async move {
            task.run(first.done, read).await;
        });
        Ok(ending)
    }
}

/// Reads one thing until nobody waits for it any more.
struct ReadTask<T> {
    reads: Arc<SharedReads<T>>,
    key: String,
    has_ended: bool,
}

impl<T> Drop for ReadTask<T> {
    fn drop(&mut self) {
        // Who waits is told that nothing comes any more.
        if !self.has_ended {
            lock(&self.reads.next).remove(&self.key);
        }
    }
}

impl<T: Clone + Send + Sync + 'static> ReadTask<T> {
    async fn run<F>(
        &mut self,
        mut done: watch::Sender<ReadResult<T>>,
        read: impl Fn() -> F + Send + Sync,
    ) where
        F: Future<Output = T> + Send,
    {
        loop {
            let running = self.reads.running.acquire().await;
            // Nobody may be waiting any more.
            if !done.is_closed() {
                done.send_replace(Some(read().await));
            }
            drop(running);
            let mut next = lock(&self.reads.next);
            let Some(waited_for) = next.get_mut(&self.key).and_then(Option::take) else {
                next.remove(&self.key);
                self.has_ended = true;
                return;
            };
            done = waited_for.done;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// Something that is read, and changes.
    #[derive(Debug)]
    struct Counted {
        value: AtomicUsize,
        reads: AtomicUsize,
        may_end: Semaphore,
    }

    impl Counted {
        async fn read(&self) -> usize {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let value = self.value.load(Ordering::SeqCst);
            self.may_end.acquire().await.unwrap().forget();
            value
        }
    }

    #[tokio::test]
    async fn nobody_gets_what_was_read_before_they_asked_and_all_who_wait_share_one_read() {
        let counted = Arc::new(Counted {
            value: AtomicUsize::new(1),
            reads: AtomicUsize::new(0),
            may_end: Semaphore::new(0),
        });
        let reads = SharedReads::new(Handle::current());
        let ask = || {
            let (reads, counted) = (Arc::clone(&reads), Arc::clone(&counted));
            tokio::spawn(async move {
                let read = move || {
                    let counted = Arc::clone(&counted);
                    async move { counted.read().await }
                };
                reads.read("key".to_owned(), read).await
            })
        };
        let first = ask();
        while counted.reads.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // The read has begun, and has seen the old value.
        counted.value.store(2, Ordering::SeqCst);
        let later: Vec<_> = (0..100).map(|_| ask()).collect();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(counted.reads.load(Ordering::SeqCst), 1);
        counted.may_end.add_permits(2);
        assert_eq!(first.await.unwrap(), Ok(1));
        for one in later {
            assert_eq!(one.await.unwrap(), Ok(2));
        }
        assert_eq!(counted.reads.load(Ordering::SeqCst), 2);
        while !lock(&reads.next).is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn so_many_things_are_read_at_a_time_and_no_more_wait() {
        let reads = SharedReads::<()>::new(Handle::current());
        let running = Arc::new(AtomicUsize::new(0));
        let mut waiting = Vec::new();
        for key in 0..MAX_KEYS {
            let running = Arc::clone(&running);
            let read = move || {
                running.fetch_add(1, Ordering::SeqCst);
                std::future::pending()
            };
            waiting.push(reads.ending(key.to_string(), read).unwrap());
        }
        let more = reads.ending("more".to_owned(), std::future::pending);
        assert!(matches!(more, Err(LookupLack::Server(_))));
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(running.load(Ordering::SeqCst), MAX_RUNNING);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_read() {
        let reads = SharedReads::<()>::new(Handle::current());
        let begun = Arc::new(AtomicUsize::new(0));
        for key in 0..100 {
            let begun = Arc::clone(&begun);
            let read = move || {
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            };
            drop(reads.ending(key.to_string(), read).unwrap());
        }
        while !lock(&reads.next).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(Ordering::SeqCst), 0);
    }
}
