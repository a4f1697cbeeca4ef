//! Lookups with a cache in front and single flight.
//!
//! `LookupCache` is what reviews of tokens and of access have in common. What is known is answered from the
//! cache without waiting. For what is not, one lookup per key is in flight, however many callers wait for it, and
//! it runs to its end even if all of them leave.
//!
//! Clients decide what is looked up, so a flood must not do harm: positive and negative results have caches of
//! their own, so that many of one kind evict none of the other; the lookups that run or wait are bounded in
//! number, and those on whose account they are take turns (`turns`); and keys whose result was positive recently may be looked up in a lane of their own.
//!
//! An error is neither positive nor negative, and is never cached.

mod payer;
mod turn_tree;
mod turns;

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use dashmap::{DashMap, Entry};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
    time::timeout,
};

use crate::cache::{CacheBounds, EntryLife, ExpiringCache};
use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit, tasks};
use fairgate_core::time::Time;

pub(crate) use payer::{LookupPayer, network_and_address};
use turns::{LookupTurns, PendingTurn};

/// How long an account is no stranger after a positive result.
const KNOWN_FOR: Duration = Duration::from_secs(3600);
/// How many accounts are known to be no strangers.
const MOST_KNOWN: usize = 65_536;
/// The maximum number of failures that are logged in 10 s.
const LOGGED_FAILURES: u32 = 5;

/// Why a lookup was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupFailure {
    /// It was not started because too many are pending.
    Overloaded,
    /// It took longer than its time limit.
    TimedOut,
    /// The runtime ended, or the lookup panicked.
    Abandoned,
}

/// The outcome of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOutcome {
    /// The token is valid, or access is allowed.
    Positive,
    /// The token is not valid, or access is denied.
    Negative,
    /// There was no usable response.
    Failed,
}

/// The bounds of reviews and of the cache of their results.
#[derive(Clone, Debug)]
pub struct LookupSettings {
    /// How many positive results are cached, and as many negative ones; at least 1.
    pub max_entries: usize,
    /// How much memory positive results may take, in bytes, and as much negative ones.
    pub max_bytes: usize,
    /// How many reviews run at once; at least 1. As many again may renew results that were positive recently, where
    /// these have a lane of their own.
    pub max_running: usize,
    /// How many reviews may run or wait, not counting those in the separate lane. Of these a user may have at most as many as are still free
    /// others, a network of addresses as well, and one address of it as many as it leaves to its network. Addresses without an accepted
    /// token may have three quarters. Further ones fail immediately.
    pub max_pending: usize,
    /// The limit of a review with all its attempts, waiting for its turn included.
    pub limit: Duration,
    /// Receives the outcome of each review.
    pub events: EventSink<LookupOutcome>,
}

impl LookupSettings {
    /// Settings for at most 32 reviews at once and 1024 pending ones.
    pub(crate) fn new(max_entries: usize, max_bytes: usize, limit: Duration) -> Self {
        Self {
            max_entries,
            max_bytes,
            max_running: 32,
            max_pending: 1_024,
            limit,
            events: EventSink::default(),
        }
    }
}

/// A request whose result is worth caching.
pub(crate) trait Lookup: Send + Sync + 'static {
    /// Whether keys that are remembered as positive are looked up in a lane of their own, so that new keys cannot
    /// hold them up.
    const HAS_RENEWAL_LANE: bool;
    /// Whether accounts without a positive result may have only a part of the lookups, and come after those with one.
    const HAS_STRANGERS: bool;
    /// Identifies equal lookups.
    type Key: Copy + Eq + Hash + Send + Sync + 'static;
    /// The request that a lookup sends.
    type Request: Send + Sync + 'static;
    /// The result of a lookup.
    type Value: Clone + Send + Sync + Unpin + 'static;
    /// Why there is no result.
    type Error: Clone + From<LookupFailure> + Send + Unpin + 'static;

    /// Does the lookup, retries included. Dropped when its time is up.
    fn fetch(
        &self,
        key: &Self::Key,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Value, Self::Error>> + Send;

    /// How long a new result is cached.
    fn retention(&self, request: &Self::Request, value: &Self::Value) -> Retention;

    /// Logs a failure. `left_out` failures before it were not logged.
    fn log_failure(&self, error: &Self::Error, left_out: u64);
}

/// In which cache a value is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    pub(crate) is_positive: bool,
    pub(crate) life: EntryLife,
}

/// A cache that looks up what it does not hold, each key once at a time. Cloning shares it.
pub(crate) struct LookupCache<L: Lookup>(Arc<LookupParts<L>>);

struct LookupParts<L: Lookup> {
    lookup: L,
    settings: LookupSettings,
    clock: Clock,
    runtime: Handle,
    positive: ExpiringCache<L::Key, L::Value>,
    negative: ExpiringCache<L::Key, L::Value>,
    /// The waiters for each key that is being looked up.
    flights: DashMap<L::Key, Waiters<L>>,
    /// Lookups that run or wait, renewals excluded.
    turns: LookupTurns,
    renewals: Semaphore,
    /// The accounts with a positive result, by their keyed hash.
    known: ExpiringCache<u64, ()>,
    hashes: RandomState,
    /// How many failures are logged: clients can cause any number.
    failures: LogLimit,
}

type Waiters<L> = Vec<oneshot::Sender<Result<<L as Lookup>::Value, <L as Lookup>::Error>>>;

impl<L: Lookup> LookupCache<L> {
    /// Lookups run on `runtime`.
    pub(crate) fn new(lookup: L, settings: LookupSettings, clock: Clock, runtime: Handle) -> Self {
        let max_running = settings.max_running.clamp(1, Semaphore::MAX_PERMITS);
        let known = CacheBounds {
            entries: MOST_KNOWN,
            bytes: MOST_KNOWN,
        };
        let bounds = CacheBounds {
            entries: settings.max_entries,
            bytes: settings.max_bytes,
        };
        Self(Arc::new(LookupParts {
            lookup,
            clock,
            runtime,
            positive: ExpiringCache::new(bounds),
            negative: ExpiringCache::new(bounds),
            flights: DashMap::new(),
            turns: LookupTurns::new(max_running, settings.max_pending),
            renewals: Semaphore::new(max_running),
            known: ExpiringCache::new(known),
            hashes: RandomState::new(),
            failures: LogLimit::new(LOGGED_FAILURES),
            settings,
        }))
    }

    pub(crate) fn lookup(&self) -> &L {
        &self.0.lookup
    }

    /// What is known of `key` at `now`; neither waits nor allocates.
    pub(crate) fn cached(&self, key: &L::Key, now: Time) -> Option<L::Value> {
        self.0.cached(key, now)
    }

    /// Whether the last result for `key` was positive and is remembered, for longer than it is valid.
    pub(crate) fn was_positive(&self, key: &L::Key) -> bool {
        self.0.positive.contains(key)
    }

    /// The result for `key`: what is known, that of the lookup in flight, or else of a new one, which sends
    /// `request`, on the account of its payer.
    pub(crate) fn get(
        &self,
        key: L::Key,
        payer_of: impl FnOnce() -> LookupPayer,
        request: impl FnOnce() -> L::Request,
    ) -> PendingLookup<L::Value, L::Error> {
        let parts = &self.0;
        let done = |result| PendingLookup(LookupState::Done(Some(result)));
        let is_renewal = L::HAS_RENEWAL_LANE && parts.positive.contains(&key);
        let (sender, receiver) = oneshot::channel();
        let (account, pending);
        match parts.flights.entry(key) {
            Entry::Occupied(mut flight) => {
                flight.get_mut().push(sender);
                return PendingLookup(LookupState::Waiting(receiver));
            }
            Entry::Vacant(flight) => {
                // It may have been cached between the caller's cache look-up and this one.
                if let Some(value) = parts.cached(&key, parts.clock.now()) {
                    return done(Ok(value));
                }
                let payer = payer_of();
                account = parts.hashes.hash_one(payer.account());
                let is_stranger = L::HAS_STRANGERS && !parts.known.contains(&account);
                pending = if is_renewal {
                    None
                } else {
                    match parts.turns.begin(payer, is_stranger) {
                        None => return done(Err(LookupFailure::Overloaded.into())),
                        pending => pending,
                    }
                };
                flight.insert(vec![sender]);
            }
        }
        // The entry's lock is free again: on a runtime that has ended, spawning drops the flight, which takes it.
        let flight = Flight {
            parts: Arc::clone(parts),
            key,
            account,
            pending,
            outcome: LookupOutcome::Failed,
            result: None,
        };
        tasks::spawn(&parts.runtime, flight.run(request()));
        PendingLookup(LookupState::Waiting(receiver))
    }

    /// How many lookups run or wait, and the most that ever did; without those of the lane of their own.
    pub(crate) fn pending(&self) -> [usize; 2] {
        let turns = &self.0.turns;
        [turns.pending(), turns.most_pending()]
    }

    /// Whether nothing runs or waits.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.0.turns.pending() == 0 && self.0.flights.is_empty()
    }

    /// The number of positive and of negative results in the cache, expired ones included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.0.positive.len(), self.0.negative.len())
    }
}

/// The result of a lookup. Dropping it leaves the lookup running.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct PendingLookup<V, E>(LookupState<V, E>);

#[derive(Debug)]
enum LookupState<V, E> {
    Done(Option<Result<V, E>>),
    Waiting(oneshot::Receiver<Result<V, E>>),
}

impl<L: Lookup> LookupParts<L> {
    fn cached(&self, key: &L::Key, now: Time) -> Option<L::Value> {
        let positive = self.positive.get(key, now);
        positive.or_else(|| self.negative.get(key, now))
    }

    fn no_stranger(&self, account: u64) {
        let life = EntryLife {
            ttl: KNOWN_FOR,
            remembered: KNOWN_FOR,
            bytes: 1,
        };
        self.known.put(account, (), self.clock.now(), life);
    }

    fn keep(&self, key: L::Key, value: L::Value, retention: Retention) {
        let (into, other) = if retention.is_positive {
            (&self.positive, &self.negative)
        } else {
            (&self.negative, &self.positive)
        };
        // Removed first: for a moment nothing is known of the key, but never two things.
        other.remove(&key);
        into.put(key, value, self.clock.now(), retention.life);
    }
}

/// A lookup in progress. However it ends, its waiters are notified.
struct Flight<L: Lookup> {
    parts: Arc<LookupParts<L>>,
    key: L::Key,
    /// The hash of the account on which it is.
    account: u64,
    /// `None` if it is in the lane of renewals.
    pending: Option<PendingTurn>,
    outcome: LookupOutcome,
    /// How it ended, once it has.
    result: Option<Result<L::Value, L::Error>>,
}

impl<L: Lookup> Flight<L> {
    async fn run(mut self, request: L::Request) {
        let parts = Arc::clone(&self.parts);
        let fetch = async {
            let (_turn, _renewal);
            if let Some(pending) = &self.pending {
                let turn = pending.turn().await;
                _turn = turn.ok_or(LookupFailure::Overloaded)?;
            } else {
                let turn = parts.renewals.acquire().await;
                _renewal = turn.map_err(|_closed| LookupFailure::Abandoned)?;
            }
            parts.lookup.fetch(&self.key, &request).await
        };
        let result = timeout(parts.settings.limit, fetch)
            .await
            .unwrap_or_else(|_elapsed| Err(LookupFailure::TimedOut.into()));
        match &result {
            Ok(value) => {
                let retention = parts.lookup.retention(&request, value);
                if L::HAS_STRANGERS && retention.is_positive {
                    parts.no_stranger(self.account);
                }
                self.outcome = if retention.is_positive {
                    LookupOutcome::Positive
                } else {
                    LookupOutcome::Negative
                };
                // Before the flight ends: the next caller must find the value in the cache.
                parts.keep(self.key, value.clone(), retention);
            }
            Err(error) => {
                if let Some(left_out) = parts.failures.next_line(parts.clock.now()) {
                    parts.lookup.log_failure(error, left_out);
                }
            }
        }
        self.result = Some(result);
    }
}

impl<L: Lookup> Drop for Flight<L> {
    fn drop(&mut self) {
        let parts = &self.parts;
        // The turn is free before the waiters are woken, since they may ask for something else at once.
        self.pending = None;
        let result = self.result.take();
        let result = result.unwrap_or_else(|| Err(LookupFailure::Abandoned.into()));
        parts.settings.events.send(self.outcome);
        if let Some((_, waiters)) = parts.flights.remove(&self.key) {
            for waiter in waiters {
                let _ = waiter.send(result.clone()); // fails for waiters that have left
            }
        }
    }
}

impl<V: Unpin, E: From<LookupFailure> + Unpin> Future for PendingLookup<V, E> {
    type Output = Result<V, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let abandoned = || Err(LookupFailure::Abandoned.into());
        match &mut self.0 {
            LookupState::Done(result) => Poll::Ready(result.take().unwrap_or_else(abandoned)),
            LookupState::Waiting(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|result| result.unwrap_or_else(|_closed| abandoned())),
        }
    }
}

impl<L: Lookup> Clone for LookupCache<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
