//! Reads that requests share without ever getting an answer that is older than their question.
//!
//! A read may only be shared by those who asked before it began. So for each thing that is read there are at most two reads: one that
//! runs, and one that begins when it ends, for all who have asked since. A thing that a thousand requests ask for at once is read
//! twice.
//!
//! A read waits for its turn ([`HeavyTurns`]). It has one of each user who waits for it, and begins with the first of them: who asks
//! for something that a user with a thousand other reads has asked for does not wait for these.
//!
//! Not here: what is read.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use fairgate_admission::LookupLack;
use fairgate_base::{
    account::{ByteBudget, ByteShare, HeavyTurns},
    tasks,
};
use fairgate_core::sync::{Mutex, lock};
use tokio::{runtime::Handle, sync::watch};

/// How many turns of users are waited for. A user may have at most as many as are still free.
const MAX_WAITING: usize = 4096;
/// How long somebody waits for a read, those before it included.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

type ReadResult<T> = Option<T>;

/// The end of a read, which is yet to come.
type Ending<T> = watch::Receiver<ReadResult<T>>;

/// Reads of things of one type.
#[derive(Debug)]
pub(crate) struct SharedReads<T> {
    control: Handle,
    turns: HeavyTurns,
    /// Counts places instead of bytes.
    waiting: Arc<ByteBudget>,
    known: Mutex<KnownReads<T>>,
}

#[derive(Debug)]
struct KnownReads<T> {
    /// Those of things that are read, or wait for it.
    by_key: HashMap<String, ReadsOfKey<T>>,
    /// The number of the next read.
    number: u64,
}

/// The reads of one thing.
#[derive(Debug)]
struct ReadsOfKey<T> {
    running: Option<Ending<T>>,
    next: Option<NextRead<T>>,
}

/// A read that has not begun.
#[derive(Debug)]
struct NextRead<T> {
    number: u64,
    done: watch::Sender<ReadResult<T>>,
    ending: Ending<T>,
    /// Those in whose turn it may begin.
    users: HashSet<String>,
}

impl<T> NextRead<T> {
    fn new(number: u64) -> Self {
        let (done, ending) = watch::channel(None);
        Self {
            number,
            done,
            ending,
            users: HashSet::new(),
        }
    }
}

impl<T> Default for ReadsOfKey<T> {
    fn default() -> Self {
        Self {
            running: None,
            next: None,
        }
    }
}

impl<T: Clone + Send + Sync + 'static> SharedReads<T> {
    /// Reads run on `control`, in these turns.
    pub(crate) fn new(control: Handle, turns: HeavyTurns) -> Arc<Self> {
        Arc::new(Self {
            control,
            turns,
            waiting: ByteBudget::new(MAX_WAITING),
            known: Mutex::new(KnownReads {
                by_key: HashMap::new(),
                number: 0,
            }),
        })
    }

    /// What a read of `key` yields that begins after this call, in the turn of `user` or of another one who waits for it. `read` is the same for all calls with this key, and ends within seconds.
    ///
    /// # Errors
    ///
    /// Too many wait for this user, or it takes too long.
    pub(crate) async fn read<F>(
        self: &Arc<Self>,
        user: &str,
        key: String,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T, LookupLack>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut ending = self.ending(user, key, read)?;
        let waiting = tokio::time::timeout(WAIT_LIMIT, ending.wait_for(Option::is_some));
        let ended = waiting.await.map_err(|_| LookupLack::Time)?;
        let result = ended.ok().and_then(|result| result.clone());
        result.ok_or_else(|| LookupLack::Server("the gateway stops".to_owned()))
    }

    fn ending<F>(
        self: &Arc<Self>,
        user: &str,
        key: String,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Ending<T>, LookupLack>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut known = lock(&self.known);
        let next = known.by_key.get(&key).and_then(|of| of.next.as_ref());
        if let Some(next) = next.filter(|next| next.users.contains(user)) {
            return Ok(next.ending.clone());
        }
        let mut place = self.waiting.share(user);
        if !place.take(1) {
            return Err(LookupLack::Place);
        }
        let known = &mut *known;
        let of_key = known.by_key.entry(key.clone()).or_default();
        let next = of_key.next.get_or_insert_with(|| {
            known.number += 1;
            NextRead::new(known.number)
        });
        next.users.insert(user.to_owned());
        let ending = next.ending.clone();
        let waiting = WaitingUser {
            reads: Arc::clone(self),
            key,
            number: next.number,
            before: of_key.running.clone(),
            place,
        };
        tasks::spawn(&self.control, waiting.run(read));
        Ok(ending)
    }

    /// Begins the next read of a key if it is the one of this number, and somebody still waits for it.
    fn begin(self: &Arc<Self>, key: &str, number: u64) -> Option<RunningRead<T>> {
        let mut known = lock(&self.known);
        let of_key = known.by_key.get_mut(key)?;
        let NextRead { done, ending, .. } = of_key.next.take_if(|next| next.number == number)?;
        drop(ending);
        if done.is_closed() {
            known.by_key.remove(key);
            return None;
        }
        of_key.running = Some(done.subscribe());
        let of = OfRunning {
            reads: Arc::clone(self),
            key: key.to_owned(),
        };
        Some(RunningRead { done, of })
    }
}

/// A user whose turn a read waits for.
struct WaitingUser<T> {
    reads: Arc<SharedReads<T>>,
    key: String,
    /// The number of the read.
    number: u64,
    /// The end of the read before it.
    before: Option<Ending<T>>,
    place: ByteShare,
}

impl<T: Clone + Send + Sync + 'static> WaitingUser<T> {
    async fn run<F>(mut self, read: impl Fn() -> F + Send + Sync)
    where
        F: Future<Output = T> + Send,
    {
        if let Some(mut before) = self.before.take() {
            // If it broke off, it has ended, too.
            let _ = before.wait_for(Option::is_some).await;
        }
        let turn = self.reads.turns.of(self.place.payer(), 1).await;
        // It may have begun in the turn of another user.
        let Some(running) = self.reads.begin(&self.key, self.number) else {
            return;
        };
        drop(self);
        running.run(read).await;
        drop(turn);
    }
}

/// A read that runs.
struct RunningRead<T> {
    done: watch::Sender<ReadResult<T>>,
    of: OfRunning<T>,
}

impl<T> RunningRead<T> {
    async fn run<F>(self, read: impl Fn() -> F)
    where
        F: Future<Output = T>,
    {
        // A read that has ended must not count as running when somebody is told; locals are dropped in reverse order.
        let Self { done, of } = self;
        let result = read().await;
        drop(of);
        done.send_replace(Some(result));
    }
}

/// That a key is being read.
struct OfRunning<T> {
    reads: Arc<SharedReads<T>>,
    key: String,
}

impl<T> Drop for OfRunning<T> {
    fn drop(&mut self) {
        let mut known = lock(&self.reads.known);
        let Some(of_key) = known.by_key.get_mut(&self.key) else {
            return;
        };
        of_key.running = None;
        if of_key.next.is_none() {
            known.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// How many are read at a time.
    const AT_ONCE: usize = 4;

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
        let reads = SharedReads::new(Handle::current(), HeavyTurns::new(AT_ONCE));
        let ask = |user: &'static str| {
            let (reads, counted) = (Arc::clone(&reads), Arc::clone(&counted));
            tokio::spawn(async move {
                let read = move || {
                    let counted = Arc::clone(&counted);
                    async move { counted.read().await }
                };
                reads.read(user, "key".to_owned(), read).await
            })
        };
        let first = ask("a");
        while counted.reads.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // The read has begun, and has seen the old value.
        counted.value.store(2, Ordering::SeqCst);
        let later: Vec<_> = (0..100).map(|n| ask(["a", "b", "c"][n % 3])).collect();
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
        while !lock(&reads.known).by_key.is_empty() || reads.waiting.held().now > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// A read that is counted when it begins, and never ends.
    fn endless(running: &Arc<AtomicUsize>) -> impl Fn() -> std::future::Pending<()> + use<> {
        let running = Arc::clone(running);
        move || {
            running.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        }
    }

    async fn settled() {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn so_many_things_are_read_at_a_time_and_no_user_takes_the_places_of_others() {
        let reads = SharedReads::<()>::new(Handle::current(), HeavyTurns::new(AT_ONCE));
        let running = Arc::new(AtomicUsize::new(0));
        let mut waiting = Vec::new();
        let most = loop {
            match reads.ending("greedy", waiting.len().to_string(), endless(&running)) {
                Ok(ending) => waiting.push(ending),
                Err(lack) => break lack,
            }
        };
        assert_eq!((waiting.len(), most), (MAX_WAITING / 2, LookupLack::Place));
        let again = reads.ending("greedy", "0".to_owned(), endless(&running));
        assert!(again.is_ok(), "it waits already");
        assert!(
            reads
                .ending("other", "x".to_owned(), endless(&running))
                .is_ok()
        );
        settled().await;
        assert_eq!(running.load(Ordering::SeqCst), AT_ONCE);
    }

    #[tokio::test]
    async fn a_user_with_few_reads_does_not_wait_for_all_of_one_with_many_also_for_the_same_things()
    {
        let reads = SharedReads::new(Handle::current(), HeavyTurns::new(AT_ONCE));
        let begun = Arc::new(AtomicUsize::new(0));
        let may_end = Arc::new(Semaphore::new(0));
        let read = || {
            let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
            move || {
                let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
                async move {
                    let turn = begun.fetch_add(1, Ordering::SeqCst);
                    may_end.acquire().await.unwrap().forget();
                    turn
                }
            }
        };
        let ask = |user, key: usize| reads.ending(user, key.to_string(), read()).unwrap();
        let greedy: Vec<_> = (0..1000).map(|key| ask("greedy", key)).collect();
        settled().await;
        // The last one of the greedy user, and one of its own.
        let mut others = [ask("other", 999), ask("other", 1000)];
        let mut last = ask("third", 999);
        may_end.add_permits(2000);
        for other in &mut others {
            let turn = other.wait_for(Option::is_some).await.unwrap().unwrap();
            assert!(turn < AT_ONCE + 6, "{turn}");
        }
        let shared = last.wait_for(Option::is_some).await.unwrap().unwrap();
        assert_eq!(Some(shared), *others[0].borrow());
        for mut one in greedy {
            one.wait_for(Option::is_some).await.unwrap();
        }
        assert_eq!(begun.load(Ordering::SeqCst), 1001);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_read() {
        let reads = SharedReads::<()>::new(Handle::current(), HeavyTurns::new(AT_ONCE));
        let begun = Arc::new(AtomicUsize::new(0));
        for key in 0..100 {
            let begun = Arc::clone(&begun);
            let read = move || {
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            };
            drop(reads.ending("a", key.to_string(), read).unwrap());
        }
        while !lock(&reads.known).by_key.is_empty() || reads.waiting.held().now > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(Ordering::SeqCst), 0);
    }
}
